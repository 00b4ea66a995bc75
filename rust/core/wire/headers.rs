// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The extended transport headers as they lie on the wire, in big-endian: those of datagrams, of
//! immediate data, of operations on remote memory, of acknowledgements (IBTA 9.3, annex A19).
//!
//! Every bit pattern is a value of these structs, so reading one cannot fail; [`super::packet`]
//! judges what was read.

use crate::core::wire::{
    from_be24,
    to_be24, //
};
use zerocopy::byteorder::{
    BigEndian,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

// The datagram extended transport header, and immediate data.

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

// The headers of operations on remote memory: RETH, FETH, AtomicETH and AtomicAckETH.

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

// The ACK extended transport header (IBTA 9.3.5), and the meaning of its syndrome (IBTA 9.7.5).

header! {
    /// ACK extended transport header, 4 bytes (IBTA 9.3.5).
    pub struct Aeth {
        syndrome: u8,
        msn: [u8; 3],
    }
}

impl Aeth {
    /// A header with this syndrome and the low 24 bits of `msn`.
    #[inline]
    pub const fn new(syndrome: AethSyndrome, msn: u32) -> Self {
        Self {
            syndrome: syndrome.encode(),
            msn: to_be24(msn),
        }
    }

    /// Syndrome.
    #[inline]
    pub const fn syndrome(&self) -> AethSyndrome {
        AethSyndrome::decode(self.syndrome)
    }

    /// Message sequence number: how many messages the responder completed, modulo 2^24.
    #[inline]
    pub const fn msn(&self) -> u32 {
        from_be24(self.msn)
    }
}

/// The syndrome of an AETH (IBTA 9.7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AethSyndrome {
    /// Everything up to the PSN arrived.
    Ack {
        /// Encoded end-to-end credits, 5 bits; [`AethSyndrome::CREDITS_INVALID`] for none.
        credits: u8,
    },
    /// The responder has no receive buffer: try again later.
    RnrNak {
        /// Encoded delay, 5 bits: [`rnr_delay_ns`].
        timer: u8,
    },
    /// The request was refused.
    Nak(NakCode),
    /// A value without a meaning, with all its bits.
    Reserved(u8),
}

impl AethSyndrome {
    /// The credit field of a responder that does not count credits (5 bits of ones).
    pub const CREDITS_INVALID: u8 = 0x1f;

    const TYPE_MASK: u8 = 0xe0;
    const VALUE_MASK: u8 = 0x1f;
    const ACK: u8 = 0x00;
    const RNR_NAK: u8 = 0x20;
    const NAK: u8 = 0x60;

    /// The meaning of a syndrome byte.
    #[inline]
    pub const fn decode(byte: u8) -> Self {
        let value = byte & Self::VALUE_MASK;
        match byte & Self::TYPE_MASK {
            Self::ACK => AethSyndrome::Ack { credits: value },
            Self::RNR_NAK => AethSyndrome::RnrNak { timer: value },
            Self::NAK => match NakCode::from_u8(value) {
                Some(code) => AethSyndrome::Nak(code),
                None => AethSyndrome::Reserved(byte),
            },
            _ => AethSyndrome::Reserved(byte),
        }
    }

    /// The syndrome byte. Of credits and timers the low 5 bits count.
    #[inline]
    pub const fn encode(self) -> u8 {
        match self {
            AethSyndrome::Ack { credits } => Self::ACK | (credits & Self::VALUE_MASK),
            AethSyndrome::RnrNak { timer } => Self::RNR_NAK | (timer & Self::VALUE_MASK),
            AethSyndrome::Nak(code) => Self::NAK | code as u8,
            AethSyndrome::Reserved(byte) => byte,
        }
    }
}

/// Why a request was refused (IBTA 9.7.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing; the AETH's packet has the PSN that was expected.
    PsnSequence = 0,
    /// The request is malformed, or not supported by the QP.
    InvalidRequest = 1,
    /// The key or the address is not for this access.
    RemoteAccess = 2,
    /// The responder failed and cannot serve the request.
    RemoteOperational = 3,
    /// Only for reliable datagram.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// The code with this number.
    #[inline]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(NakCode::PsnSequence),
            1 => Some(NakCode::InvalidRequest),
            2 => Some(NakCode::RemoteAccess),
            3 => Some(NakCode::RemoteOperational),
            4 => Some(NakCode::InvalidRdRequest),
            _ => None,
        }
    }
}

/// The delays of IBTA table 45, in units of 10 microseconds.
const RNR_DELAYS: [u16; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The nanoseconds that an RNR NAK with this timer field asks for (IBTA table 45).
///
/// The code 0 is the longest: 655.36 ms. The low 5 bits of `timer` count.
#[inline]
pub fn rnr_delay_ns(timer: u8) -> u64 {
    let units = match (timer & 0x1f).checked_sub(1) {
        Some(index) => RNR_DELAYS.get(usize::from(index)).copied(),
        None => None,
    };
    units.map_or(65536, u64::from).wrapping_mul(10_000)
}

const _: () = {
    assert!(size_of::<Reth>() == 16);
    assert!(size_of::<Aeth>() == 4 && size_of::<Deth>() == 8 && size_of::<ImmDt>() == 4);
    assert!(
        size_of::<Feth>() == 4 && size_of::<AtomicEth>() == 28 && size_of::<AtomicAckEth>() == 8
    );
};

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_headers))]
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

    #[test]
    fn aeth_bytes() {
        let aeth = Aeth::new(AethSyndrome::RnrNak { timer: 14 }, 0xff00_0102);
        assert_eq!(aeth.as_bytes(), [0x2e, 0, 1, 2]);
        assert_eq!(aeth.msn(), 0x0102);
    }

    #[test]
    fn every_syndrome_byte_survives() {
        for byte in 0..=u8::MAX {
            let syndrome = AethSyndrome::decode(byte);
            assert_eq!(syndrome.encode(), byte);
            let known = matches!(byte, 0..=0x3f | 0x60..=0x64);
            assert_eq!(!matches!(syndrome, AethSyndrome::Reserved(_)), known);
        }
        assert_eq!(
            AethSyndrome::decode(0x1f),
            AethSyndrome::Ack {
                credits: AethSyndrome::CREDITS_INVALID
            }
        );
        assert_eq!(AethSyndrome::Nak(NakCode::PsnSequence).encode(), 0x60);
        assert_eq!(AethSyndrome::Nak(NakCode::RemoteAccess).encode(), 0x62);
        // More than 5 bits do not become another type.
        assert_eq!(AethSyndrome::Ack { credits: 0xff }.encode(), 0x1f);
        assert_eq!(AethSyndrome::RnrNak { timer: 0xe1 }.encode(), 0x21);
    }

    #[test]
    fn rnr_delays_of_the_table() {
        let microseconds = |timer| rnr_delay_ns(timer) / 1000;
        assert_eq!(microseconds(0), 655_360);
        assert_eq!([1, 2, 3, 4, 5].map(microseconds), [10, 20, 30, 40, 60]);
        assert_eq!([12, 14, 19].map(microseconds), [640, 1_280, 7_680]);
        assert_eq!([30, 31].map(microseconds), [327_680, 491_520]);
        // From 2 on, two steps are a factor of two; the code 0 continues where 31 ends.
        for timer in 2..30 {
            assert_eq!(rnr_delay_ns(timer + 2), 2 * rnr_delay_ns(timer));
        }
        assert_eq!(rnr_delay_ns(32), rnr_delay_ns(0));
    }
}
