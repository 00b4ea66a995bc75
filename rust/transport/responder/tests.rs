// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The rules of the responder one by one.

extern crate std;

use super::*;
use crate::transport::completion::RecvCompletion;
use crate::transport::completion::Status;
use crate::transport::segment::ReadSegment;
use crate::transport::segment::Reth;
use std::collections::VecDeque;
use std::vec::Vec;

const MTU: u32 = 256;
/// First PSN: it wraps after two packets.
const PSN: u32 = 0xff_fffe;
const RKEY: u32 = 77;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x10_0000;

/// What the responder asked for.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    Check(u64, u32),
    Write(u64, u32),
    Scatter(u32, u32),
    Complete(u64, Status, u32),
}

#[derive(Default)]
struct Env {
    receives: VecDeque<TakeReceive>,
    did: Vec<Did>,
    completions: Vec<RecvCompletion>,
    scatter_fails: bool,
    write_fails: bool,
}

impl ResponderEnv for Env {
    fn take_receive(&mut self) -> TakeReceive {
        self.receives.pop_front().unwrap_or(TakeReceive::Empty)
    }

    fn check_remote(
        &mut self,
        _access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.did.push(Did::Check(va, len));
        let end = va.checked_add(u64::from(len)).ok_or(AccessError)?;
        if rkey == RKEY && va >= BASE && end <= BASE + SIZE {
            Ok(())
        } else {
            Err(AccessError)
        }
    }

    fn write_remote(&mut self, _rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        if self.write_fails {
            return Err(AccessError);
        }
        self.did.push(Did::Write(va, len));
        Ok(())
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        if self.scatter_fails {
            return Err(AccessError);
        }
        self.did.push(Did::Scatter(offset, len));
        Ok(())
    }

    fn complete(&mut self, c: RecvCompletion) {
        self.did.push(Did::Complete(c.wr_id, c.status, c.byte_len));
        self.completions.push(c);
    }
}

struct Rig {
    responder: Responder,
    env: Env,
}

fn config() -> ResponderConfig {
    ResponderConfig {
        mtu: Mtu::from_bytes(MTU).unwrap(),
        rq_psn: Psn::new(PSN),
        max_dest_rd_atomic: 2,
        min_rnr_timer: 12,
        allow_read: true,
        allow_write: true,
    }
}

fn psn(n: u32) -> Psn {
    Psn::new(PSN).add(n)
}

fn packet(n: u32, kind: Kind, first: bool, last: bool, len: u32) -> IncomingRequest {
    IncomingRequest {
        kind,
        first,
        last,
        psn: psn(n),
        span: 1,
        ack_req: last,
        solicited: false,
        imm: None,
        reth: None,
        payload_len: len,
    }
}

fn send(n: u32, first: bool, last: bool, len: u32) -> IncomingRequest {
    packet(n, Kind::Send, first, last, len)
}

fn write(n: u32, first: bool, last: bool, len: u32, total: u32) -> IncomingRequest {
    let mut request = packet(n, Kind::Write, first, last, len);
    request.reth = first.then_some(Reth {
        va: BASE,
        rkey: RKEY,
        length: total,
    });
    request
}

fn read(n: u32, va: u64, length: u32) -> IncomingRequest {
    let mut request = packet(n, Kind::ReadRequest, true, true, 0);
    let rkey = RKEY;
    request.reth = Some(Reth { va, rkey, length });
    request
}

fn with_imm(mut request: IncomingRequest) -> IncomingRequest {
    request.imm = Some([9, 8, 7, 6]);
    request
}

/// The syndrome of an acknowledge packet; or first, last and length of a READ response.
type Answer = Result<AethSyndrome, (bool, bool, u32)>;

impl Rig {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: ResponderConfig) -> Self {
        let mut responder = Responder::new();
        responder.connect(config);
        Self {
            responder,
            env: Env::default(),
        }
    }

    fn receive(&mut self, wr_id: u64, capacity: u64) {
        self.env
            .receives
            .push_back(TakeReceive::Taken { wr_id, capacity });
    }

    fn on(&mut self, request: IncomingRequest) -> Outcome {
        self.responder.on_request(&request, &mut self.env)
    }

    fn ok(&mut self, request: IncomingRequest) {
        assert_eq!(self.on(request), Outcome::default());
    }

    /// All responses: number of the packet and its syndrome, or of a READ response and its length.
    fn answers(&mut self) -> Vec<(u32, Answer)> {
        let mut answers = Vec::new();
        while let Some(response) = self.responder.next_response(1) {
            let n = response.psn().distance_from(psn(0)) as u32;
            answers.push(match response {
                Response::Acknowledge { syndrome, .. } => (n, Ok(syndrome)),
                Response::ReadResponse { segment, .. } => {
                    let ReadSegment {
                        first, last, len, ..
                    } = segment;
                    (n, Err((first, last, len)))
                }
            });
        }
        assert!(!self.responder.has_response());
        answers
    }

    /// The only answer is this refusal, and nothing is accepted any more.
    fn refused(&mut self, n: u32, code: NakCode) {
        assert_eq!(self.answers(), [(n, Ok(AethSyndrome::Nak(code)))]);
        self.receive(99, 1000);
        let expected = self.responder.expected_psn();
        let next = IncomingRequest {
            psn: expected,
            ..send(0, true, true, 1)
        };
        assert_eq!(self.on(next).dropped, Some(DropReason::NotReady));
        assert_eq!(self.answers(), []);
    }

    fn invalid(&mut self, request: IncomingRequest) {
        let n = request.psn.distance_from(psn(0)) as u32;
        let outcome = self.on(request);
        assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest), "{request:?}");
        self.refused(n, NakCode::InvalidRequest);
    }
}

const ACK: AethSyndrome = AethSyndrome::Ack { credits: 31 };
const SEQUENCE: AethSyndrome = AethSyndrome::Nak(NakCode::PsnSequence);
const NOT_READY: AethSyndrome = AethSyndrome::RnrNak { timer: 12 };

#[test]
fn a_send_fills_a_receive() {
    let mut rig = Rig::new();
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, false, 256));
    assert_eq!(rig.answers(), []);
    rig.ok(IncomingRequest {
        solicited: true,
        ..with_imm(send(2, false, true, 5))
    });
    let did = [
        Did::Scatter(0, 256),
        Did::Scatter(256, 256),
        Did::Scatter(512, 5),
        Did::Complete(1, Status::Success, 517),
    ];
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.env.completions[0].imm, Some([9, 8, 7, 6]));
    assert!(rig.env.completions[0].solicited);
    assert_eq!(rig.answers(), [(2, Ok(ACK))]);
    assert_eq!(rig.responder.expected_psn(), psn(3));
}

#[test]
fn acks_are_coalesced_and_only_sent_when_asked_for() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.receive(u64::from(n), 10);
        rig.ok(IncomingRequest {
            ack_req: n == 1,
            ..send(n, true, true, 1)
        });
    }
    // It says what arrived, not what was asked.
    assert_eq!(rig.answers(), [(3, Ok(ACK))]);
    rig.receive(9, 10);
    rig.ok(IncomingRequest {
        ack_req: false,
        ..send(4, true, true, 1)
    });
    assert_eq!(rig.answers(), []);
}

#[test]
fn the_msn_counts_messages() {
    let mut rig = Rig::new();
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, true, 1));
    rig.ok(write(2, true, true, 3, 3));
    rig.ok(read(3, BASE, 1));
    let response = rig.responder.next_response(1).unwrap();
    assert_eq!(response.aeth().unwrap().msn, 3);
    let ack = rig.on(write(2, true, true, 3, 3));
    assert_eq!(ack.dropped, Some(DropReason::Duplicate));
    let response = rig.responder.next_response(1).unwrap();
    assert_eq!(response.aeth().unwrap().msn, 3);
}

#[test]
fn a_gap_is_told_once() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.receive(n, 10);
    }
    rig.ok(send(0, true, true, 1));
    for n in [2, 3, 2] {
        let outcome = rig.on(send(n, true, true, 1));
        assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
    }
    assert_eq!(rig.answers(), [(1, Ok(SEQUENCE))]);
    let _ = rig.on(send(4, true, true, 1));
    assert_eq!(rig.answers(), []);
    rig.ok(send(1, true, true, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    // The next gap is another one.
    let _ = rig.on(send(3, true, true, 1));
    assert_eq!(rig.answers(), [(2, Ok(SEQUENCE))]);
    assert_eq!(rig.responder.counters().seq_naks, 2);
    assert_eq!(rig.env.completions.len(), 2);
}

#[test]
fn what_was_missing_takes_an_unsent_nak_back() {
    let mut rig = Rig::new();
    rig.receive(1, 10);
    let _ = rig.on(send(1, true, true, 1));
    rig.ok(send(0, true, true, 1));
    assert_eq!(rig.answers(), [(0, Ok(ACK))]);
}

#[test]
fn duplicates_are_acknowledged_and_not_executed() {
    let mut rig = Rig::new();
    rig.receive(1, 10);
    rig.ok(send(0, true, true, 1));
    rig.ok(write(1, true, true, 4, 4));
    rig.answers();
    let did = rig.env.did.len();
    for n in [0, 1] {
        let outcome = rig.on(IncomingRequest {
            ack_req: false,
            ..send(n, true, true, 1)
        });
        assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    }
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    assert_eq!(rig.env.did.len(), did);
    assert_eq!(rig.responder.counters().duplicates, 2);
}

#[test]
fn nothing_is_older_than_the_connection() {
    let mut rig = Rig::new();
    let old = IncomingRequest {
        psn: Psn::new(PSN).sub(1),
        ..send(0, true, true, 1)
    };
    assert_eq!(rig.on(old).dropped, Some(DropReason::Stale));
    assert_eq!(rig.answers(), []);
    assert_eq!(rig.responder.counters().ignored, 1);
}

#[test]
fn without_a_receive_nothing_is_executed() {
    let mut rig = Rig::new();
    let outcome = rig.on(send(0, true, false, 256));
    assert_eq!(outcome.dropped, Some(DropReason::NoReceive));
    // The rest of what was on its way needs no answer.
    let _ = rig.on(send(1, false, true, 1));
    assert_eq!(rig.answers(), [(0, Ok(NOT_READY))]);
    let _ = rig.on(send(0, true, false, 256));
    assert_eq!(rig.answers(), [(0, Ok(NOT_READY))]);
    rig.receive(1, 1000);
    rig.ok(send(0, true, false, 256));
    rig.ok(send(1, false, true, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    assert_eq!(rig.env.completions[0].byte_len, 257);
    assert_eq!(rig.responder.counters().rnr_naks, 2);
}

#[test]
fn the_last_packet_of_a_write_with_immediate_data_is_written_once() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    let last = with_imm(write(1, false, true, 44, 0));
    assert_eq!(rig.on(last).dropped, Some(DropReason::NoReceive));
    assert_eq!(rig.answers(), [(1, Ok(NOT_READY))]);
    rig.receive(5, 0);
    rig.ok(last);
    let did = [
        Did::Check(BASE, 300),
        Did::Write(BASE, 256),
        Did::Write(BASE + 256, 44),
        Did::Complete(5, Status::Success, 300),
    ];
    assert_eq!(rig.env.did, did);
    assert_eq!(rig.env.completions[0].op, RecvOp::WriteImm);
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
}

#[test]
fn empty_rdma_needs_no_right() {
    let mut rig = Rig::new();
    let nowhere = Some(Reth {
        va: u64::MAX,
        rkey: 0,
        length: 0,
    });
    rig.ok(IncomingRequest {
        reth: nowhere,
        ..write(0, true, true, 0, 0)
    });
    rig.ok(IncomingRequest {
        reth: nowhere,
        ..read(1, 0, 0)
    });
    assert_eq!(rig.env.did, []);
    // The READ's response says what the WRITE's ACK would.
    assert_eq!(rig.answers(), [(1, Err((true, true, 0)))]);
}

#[test]
fn ranges_are_checked_as_a_whole_and_do_not_wrap() {
    let bad = [
        (BASE - 1, 2, RKEY),
        (BASE + SIZE - 1, 2, RKEY),
        (BASE, 2, RKEY + 1),
        (u64::MAX, 2, RKEY),
        (u64::MAX - 99, 101, RKEY),
        (0u64.wrapping_sub(1 << 30), 1 << 31, RKEY),
    ];
    for (va, length, rkey) in bad {
        let reth = Some(Reth { va, rkey, length });
        let mut rig = Rig::new();
        let outcome = rig.on(IncomingRequest {
            reth,
            ..read(0, 0, 0)
        });
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        rig.refused(0, NakCode::RemoteAccess);

        let mut rig = Rig::new();
        let last = length <= MTU;
        let outcome = rig.on(IncomingRequest {
            reth,
            ..write(0, true, last, length.min(MTU), 0)
        });
        assert_eq!(outcome.fatal, Some(Fatal::AccessError));
        assert!(!rig.env.did.iter().any(|did| matches!(did, Did::Write(..))));
        rig.refused(0, NakCode::RemoteAccess);
    }
}

#[test]
fn memory_that_vanishes_during_a_write() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, false, 256, 300));
    rig.env.write_fails = true;
    rig.receive(3, 0);
    let outcome = rig.on(with_imm(write(1, false, true, 44, 0)));
    assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    assert_eq!(rig.env.completions[0].status, Status::WrFlushErr);
    rig.refused(1, NakCode::RemoteAccess);
}

#[test]
fn rights_of_the_qp() {
    for (allow_read, allow_write) in [(false, true), (true, false)] {
        let mut rig = Rig::with(ResponderConfig {
            allow_read,
            allow_write,
            ..config()
        });
        if allow_write {
            rig.ok(write(0, true, true, 1, 1));
            rig.answers();
            rig.invalid(read(1, BASE, 1));
        } else {
            rig.ok(read(0, BASE, 1));
            rig.answers();
            rig.invalid(write(1, true, true, 1, 1));
        }
    }
}

#[test]
fn the_order_of_opcodes() {
    // Without a message in progress.
    for request in [
        send(0, false, false, 256),
        send(0, false, true, 1),
        write(0, false, false, 256, 0),
        write(0, false, true, 1, 0),
    ] {
        Rig::new().invalid(request);
    }
    // In a SEND, and in a WRITE.
    let send_first = send(0, true, false, 256);
    let write_first = write(0, true, false, 256, 600);
    for (first, second) in [
        (send_first, send(1, true, false, 256)),
        (send_first, send(1, true, true, 1)),
        (send_first, write(1, false, false, 256, 0)),
        (send_first, write(1, true, true, 1, 1)),
        (send_first, read(1, BASE, 1)),
        (write_first, write(1, true, false, 256, 600)),
        (write_first, send(1, false, false, 256)),
        (write_first, send(1, true, true, 1)),
        (write_first, read(1, BASE, 1)),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 1000);
        rig.ok(first);
        rig.invalid(second);
        rig.responder.abort(&mut rig.env);
        // A receive in progress does not get lost.
        let flushed = usize::from(first.kind == Kind::Send);
        assert_eq!(rig.env.completions.len(), flushed);
        assert!(rig
            .env
            .completions
            .iter()
            .all(|c| c.wr_id == 1 && c.status == Status::WrFlushErr));
    }
}

#[test]
fn headers_that_do_not_belong() {
    let mut no_reth = write(0, true, true, 1, 1);
    no_reth.reth = None;
    Rig::new().invalid(no_reth);
    let mut no_reth = read(0, BASE, 1);
    no_reth.reth = None;
    Rig::new().invalid(no_reth);
    let mut payload = read(0, BASE, 1);
    payload.payload_len = 1;
    Rig::new().invalid(payload);
    Rig::new().invalid(with_imm(send(0, true, false, 256)));
    Rig::new().invalid(with_imm(write(0, true, false, 256, 300)));
    let mut nothing = send(0, true, true, 0);
    nothing.span = 0;
    Rig::new().invalid(nothing);
}

#[test]
fn lengths_of_packets() {
    for (first, last, len) in [
        (true, false, 255),
        (true, false, 257),
        (true, false, 0),
        (true, true, 257),
        (true, true, u32::MAX),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 1 << 40);
        rig.invalid(send(0, first, last, len));
        Rig::new().invalid(write(0, first, last, len, len));
    }
    for (last, len) in [(false, 255), (false, 0), (true, 0), (true, 257)] {
        let mut rig = Rig::new();
        rig.receive(1, 1 << 40);
        rig.ok(send(0, true, false, 256));
        rig.invalid(send(1, false, last, len));
        let mut rig = Rig::new();
        rig.ok(write(0, true, false, 256, 256 + len.max(1)));
        rig.invalid(write(1, false, last, len, 0));
    }
    let mut rig = Rig::new();
    rig.receive(1, 10);
    rig.ok(send(0, true, true, 0));
    assert_eq!(rig.env.did, [Did::Complete(1, Status::Success, 0)]);
}

#[test]
fn lengths_of_spans() {
    for (first, last, span, len, fits) in [
        (true, true, 3, 513, true),
        (true, true, 3, 768, true),
        (true, true, 3, 512, false),
        (true, true, 3, 769, false),
        (true, false, 2, 512, true),
        (true, false, 2, 511, false),
    ] {
        let mut rig = Rig::new();
        rig.receive(1, 10_000);
        let request = IncomingRequest {
            span,
            ..send(0, first, last, len)
        };
        if fits {
            rig.ok(request);
            assert_eq!(rig.responder.expected_psn(), psn(span));
        } else {
            rig.invalid(request);
        }
    }
}

#[test]
fn a_write_must_bring_what_it_promised() {
    Rig::new().invalid(write(0, true, true, 10, 9));
    Rig::new().invalid(write(0, true, true, 10, 11));
    Rig::new().invalid(write(0, true, false, 256, 256));
    Rig::new().invalid(write(0, true, false, 256, 10));
    Rig::new().invalid(write(0, true, false, 256, MAX + 1));
    for (last, len) in [(false, 256), (true, 43), (true, 45)] {
        let mut rig = Rig::new();
        rig.ok(write(0, true, false, 256, 300));
        rig.invalid(write(1, false, last, len, 0));
    }
}

const MAX: u32 = crate::transport::config::MAX_MESSAGE;

#[test]
fn a_receive_that_is_too_short() {
    let mut rig = Rig::new();
    rig.receive(1, 300);
    rig.ok(send(0, true, false, 256));
    let outcome = rig.on(send(1, false, true, 45));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocLenErr);
    assert_eq!(rig.env.did.len(), 2);
    rig.refused(1, NakCode::InvalidRequest);
    rig.responder.abort(&mut rig.env);
    assert_eq!(rig.env.completions.len(), 1);
}

#[test]
fn a_send_beyond_the_longest_message() {
    let mut rig = Rig::new();
    rig.receive(1, 1 << 40);
    rig.ok(IncomingRequest {
        span: 1 << 23,
        ..send(0, true, false, MAX)
    });
    let outcome = rig.on(send(1 << 23, false, true, 1));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocLenErr);
}

#[test]
fn a_receive_whose_memory_is_not_there() {
    let mut rig = Rig::new();
    rig.receive(1, 300);
    rig.env.scatter_fails = true;
    let outcome = rig.on(send(0, true, true, 45));
    assert_eq!(outcome.fatal, Some(Fatal::LocalError));
    assert_eq!(rig.env.completions[0].status, Status::LocProtErr);
    rig.refused(0, NakCode::RemoteOperational);
}

#[test]
fn a_malformed_receive() {
    for imm in [false, true] {
        let mut rig = Rig::new();
        rig.env.receives.push_back(TakeReceive::Malformed {
            wr_id: 4,
            status: Status::LocQpOpErr,
        });
        let outcome = if imm {
            rig.on(with_imm(write(0, true, true, 1, 1)))
        } else {
            rig.on(send(0, true, true, 1))
        };
        assert_eq!(outcome.fatal, Some(Fatal::LocalError));
        assert_eq!(rig.env.completions[0].status, Status::LocQpOpErr);
        assert!(!rig.env.did.iter().any(|did| matches!(did, Did::Write(..))));
        rig.refused(0, NakCode::RemoteOperational);
    }
}

#[test]
fn reads_are_answered_in_pieces_and_before_later_acks() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE + 100, 600));
    rig.receive(1, 10);
    rig.ok(send(4, true, true, 1));
    let answers = [
        (1, Err((true, false, 256))),
        (2, Err((false, false, 256))),
        (3, Err((false, true, 88))),
        (4, Ok(ACK)),
    ];
    assert_eq!(rig.answers(), answers);
    rig.ok(read(5, BASE + 100, 600));
    let Some(Response::ReadResponse { segment, va, .. }) = rig.responder.next_response(2) else {
        panic!("a READ response");
    };
    assert_eq!((segment.span, segment.len, va), (2, 512, BASE + 100));
    let Some(Response::ReadResponse { segment, va, .. }) = rig.responder.next_response(9) else {
        panic!("a READ response");
    };
    assert_eq!((segment.span, segment.len, va), (1, 88, BASE + 612));
    assert!(segment.last && !segment.first);
}

#[test]
fn refusals_wait_for_reads_too() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 300));
    assert!(!rig.responder.has_ended());
    let outcome = rig.on(write(2, true, true, 2, 1));
    assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest));
    assert!(!rig.responder.has_ended());
    let answers = [
        (0, Err((true, false, 256))),
        (1, Err((false, true, 44))),
        (2, Ok(AethSyndrome::Nak(NakCode::InvalidRequest))),
    ];
    assert_eq!(rig.answers(), answers);
    assert!(rig.responder.has_ended());
}

#[test]
fn too_many_reads() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.ok(read(1, BASE, 1));
    assert_eq!(rig.on(read(2, BASE, 1)).fatal, Some(Fatal::InvalidRequest));
    assert_eq!(rig.answers().len(), 3);
    // Those that are answered do not count, nor do answers that are given again.
    let mut rig = Rig::new();
    for n in 0..20 {
        rig.ok(read(n, BASE, 1));
        if n > 0 {
            let _ = rig.on(read(n - 1, BASE, 1));
        }
        rig.answers();
    }
    let _ = rig.on(read(0, BASE, 1));
    let _ = rig.on(read(1, BASE, 1));
    rig.ok(read(20, BASE, 1));
    rig.ok(read(21, BASE, 1));
    assert_eq!(rig.answers().len(), 4);
    let mut rig = Rig::with(ResponderConfig {
        max_dest_rd_atomic: 0,
        ..config()
    });
    rig.invalid(read(0, BASE, 0));
}

#[test]
fn the_longest_read() {
    let mut rig = Rig::new();
    rig.invalid(read(0, BASE, MAX + 1));
    let mut rig = Rig::new();
    assert_eq!(rig.on(read(0, BASE, MAX)).fatal, Some(Fatal::AccessError));
}

#[test]
fn a_read_is_answered_again_from_where_the_peer_asks() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 256 * 4));
    rig.ok(read(4, BASE, 1));
    assert_eq!(rig.answers().len(), 5);
    let outcome = rig.on(read(2, BASE + 512, 512));
    assert_eq!(outcome.dropped, Some(DropReason::Duplicate));
    let answers = [(2, Err((true, false, 256))), (3, Err((false, true, 256)))];
    assert_eq!(rig.answers(), answers);
    assert_eq!(rig.responder.expected_psn(), psn(5));
    // It must have been asked for before.
    let _ = rig.on(read(4, BASE, 257));
    assert_eq!(rig.answers(), []);
}

#[test]
fn a_read_again_is_checked_again() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.answers();
    let outcome = rig.on(read(0, BASE - 1, 1));
    assert_eq!(outcome.fatal, None);
    let nak = AethSyndrome::Nak(NakCode::RemoteAccess);
    assert_eq!(rig.answers(), [(0, Ok(nak))]);
    // An old packet does not end the connection.
    rig.ok(write(1, true, true, 1, 1));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);
    rig.responder.set_access(false, true);
    let _ = rig.on(read(0, BASE, 1));
    assert_eq!(rig.answers(), []);
}

#[test]
fn memory_that_vanishes_during_a_read() {
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 600));
    rig.ok(read(3, BASE, 1));
    rig.responder.next_response(1);
    rig.responder.next_response(1);
    let outcome = rig.responder.read_failed();
    assert_eq!(outcome.fatal, Some(Fatal::AccessError));
    rig.refused(1, NakCode::RemoteAccess);
    // With the last response too.
    let mut rig = Rig::new();
    rig.ok(read(0, BASE, 1));
    rig.responder.next_response(1);
    let _ = rig.responder.read_failed();
    rig.refused(0, NakCode::RemoteAccess);
}

#[test]
fn an_ack_before_a_read_is_implied_and_one_behind_it_is_not() {
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1)))]);
    rig.ok(write(2, true, true, 1, 1));
    // An old READ is answered before the ACK, and does not stand for it.
    let _ = rig.on(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1))), (2, Ok(ACK))]);
}

#[test]
fn an_ack_of_something_old_does_not_pass_a_read_behind_it() {
    // The peer missed the answers to both READs, and asks for all of it again.
    let mut rig = Rig::new();
    rig.ok(write(0, true, true, 1, 1));
    rig.ok(read(1, BASE, 1));
    rig.ok(write(2, true, true, 1, 1));
    rig.ok(read(3, BASE, 1));
    rig.ok(write(4, true, true, 1, 1));
    rig.answers();
    let _ = rig.on(read(1, BASE, 1));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1)))]);
    // To acknowledge number 4 here would say that the answer to number 3 was lost again.
    let _ = rig.on(write(2, true, true, 1, 1));
    assert_eq!(rig.answers(), [(2, Ok(ACK))]);
    let _ = rig.on(read(3, BASE, 1));
    assert_eq!(rig.answers(), [(3, Err((true, true, 1)))]);
    let _ = rig.on(write(4, true, true, 1, 1));
    assert_eq!(rig.answers(), [(4, Ok(ACK))]);
}

#[test]
fn only_a_connected_responder_takes_requests() {
    let mut responder = Responder::new();
    let mut env = Env::default();
    let request = send(0, true, true, 1);
    let outcome = responder.on_request(&request, &mut env);
    assert_eq!(outcome.dropped, Some(DropReason::NotReady));
    responder.connect(config());
    responder.abort(&mut env);
    let outcome = responder.on_request(&request, &mut env);
    assert_eq!(outcome.dropped, Some(DropReason::NotReady));
    assert_eq!(responder.read_failed(), Outcome::default());
    assert_eq!(responder.next_response(1), None);
    responder.reset();
    responder.connect(config());
    env.receives.push_back(TakeReceive::Taken {
        wr_id: 1,
        capacity: 1,
    });
    assert_eq!(responder.on_request(&request, &mut env), Outcome::default());
}
