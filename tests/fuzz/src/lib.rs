// SPDX-License-Identifier: GPL-2.0

//! What others can write to the module, decided by the bytes of a fuzzer: packets by anybody,
//! requests and responses by a peer, work requests by a process. What must hold is said in
//! [`ferroce_hostile`].

use arbitrary::Unstructured;
use ferroce_core::wire::opcode::Kind;
use ferroce_core::wire::packet::{parse, Headers, MAX_HEADERS};
use ferroce_core::wire::{ICRC_LEN, MAX_PAYLOAD};
use ferroce_hostile::dice::Chance;
use ferroce_hostile::{any_answers, any_work_requests, converse, KINDS};

/// Steps of one conversation: more than its bytes suffice for.
const STEPS: usize = 200;

/// An input, byte by byte. When it is at its end all that is drawn is 0.
struct Input<'a>(Unstructured<'a>);

impl Chance for Input<'_> {
    fn throw(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.int_in_range(0..=n.saturating_sub(1)).unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// The target of a name.
///
/// # Panics
///
/// If there is none.
pub fn target(name: &str) -> fn(&[u8]) {
    match name {
        "packet" => packet,
        "responder" => responder,
        "requester" => requester,
        "unreliable" => unreliable,
        "wqe" => wqe,
        other => panic!("no target {other}"),
    }
}

/// The parser gets a packet, linear or only its head; what it takes has its parts where its callers
/// look for them, can be sent, and is the same.
fn packet(data: &[u8]) {
    let Some((more, head)) = data.split_first_chunk() else {
        return;
    };
    // Behind a head that has room for all headers there may be more.
    let more = match head.len() < MAX_HEADERS {
        true => 0,
        false => usize::from(u16::from_le_bytes(*more)),
    };
    let total = head.len() + more;
    let Ok(packet) = parse(head, total) else {
        return;
    };
    let info = packet.opcode.info();
    let padded = packet.payload_len + usize::from(packet.pad);
    assert_eq!(packet.extension.kind(), info.extension);
    assert_eq!(packet.payload_offset, info.headers_len());
    assert_eq!(packet.payload_offset + padded + ICRC_LEN, total);
    assert!(packet.pad < 4 && padded % 4 == 0 && (info.has_payload() || padded == 0));
    assert!(packet.payload_len <= MAX_PAYLOAD || info.kind == Kind::Unsupported);
    let mut out = [0; MAX_HEADERS];
    let headers = Headers::from(&packet);
    let len = headers.emit(&mut out).expect("what was parsed can be sent");
    assert_eq!(parse(&out[..len], total), Ok(packet));
}

/// A responder of RC gets any requests, and does what the model says.
fn responder(data: &[u8]) {
    converse(&mut Input(Unstructured::new(data)), &KINDS[..7], STEPS);
}

/// A requester gets any responses.
fn requester(data: &[u8]) {
    any_answers(&mut Input(Unstructured::new(data)), STEPS);
}

/// Responders of UC and of UD get any packets, and do what the model says.
fn unreliable(data: &[u8]) {
    converse(&mut Input(Unstructured::new(data)), &KINDS[7..], STEPS);
}

/// A process writes anything into its rings.
fn wqe(data: &[u8]) {
    any_work_requests(&mut Input(Unstructured::new(data)), STEPS);
}
