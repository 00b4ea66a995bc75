// SPDX-License-Identifier: GPL-2.0

//! Peers that answer anything at all, and [processes](process) that post anything at all. What they
//! do is drawn from a [`Chance`]: dice, for tests that are the same each time, or the bytes of a
//! fuzzer. Peers that ask anything at all are `ferroce_hostile`.

mod process;

pub use ferroce_hostile::dice::Chance;
pub use process::work_requests;

use ferroce_core::completion::Status;
use ferroce_core::message::Mtu;
use ferroce_core::operation::{Brings, Operation, Reply};
use ferroce_core::rc::requester::{Requester, SendSlot};
use ferroce_core::rc::RequesterConfig;
use ferroce_core::segment::ReadSegment;
use ferroce_core::send::SendRequest;
use ferroce_core::storage::Slot;
use ferroce_core::wire::headers::{Aeth, AethSyndrome};
use ferroce_core::wire::opcode::Kind;
use ferroce_core::wire::packet::Packet;
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::{ICRC_LEN, MAX_PAYLOAD};

/// What every caller of `parse` relies on, without the code of `parse`.
pub fn assert_consistent(packet: &Packet, udp_payload_len: usize) {
    let info = packet.opcode.info();
    let extension = packet.extension;
    assert_eq!(extension.kind(), info.extension);
    let extended = 16 * usize::from(extension.reth().is_some())
        + 8 * usize::from(extension.deth().is_some())
        + 4 * usize::from(extension.aeth().is_some())
        + 4 * usize::from(extension.imm().is_some())
        + 4 * usize::from(extension.invalidated().is_some())
        + 20 * usize::from(extension.flush().is_some())
        + 28 * usize::from(extension.atomic().is_some())
        + 8 * usize::from(extension.original().is_some())
        + 16 * usize::from(info.kind == Kind::Notification);
    assert_eq!(packet.payload_offset, 12 + extended);
    let pad = usize::from(packet.pad);
    assert_eq!(
        packet.payload_offset + packet.payload_len + pad + ICRC_LEN,
        udp_payload_len
    );
    assert!(pad <= 3);
    assert_eq!((packet.payload_len + pad) % 4, 0);
    assert!(packet.payload_len <= MAX_PAYLOAD || info.kind == Kind::Unsupported);
    if !info.has_payload() {
        assert_eq!((packet.payload_len, pad), (0, 0));
    }
    assert!(packet.dest_qpn < 1 << 24 && packet.psn.get() < 1 << 24);
    assert!(extension.aeth().is_none_or(|aeth| aeth.msn() < 1 << 24));
}

fn connected_requester(first_psn: u32) -> Requester<Vec<SendSlot>> {
    let mut requester = Requester::new(vec![SendSlot::default(); 16]);
    requester.connect(RequesterConfig {
        mtu: Mtu::MIN,
        sq_psn: Psn::new(first_psn),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(1_000_000),
        max_rd_atomic: 4,
        ecn: false,
    });
    requester
}

/// A number near something interesting.
fn number(rng: &mut impl Chance) -> u32 {
    let near = [
        0,
        1,
        255,
        256,
        257,
        512,
        1 << 23,
        1 << 24,
        1 << 31,
        u32::MAX,
    ];
    match rng.below(3) {
        0 => near[rng.below(near.len() as u64) as usize],
        1 => rng.below(600) as u32,
        _ => rng.throw() as u32,
    }
}

fn near_psn(rng: &mut impl Chance, psn: Psn) -> Psn {
    match rng.below(10) {
        0..6 => psn,
        6 => psn.add(rng.below(3) as u32),
        7 | 8 => psn.sub(rng.below(600) as u32),
        _ => psn.add(number(rng)),
    }
}

fn aeth(syndrome: u8, msn: u32) -> Aeth {
    Aeth::new(AethSyndrome::decode(syndrome), msn)
}

/// A requester gets responses of any kind. Returns how many of its requests succeeded.
pub fn responses(rng: &mut impl Chance, steps: usize) -> usize {
    let psn = rng.throw() as u32;
    let mut requester = connected_requester(psn);
    let mut done = Vec::new();
    let mut now = 0;
    let mut wr_id = 0;
    let mut asked = [(Operation::Send, 0); 16];
    let mut oldest = Psn::new(psn);
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        let ops = [
            Operation::Send,
            Operation::Write,
            Operation::Read,
            Operation::CompareSwap,
            Operation::FetchAdd,
            Operation::AtomicWrite,
            Operation::Flush,
        ];
        if rng.percent(35) {
            let op = ops[rng.below(ops.len() as u64) as usize];
            let length = number(rng).min(1 << 31) >> (rng.below(3) * 8);
            let length = if op.has_length(length) { length } else { 8 };
            let pushed = requester.push(SendRequest {
                wr_id,
                op,
                length,
                signaled: true,
                fence: rng.percent(20),
                ..SendRequest::default()
            });
            if let Ok(slot) = pushed {
                asked[slot.number() as usize] = (op, length);
                wr_id += 1;
            }
        }
        for _ in 0..rng.below(5) {
            let span = number(rng);
            match requester.next_segment(now, span) {
                Some(segment) => {
                    assert!(segment.span > 0 && segment.slot.number() < 16);
                    // What is outstanding, and nothing else, also if it is sent again.
                    let una = requester.oldest_psn();
                    let outstanding = requester.next_psn().distance_from(una);
                    assert!((0..outstanding).contains(&segment.psn.distance_from(una)));
                    if rng.percent(5) {
                        requester.unsend(&segment, now);
                    }
                }
                None => break,
            }
        }
        if rng.percent(20) {
            oldest = requester.next_psn().sub(rng.below(40) as u32);
        }
        let at = near_psn(rng, oldest);
        let before = done.len();
        let sink = &mut |c| done.push(c);
        let msn = match rng.percent(90) {
            true => rng.below(wr_id + 1) as u32,
            false => number(rng),
        };
        match rng.below(8) {
            0 | 1 => {
                let byte = if rng.percent(70) {
                    0x1f
                } else {
                    rng.throw() as u8
                };
                let _ = requester.on_acknowledge(at, aeth(byte, msn), now, sink);
            }
            2 if rng.percent(30) => {
                let _ = requester.on_acknowledge(at, aeth(0x60, msn), now, sink);
            }
            2 => {
                // More than there can be, or less than a word.
                let len = rng.below(300);
                let map: Vec<_> = (0..len).map(|_| rng.throw() as u8).collect();
                let byte = if rng.percent(90) {
                    0x60
                } else {
                    rng.throw() as u8
                };
                let _ = requester.on_missing(at, aeth(byte, msn), &map, now, sink);
            }
            3..6 => {
                let response = ReadSegment {
                    brings: if rng.percent(50) {
                        Brings::Data
                    } else {
                        Brings::Original
                    },
                    psn: at,
                    span: if rng.percent(90) { 1 } else { number(rng) },
                    first: rng.percent(70),
                    last: rng.percent(50),
                    keeps: rng.percent(50),
                    len: match rng.below(10) {
                        0..6 => 256,
                        // To an ATOMIC WRITE or a FLUSH.
                        6..8 => 0,
                        _ => number(rng),
                    },
                };
                let response = match response.brings {
                    Brings::Original => ReadSegment::original(at),
                    Brings::Data => response,
                };
                if let Ok(place) = requester.accept_read_response(&response, now, sink) {
                    // To where it was asked for, and to nothing that asked for none.
                    let (op, length) = asked[place.slot.number() as usize];
                    assert!(op.reply() == Reply::Response && place.len == response.len);
                    assert!(op.brings() == response.brings);
                    assert!(u64::from(place.offset) + u64::from(place.len) <= length.into());
                    oldest = at.next();
                    let _ = requester.read_response_placed(&place, now, sink);
                    let _ = requester.read_response_placed(&place, now, sink);
                }
            }
            6 => {
                now += rng.below(2_000_000);
                let _ = requester.on_deadline(now, sink);
            }
            _ => {
                if rng.percent(5) {
                    let slot = Slot::of(number(rng), 1 << 31);
                    let status = Status::LocProtErr;
                    let _ = requester.fail(slot, status, sink);
                }
            }
        }
        assert!(done.len() - before <= 16);
    }
    let succeeded = done.iter().filter(|c| c.status.is_success()).count();
    requester.flush(&mut |c| done.push(c));
    // Every work request ended once, in order.
    let ends: Vec<_> = done.iter().map(|c| c.wr_id).collect();
    assert_eq!(ends, (0..wr_id).collect::<Vec<_>>());
    assert_eq!(requester.deadline(), None);
    succeeded
}
