// SPDX-License-Identifier: GPL-2.0

//! Peers that answer anything at all, held to what a requester must never do.

use crate::dice::Chance;
use ferroce_core::completion::Status;
use ferroce_core::message::Mtu;
use ferroce_core::operation::{Brings, Operation, Reply};
use ferroce_core::rc::requester::{Requester, SendSlot};
use ferroce_core::rc::RequesterConfig;
use ferroce_core::segment::ReadSegment;
use ferroce_core::send::SendRequest;
use ferroce_core::storage::Slot;
use ferroce_core::wire::headers::{Aeth, AethSyndrome};
use ferroce_core::wire::psn::Psn;

const SLOTS: usize = 16;

const OPERATIONS: [Operation; 7] = [
    Operation::Send,
    Operation::Write,
    Operation::Read,
    Operation::CompareSwap,
    Operation::FetchAdd,
    Operation::AtomicWrite,
    Operation::Flush,
];

fn near_psn(rng: &mut impl Chance, psn: Psn) -> Psn {
    match rng.below(10) {
        0..6 => psn,
        6 => psn.add(rng.below(3) as u32),
        7 | 8 => psn.sub(rng.below(600) as u32),
        _ => psn.add(rng.number()),
    }
}

fn aeth(syndrome: u8, msn: u32) -> Aeth {
    Aeth::new(AethSyndrome::decode(syndrome), msn)
}

/// One of two values; the first so often in a hundred times.
fn mostly<T>(rng: &mut impl Chance, percent: u8, usual: T, other: impl FnOnce(u64) -> T) -> T {
    if rng.percent(percent) {
        usual
    } else {
        other(rng.throw())
    }
}

/// A READ response, or the answer to an atomic operation.
fn read_response(rng: &mut impl Chance, psn: Psn) -> ReadSegment {
    if rng.percent(50) {
        return ReadSegment::original(psn);
    }
    ReadSegment {
        brings: Brings::Data,
        psn,
        span: if rng.percent(90) { 1 } else { rng.number() },
        first: rng.percent(70),
        last: rng.percent(50),
        keeps: rng.percent(50),
        len: match rng.below(10) {
            0..6 => 256,
            // To an ATOMIC WRITE or a FLUSH.
            6..8 => 0,
            _ => rng.number(),
        },
    }
}

/// A requester gets responses of any kind.
///
/// # Panics
///
/// If it sends what it was not to send, places data where nobody asked for it, or does not complete
/// each request once and in order.
pub fn any_answers(rng: &mut impl Chance, steps: usize) {
    let psn = Psn::new(rng.throw() as u32);
    let mut requester = Requester::new(vec![SendSlot::default(); SLOTS]);
    requester.connect(RequesterConfig {
        mtu: Mtu::MIN,
        sq_psn: psn,
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(1_000_000),
        max_rd_atomic: 4,
        ecn: false,
    });
    let (mut now, mut wr_id, mut oldest) = (0, 0, psn);
    let mut done = Vec::new();
    let mut asked = [(Operation::Send, 0); SLOTS];
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        if rng.percent(35) {
            let op = rng.pick(&OPERATIONS);
            let length = rng.number().min(1 << 31) >> (rng.below(3) * 8);
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
            let Some(segment) = requester.next_segment(now, rng.number()) else {
                break;
            };
            assert!(segment.span > 0 && (segment.slot.number() as usize) < SLOTS);
            // What is outstanding, and nothing else, also if it is sent again.
            let una = requester.oldest_psn();
            let outstanding = requester.next_psn().distance_from(una);
            assert!((0..outstanding).contains(&segment.psn.distance_from(una)));
            if rng.percent(5) {
                requester.unsend(&segment, now);
            }
        }
        if rng.percent(20) {
            oldest = requester.next_psn().sub(rng.below(40) as u32);
        }
        let at = near_psn(rng, oldest);
        let msn = match rng.percent(90) {
            true => rng.below(wr_id + 1) as u32,
            false => rng.number(),
        };
        let before = done.len();
        let sink = &mut |c| done.push(c);
        match rng.below(8) {
            0 | 1 => {
                let syndrome = mostly(rng, 70, 0x1f, |any| any as u8);
                let _ = requester.on_acknowledge(at, aeth(syndrome, msn), now, sink);
            }
            2 if rng.percent(30) => {
                let _ = requester.on_acknowledge(at, aeth(0x60, msn), now, sink);
            }
            2 => {
                // More than there can be, or less than a word.
                let len = rng.below(300);
                let map: Vec<_> = (0..len).map(|_| rng.throw() as u8).collect();
                let syndrome = mostly(rng, 90, 0x60, |any| any as u8);
                let _ = requester.on_missing(at, aeth(syndrome, msn), &map, now, sink);
            }
            3..6 => {
                let response = read_response(rng, at);
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
            _ if rng.percent(5) => {
                let slot = Slot::of(rng.number(), 1 << 31);
                let _ = requester.fail(slot, Status::LocProtErr, sink);
            }
            _ => {}
        }
        assert!(done.len() - before <= SLOTS);
    }
    requester.flush(&mut |c| done.push(c));
    // Every work request ended once, in order.
    let ends: Vec<_> = done.iter().map(|c| c.wr_id).collect();
    assert_eq!(ends, (0..wr_id).collect::<Vec<_>>());
    assert_eq!(requester.deadline(), None);
}
