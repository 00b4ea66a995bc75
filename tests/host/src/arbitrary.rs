// SPDX-License-Identifier: GPL-2.0

//! Arbitrary values of the wire room, for proptest.

use ferroce_core::wire::headers::{
    Aeth, AethSyndrome, AtomicAckEth, AtomicEth, Deth, Feth, NakCode, Reth,
};
use ferroce_core::wire::opcode::{ExtensionKind, Opcode};
use ferroce_core::wire::packet::{pad_for, Extension, Headers};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::MAX_PAYLOAD;
use proptest::prelude::*;

/// Any PSN, often one next to the wrap.
pub fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![
        any::<u32>().prop_map(Psn::new),
        (0u32..8).prop_map(Psn::new),
        (0u32..8).prop_map(|n| Psn::new(0).sub(n)),
    ]
}

/// Any opcode of the table.
pub fn opcode() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(Opcode::ALL)
}

/// Any syndrome, in the form in which decoding gives it.
pub fn syndrome() -> impl Strategy<Value = AethSyndrome> {
    prop_oneof![
        (0u8..32).prop_map(|credits| AethSyndrome::Ack { credits }),
        (0u8..32).prop_map(|timer| AethSyndrome::RnrNak { timer }),
        (0u8..5).prop_map(|code| AethSyndrome::Nak(NakCode::from_u8(code).unwrap())),
        prop_oneof![0x40u8..0x60, 0x65u8..0x80, 0x80u8..=0xff].prop_map(AethSyndrome::Reserved),
    ]
}

prop_compose! {
    /// Headers that can be sent, with the length of a payload that the opcode may have.
    pub fn headers()(
        opcode in opcode(),
        (solicited, ack_req, migreq) in any::<(bool, bool, bool)>(),
        pkey: u16,
        dest_qpn in 0u32..1 << 24,
        psn in psn(),
        (va, rkey, length) in any::<(u64, u32, u32)>(),
        (syndrome, msn) in (syndrome(), 0u32..1 << 24),
        (qkey, source) in any::<(u32, u32)>(),
        imm: [u8; 4],
        (swap_add, compare) in any::<(u64, u64)>(),
        payload_len in prop_oneof![0..=MAX_PAYLOAD, 0usize..9, Just(MAX_PAYLOAD)],
    ) -> (Headers, usize) {
        let info = opcode.info();
        let (reth, aeth) = (Reth::new(va, rkey, length), Aeth::new(syndrome, msn));
        let deth = Deth::new(qkey, source);
        let payload_len = if info.has_payload() { payload_len } else { 0 };
        let headers = Headers {
            opcode,
            solicited,
            ack_req,
            keeps: ack_req,
            migreq,
            pkey,
            dest_qpn,
            psn,
            extension: match info.extension {
                ExtensionKind::None => Extension::None,
                ExtensionKind::Imm => Extension::Imm(imm),
                ExtensionKind::Reth => Extension::Reth(reth),
                ExtensionKind::RethImm => Extension::RethImm(reth, imm),
                ExtensionKind::Aeth => Extension::Aeth(aeth),
                ExtensionKind::Reserved => Extension::Reserved,
                ExtensionKind::Deth => Extension::Deth(deth),
                ExtensionKind::DethImm => Extension::DethImm(deth, imm),
                ExtensionKind::Ieth => Extension::Ieth(u32::from_be_bytes(imm)),
                ExtensionKind::Atomic => {
                    Extension::Atomic(AtomicEth::new(va, rkey, swap_add, compare))
                }
                ExtensionKind::Flush => {
                    Extension::Flush(Feth::new(imm[0], imm[1]), reth)
                }
                ExtensionKind::AtomicAck => {
                    Extension::AtomicAck(aeth, AtomicAckEth::new(swap_add))
                }
            },
            pad: pad_for(payload_len),
        };
        (headers, payload_len)
    }
}
