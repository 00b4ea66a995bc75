// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Segments: what one step of the transport moves.
//!
//! On the wire a segment is one packet. On the local path, where requester and responder are QPs
//! of the same device and no packet exists, a segment may stand for many packets at once: its
//! `span`. Sequence numbers, windows and acknowledgements are then exactly as if `span` packets had
//! been sent one after the other, so both paths run the same state machines.
//!
//! A span above 1 means `span` times the path MTU bytes of payload, less what the last packet of
//! the message has to spare.

use crate::wire::headers::AethSyndrome;
use crate::wire::opcode;
use crate::wire::opcode::Opcode;
use crate::wire::packet::AethInfo;
use crate::wire::packet::Packet;
use crate::wire::psn::Psn;

/// The RDMA extended transport header: what remote memory a message is about.
pub use crate::wire::packet::RethInfo as Reth;

/// What a request segment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Carries data for a receive.
    Send,
    /// Carries data for remote memory.
    Write,
    /// Asks for data.
    ReadRequest,
}

/// A segment that the requester wants to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSegment {
    /// Slot of the work request, an index in the slots.
    pub slot: u32,
    /// What it does.
    pub kind: Kind,
    /// It begins a message. Always true of a READ request, which is a message by itself.
    pub first: bool,
    /// It ends a message. Always true of a READ request.
    pub last: bool,
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for. 1 for a READ request, which is one packet although it
    /// takes as many PSNs as it will have responses.
    pub span: u32,
    /// Where its payload begins in the message of the work request, in bytes.
    pub offset: u32,
    /// Bytes of payload; 0 for a READ request.
    pub len: u32,
    /// The responder shall acknowledge.
    pub ack_req: bool,
    /// The responder shall raise a solicited event.
    pub solicited: bool,
    /// Immediate data in the order of the wire; only with `last`.
    pub imm: Option<[u8; 4]>,
    /// Only with `first`, of a WRITE or a READ request.
    pub reth: Option<Reth>,
}

impl RequestSegment {
    /// The opcode of the packet, when the segment is one (`span` is 1).
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Send => Opcode::for_send(self.first, self.last, self.imm.is_some()),
            Kind::Write => Opcode::for_write(self.first, self.last, self.imm.is_some()),
            Kind::ReadRequest => Opcode::RcReadRequest,
        }
    }
}

/// A request segment as it comes to the responder, without its payload.
///
/// Nothing about it was checked but for what its origin guarantees; the responder takes any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingRequest {
    /// What it does.
    pub kind: Kind,
    /// It begins a message.
    pub first: bool,
    /// It ends a message.
    pub last: bool,
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for.
    pub span: u32,
    /// The peer wants an acknowledgement.
    pub ack_req: bool,
    /// The completion shall raise a solicited event.
    pub solicited: bool,
    /// Immediate data in the order of the wire.
    pub imm: Option<[u8; 4]>,
    /// Which memory it is about.
    pub reth: Option<Reth>,
    /// Bytes of payload.
    pub payload_len: u32,
}

impl IncomingRequest {
    /// The request in a packet, or `None` if the packet is a response.
    #[inline]
    pub const fn from_packet(packet: &Packet) -> Option<Self> {
        let info = packet.opcode.info();
        let kind = match info.kind {
            opcode::Kind::Send => Kind::Send,
            opcode::Kind::Write => Kind::Write,
            opcode::Kind::ReadRequest => Kind::ReadRequest,
            opcode::Kind::ReadResponse | opcode::Kind::Acknowledge => return None,
        };
        Some(Self {
            kind,
            first: info.first,
            last: info.last,
            psn: packet.psn,
            span: 1,
            ack_req: packet.ack_req,
            solicited: packet.solicited,
            imm: packet.imm,
            reth: packet.reth,
            // A packet has at most 4096 bytes of payload.
            payload_len: packet.payload_len as u32,
        })
    }
}

impl From<&RequestSegment> for IncomingRequest {
    /// The local path: what leaves the one QP arrives at the other.
    #[inline]
    fn from(segment: &RequestSegment) -> Self {
        Self {
            kind: segment.kind,
            first: segment.first,
            last: segment.last,
            psn: segment.psn,
            span: segment.span,
            ack_req: segment.ack_req,
            solicited: segment.solicited,
            imm: segment.imm,
            reth: segment.reth,
            payload_len: segment.len,
        }
    }
}

/// What the responder wants to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// An acknowledge packet.
    Acknowledge {
        /// PSN that it is about.
        psn: Psn,
        /// ACK, RNR NAK or NAK.
        syndrome: AethSyndrome,
        /// Message sequence number.
        msn: u32,
    },
    /// A piece of the data of an RDMA READ.
    ReadResponse {
        /// The piece, as the requester will see it.
        segment: ReadSegment,
        /// Key of the region that the bytes come from.
        rkey: u32,
        /// Address of the bytes in that region. To be checked again when they are copied.
        va: u64,
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
            Response::ReadResponse { segment, .. } => {
                Opcode::for_read_response(segment.first, segment.last)
            }
        }
    }

    /// PSN of the (first) packet.
    #[inline]
    pub const fn psn(&self) -> Psn {
        match self {
            Response::Acknowledge { psn, .. } => *psn,
            Response::ReadResponse { segment, .. } => segment.psn,
        }
    }

    /// The AETH of the packet; middle READ responses have none.
    #[inline]
    pub const fn aeth(&self) -> Option<AethInfo> {
        match self {
            Response::Acknowledge { syndrome, msn, .. } => Some(AethInfo {
                syndrome: *syndrome,
                msn: *msn,
            }),
            Response::ReadResponse { segment, msn, .. } if segment.first || segment.last => {
                Some(AethInfo {
                    syndrome: AethSyndrome::Ack {
                        credits: AethSyndrome::CREDITS_INVALID,
                    },
                    msn: *msn,
                })
            }
            Response::ReadResponse { .. } => None,
        }
    }
}

/// A piece of the data of an RDMA READ, without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// PSN of its (first) packet.
    pub psn: Psn,
    /// How many packets it stands for.
    pub span: u32,
    /// It begins the answer to a READ request.
    pub first: bool,
    /// It ends the answer to a READ request.
    pub last: bool,
    /// Bytes of payload.
    pub len: u32,
}

impl ReadSegment {
    /// The READ response in a packet, or `None` if the packet is something else.
    #[inline]
    pub const fn from_packet(packet: &Packet) -> Option<Self> {
        let info = packet.opcode.info();
        match info.kind {
            opcode::Kind::ReadResponse => Some(Self {
                psn: packet.psn,
                span: 1,
                first: info.first,
                last: info.last,
                // A packet has at most 4096 bytes of payload.
                len: packet.payload_len as u32,
            }),
            _ => None,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_segment)
)]
mod tests {
    use super::*;
    use crate::wire::packet::parse;
    use crate::wire::packet::Headers;

    fn packet(opcode: Opcode, ack_req: bool) -> Packet {
        let info = opcode.info();
        let mut headers = Headers::new(opcode, 0x11, Psn::new(9));
        headers.ack_req = ack_req;
        headers.reth = info.has_reth.then_some(Reth {
            va: 0x1000,
            rkey: 7,
            length: 12,
        });
        headers.aeth = info.has_aeth.then_some(AethInfo {
            syndrome: AethSyndrome::Ack { credits: 0 },
            msn: 1,
        });
        headers.imm = info.has_imm.then_some([1, 2, 3, 4]);
        let mut bytes = [0; 64];
        let len = headers.emit(&mut bytes).unwrap();
        let payload = match info.kind {
            opcode::Kind::ReadRequest | opcode::Kind::Acknowledge => 0,
            _ => 8,
        };
        parse(&bytes, len + payload + 4).unwrap()
    }

    /// A packet is a request or a response, and comes out as the opcode that went in.
    #[test]
    fn packets_become_segments_and_opcodes_again() {
        for opcode in Opcode::ALL.iter().copied() {
            let packet = packet(opcode, true);
            let info = opcode.info();
            let request = IncomingRequest::from_packet(&packet);
            let response = ReadSegment::from_packet(&packet);
            let is_ack = info.kind == opcode::Kind::Acknowledge;
            assert_eq!(
                u8::from(request.is_some()) + u8::from(response.is_some()) + u8::from(is_ack),
                1
            );
            if let Some(read) = response {
                assert_eq!((read.first, read.last), (info.first, info.last));
                assert_eq!((read.psn.get(), read.span, read.len), (9, 1, 8));
                let whole = Response::ReadResponse {
                    segment: read,
                    rkey: 7,
                    va: 0x1000,
                    msn: 1,
                };
                assert_eq!(whole.opcode(), opcode);
                assert_eq!(whole.aeth().is_some(), info.has_aeth);
            }
            let Some(incoming) = request else {
                continue;
            };
            assert!(incoming.ack_req && !incoming.solicited);
            let sent = RequestSegment {
                slot: 0,
                kind: incoming.kind,
                first: incoming.first,
                last: incoming.last,
                psn: incoming.psn,
                span: incoming.span,
                offset: 0,
                len: incoming.payload_len,
                ack_req: incoming.ack_req,
                solicited: incoming.solicited,
                imm: incoming.imm,
                reth: incoming.reth,
            };
            assert_eq!(sent.opcode(), opcode);
            assert_eq!(IncomingRequest::from(&sent), incoming);
        }
    }
}
