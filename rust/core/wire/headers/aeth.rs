// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The ACK extended transport header (IBTA 9.3.5), and the meaning of its syndrome (IBTA 9.7.5).

use crate::core::wire::from_be24;
use crate::core::wire::to_be24;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_aeth))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

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
