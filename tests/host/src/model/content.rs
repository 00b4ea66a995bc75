// SPDX-License-Identifier: GPL-2.0

//! What travels: a packet, which was bytes in between, or on the local path a segment as it is.

use ferroce_core::operation::Arguments;
use ferroce_core::segment::{IncomingRequest, ReadSegment, RequestSegment, Response};
use ferroce_core::wire::headers::Aeth;
use ferroce_core::wire::opcode::Kind;
use ferroce_core::wire::packet::{parse, Headers};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::ICRC_LEN;
use ferroce_hostile::frame::emitted;

/// Of either QP: there are no others.
const QPN: u32 = 0xab_cdef;

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
    /// What a request segment says.
    pub fn request(
        segment: &RequestSegment,
        keeps: bool,
        arguments: &Arguments,
        payload: &[u8],
    ) -> Self {
        let extension = segment.extension(|| *arguments);
        if segment.span != 1 {
            return Content::Request(IncomingRequest::local(segment, extension), payload.to_vec());
        }
        let mut headers = Headers::new(segment.opcode, QPN, segment.psn);
        headers.ack_req = segment.ack_req;
        headers.keeps = keeps;
        headers.solicited = segment.solicited;
        headers.extension = extension;
        Self::packet(headers, payload)
    }

    /// What a response says.
    pub fn response(response: &Response, payload: &[u8]) -> Self {
        if let Response::ReadResponse { segment, .. } = response {
            if segment.span != 1 {
                return Content::Read(*segment, payload.to_vec());
            }
        }
        let mut headers = Headers::new(response.opcode(), QPN, response.psn());
        headers.keeps = response.keeps();
        headers.extension = response.extension();
        Self::packet(headers, payload)
    }

    /// What a packet says to who parses it.
    fn packet(headers: Headers, payload: &[u8]) -> Self {
        let mut bytes = emitted(headers, payload);
        bytes.extend([0; ICRC_LEN]);
        let packet = parse(&bytes, bytes.len()).expect("a packet");
        assert_eq!((packet.dest_qpn, packet.payload_len), (QPN, payload.len()));
        let payload = bytes[packet.payload_offset..][..packet.payload_len].to_vec();
        if let Some(request) = IncomingRequest::from_packet(&packet) {
            return Content::Request(request, payload);
        }
        if let Some(segment) = ReadSegment::from_packet(&packet) {
            // What an atomic operation found stands in a header.
            let original = packet.extension.original().map(u64::to_ne_bytes);
            let payload = original.map_or(payload, |bytes| bytes.to_vec());
            return Content::Read(segment, payload);
        }
        let aeth = packet.extension.aeth().expect("an acknowledgement");
        if packet.opcode.info().kind == Kind::Missing {
            return Content::Missing(packet.psn, aeth, payload);
        }
        Content::Acknowledge(packet.psn, aeth)
    }

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

    /// What it carries.
    pub fn payload(&self) -> &[u8] {
        match self {
            Content::Request(_, bytes) | Content::Missing(.., bytes) | Content::Read(_, bytes) => {
                bytes
            }
            Content::Acknowledge(..) => &[],
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
