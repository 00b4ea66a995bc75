// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Segments: the unit that the transport moves at a time.
//!
//! On the wire a segment is one packet. On the local path, where requester and responder are QPs
//! of the same device and no packet exists, a segment may stand for many packets at once: its
//! `span`. Sequence numbers, windows and acknowledgements are then exactly as if `span` packets had
//! been sent one after the other, so both paths run the same state machines.
//!
//! A span above 1 means `span` times the path MTU bytes of payload, less what the last packet of
//! the message has to spare.

use super::memory::Span;
use super::operation::{
    Arguments,
    Brings,
    ATOMIC_SIZE, //
};
use super::storage::Slot;
use crate::core::uabi::wqe::{
    Atomic,
    Flush, //
};
use crate::core::wire::headers::{
    Aeth,
    AethSyndrome,
    AtomicAckEth,
    AtomicEth,
    Feth,
    NakCode,
    Reth, //
};
use crate::core::wire::opcode::{
    AtomicKind,
    ExtensionKind,
    Kind,
    Opcode, //
};
use crate::core::wire::packet::{
    Extension,
    Packet, //
};
use crate::core::wire::psn::Psn;
use zerocopy::transmute;

/// A segment that the requester sends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSegment {
    /// Slot of the WQE.
    pub slot: Slot,
    /// Its operation, and its place in the message: as of a packet, also when `span` is not 1.
    pub opcode: Opcode,
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for. 1 for a request that is answered by a response: it is one
    /// packet although it takes as many PSNs as it will have responses.
    pub span: u32,
    /// Where its bytes begin in the message of the work request.
    pub offset: u32,
    /// Bytes of payload; 0 for a request that is answered by a response, but for an ATOMIC WRITE.
    pub len: u32,
    /// Bytes of its message. A READ request is a message by itself, of the bytes that it requests.
    pub message_len: u32,
    /// Requests an ACK.
    pub ack_req: bool,
    /// Requests a solicited event.
    pub solicited: bool,
}

impl RequestSegment {
    /// The extended headers, filled from the WQE's operands if there are any.
    #[inline(always)]
    pub fn extension(&self, arguments: impl FnOnce() -> Arguments) -> Extension {
        let kind = self.opcode.info().extension;
        if kind == ExtensionKind::None {
            // Most packets.
            return Extension::None;
        }
        let arguments = arguments();
        let reth = || {
            let va = arguments.remote_addr.wrapping_add(u64::from(self.offset));
            Reth::new(va, arguments.rkey, self.message_len)
        };
        match kind {
            ExtensionKind::Imm => Extension::Imm(arguments.imm),
            ExtensionKind::Reth => Extension::Reth(reth()),
            ExtensionKind::RethImm => Extension::RethImm(reth(), arguments.imm),
            ExtensionKind::Ieth => Extension::Ieth(arguments.invalidated),
            ExtensionKind::Atomic => Extension::Atomic(self.atomic(&arguments)),
            ExtensionKind::Flush => {
                let operands: Flush = transmute!(arguments.operands);
                let (va, rkey) = (arguments.remote_addr, arguments.rkey);
                let feth = Feth::new(operands.placement, operands.selectivity);
                Extension::Flush(feth, Reth::new(va, rkey, operands.length))
            }
            // No request has an AETH; the DETH is filled in where the QP's own number is known.
            _ => Extension::None,
        }
    }

    fn atomic(&self, arguments: &Arguments) -> AtomicEth {
        let operands: Atomic = transmute!(arguments.operands);
        let (swap_add, compare) = match self.opcode.info().kind {
            Kind::Atomic(AtomicKind::CompareSwap) => (operands.swap, operands.compare_add),
            _ => (operands.compare_add, 0),
        };
        AtomicEth::new(arguments.remote_addr, arguments.rkey, swap_add, compare)
    }
}

/// A request segment as the responder gets it, without its payload.
///
/// Nothing was checked beyond the guarantees of its origin; the responder accepts any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingRequest {
    /// Its operation, and its place in the message.
    pub opcode: Opcode,
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for.
    pub span: u32,
    /// Requests an ACK.
    pub ack_req: bool,
    /// The peer keeps packets behind a gap, and understands a report of those that are missing.
    pub keeps: bool,
    /// Requests a solicited event.
    pub solicited: bool,
    /// The extended headers.
    pub extension: Extension,
    /// Bytes of payload.
    pub payload_len: u32,
}

impl IncomingRequest {
    /// The request in a packet, or `None` if the packet is a response.
    #[inline]
    pub const fn from_packet(packet: &Packet) -> Option<Self> {
        if !packet.opcode.info().kind.is_request() {
            return None;
        }
        Some(Self {
            opcode: packet.opcode,
            psn: packet.psn,
            span: 1,
            ack_req: packet.ack_req,
            keeps: packet.keeps,
            solicited: packet.solicited,
            extension: packet.extension,
            // A packet is shorter than 2^16 bytes.
            payload_len: packet.payload_len as u32,
        })
    }

    /// The local path: the segment of one QP arrives at the other.
    #[inline]
    pub const fn local(segment: &RequestSegment, extension: Extension) -> Self {
        Self {
            opcode: segment.opcode,
            psn: segment.psn,
            span: segment.span,
            ack_req: segment.ack_req,
            keeps: false,
            solicited: segment.solicited,
            extension,
            payload_len: segment.len,
        }
    }
}

/// A response that the responder sends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// An acknowledge packet.
    Acknowledge {
        /// PSN of its packet.
        psn: Psn,
        /// ACK, RNR NAK or NAK.
        syndrome: AethSyndrome,
        /// Message sequence number.
        msn: u32,
    },
    /// A piece of the payload of an RDMA READ.
    ReadResponse {
        /// The piece, as the requester sees it.
        segment: ReadSegment,
        /// Where its bytes are. Checked again when they are copied.
        source: Span,
        /// Message sequence number.
        msn: u32,
        /// A part that is answered again to a peer that keeps the rest.
        again: bool,
    },
    /// What is missing, and what is kept behind it. The bitmap is that of the responder when the
    /// packet is made.
    Missing {
        /// PSN of the expected packet.
        psn: Psn,
        /// Message sequence number.
        msn: u32,
        /// Bytes of the bitmap.
        len: u32,
    },
    /// The response to an atomic operation.
    Atomic {
        /// PSN of its only packet.
        psn: Psn,
        /// The original value.
        original: u64,
        /// Message sequence number.
        msn: u32,
    },
}

impl Response {
    /// The opcode of the packet (for a READ response of span 1).
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Response::Acknowledge { .. } => Opcode::RcAcknowledge,
            Response::Missing { .. } => Opcode::RcMissing,
            Response::ReadResponse { segment, .. } => {
                Opcode::for_read_response(segment.first, segment.last)
            }
            Response::Atomic { .. } => Opcode::RcAtomicAcknowledge,
        }
    }

    /// PSN of the (first) packet.
    #[inline]
    pub const fn psn(&self) -> Psn {
        match self {
            Response::Acknowledge { psn, .. }
            | Response::Missing { psn, .. }
            | Response::Atomic { psn, .. } => *psn,
            Response::ReadResponse { segment, .. } => segment.psn,
        }
    }

    /// Whether its packet says that its sender keeps packets behind a gap.
    #[inline]
    pub const fn keeps(&self) -> bool {
        matches!(self, Response::ReadResponse { segment, .. } if segment.keeps)
    }

    /// Whether it is the last of a part of a READ that is answered again alone.
    #[inline]
    pub const fn ends_part(&self) -> bool {
        matches!(self, Response::ReadResponse { segment, again: true, .. } if segment.last)
    }

    /// How many packets it stands for.
    #[inline]
    pub const fn span(&self) -> u32 {
        match self {
            Response::ReadResponse { segment, .. } => segment.span,
            Response::Acknowledge { .. } | Response::Missing { .. } | Response::Atomic { .. } => 1,
        }
    }

    /// Bytes of payload; those of an atomic operation are in a header.
    #[inline]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length of payload, not of a collection"
    )]
    pub const fn len(&self) -> u32 {
        match self {
            Response::ReadResponse { segment, .. } => segment.len,
            Response::Missing { len, .. } => *len,
            Response::Acknowledge { .. } | Response::Atomic { .. } => 0,
        }
    }

    /// The extended headers of the packet: an AETH, but for middle READ responses.
    #[inline]
    pub const fn extension(&self) -> Extension {
        const ACK: AethSyndrome = AethSyndrome::Ack {
            credits: AethSyndrome::CREDITS_INVALID,
        };
        match self {
            Response::Acknowledge { syndrome, msn, .. } => {
                Extension::Aeth(Aeth::new(*syndrome, *msn))
            }
            Response::Missing { msn, .. } => {
                Extension::Aeth(Aeth::new(AethSyndrome::Nak(NakCode::PsnSequence), *msn))
            }
            Response::ReadResponse { segment, msn, .. } if segment.first || segment.last => {
                Extension::Aeth(Aeth::new(ACK, *msn))
            }
            Response::ReadResponse { .. } => Extension::None,
            Response::Atomic { original, msn, .. } => {
                Extension::AtomicAck(Aeth::new(ACK, *msn), AtomicAckEth::new(*original))
            }
        }
    }
}

/// A response with payload, without that payload: a piece of an RDMA READ, or the original value of
/// an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Kind of its payload.
    pub brings: Brings,
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for.
    pub span: u32,
    /// First of its response.
    pub first: bool,
    /// Last of its response.
    pub last: bool,
    /// The peer keeps requests behind a gap, and answers several parts of a READ again.
    pub keeps: bool,
    /// Bytes of payload.
    pub len: u32,
}

impl ReadSegment {
    /// The response to an atomic operation.
    #[inline]
    pub const fn original(psn: Psn) -> Self {
        Self {
            brings: Brings::Original,
            psn,
            span: 1,
            first: true,
            last: true,
            keeps: false,
            len: ATOMIC_SIZE,
        }
    }

    /// The response with payload in a packet, or `None` for any other packet.
    #[inline]
    pub const fn from_packet(packet: &Packet) -> Option<Self> {
        let info = packet.opcode.info();
        match info.kind {
            Kind::AtomicAcknowledge => Some(Self::original(packet.psn)),
            Kind::ReadResponse => Some(Self {
                brings: Brings::Data,
                psn: packet.psn,
                span: 1,
                first: info.first,
                last: info.last,
                keeps: packet.keeps,
                // A packet has at most 4096 bytes of payload.
                len: packet.payload_len as u32,
            }),
            _ => None,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_segment))]
mod tests {
    use super::*;
    use crate::core::wire::headers::Deth;
    use crate::core::wire::opcode::OpcodeService;
    use crate::core::wire::packet::{
        parse,
        Headers, //
    };

    const ARGUMENTS: Arguments = Arguments {
        remote_addr: 0x1000,
        rkey: 7,
        imm: [1, 2, 3, 4],
        invalidated: 0x1122_3344,
        operands: [5, 6],
    };

    const AETH: Aeth = Aeth::new(AethSyndrome::Ack { credits: 0 }, 1);

    fn packet(opcode: Opcode) -> Packet {
        let info = opcode.info();
        let mut headers = Headers::new(opcode, 0x11, Psn::new(9));
        headers.ack_req = true;
        let reth = Reth::new(0x1000, 7, 12);
        headers.extension = match info.extension {
            ExtensionKind::None => Extension::None,
            ExtensionKind::Imm => Extension::Imm([1, 2, 3, 4]),
            ExtensionKind::Reth => Extension::Reth(reth),
            ExtensionKind::RethImm => Extension::RethImm(reth, [1, 2, 3, 4]),
            ExtensionKind::Aeth => Extension::Aeth(AETH),
            ExtensionKind::Deth => Extension::Deth(Deth::new(1, 2)),
            ExtensionKind::DethImm => Extension::DethImm(Deth::new(1, 2), [1, 2, 3, 4]),
            ExtensionKind::Ieth => Extension::Ieth(0x1122_3344),
            ExtensionKind::Atomic => {
                let is_add = opcode == Opcode::RcFetchAdd;
                let (swap_add, compare) = if is_add { (5, 0) } else { (6, 5) };
                Extension::Atomic(AtomicEth::new(0x1000, 7, swap_add, compare))
            }
            ExtensionKind::AtomicAck => Extension::AtomicAck(AETH, AtomicAckEth::new(9)),
            // The operands as a little-endian machine reads them.
            ExtensionKind::Flush => Extension::Flush(Feth::new(0, 0), Reth::new(0x1000, 7, 5)),
            ExtensionKind::Reserved => Extension::Reserved,
        };
        let mut bytes = [0; 64];
        let len = headers.emit(&mut bytes).unwrap();
        let payload = if info.has_payload() { 8 } else { 0 };
        parse(&bytes, len + payload + 4).unwrap()
    }

    /// A packet is a request or a response, and comes out as the opcode that went in.
    #[test]
    fn packets_become_segments_and_opcodes_again() {
        let is_datagram = |opcode: &Opcode| opcode.info().service == OpcodeService::Ud;
        for opcode in Opcode::ALL.iter().copied().filter(|o| !is_datagram(o)) {
            let packet = packet(opcode);
            let info = opcode.info();
            let request = IncomingRequest::from_packet(&packet);
            let response = ReadSegment::from_packet(&packet);
            let is_ack = matches!(
                info.kind,
                Kind::Acknowledge | Kind::Missing | Kind::Notification
            );
            assert_eq!(
                u8::from(request.is_some()) + u8::from(response.is_some()) + u8::from(is_ack),
                1
            );
            if let Some(read) = response {
                assert_eq!((read.first, read.last), (info.first, info.last));
                assert_eq!((read.psn.get(), read.span, read.len), (9, 1, 8));
                let whole = match read.brings {
                    Brings::Data => Response::ReadResponse {
                        segment: read,
                        source: Span::new(7, 0x1000, read.len),
                        msn: 1,
                        again: false,
                    },
                    Brings::Original => Response::Atomic {
                        psn: read.psn,
                        original: 9,
                        msn: 1,
                    },
                };
                if read.brings == Brings::Original {
                    assert_eq!(whole.extension().original(), Some(9));
                }
                assert_eq!(whole.psn(), read.psn);
                assert_eq!(whole.opcode(), opcode);
                assert_eq!(whole.extension().kind(), info.extension);
            }
            let Some(incoming) = request else {
                continue;
            };
            assert!(incoming.ack_req && !incoming.solicited);
            let sent = RequestSegment {
                slot: Slot::default(),
                opcode: incoming.opcode,
                psn: incoming.psn,
                span: incoming.span,
                offset: 0,
                len: incoming.payload_len,
                message_len: 12,
                ack_req: incoming.ack_req,
                solicited: incoming.solicited,
            };
            let extension = sent.extension(|| ARGUMENTS);
            assert_eq!(extension.kind(), info.extension);
            assert_eq!(IncomingRequest::local(&sent, extension), incoming);
        }
    }
}
