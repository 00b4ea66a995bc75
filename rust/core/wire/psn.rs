// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Packet sequence numbers: 24 bits that wrap. All their arithmetic lives here.
//!
//! IBTA 9.7.1: of the 2^24 values, at most the 2^23 behind an expected PSN are "before" it and
//! the others are "after" it. That is no order (a before b, b before c does not give a before c),
//! so [`Psn`] does not implement `Ord`; compare two of them with [`Psn::distance_from`].

use super::{
    from_be24,
    to_be24, //
};

/// A packet sequence number.
///
/// # Invariants
///
/// The value is below 2^24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// How many values there are.
    pub const SPACE: u32 = 1 << 24;

    const MASK: u32 = 0x00ff_ffff;

    /// The PSN with the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        // INVARIANT: The mask keeps 24 bits.
        Self(value & Self::MASK)
    }

    /// The PSN of three bytes in network order.
    #[inline]
    pub const fn from_be_bytes(bytes: [u8; 3]) -> Self {
        Self::new(from_be24(bytes))
    }

    /// Three bytes in network order.
    #[inline]
    pub const fn to_be_bytes(self) -> [u8; 3] {
        to_be24(self.0)
    }

    /// The number, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later, modulo 2^24.
    #[inline]
    pub const fn add(self, n: u32) -> Self {
        // 2^24 divides 2^32, so wrapping at 32 bits first does not change the low 24.
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier, modulo 2^24.
    #[inline]
    pub const fn sub(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// The PSN of the packet after this one.
    #[inline]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// How many packets this PSN is after `earlier`: in -2^23..2^23, negative when it is before.
    ///
    /// Two PSNs that are exactly 2^23 apart are at distance -2^23 either way.
    #[inline]
    pub const fn distance_from(self, earlier: Psn) -> i32 {
        // The difference moves to the top of the word, where the shift back extends its sign.
        (self.0.wrapping_sub(earlier.0) << 8) as i32 >> 8
    }

    /// Whether this PSN is 1 to 2^23 - 1 packets before `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        other.distance_from(self) > 0
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_psn))]
mod tests {
    use super::*;

    #[test]
    fn new_keeps_24_bits() {
        assert_eq!(Psn::new(0xff12_3456).get(), 0x12_3456);
        assert_eq!(Psn::new(Psn::SPACE), Psn::new(0));
    }

    #[test]
    fn wraps_both_ways() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), last);
        assert_eq!(last.add(u32::MAX), Psn::new(0xff_fffe));
        assert_eq!(Psn::new(3).sub(u32::MAX), Psn::new(4));
    }

    #[test]
    fn distance_is_signed_and_crosses_the_wrap() {
        let last = Psn::new(0xff_fffe);
        let first = Psn::new(2);
        assert_eq!(first.distance_from(last), 4);
        assert_eq!(last.distance_from(first), -4);
        assert_eq!(last.distance_from(last), 0);
        assert!(last.is_before(first));
        assert!(!first.is_before(last));
        assert!(!first.is_before(first));
    }

    #[test]
    fn the_far_side_of_the_ring() {
        let a = Psn::new(0x10);
        assert_eq!(a.add((1 << 23) - 1).distance_from(a), (1 << 23) - 1);
        assert_eq!(a.add(1 << 23).distance_from(a), -(1 << 23));
        assert_eq!(a.distance_from(a.add(1 << 23)), -(1 << 23));
        // Neither of two opposite PSNs is before the other.
        assert!(!a.is_before(a.add(1 << 23)));
        assert!(!a.add(1 << 23).is_before(a));
        assert!(a.add((1 << 23) + 1).is_before(a));
    }

    #[test]
    fn bytes_are_in_network_order() {
        assert_eq!(Psn::new(0x01_0203).to_be_bytes(), [1, 2, 3]);
        assert_eq!(Psn::from_be_bytes([0xfe, 0, 1]).get(), 0xfe_0001);
    }
}
