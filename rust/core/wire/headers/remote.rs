// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The headers of operations on remote memory: RETH, FETH, AtomicETH and AtomicAckETH.

use zerocopy::byteorder::{BigEndian, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

header! {
    /// RDMA extended transport header, 16 bytes (IBTA 9.3.3).
    pub struct Reth {
        va: U64<BigEndian>,
        rkey: U32<BigEndian>,
        length: U32<BigEndian>,
    }
}

impl Reth {
    /// A header with these fields.
    #[inline]
    pub const fn new(va: u64, rkey: u32, length: u32) -> Self {
        Self {
            va: U64::new(va),
            rkey: U32::new(rkey),
            length: U32::new(length),
        }
    }

    /// Virtual address of the first byte at the responder.
    #[inline]
    pub fn va(&self) -> u64 {
        self.va.get()
    }

    /// Key of the region at the responder.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey.get()
    }

    /// Bytes of the whole message. The sender may claim anything up to 2^32 - 1.
    #[inline]
    pub fn length(&self) -> u32 {
        self.length.get()
    }
}

header! {
    /// Flush extended transport header, 4 bytes (IBTA annex A19).
    pub struct Feth {
        /// Reserved (26 bits), selectivity (2), placement type (4).
        bits: U32<BigEndian>,
    }
}

impl Feth {
    /// Placement type: what was written is visible to all.
    pub const GLOBAL: u8 = 1 << 0;
    /// Placement type: what was written is persistent.
    pub const PERSISTENT: u8 = 1 << 1;
    /// Selectivity: a range.
    pub const RANGE: u8 = 0;
    /// Selectivity: the whole region.
    pub const REGION: u8 = 1;

    const SELECTIVITY_SHIFT: u32 = 4;

    /// A header with the low 4 bits of `placement` and the low 2 of `selectivity`.
    #[inline]
    pub const fn new(placement: u8, selectivity: u8) -> Self {
        let selectivity = (selectivity as u32 & 3) << Self::SELECTIVITY_SHIFT;
        Self {
            bits: U32::new(placement as u32 & 0xf | selectivity),
        }
    }

    /// Placement type: bits.
    #[inline]
    pub fn placement(&self) -> u8 {
        (self.bits.get() & 0xf) as u8
    }

    /// Selectivity: a number.
    #[inline]
    pub fn selectivity(&self) -> u8 {
        ((self.bits.get() >> Self::SELECTIVITY_SHIFT) & 3) as u8
    }

    /// The same header with the reserved bits clear.
    #[inline]
    pub fn plain(&self) -> Self {
        Self::new(self.placement(), self.selectivity())
    }
}

header! {
    /// Atomic extended transport header, 28 bytes (IBTA 9.3.4). The values are in the order of the
    /// host, not of the wire.
    pub struct AtomicEth {
        va: U64<BigEndian>,
        rkey: U32<BigEndian>,
        swap_add: U64<BigEndian>,
        compare: U64<BigEndian>,
    }
}

impl AtomicEth {
    /// A header with these fields.
    #[inline]
    pub const fn new(va: u64, rkey: u32, swap_add: u64, compare: u64) -> Self {
        Self {
            va: U64::new(va),
            rkey: U32::new(rkey),
            swap_add: U64::new(swap_add),
            compare: U64::new(compare),
        }
    }

    /// Virtual address of the 8 bytes at the responder.
    #[inline]
    pub fn va(&self) -> u64 {
        self.va.get()
    }

    /// Key of the region at the responder.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey.get()
    }

    /// Value to write, or to add.
    #[inline]
    pub fn swap_add(&self) -> u64 {
        self.swap_add.get()
    }

    /// The value to compare with; unused by an addition.
    #[inline]
    pub fn compare(&self) -> u64 {
        self.compare.get()
    }
}

header! {
    /// Atomic ACK extended transport header, 8 bytes (IBTA 9.3.5.2).
    pub struct AtomicAckEth {
        original: U64<BigEndian>,
    }
}

impl AtomicAckEth {
    /// A header with this value.
    #[inline]
    pub const fn new(original: u64) -> Self {
        Self {
            original: U64::new(original),
        }
    }

    /// Original value.
    #[inline]
    pub fn original(&self) -> u64 {
        self.original.get()
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_remote))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn fields_are_big_endian() {
        let reth = Reth::new(0x0102_0304_0506_0708, 0x090a_0b0c, 0x0d0e_0f10);
        let bytes: [u8; 16] = core::array::from_fn(|i| i as u8 + 1);
        assert_eq!(reth.as_bytes(), bytes);
        let atomic = AtomicEth::new(
            0x0102_0304_0506_0708,
            0x090a_0b0c,
            0x0d0e_0f10_1112_1314,
            0x1516_1718_191a_1b1c,
        );
        let bytes: [u8; 28] = core::array::from_fn(|i| i as u8 + 1);
        assert_eq!(atomic.as_bytes(), bytes);
        assert_eq!(
            (atomic.swap_add(), atomic.compare()),
            (0x0d0e_0f10_1112_1314, 0x1516_1718_191a_1b1c)
        );
        let feth = Feth::new(Feth::PERSISTENT, Feth::REGION);
        assert_eq!(feth.as_bytes(), [0, 0, 0, 0x12]);
        assert_eq!((feth.placement(), feth.selectivity()), (2, 1));
        let odd: Feth = zerocopy::transmute!([0xffu8; 4]);
        assert_eq!((odd.placement(), odd.selectivity()), (15, 3));
        assert_eq!(odd.plain().as_bytes(), [0, 0, 0, 0x3f]);
        let original = AtomicAckEth::new(0x0102_0304_0506_0708);
        assert_eq!(original.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
