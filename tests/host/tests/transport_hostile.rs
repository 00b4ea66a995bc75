// SPDX-License-Identifier: GPL-2.0

//! Peers that send anything at all. Overflow checks are on here, as they are in the kernel, so a
//! number that leaves its range is a failure too.

use ferroce_core::transport::completion::{SendOp, Status};
use ferroce_core::transport::config::{Mtu, RequesterConfig, ResponderConfig};
use ferroce_core::transport::requester::{Requester, SendRequest, SendSlot};
use ferroce_core::transport::responder::Responder;
use ferroce_core::transport::segment::{IncomingRequest, Kind, ReadSegment, Response, Reth};
use ferroce_core::wire::headers::AethSyndrome;
use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::model::dice::Dice;
use ferroce_host_tests::model::memory::{Env, Memory};
use ferroce_host_tests::model::plan::{BASE, RKEY};

const REGION: usize = 1 << 20;

fn responder(first_psn: u32) -> Responder {
    let mut responder = Responder::new();
    responder.connect(ResponderConfig {
        mtu: Mtu::MIN,
        rq_psn: Psn::new(first_psn),
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        allow_read: true,
        allow_write: true,
    });
    responder
}

fn requester(first_psn: u32) -> Requester<Vec<SendSlot>> {
    let mut requester = Requester::new(vec![SendSlot::default(); 16]);
    requester.connect(RequesterConfig {
        mtu: Mtu::MIN,
        sq_psn: Psn::new(first_psn),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(1_000_000),
        max_rd_atomic: 4,
    });
    requester
}

/// A number near something interesting.
fn number(rng: &mut Dice) -> u32 {
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

fn address(rng: &mut Dice) -> u64 {
    match rng.below(4) {
        0 => BASE + rng.below(REGION as u64),
        1 => BASE + REGION as u64 - rng.below(300),
        2 => u64::MAX - rng.below(300),
        _ => rng.throw() << 11,
    }
}

fn near_psn(rng: &mut Dice, psn: Psn) -> Psn {
    match rng.below(10) {
        0..6 => psn,
        6 => psn.add(rng.below(3) as u32),
        7 | 8 => psn.sub(rng.below(600) as u32),
        _ => psn.add(number(rng)),
    }
}

/// `open` is the message that the responder is in the middle of.
fn any_request(rng: &mut Dice, expected: Psn, open: Option<Kind>) -> IncomingRequest {
    let sane = rng.percent(95);
    let mut kind = [Kind::Send, Kind::Write, Kind::ReadRequest][rng.below(3) as usize];
    let mut first = rng.percent(60);
    if sane {
        kind = open.unwrap_or(kind);
        first = open.is_none();
    }
    let last = kind == Kind::ReadRequest || rng.percent(if kind == Kind::Send { 50 } else { 90 });
    let payload_len = match (sane, kind, last) {
        (true, Kind::ReadRequest, _) => 0,
        (true, _, false) => 256,
        (true, _, true) => 1 + rng.below(256) as u32,
        _ => number(rng).min(100_000),
    };
    let length = if sane && last {
        payload_len
    } else {
        number(rng)
    };
    IncomingRequest {
        kind,
        first,
        last,
        psn: near_psn(rng, expected),
        span: if sane { 1 } else { number(rng) },
        ack_req: rng.percent(50),
        solicited: rng.percent(50),
        imm: (rng.percent(20) && (last || !sane)).then_some([1, 2, 3, 4]),
        reth: rng.percent(90).then(|| Reth {
            va: if sane { BASE + 5 } else { address(rng) },
            rkey: if sane { RKEY } else { number(rng) },
            length,
        }),
        payload_len,
    }
}

#[test]
fn requests_of_any_kind() {
    let mut accepted = 0;
    for seed in 0..3000 {
        let mut rng = Dice::of(&[seed]);
        let mut memory = Memory::unplanned(REGION);
        let mut responder = responder(rng.throw() as u32);
        let mut open = None;
        for _ in 0..60 {
            if rng.percent(50) {
                memory.post(rng.below(8000) as usize);
            }
            let request = any_request(&mut rng, responder.expected_psn(), open);
            let payload = vec![7; request.payload_len as usize];
            let mut env = Env {
                memory: &mut memory,
                payload: &payload,
            };
            let outcome = responder.on_request(&request, &mut env);
            if outcome == Default::default() {
                open = (!request.last).then_some(request.kind);
            }
            for _ in 0..rng.below(4) {
                let span = number(&mut rng);
                match responder.next_response(span) {
                    Some(Response::ReadResponse {
                        segment, rkey, va, ..
                    }) => {
                        assert!(segment.span > 0 && u64::from(segment.len) <= 1 << 31);
                        // What was checked when it was accepted is within what was checked.
                        assert!(memory.read(rkey, va, segment.len).is_ok());
                    }
                    Some(Response::Acknowledge { msn, .. }) => assert!(msn < 1 << 24),
                    None => break,
                }
            }
        }
        accepted += responder.counters().packets;
        let payload = [];
        responder.abort(&mut Env {
            memory: &mut memory,
            payload: &payload,
        });
        // Every receive that was taken came back once.
        let back: Vec<_> = memory.received.iter().map(|r| r.done.wr_id).collect();
        assert_eq!(back, (0..memory.taken as u64).collect::<Vec<_>>());
        assert_eq!(memory.violation, None);
        assert!(!responder.has_response());
    }
    // The test is about more than refusals.
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn responses_of_any_kind() {
    let mut succeeded = 0;
    for seed in 0..3000 {
        let mut rng = Dice::of(&[seed]);
        let psn = rng.throw() as u32;
        let mut requester = requester(psn);
        let mut done = Vec::new();
        let mut now = 0;
        let mut wr_id = 0;
        let mut oldest = Psn::new(psn);
        for _ in 0..80 {
            let ops = [SendOp::Send, SendOp::Write, SendOp::Read];
            if rng.percent(30) {
                let pushed = requester.push(SendRequest {
                    wr_id,
                    op: ops[rng.below(3) as usize],
                    length: number(&mut rng).min(1 << 31) >> (rng.below(3) * 8),
                    signaled: true,
                    remote_addr: address(&mut rng),
                    fence: rng.percent(20),
                    ..SendRequest::default()
                });
                wr_id += u64::from(pushed.is_ok());
            }
            for _ in 0..rng.below(5) {
                let span = number(&mut rng);
                match requester.next_segment(now, span) {
                    Some(segment) => {
                        assert!(segment.span > 0 && segment.slot < 16);
                        if rng.percent(5) {
                            requester.unsend(&segment);
                        }
                    }
                    None => break,
                }
            }
            if rng.percent(20) {
                oldest = requester.next_psn().sub(rng.below(40) as u32);
            }
            let at = near_psn(&mut rng, oldest);
            let before = done.len();
            let sink = &mut |c| done.push(c);
            match rng.below(8) {
                0 | 1 => {
                    let byte = if rng.percent(70) {
                        0x1f
                    } else {
                        rng.throw() as u8
                    };
                    let _ = requester.on_acknowledge(at, AethSyndrome::decode(byte), now, sink);
                }
                2 => {
                    let _ = requester.on_acknowledge(at, AethSyndrome::decode(0x60), now, sink);
                }
                3..6 => {
                    let response = ReadSegment {
                        psn: at,
                        span: if rng.percent(90) { 1 } else { number(&mut rng) },
                        first: rng.percent(70),
                        last: rng.percent(50),
                        len: if rng.percent(70) {
                            256
                        } else {
                            number(&mut rng)
                        },
                    };
                    if let Ok(place) = requester.accept_read_response(&response, now, sink) {
                        assert!(place.slot < 16 && place.len == response.len);
                        assert!(u64::from(place.offset) + u64::from(place.len) <= 1 << 31);
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
                        let slot = number(&mut rng);
                        let status = Status::LocProtErr;
                        let _ = requester.fail(slot, status, sink);
                    }
                }
            }
            assert!(done.len() - before <= 16);
        }
        succeeded += done.iter().filter(|c| c.status.is_success()).count();
        requester.flush(&mut |c| done.push(c));
        // Every work request ended once, in order.
        let ends: Vec<_> = done.iter().map(|c| c.wr_id).collect();
        assert_eq!(ends, (0..wr_id).collect::<Vec<_>>());
        assert_eq!(requester.deadline(), None);
    }
    assert!(succeeded > 1000, "{succeeded}");
}

#[test]
fn a_hundred_thousand_reads_again() {
    // Whatever is asked for again and again, the queue of answers stays short.
    let mut memory = Memory::unplanned(REGION);
    let mut responder = responder(0);
    let mut rng = Dice::of(&[9]);
    let mut request = any_request(&mut rng, Psn::new(0), None);
    request.kind = Kind::ReadRequest;
    request.payload_len = 0;
    for n in 0..100_000 {
        request.psn = if n % 10 == 0 {
            responder.expected_psn()
        } else {
            responder.expected_psn().sub(rng.below(200) as u32)
        };
        request.reth = Some(Reth {
            va: BASE,
            rkey: RKEY,
            length: rng.below(3000) as u32,
        });
        let mut env = Env {
            memory: &mut memory,
            payload: &[],
        };
        let outcome = responder.on_request(&request, &mut env);
        assert_eq!(outcome.fatal, None);
        if n % 10 == 0 {
            let mut before = None;
            let mut answers = 0;
            while let Some(response) = responder.next_response(1) {
                // In order, and never twice in a run.
                let psn = response.psn();
                assert!(before.is_none_or(|before: Psn| before.is_before(psn)));
                before = Some(psn);
                answers += 1;
            }
            assert!(answers <= 16 * 12 + 2);
        }
    }
}
