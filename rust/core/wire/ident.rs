// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Numbers that peers see and must not be able to guess: QPNs and memory keys.
//!
//! A table gives out small indices in order; what goes on the wire is a keyed permutation of the
//! index. So numbers look random and never collide, and finding the object is one table look-up
//! without a hash. Knowing some numbers tells little about others, which is what attacks that
//! guess the neighbour's key need ("ReDMArk", USENIX Security 2021); of QPNs it tells the range of
//! a few others ([`RangedPermutation24`]).

/// Rounds of a network, and words of its key.
const ROUNDS: usize = 6;

/// A keyed permutation: a Feistel network of two halves of `HALF` bits.
#[derive(Clone, Copy)]
struct Network<const HALF: u32> {
    keys: [u64; ROUNDS],
}

impl<const HALF: u32> Network<HALF> {
    const MASK: u32 = 1u32.wrapping_shl(HALF).wrapping_sub(1);

    /// Mixes one half under a round key (the finaliser of MurmurHash3 has full avalanche).
    const fn round(half: u32, key: u64) -> u32 {
        let mut x = (half as u64) ^ key;
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        ((x ^ (x >> 33)) as u32) & Self::MASK
    }

    /// Where the low bits of a value go, by another permutation for each `tweak`.
    #[inline]
    fn there(&self, value: u32, tweak: u64) -> u32 {
        let mut left = (value >> HALF) & Self::MASK;
        let mut right = value & Self::MASK;
        for key in &self.keys {
            (left, right) = (right, left ^ Self::round(right, *key ^ tweak));
        }
        (left << HALF) | right
    }

    /// The inverse of [`Self::there`].
    #[inline]
    fn back(&self, value: u32, tweak: u64) -> u32 {
        let mut left = (value >> HALF) & Self::MASK;
        let mut right = value & Self::MASK;
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ Self::round(left, *key ^ tweak), left);
        }
        (left << HALF) | right
    }
}

/// A keyed permutation of the 24-bit numbers.
#[derive(Clone, Copy)]
pub struct Permutation24(Network<12>);

impl Permutation24 {
    /// Words of the key.
    pub const WORDS: usize = ROUNDS;

    /// A permutation from a key of random words.
    pub const fn new(keys: [u64; Self::WORDS]) -> Self {
        Self(Network { keys })
    }

    /// The number of an index; the low 24 bits of `index` count.
    pub fn number(&self, index: u32) -> u32 {
        self.0.there(index, 0)
    }

    /// The index of a number: the inverse of [`Self::number`].
    pub fn index(&self, number: u32) -> u32 {
        self.0.back(number, 0)
    }
}

/// The same, but [`Self::TOGETHER`] indices in a row lie in one range of 4096 numbers, in no order
/// there; where the next range is does not follow from it.
///
/// ib_core keeps QPs by their number, in a tree whose nodes have 64 places and half a KiB. Numbers
/// that are all far apart cost it two such nodes each, those that share a range one and a bit. The
/// price: who knows one number finds another of that range among 4096, and not among all.
#[derive(Clone, Copy)]
pub struct RangedPermutation24 {
    ranges: Network<6>,
    within: Network<6>,
}

impl RangedPermutation24 {
    /// Indices in a row that are in one range.
    pub const TOGETHER: u32 = 1 << Self::TOGETHER_BITS;

    const TOGETHER_BITS: u32 = 4;
    const RANGE_BITS: u32 = 12;
    const RANGE_MASK: u32 = (1 << Self::RANGE_BITS) - 1;

    /// A permutation from two keys of random words.
    pub const fn new(ranges: [u64; ROUNDS], within: [u64; ROUNDS]) -> Self {
        Self {
            ranges: Network { keys: ranges },
            within: Network { keys: within },
        }
    }

    /// The number of an index; the low 24 bits of `index` count.
    pub fn number(&self, index: u32) -> u32 {
        let low = index & Self::TOGETHER.wrapping_sub(1);
        let high = index >> Self::RANGE_BITS.wrapping_add(Self::TOGETHER_BITS);
        let range = self.ranges.there(index >> Self::TOGETHER_BITS, 0);
        let place = (high << Self::TOGETHER_BITS) | low;
        (range << Self::RANGE_BITS) | self.within.there(place, u64::from(range))
    }

    /// The index of a number: the inverse of [`Self::number`].
    pub fn index(&self, number: u32) -> u32 {
        let range = (number >> Self::RANGE_BITS) & Self::RANGE_MASK;
        let place = self.within.back(number, u64::from(range));
        let low = place & Self::TOGETHER.wrapping_sub(1);
        let high = place >> Self::TOGETHER_BITS;
        let index = (high << Self::RANGE_BITS) | self.ranges.back(range, 0);
        (index << Self::TOGETHER_BITS) | low
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_ident))]
mod tests {
    use super::*;

    const P: Permutation24 = Permutation24::new([1, 2, 3, 0xdead_beef, 5 << 40, u64::MAX]);

    const R: RangedPermutation24 = RangedPermutation24::new([7; ROUNDS], [1, 2, 3, 4, 5, 6]);

    /// What has an inverse everywhere gives no number twice. Emulated, in a kernel full of checks,
    /// all of them would take a minute.
    #[test]
    fn is_a_permutation_with_an_inverse() {
        let step = if cfg!(CONFIG_KUNIT = "y") { 509 } else { 1 };
        for index in (0..1u32 << 24).step_by(step) {
            let number = P.number(index);
            assert!(number < 1 << 24);
            assert_eq!(P.index(number), index);
            let number = R.number(index);
            assert!(number < 1 << 24);
            assert_eq!(R.index(number), index);
        }
    }

    #[test]
    fn neighbours_are_far_apart_and_the_key_matters() {
        let other = Permutation24::new([9; ROUNDS]);
        let mut same = 0;
        let mut near = 0;
        for index in 0..10_000 {
            same += u32::from(P.number(index) == other.number(index));
            near += u32::from(P.number(index).abs_diff(P.number(index + 1)) < 256);
        }
        // 10,000 random pairs have 0.0006 equal ones on average.
        assert!(same < 10);
        // 10,000 random pairs have 0.3 neighbours on average.
        assert!(near < 10);
    }

    #[test]
    fn few_are_in_one_range_and_in_no_order_there() {
        let range = |index: u32| R.number(index) >> 12;
        let (mut rising, mut next, mut near) = (0, 0, 0);
        for first in (0..160_000).step_by(16) {
            for index in first..first + 15 {
                assert_eq!(range(index), range(first));
                let (one, other) = (R.number(index), R.number(index + 1));
                rising += u32::from(one < other);
                next += u32::from(one.abs_diff(other) == 1);
            }
            near += u32::from(range(first).abs_diff(range(first + 16)) < 2);
        }
        // Of 150,000 pairs about the half, and 73; of 10,000 ranges about 7.
        assert!((70_000..80_000).contains(&rising));
        assert!(next < 200 && near < 40);
    }
}
