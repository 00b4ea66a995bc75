// SPDX-License-Identifier: GPL-2.0

//! What travels: a packet as its bytes from the IP header to the ICRC, or on the local path a
//! segment as it is.
//!
//! Computing an ICRC is most of the work of sending a packet. So a packet gets its own only when
//! the network is about to change it, which gives the same answers: what was not changed is whole.

use ferroce_core::operation::Arguments;
use ferroce_core::segment::{IncomingRequest, ReadSegment, RequestSegment, Response};
use ferroce_core::wire::headers::{Aeth, AethSyndrome, NakCode};
use ferroce_core::wire::icrc::is_plain_ipv4;
use ferroce_core::wire::opcode::Kind;
use ferroce_core::wire::packet::{parse, Headers};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::ICRC_LEN;
use ferroce_hostile::frame::{emitted, icrc_of, Hosts, Outer, ETHERNET};

/// What a packet or segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Request(IncomingRequest, Vec<u8>),
    Acknowledge(Psn, Aeth),
    Missing(Psn, Aeth, Vec<u8>),
    /// A response that brings something, and what it brings.
    Read(ReadSegment, Vec<u8>),
}

impl Content {
    /// PSN of the (first) packet.
    pub fn psn(&self) -> Psn {
        match self {
            Content::Request(request, _) => request.psn,
            Content::Acknowledge(psn, _) | Content::Missing(psn, ..) => *psn,
            Content::Read(segment, _) => segment.psn,
        }
    }

    /// How many packets it stands for.
    pub fn span(&self) -> u32 {
        match self {
            Content::Request(request, _) => request.span,
            Content::Acknowledge(..) | Content::Missing(..) => 1,
            Content::Read(segment, _) => segment.span,
        }
    }

    /// What an acknowledge packet says.
    pub fn syndrome(&self) -> Option<AethSyndrome> {
        match self {
            Content::Acknowledge(_, aeth) | Content::Missing(_, aeth, _) => Some(aeth.syndrome()),
            Content::Request(..) | Content::Read(..) => None,
        }
    }

    /// Whether two requests differ in nothing but what they ask for.
    pub fn says_the_same(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Request(one, bytes), Content::Request(other, others)) => {
                let mut one = *one;
                one.ack_req = other.ack_req;
                one == *other && bytes == others
            }
            _ => self == other,
        }
    }

    /// Whether it is a request.
    pub fn is_request(&self) -> bool {
        matches!(self, Content::Request(..))
    }
}

const QPN: [u32; 2] = [0x11, 0xab_cdef];
const IP: usize = 20;
const UDP: usize = 8;

/// What a request segment says.
pub fn content_of(
    segment: &RequestSegment,
    keeps: bool,
    arguments: &Arguments,
    payload: &[u8],
) -> Content {
    let extension = segment.extension(|| *arguments);
    let mut request = IncomingRequest::local(segment, extension);
    // Nothing is lost on the local path.
    request.keeps = keeps && segment.span == 1;
    Content::Request(request, payload.to_vec())
}

/// What a response says.
pub fn answer_of(response: &Response, payload: &[u8]) -> Content {
    match response {
        Response::Acknowledge { psn, syndrome, msn } => {
            Content::Acknowledge(*psn, Aeth::new(*syndrome, *msn))
        }
        Response::Missing { psn, msn, .. } => {
            let syndrome = AethSyndrome::Nak(NakCode::PsnSequence);
            Content::Missing(*psn, Aeth::new(syndrome, *msn), payload.to_vec())
        }
        Response::ReadResponse { segment, .. } => Content::Read(*segment, payload.to_vec()),
        Response::Atomic { psn, .. } => {
            Content::Read(ReadSegment::original(*psn), payload.to_vec())
        }
    }
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub enum Frame {
    /// Bytes from the IP header on.
    Packet {
        bytes: Vec<u8>,
        sealed: bool,
    },
    Segment(Content),
}

impl Frame {
    /// A request that leaves `side`.
    pub fn request(
        side: usize,
        segment: &RequestSegment,
        keeps: bool,
        arguments: &Arguments,
        payload: &[u8],
    ) -> Self {
        if segment.span != 1 {
            return Frame::Segment(content_of(segment, keeps, arguments, payload));
        }
        let mut headers = Headers::new(segment.opcode, QPN[1 - side], segment.psn);
        headers.ack_req = segment.ack_req;
        headers.keeps = keeps;
        headers.solicited = segment.solicited;
        headers.extension = segment.extension(|| *arguments);
        Self::packet(side, headers, payload)
    }

    /// A response that leaves `side`.
    pub fn response(side: usize, response: &Response, payload: &[u8]) -> Self {
        if let Response::ReadResponse { segment, .. } = response {
            if segment.span != 1 {
                return Frame::Segment(answer_of(response, payload));
            }
        }
        let mut headers = Headers::new(response.opcode(), QPN[1 - side], response.psn());
        headers.keeps = response.keeps();
        headers.extension = response.extension();
        // What an atomic operation found stands in a header.
        let payload = match response {
            Response::Atomic { .. } => &[],
            _ => payload,
        };
        Self::packet(side, headers, payload)
    }

    fn packet(side: usize, headers: Headers, payload: &[u8]) -> Self {
        let mut outer = Outer::new(&Hosts::numbered(false));
        if side == 1 {
            std::mem::swap(&mut outer.from, &mut outer.to);
        }
        // In place of the ICRC stand zeros.
        outer.icrc = false;
        let mut ib = emitted(headers, payload);
        ib.extend([0; ICRC_LEN]);
        Frame::Packet {
            bytes: outer.frame(&ib).split_off(ETHERNET),
            sealed: false,
        }
    }

    /// Gives the packet its ICRC.
    pub fn seal(&mut self) {
        if let Frame::Packet { bytes, sealed } = self {
            let body = bytes.len() - ICRC_LEN;
            let icrc = icrc_of(&bytes[..IP], &bytes[IP..body]);
            bytes[body..].copy_from_slice(&icrc);
            *sealed = true;
        }
    }

    /// What arrives at `side`, or `None` if it is dropped.
    pub fn open(self, side: usize) -> Option<Content> {
        let (bytes, sealed) = match self {
            Frame::Segment(content) => return Some(content),
            Frame::Packet { bytes, sealed } => (bytes, sealed),
        };
        let transport = bytes.get(IP + UDP..)?;
        let packet = parse(transport, transport.len()).ok()?;
        if packet.dest_qpn != QPN[side] {
            return None;
        }
        let body = bytes.len() - ICRC_LEN;
        let is_whole = || icrc_of(&bytes[..IP], &bytes[IP..body])[..] == bytes[body..];
        if sealed && !(is_plain_ipv4(bytes[0]) && is_whole()) {
            return None;
        }
        let payload = transport[packet.payload_offset..][..packet.payload_len].to_vec();
        if let Some(request) = IncomingRequest::from_packet(&packet) {
            return Some(Content::Request(request, payload));
        }
        if let Some(segment) = ReadSegment::from_packet(&packet) {
            let original = packet.extension.original().map(u64::to_ne_bytes);
            let payload = original.map_or(payload, |bytes| bytes.to_vec());
            return Some(Content::Read(segment, payload));
        }
        let aeth = packet.extension.aeth()?;
        if packet.opcode.info().kind == Kind::Missing {
            return Some(Content::Missing(packet.psn, aeth, payload));
        }
        Some(Content::Acknowledge(packet.psn, aeth))
    }
}

/// Whether a byte of a packet, counted from the IP header, may be changed by routers.
pub fn varies(at: usize) -> bool {
    const BTH: usize = IP + UDP;
    // Type of service, time to live, header checksum; UDP checksum; congestion bits.
    matches!(at, 1 | 8 | 10 | 11 | 26 | 27) || at == BTH + 4
}
