// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The datagram extended transport header, and immediate data.

use crate::core::wire::from_be24;
use crate::core::wire::to_be24;
use zerocopy::byteorder::{BigEndian, U32};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

header! {
    /// Datagram extended transport header, 8 bytes (IBTA 9.3.2).
    pub struct Deth {
        qkey: U32<BigEndian>,
        reserved: u8,
        source: [u8; 3],
    }
}

impl Deth {
    /// A header with this Q_Key and the low 24 bits of `source`.
    #[inline]
    pub const fn new(qkey: u32, source: u32) -> Self {
        Self {
            qkey: U32::new(qkey),
            reserved: 0,
            source: to_be24(source),
        }
    }

    /// The Q_Key, which must be that of the destination.
    #[inline]
    pub fn qkey(&self) -> u32 {
        self.qkey.get()
    }

    /// Number of the QP that the datagram is from, below 2^24.
    #[inline]
    pub const fn source_qp(&self) -> u32 {
        from_be24(self.source)
    }
}

header! {
    /// Immediate data, 4 bytes that are handed through as they are (IBTA 9.3.6).
    pub struct ImmDt {
        /// The bytes in the order of the wire.
        pub bytes: [u8; 4],
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_wire_datagram)
)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn deth_bytes() {
        let deth = Deth::new(0x8001_0203, 0xff04_0506);
        assert_eq!(deth.as_bytes(), [0x80, 1, 2, 3, 0, 4, 5, 6]);
        assert_eq!((deth.qkey(), deth.source_qp()), (0x8001_0203, 0x04_0506));
        // The reserved byte is ignored.
        let bytes = [0u8, 0, 0, 1, 0xff, 0, 0, 2];
        let odd: Deth = zerocopy::transmute!(bytes);
        assert_eq!((odd.qkey(), odd.source_qp()), (1, 2));
    }
}
