// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Numbers that peers see and must not be able to guess: QPNs and memory keys.
//!
//! A table gives out small indices in order; what goes on the wire is a keyed permutation of the
//! index. So numbers look random and never collide, and finding the object is one table look-up
//! without a hash. Knowing some numbers tells little about others, which is what attacks that
//! guess the neighbour's key need ("ReDMArk", USENIX Security 2021).

/// A keyed permutation of the 24-bit numbers: a Feistel network of two 12-bit halves.
#[derive(Clone, Copy)]
pub struct Permutation24 {
    keys: [u64; Self::ROUNDS],
}

const HALF_BITS: u32 = 12;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;

impl Permutation24 {
    /// Rounds, and words of the key.
    pub const ROUNDS: usize = 6;

    /// A permutation from a key of random words.
    pub const fn new(keys: [u64; Self::ROUNDS]) -> Self {
        Self { keys }
    }

    /// Mixes one half under a round key (the finaliser of MurmurHash3 has full avalanche).
    const fn round(half: u32, key: u64) -> u32 {
        let mut x = (half as u64) ^ key;
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        ((x ^ (x >> 33)) as u32) & HALF_MASK
    }

    /// The number of an index; the low 24 bits of `index` count.
    pub fn number(&self, index: u32) -> u32 {
        let mut left = (index >> HALF_BITS) & HALF_MASK;
        let mut right = index & HALF_MASK;
        for key in &self.keys {
            (left, right) = (right, left ^ Self::round(right, *key));
        }
        (left << HALF_BITS) | right
    }

    /// The index of a number: the inverse of [`Self::number`].
    pub fn index(&self, number: u32) -> u32 {
        let mut left = (number >> HALF_BITS) & HALF_MASK;
        let mut right = number & HALF_MASK;
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ Self::round(left, *key), left);
        }
        (left << HALF_BITS) | right
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_ident))]
mod tests {
    use super::*;

    const P: Permutation24 = Permutation24::new([1, 2, 3, 0xdead_beef, 5 << 40, u64::MAX]);

    /// What has an inverse everywhere gives no number twice. Emulated, in a kernel full of checks,
    /// all of them would take a minute.
    #[test]
    fn is_a_permutation_with_an_inverse() {
        let step = if cfg!(CONFIG_KUNIT = "y") { 509 } else { 1 };
        for index in (0..1u32 << 24).step_by(step) {
            let number = P.number(index);
            assert!(number < 1 << 24);
            assert_eq!(P.index(number), index);
        }
    }

    #[test]
    fn neighbours_are_far_apart_and_the_key_matters() {
        let other = Permutation24::new([9; Permutation24::ROUNDS]);
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
}
