// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The base transport header (IBTA 9.2).

use crate::core::wire::opcode::{
    Opcode,
    OpcodeService, //
};
use crate::core::wire::psn::Psn;
use crate::core::wire::{
    from_be24,
    to_be24, //
};
use zerocopy::byteorder::{
    BigEndian,
    U16, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

header! {
    /// Base transport header, 12 bytes (IBTA 9.2).
    pub struct Bth {
        opcode: u8,
        /// Solicited event (1 bit), MigReq (1), pad count (2), transport header version (4).
        flags: u8,
        pkey: U16<BigEndian>,
        /// FECN (1), BECN (1), reserved (6): as a whole outside the ICRC.
        congestion: u8,
        dest_qp: [u8; 3],
        /// AckReq (1), reserved (7). Of these the lowest is [`Bth::KEEPS`].
        ack: u8,
        psn: [u8; 3],
    }
}

impl Bth {
    const SOLICITED: u8 = 0x80;
    const MIGREQ: u8 = 0x40;
    const PAD_SHIFT: u32 = 4;
    const PAD_MASK: u8 = 0x3;
    const VERSION_MASK: u8 = 0x0f;
    const BECN: u8 = 0x40;
    const ACK_REQ: u8 = 0x80;
    /// A reserved bit, sent as 0 and ignored by others (IBTA 9.2): the sender keeps packets that
    /// arrive behind a gap, and understands [`Opcode::RcMissing`].
    const KEEPS: u8 = 0x01;

    /// A header with these fields; the flags are clear, the pad count and the version 0.
    #[inline]
    pub const fn new(opcode: Opcode, pkey: u16, dest_qp: u32, psn: Psn) -> Self {
        Self {
            opcode: opcode.as_u8(),
            flags: 0,
            pkey: U16::new(pkey),
            congestion: 0,
            dest_qp: to_be24(dest_qp),
            ack: 0,
            psn: psn.to_be_bytes(),
        }
    }

    /// The opcode, if it is one of the table.
    #[inline]
    pub const fn opcode(&self) -> Option<Opcode> {
        Opcode::from_u8(self.opcode)
    }

    /// Whether the opcode, known or not, is one that a QP of `service` receives.
    #[inline]
    pub const fn is_of(&self, service: OpcodeService) -> bool {
        self.opcode & OpcodeService::MASK == service as u8
            || (self.opcode == Opcode::RcMissing.as_u8() && matches!(service, OpcodeService::Rc))
            || (self.opcode == Opcode::CongestionNotification.as_u8()
                && matches!(service, OpcodeService::Rc | OpcodeService::Uc))
    }

    /// The receiver shall raise a solicited event.
    #[inline]
    pub const fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// The migration state of the connection is "migrated" (1) or not (0).
    #[inline]
    pub const fn migreq(&self) -> bool {
        self.flags & Self::MIGREQ != 0
    }

    /// Bytes of padding behind the payload: 0 to 3.
    #[inline]
    pub const fn pad(&self) -> u8 {
        (self.flags >> Self::PAD_SHIFT) & Self::PAD_MASK
    }

    /// Transport header version; 0 is the only one defined.
    #[inline]
    pub const fn version(&self) -> u8 {
        self.flags & Self::VERSION_MASK
    }

    /// Partition key.
    #[inline]
    pub fn pkey(&self) -> u16 {
        self.pkey.get()
    }

    /// Backward congestion notification.
    #[inline]
    pub const fn becn(&self) -> bool {
        self.congestion & Self::BECN != 0
    }

    /// Number of the QP the packet is for, below 2^24.
    #[inline]
    pub const fn dest_qp(&self) -> u32 {
        from_be24(self.dest_qp)
    }

    /// The responder shall answer this packet.
    #[inline]
    pub const fn ack_req(&self) -> bool {
        self.ack & Self::ACK_REQ != 0
    }

    /// The sender keeps packets that arrive behind a gap.
    #[inline]
    pub const fn keeps(&self) -> bool {
        self.ack & Self::KEEPS != 0
    }

    /// Sequence number.
    #[inline]
    pub const fn psn(&self) -> Psn {
        Psn::from_be_bytes(self.psn)
    }

    /// Sets the solicited event bit.
    #[inline]
    pub fn set_solicited(&mut self, on: bool) {
        set(&mut self.flags, Self::SOLICITED, on);
    }

    /// Sets the MigReq bit.
    #[inline]
    pub fn set_migreq(&mut self, on: bool) {
        set(&mut self.flags, Self::MIGREQ, on);
    }

    /// Sets the pad count to the low two bits of `pad`.
    #[inline]
    pub fn set_pad(&mut self, pad: u8) {
        let others = self.flags & !(Self::PAD_MASK << Self::PAD_SHIFT);
        self.flags = others | ((pad & Self::PAD_MASK) << Self::PAD_SHIFT);
    }

    /// Sets the bit of backward congestion notification.
    #[inline]
    pub fn set_becn(&mut self, on: bool) {
        set(&mut self.congestion, Self::BECN, on);
    }

    /// Sets the AckReq bit.
    #[inline]
    pub fn set_ack_req(&mut self, on: bool) {
        set(&mut self.ack, Self::ACK_REQ, on);
    }

    /// Says that the sender keeps packets that arrive behind a gap, or not.
    #[inline]
    pub fn set_keeps(&mut self, on: bool) {
        set(&mut self.ack, Self::KEEPS, on);
    }
}

const _: () = assert!(size_of::<Bth>() == 12);

/// Sets or clears one bit.
#[inline]
fn set(byte: &mut u8, bit: u8, on: bool) {
    if on {
        *byte |= bit;
    } else {
        *byte &= !bit;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_bth))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn bth_bits_are_where_the_standard_has_them() {
        let mut bth = Bth::new(
            Opcode::RcWriteOnly,
            0x8001,
            0xff12_3456,
            Psn::new(0xab_cdef),
        );
        let plain = [
            0x0a, 0, 0x80, 0x01, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef,
        ];
        assert_eq!(bth.as_bytes(), plain);

        bth.set_solicited(true);
        assert_eq!(bth.as_bytes()[1], 0x80);
        bth.set_migreq(true);
        assert_eq!(bth.as_bytes()[1], 0xc0);
        bth.set_pad(3);
        assert_eq!(bth.as_bytes()[1], 0xf0);
        bth.set_pad(1);
        assert_eq!(bth.as_bytes()[1], 0xd0);
        bth.set_becn(true);
        assert_eq!(bth.as_bytes()[4], 0x40);
        bth.set_ack_req(true);
        assert_eq!(bth.as_bytes()[8], 0x80);

        bth.set_solicited(false);
        bth.set_migreq(false);
        bth.set_pad(0);
        bth.set_becn(false);
        bth.set_ack_req(false);
        assert_eq!(bth.as_bytes(), plain);
    }

    #[test]
    fn bth_accessors_read_only_their_bits() {
        let with = |at: usize, byte: u8| {
            let mut bytes = [0; 12];
            bytes[at] = byte;
            let bth: Bth = zerocopy::transmute!(bytes);
            bth
        };
        let flags = |bth: Bth| (bth.solicited(), bth.migreq(), bth.pad(), bth.version());
        assert_eq!(flags(with(1, 0x80)), (true, false, 0, 0));
        assert_eq!(flags(with(1, 0x40)), (false, true, 0, 0));
        assert_eq!(flags(with(1, 0x30)), (false, false, 3, 0));
        assert_eq!(flags(with(1, 0x0f)), (false, false, 0, 15));
        assert!(with(4, 0x40).becn() && !with(4, 0xbf).becn());
        assert!(with(8, 0x80).ack_req() && !with(8, 0x7f).ack_req());
        assert_eq!(with(4, 0xff).dest_qp(), 0);
        assert_eq!(with(8, 0xff).psn().get(), 0);
        assert_eq!(with(5, 0x80).dest_qp(), 0x80_0000);
        assert_eq!(with(11, 0x80).psn().get(), 0x80);
        assert_eq!(with(0, 0x2c).opcode(), None);
    }
}
