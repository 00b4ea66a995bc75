// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! How work requests and packets name memory: a key, an address and a length.

use crate::core::wire::headers::Reth;

/// The key of an MR or MW, lkey and rkey at once: 24 bits by which it is looked up, its name, and 8
/// bits that may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryKey(u32);

impl MemoryKey {
    /// From the number in a WQE or a packet.
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The part that stays when the low byte changes.
    #[inline]
    pub const fn name(self) -> u32 {
        self.0 >> 8
    }

    /// The key of another name with the same low byte.
    #[inline]
    pub const fn with_name(self, name: u32) -> Self {
        Self((name << 8) | (self.0 & 0xff))
    }
}

/// A range of an MR or MW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The key.
    pub key: MemoryKey,
    /// The address of its first byte.
    pub va: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Span {
    /// Of the numbers in a WQE or a packet.
    #[inline(always)]
    pub fn new(key: u32, va: u64, len: u32) -> Self {
        Self {
            key: MemoryKey::new(key),
            va,
            len: u64::from(len),
        }
    }

    /// `len` bytes from `offset` on of the range of a RETH, which was checked not to wrap.
    #[inline(always)]
    pub fn part(reth: &Reth, offset: u32, len: u32) -> Self {
        Self::new(reth.rkey(), reth.va().wrapping_add(u64::from(offset)), len)
    }

    /// Its offset in the `size` bytes from the address `base`, if it lies within.
    #[inline(always)]
    pub fn offset_in(&self, base: u64, size: u64) -> Option<u64> {
        let offset = self.va.checked_sub(base)?;
        let end = offset.checked_add(self.len)?;
        (end <= size).then_some(offset)
    }
}

impl From<&Reth> for Span {
    #[inline(always)]
    fn from(reth: &Reth) -> Self {
        Self::new(reth.rkey(), reth.va(), reth.length())
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_memory))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_name_and_a_byte() {
        let key = MemoryKey::new(0x1234_5678);
        assert_eq!(key.name(), 0x12_3456);
        assert_eq!(key.with_name(0xab_cdef).get(), 0xabcd_ef78);
        assert_eq!(key.with_name(key.name()), key);
    }

    #[test]
    fn a_span_lies_within_or_not() {
        let at = |va, len| Span::new(1, va, len).offset_in(0x1000, 0x100);
        assert_eq!(at(0x1000, 0x100), Some(0));
        assert_eq!(at(0x10ff, 1), Some(0xff));
        // Nothing behind the last byte is within.
        assert_eq!(at(0x1100, 0), Some(0x100));
        assert_eq!(at(0x1101, 0), None);
        assert_eq!(at(0x10ff, 2), None);
        assert_eq!(at(0xfff, 1), None);
    }

    #[test]
    fn a_span_does_not_wrap() {
        let at = |va, len, size| Span::new(1, va, len).offset_in(0, size);
        assert_eq!(at(u64::MAX, 1, u64::MAX), None);
        assert_eq!(at(u64::MAX - 1, 1, u64::MAX), Some(u64::MAX - 1));
        assert_eq!(at(1, u32::MAX, 0x1_0000_0000), Some(1));
        let whole = Span {
            key: MemoryKey::new(1),
            va: 1,
            len: u64::MAX,
        };
        assert_eq!(whole.offset_in(0, u64::MAX), None);
        assert_eq!(whole.offset_in(1, u64::MAX), Some(0));
    }
}
