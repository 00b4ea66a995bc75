// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The rules of the requester one by one.

extern crate std;

use super::*;
use crate::transport::completion::SendOp;
use crate::transport::segment::Kind;
use crate::transport::segment::ReadSegment;
use crate::transport::segment::RequestSegment;
use crate::wire::headers::rnr_delay_ns;
use crate::wire::headers::AethSyndrome;
use crate::wire::headers::NakCode;
use std::vec;
use std::vec::Vec;

const ACK: AethSyndrome = AethSyndrome::Ack { credits: 31 };
const SEQUENCE: AethSyndrome = AethSyndrome::Nak(NakCode::PsnSequence);
const TIMEOUT: u64 = 1_000_000;

/// First PSN: it wraps after four packets.
const PSN: u32 = 0xff_fffc;

struct Rig {
    requester: Requester<Vec<SendSlot>>,
    done: Vec<SendCompletion>,
    now: u64,
}

fn config() -> RequesterConfig {
    RequesterConfig {
        mtu: Mtu::from_bytes(256).unwrap(),
        sq_psn: Psn::new(PSN),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(TIMEOUT),
        max_rd_atomic: 2,
    }
}

fn wr(wr_id: u64, op: SendOp, length: u32) -> SendRequest {
    SendRequest {
        wr_id,
        op,
        length,
        signaled: true,
        remote_addr: 0x1000,
        rkey: 5,
        imm: [1, 2, 3, 4],
        ..SendRequest::default()
    }
}

fn psn(n: u32) -> Psn {
    Psn::new(PSN).add(n)
}

impl Rig {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: RequesterConfig) -> Self {
        let mut requester = Requester::new(vec![SendSlot::default(); 16]);
        requester.connect(config);
        Self {
            requester,
            done: Vec::new(),
            now: 100,
        }
    }

    fn push(&mut self, wr_id: u64, op: SendOp, length: u32) {
        self.requester.push(wr(wr_id, op, length)).unwrap();
    }

    fn silent(&mut self, wr_id: u64, op: SendOp, length: u32) {
        let mut request = wr(wr_id, op, length);
        request.signaled = false;
        self.requester.push(request).unwrap();
    }

    fn next(&mut self) -> Option<RequestSegment> {
        self.requester.next_segment(self.now, 1)
    }

    /// All that can be sent: number of the packet and whether it asks for an ACK.
    fn send(&mut self) -> Vec<(u32, bool)> {
        let mut sent = Vec::new();
        while let Some(segment) = self.next() {
            let number = segment.psn.distance_from(psn(0)) as u32;
            sent.push((number, segment.ack_req));
        }
        sent
    }

    fn numbers(&mut self) -> Vec<u32> {
        self.send().iter().map(|(n, _)| *n).collect()
    }

    fn on(&mut self, n: u32, syndrome: AethSyndrome) -> Progress {
        let done = &mut self.done;
        self.requester
            .on_acknowledge(psn(n), syndrome, self.now, &mut |c| done.push(c))
    }

    fn tick(&mut self, now: u64) -> Progress {
        self.now = now;
        let done = &mut self.done;
        self.requester.on_deadline(now, &mut |c| done.push(c))
    }

    fn accept(&mut self, n: u32, first: bool, last: bool, len: u32) -> Result<Placement, Refused> {
        let response = ReadSegment {
            psn: psn(n),
            span: 1,
            first,
            last,
            len,
        };
        let done = &mut self.done;
        self.requester
            .accept_read_response(&response, self.now, &mut |c| done.push(c))
    }

    fn respond(&mut self, n: u32, first: bool, last: bool, len: u32) -> Progress {
        let place = self.accept(n, first, last, len).unwrap();
        let done = &mut self.done;
        self.requester
            .read_response_placed(&place, self.now, &mut |c| done.push(c))
    }

    fn fail(&mut self, slot: u32) -> Progress {
        let done = &mut self.done;
        self.requester
            .fail(slot, Status::LocProtErr, &mut |c| done.push(c))
    }

    fn flush(&mut self) {
        let done = &mut self.done;
        self.requester.flush(&mut |c| done.push(c));
    }

    fn ended(&self) -> Vec<(u64, Status)> {
        self.done.iter().map(|c| (c.wr_id, c.status)).collect()
    }
}

#[test]
fn a_message_becomes_packets() {
    let mut rig = Rig::new();
    rig.requester
        .push(SendRequest {
            solicited: true,
            ..wr(1, SendOp::WriteImm, 600)
        })
        .unwrap();
    let first = rig.next().unwrap();
    assert_eq!(
        (first.kind, first.first, first.last),
        (Kind::Write, true, false)
    );
    assert_eq!((first.psn, first.offset, first.len), (psn(0), 0, 256));
    let reth = first.reth.unwrap();
    assert_eq!((reth.va, reth.rkey, reth.length), (0x1000, 5, 600));
    assert!(first.imm.is_none() && !first.solicited && !first.ack_req);
    let middle = rig.next().unwrap();
    assert_eq!((middle.first, middle.last), (false, false));
    assert_eq!((middle.offset, middle.len, middle.reth), (256, 256, None));
    let last = rig.next().unwrap();
    assert_eq!((last.first, last.last), (false, true));
    assert_eq!((last.psn, last.offset, last.len), (psn(2), 512, 88));
    assert_eq!(last.imm, Some([1, 2, 3, 4]));
    assert!(last.solicited && last.ack_req);
    assert_eq!(rig.next(), None);
    assert_eq!(rig.requester.next_psn(), psn(3));
}

#[test]
fn empty_messages_take_one_psn_each() {
    let mut rig = Rig::new();
    for (n, op) in [SendOp::Send, SendOp::Write, SendOp::Read]
        .into_iter()
        .enumerate()
    {
        rig.push(n as u64, op, 0);
        let segment = rig.next().unwrap();
        assert_eq!(segment.psn, psn(n as u32));
        assert!(segment.first && segment.last && segment.len == 0);
    }
    assert_eq!(rig.requester.next_psn(), psn(3));
}

#[test]
fn a_segment_may_span_packets() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 1000);
    rig.push(2, SendOp::Send, 1);
    let whole = rig.requester.next_segment(0, 100).unwrap();
    assert_eq!(
        (whole.span, whole.len, whole.first, whole.last),
        (4, 1000, true, true)
    );
    assert_eq!(rig.requester.next_segment(0, 100).unwrap().psn, psn(4));
    let _ = rig.on(4, ACK);
    assert_eq!(rig.done.len(), 2);
}

#[test]
fn one_ack_completes_all_before_it_in_order() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 10);
    rig.silent(2, SendOp::Write, 300);
    rig.push(3, SendOp::Send, 10);
    rig.push(4, SendOp::Send, 600);
    rig.send();
    assert!(!rig.on(4, ACK).fatal);
    assert_eq!(rig.ended(), [(1, Status::Success), (3, Status::Success)]);
    assert_eq!(rig.requester.retired(), 3);
    let _ = rig.on(6, ACK);
    assert_eq!(rig.ended().last(), Some(&(4, Status::Success)));
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn asks_only_when_somebody_waits() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 10);
    rig.push(2, SendOp::Send, 300);
    rig.silent(3, SendOp::Send, 10);
    rig.silent(4, SendOp::Send, 10);
    let asked = [(0, false), (1, false), (2, true), (3, false), (4, true)];
    assert_eq!(rig.send(), asked);
}

#[test]
fn the_window_is_never_full_without_a_question() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1 << 20);
    let sent = rig.send();
    assert_eq!(sent.len(), 256);
    assert!(sent.last().unwrap().1);
    assert_eq!(sent.iter().filter(|(_, asked)| *asked).count(), 4);
    let progress = rig.on(127, ACK);
    assert!(progress.more);
    // The window grew by what was acknowledged.
    assert_eq!(rig.send().len(), 256);
}

#[test]
fn a_large_window_asks_often() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1 << 20);
    let mut last = rig.send();
    // The window opens to its maximum of 1024.
    while last.len() < 1024 {
        let (end, _) = *last.last().unwrap();
        let _ = rig.on(end, ACK);
        last = rig.send();
        assert!(!last.is_empty());
    }
    for packets in last.chunks(64) {
        assert!(packets.iter().any(|(_, asked)| *asked));
    }
}

#[test]
fn a_span_ends_at_the_window() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Write, 1 << 20);
    let segment = rig.requester.next_segment(0, u32::MAX).unwrap();
    assert_eq!((segment.span, segment.len), (256, 65536));
    assert!(segment.ack_req && !segment.last);
    assert_eq!(rig.next(), None);
}

#[test]
fn stale_acks_and_ghosts_change_nothing() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 10);
    rig.push(2, SendOp::Send, 10);
    rig.send();
    let _ = rig.on(0, ACK);
    let deadline = rig.requester.deadline();
    rig.now += 10;
    let _ = rig.on(0, ACK);
    let _ = rig.on(0, AethSyndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(rig.requester.counters().stale, 2);
    for n in [2, 3, 1 << 22, (1 << 23) - 1] {
        let _ = rig.on(n, ACK);
    }
    let _ = rig.on(1, AethSyndrome::Reserved(0x7f));
    assert_eq!(rig.requester.counters().ghosts, 5);
    assert_eq!(rig.done.len(), 1);
    assert_eq!(rig.requester.deadline(), deadline);
}

#[test]
fn a_sequence_nak_goes_back() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 256);
    rig.push(2, SendOp::Send, 256 * 3);
    rig.push(3, SendOp::Send, 1);
    assert_eq!(rig.numbers(), [0, 1, 2, 3, 4]);
    assert!(rig.on(2, SEQUENCE).more);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // Asks at once, at ends of signaled messages, and at the end of what is repeated.
    assert_eq!(rig.send(), [(2, true), (3, true), (4, true)]);
    assert_eq!(rig.requester.counters().retransmitted, 3);
    let _ = rig.on(4, ACK);
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn a_sequence_nak_that_the_network_doubled_is_one() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ..config()
    });
    rig.push(1, SendOp::Send, 256 * 2);
    rig.send();
    assert!(rig.on(0, SEQUENCE).more);
    assert_eq!(rig.numbers(), [0, 1]);
    assert!(!rig.on(0, SEQUENCE).fatal);
    assert_eq!(rig.numbers(), []);
    assert_eq!(rig.requester.counters().seq_naks, 1);
    // With progress it is another gap, and so it is after a timeout.
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1]);
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).fatal);
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
}

#[test]
fn an_ack_for_what_was_sent_before_going_back_counts() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 256 * 4);
    rig.send();
    let _ = rig.on(1, SEQUENCE);
    // It had only been late.
    let _ = rig.on(2, ACK);
    assert_eq!(rig.numbers(), [3]);
}

#[test]
fn a_timeout_sends_again_seven_times() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 256 * 2);
    rig.push(2, SendOp::Send, 1);
    rig.send();
    for n in 1..=7 {
        let deadline = rig.requester.deadline().unwrap();
        assert_eq!(rig.tick(deadline - 1), Progress::default());
        let progress = rig.tick(deadline);
        assert!(progress.more && !progress.fatal);
        assert_eq!(rig.numbers(), [0, 1, 2]);
        assert_eq!(rig.requester.counters().timeouts, n);
    }
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).fatal);
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
    assert_eq!(rig.next(), None);
    assert_eq!(rig.requester.deadline(), None);
    rig.flush();
    assert_eq!(rig.ended().last(), Some(&(2, Status::WrFlushErr)));
}

#[test]
fn progress_gives_the_retries_back() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ..config()
    });
    rig.push(1, SendOp::Send, 256 * 10);
    rig.send();
    for n in 0..9 {
        let deadline = rig.requester.deadline().unwrap();
        assert!(!rig.tick(deadline).fatal);
        rig.send();
        let _ = rig.on(n, ACK);
    }
    let deadline = rig.requester.deadline().unwrap();
    assert!(!rig.tick(deadline).fatal);
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).fatal);
}

#[test]
fn without_retries_the_first_loss_is_the_end() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 0,
        ..config()
    });
    rig.push(1, SendOp::Send, 256 * 2);
    rig.send();
    assert!(rig.on(0, SEQUENCE).fatal);
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
}

#[test]
fn no_timeout_waits_for_ever() {
    let mut rig = Rig::with(RequesterConfig {
        ack_timeout_ns: None,
        ..config()
    });
    rig.push(1, SendOp::Send, 1);
    rig.send();
    assert_eq!(rig.requester.deadline(), None);
    assert_eq!(rig.tick(u64::MAX), Progress::default());
}

#[test]
fn the_deadline_starts_with_the_first_packet_and_moves_with_progress() {
    let mut rig = Rig::new();
    assert_eq!(rig.requester.deadline(), None);
    rig.push(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 1);
    rig.next();
    rig.now = 500;
    rig.next();
    assert_eq!(rig.requester.deadline(), Some(100 + TIMEOUT));
    let _ = rig.on(0, ACK);
    assert_eq!(rig.requester.deadline(), Some(500 + TIMEOUT));
    let _ = rig.on(1, ACK);
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn an_rnr_nak_stops_all_for_its_time() {
    for timer in [0, 1, 12, 31] {
        let mut rig = Rig::new();
        rig.push(1, SendOp::Send, 1);
        rig.push(2, SendOp::Send, 1);
        rig.send();
        let progress = rig.on(1, AethSyndrome::RnrNak { timer });
        assert!(!progress.more && !progress.fatal);
        assert_eq!(rig.ended(), [(1, Status::Success)]);
        rig.push(3, SendOp::Send, 1);
        let until = rig.now + rnr_delay_ns(timer);
        assert_eq!(rig.requester.deadline(), Some(until));
        // The same NAK again does not prolong it.
        rig.now += 5;
        let _ = rig.on(1, AethSyndrome::RnrNak { timer });
        assert_eq!(rig.requester.deadline(), Some(until));
        rig.now = until - 1;
        assert_eq!(rig.next(), None);
        assert!(rig.tick(until).more);
        assert_eq!(rig.numbers(), [1, 2]);
        assert_eq!(rig.requester.counters().timeouts, 0);
        assert_eq!(rig.requester.deadline(), Some(until + TIMEOUT));
    }
}

#[test]
fn an_ack_ends_an_rnr_wait() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 1);
    rig.send();
    let _ = rig.on(0, AethSyndrome::RnrNak { timer: 0 });
    // The network had brought the packet twice, and the second one found a receive.
    assert!(rig.on(0, ACK).more);
    assert_eq!(rig.numbers(), [1]);
}

#[test]
fn rnr_retries_run_out_unless_they_are_seven() {
    for rnr_retry in [0, 3, 7] {
        let mut rig = Rig::with(RequesterConfig {
            rnr_retry,
            retry_cnt: 0,
            ..config()
        });
        rig.push(1, SendOp::Send, 1);
        for n in 0..20 {
            assert_eq!(rig.numbers(), [0]);
            let progress = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
            if n == rnr_retry && rnr_retry != 7 {
                assert!(progress.fatal);
                assert_eq!(rig.ended(), [(1, Status::RnrRetryExcErr)]);
                break;
            }
            assert!(!progress.fatal);
            rig.now += rnr_delay_ns(1);
        }
        assert_eq!(rnr_retry == 7, rig.done.is_empty());
    }
}

#[test]
fn a_refusal_ends_the_right_one() {
    let codes = [
        (NakCode::InvalidRequest, Status::RemInvReqErr),
        (NakCode::RemoteAccess, Status::RemAccessErr),
        (NakCode::RemoteOperational, Status::RemOpErr),
    ];
    for (code, status) in codes {
        let mut rig = Rig::new();
        rig.push(1, SendOp::Send, 1);
        rig.silent(2, SendOp::Write, 600);
        rig.push(3, SendOp::Send, 1);
        rig.send();
        assert!(rig.on(2, AethSyndrome::Nak(code)).fatal);
        assert_eq!(rig.ended(), [(1, Status::Success), (2, status)]);
        assert_eq!(rig.requester.retired(), 2);
        // What comes now is for nobody.
        assert_eq!(rig.on(4, ACK), Progress::default());
        rig.flush();
        assert_eq!(rig.ended()[2..], [(3, Status::WrFlushErr)]);
        assert_eq!(rig.requester.retired(), rig.requester.pushed());
    }
}

#[test]
fn a_read_takes_the_psns_of_its_responses() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 600);
    rig.push(2, SendOp::Send, 1);
    let read = rig.next().unwrap();
    assert_eq!((read.kind, read.span, read.len), (Kind::ReadRequest, 1, 0));
    assert_eq!(read.reth.unwrap().length, 600);
    assert_eq!(rig.next().unwrap().psn, psn(3));
    let place = rig.accept(0, true, false, 256).unwrap();
    assert_eq!((place.slot, place.offset, place.len), (0, 0, 256));
    let _ = rig.respond(0, true, false, 256);
    let _ = rig.respond(1, false, false, 256);
    assert!(rig.done.is_empty());
    let _ = rig.respond(2, false, true, 88);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.done[0].byte_len, 600);
    let _ = rig.on(3, ACK);
    assert_eq!(rig.done.len(), 2);
}

#[test]
fn a_response_acknowledges_all_before_it() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Write, 1);
    rig.push(2, SendOp::Read, 1);
    rig.send();
    let place = rig.accept(1, true, true, 1).unwrap();
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // Nothing is final before it is placed, and then only once.
    let again = rig.accept(1, true, true, 1).unwrap();
    let done = &mut rig.done;
    let _ = rig
        .requester
        .read_response_placed(&place, 0, &mut |c| done.push(c));
    let _ = rig
        .requester
        .read_response_placed(&again, 0, &mut |c| done.push(c));
    assert_eq!(rig.ended().len(), 2);
    assert_eq!(
        rig.accept(1, true, true, 1).unwrap_err().reason,
        Ignored::Stale
    );
}

#[test]
fn a_placement_of_another_connection_is_void() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 1);
    rig.send();
    let place = rig.accept(0, true, true, 1).unwrap();
    rig.requester.reset();
    rig.requester.connect(config());
    rig.push(2, SendOp::Read, 1);
    rig.send();
    let done = &mut rig.done;
    let _ = rig
        .requester
        .read_response_placed(&place, 0, &mut |c| done.push(c));
    assert!(rig.done.is_empty());
}

#[test]
fn lost_responses_are_asked_for_again_from_the_first_missing() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 256 * 5);
    rig.send();
    let _ = rig.respond(0, true, false, 256);
    // Response 1 is lost: 2 tells, and 3 says nothing new.
    let refused = rig.accept(2, false, false, 256).unwrap_err();
    assert_eq!(refused.reason, Ignored::Gap);
    assert!(refused.progress.more);
    let again = rig.next().unwrap();
    assert_eq!((again.psn, again.offset), (psn(1), 256));
    let reth = again.reth.unwrap();
    assert_eq!((reth.va, reth.length), (0x1100, 4 * 256));
    assert_eq!(
        rig.accept(3, false, false, 256).unwrap_err().reason,
        Ignored::Gap
    );
    assert_eq!(rig.next(), None);
    assert_eq!(rig.requester.counters().implied_naks, 1);
    // The new answer begins with a first response.
    let _ = rig.respond(1, true, false, 256);
    let _ = rig.respond(2, false, false, 256);
    let _ = rig.respond(3, false, false, 256);
    let _ = rig.respond(4, false, true, 256);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
}

#[test]
fn a_loss_after_a_timeout_is_another_loss() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 256 * 5);
    rig.send();
    assert!(rig.accept(1, false, false, 256).unwrap_err().progress.more);
    assert_eq!(rig.numbers(), [0]);
    let deadline = rig.requester.deadline().unwrap();
    let _ = rig.tick(deadline);
    assert_eq!(rig.numbers(), [0]);
    assert!(rig.accept(1, false, false, 256).unwrap_err().progress.more);
    assert_eq!(rig.numbers(), [0]);
    assert_eq!(rig.requester.counters().implied_naks, 2);
}

#[test]
fn an_ack_behind_a_read_says_that_its_responses_were_lost() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 1);
    rig.push(2, SendOp::Read, 300);
    rig.push(3, SendOp::Send, 1);
    rig.send();
    assert!(rig.on(3, ACK).more);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.numbers(), [1, 3]);
    let _ = rig.respond(1, true, false, 256);
    let _ = rig.respond(2, false, true, 44);
    let _ = rig.on(3, ACK);
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn reads_outstanding_are_limited() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.push(n, SendOp::Read, 1);
    }
    rig.push(4, SendOp::Send, 1);
    assert_eq!(rig.numbers(), [0, 1]);
    assert!(rig.respond(0, true, true, 1).more);
    assert_eq!(rig.numbers(), [2]);
    let _ = rig.respond(1, true, true, 1);
    let _ = rig.respond(2, true, true, 1);
    assert_eq!(rig.numbers(), [3, 4]);
    // After a loss the count begins anew.
    let deadline = rig.requester.deadline().unwrap();
    let _ = rig.tick(deadline);
    assert_eq!(rig.numbers(), [3, 4]);
}

#[test]
fn no_reads_where_none_are_permitted() {
    let mut rig = Rig::with(RequesterConfig {
        max_rd_atomic: 0,
        ..config()
    });
    let refused = rig.requester.push(wr(1, SendOp::Read, 1));
    assert_eq!(refused, Err(PushError::NoReads));
}

#[test]
fn a_fence_waits_for_reads() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 1);
    rig.requester
        .push(SendRequest {
            fence: true,
            ..wr(2, SendOp::Send, 1)
        })
        .unwrap();
    assert_eq!(rig.numbers(), [0]);
    let _ = rig.respond(0, true, true, 1);
    assert_eq!(rig.numbers(), [1]);
}

#[test]
fn a_long_read_is_asked_for_in_pieces() {
    let mut rig = Rig::new();
    let packets = 2 * READ_PIECE + 10;
    rig.push(1, SendOp::Read, packets * 256 - 1);
    let first = rig.next().unwrap();
    assert_eq!(first.reth.unwrap().length, READ_PIECE * 256);
    // The window is full of responses to come.
    assert_eq!(rig.next(), None);
    let mut reth = Vec::new();
    for n in 0..packets {
        let place = n % READ_PIECE;
        let last = place == READ_PIECE - 1 || n == packets - 1;
        let len = if n == packets - 1 { 255 } else { 256 };
        let _ = rig.respond(n, place == 0, last, len);
        while let Some(segment) = rig.next() {
            reth.push(segment.reth.unwrap());
        }
    }
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    let pieces: Vec<_> = reth.iter().map(|r| (r.va, r.length)).collect();
    let piece = READ_PIECE * 256;
    let second = (0x1000 + u64::from(piece), piece);
    assert_eq!(
        pieces,
        [second, (0x1000 + 2 * u64::from(piece), 10 * 256 - 1)]
    );
}

#[test]
fn a_read_whose_range_wraps_is_not_cut() {
    let mut rig = Rig::new();
    rig.requester
        .push(SendRequest {
            remote_addr: u64::MAX - 1000,
            ..wr(1, SendOp::Read, 1 << 20)
        })
        .unwrap();
    assert_eq!(rig.next().unwrap().reth.unwrap().length, 1 << 20);
    assert!(rig.on(0, AethSyndrome::Nak(NakCode::RemoteAccess)).fatal);
    assert_eq!(rig.ended(), [(1, Status::RemAccessErr)]);
}

#[test]
fn responses_that_break_the_rules_end_the_read() {
    // Number, first, last, length; the READ has the packets 1 to 3, of 256, 256 and 88 bytes.
    let bad = [
        (0, true, true, 1),
        (1, false, false, 256),
        (1, true, true, 256),
        (1, true, false, 255),
        (1, true, false, 257),
        (1, true, false, 0),
    ];
    for (n, first, last, len) in bad {
        let mut rig = Rig::new();
        rig.push(1, SendOp::Send, 1);
        rig.push(2, SendOp::Read, 600);
        rig.push(3, SendOp::Send, 1);
        rig.send();
        let refused = rig.accept(n, first, last, len).unwrap_err();
        assert_eq!(refused.reason, Ignored::Bad);
        assert!(refused.progress.fatal);
        assert_eq!(rig.ended().last().unwrap().1, Status::BadRespErr);
    }
    for (n, first, last, len) in [
        (2, true, false, 256),
        (2, false, true, 256),
        (3, false, false, 88),
        (3, false, true, 87),
        (3, false, true, 256),
    ] {
        let mut rig = Rig::new();
        rig.push(1, SendOp::Send, 1);
        rig.push(2, SendOp::Read, 600);
        rig.send();
        let _ = rig.respond(1, true, false, 256);
        if n == 3 {
            let _ = rig.respond(2, false, false, 256);
        }
        let refused = rig.accept(n, first, last, len).unwrap_err();
        assert_eq!(refused.reason, Ignored::Bad);
        assert_eq!(rig.ended().last(), Some(&(2, Status::BadRespErr)));
    }
}

#[test]
fn a_response_before_the_request_is_a_ghost() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Read, 1);
    assert_eq!(
        rig.accept(0, true, true, 1).unwrap_err().reason,
        Ignored::Ghost
    );
    assert!(rig.done.is_empty());
}

#[test]
fn what_failed_here_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 600);
    rig.push(3, SendOp::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    let segment = rig.next().unwrap();
    let progress = rig.fail(segment.slot);
    assert!(!progress.fatal);
    assert!(rig.done.is_empty());
    // Nobody asked about the first message yet, so its end is sent again with the question.
    assert_eq!(rig.send(), [(0, true)]);
    assert_eq!(rig.next(), None);
    let progress = rig.on(0, ACK);
    assert!(progress.fatal);
    assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    rig.flush();
    assert_eq!(rig.ended()[1..], [(3, Status::WrFlushErr)]);
}

#[test]
fn what_failed_here_does_not_count_as_a_question() {
    // The second message would have asked about the first one too, but it never leaves.
    for unsend in [false, true] {
        let mut rig = Rig::new();
        rig.silent(1, SendOp::Send, 1);
        rig.push(2, SendOp::Send, 1);
        assert!(!rig.next().unwrap().ack_req);
        let segment = rig.next().unwrap();
        assert!(segment.ack_req);
        if unsend {
            rig.requester.unsend(&segment);
        }
        let _ = rig.fail(segment.slot);
        assert_eq!(rig.send(), [(0, true)]);
        assert!(rig.on(0, ACK).fatal);
        assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    }
}

#[test]
fn what_could_not_leave_has_not_asked() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 1);
    rig.next();
    let segment = rig.next().unwrap();
    rig.requester.unsend(&segment);
    rig.requester.drain(true);
    // The second message counts as begun, so it is finished.
    assert_eq!(rig.send(), [(1, true)]);
}

#[test]
fn the_end_of_what_is_repeated_asks() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 256 * 10);
    for _ in 0..5 {
        assert!(!rig.next().unwrap().ack_req);
    }
    let _ = rig.on(2, SEQUENCE);
    let asked = rig.send();
    assert_eq!(asked[..4], [(2, true), (3, false), (4, true), (5, false)]);
    let _ = rig.on(3, SEQUENCE);
    let asked = rig.send();
    assert_eq!(asked[..3], [(3, true), (4, false), (5, false)]);
    assert_eq!(asked[6], (9, true));
}

#[test]
fn what_failed_here_first_ends_at_once() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 600);
    let segment = rig.next().unwrap();
    assert!(rig.fail(segment.slot).fatal);
    assert_eq!(rig.ended(), [(1, Status::LocProtErr)]);
    // A slot that is nobody's.
    assert_eq!(rig.fail(9), Progress::default());
}

#[test]
fn a_malformed_request_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.next();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert_eq!(
        pushed,
        Ok(Progress {
            fatal: false,
            more: true
        })
    );
    assert_eq!(rig.next(), None);
    assert!(rig.on(0, ACK).fatal);
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);

    let mut rig = Rig::new();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert!(pushed.unwrap().fatal);
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);
}

#[test]
fn a_flush_keeps_the_order_and_the_status_of_what_failed() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 1);
    rig.push(3, SendOp::Send, 1);
    rig.next();
    let slot = rig.next().unwrap().slot;
    assert!(!rig.fail(slot).fatal);
    rig.flush();
    let ended = [
        (1, Status::WrFlushErr),
        (2, Status::LocProtErr),
        (3, Status::WrFlushErr),
    ];
    assert_eq!(rig.ended(), ended);
    rig.push(4, SendOp::Send, 1);
    assert_eq!(rig.next(), None);
    rig.flush();
    assert_eq!(rig.ended().last(), Some(&(4, Status::WrFlushErr)));
}

#[test]
fn draining_finishes_what_was_begun() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.silent(2, SendOp::Send, 600);
    rig.push(3, SendOp::Send, 1);
    rig.next();
    rig.next();
    rig.requester.drain(true);
    assert!(!rig.requester.is_drained());
    assert_eq!(rig.send(), [(2, false), (3, true)]);
    assert!(!rig.requester.is_drained());
    let _ = rig.on(3, ACK);
    assert!(rig.requester.is_drained());
    assert_eq!(rig.next(), None);
    rig.requester.drain(false);
    assert_eq!(rig.numbers(), [4]);
}

#[test]
fn draining_asks_about_what_left_in_silence() {
    let mut rig = Rig::new();
    rig.silent(1, SendOp::Send, 1);
    rig.push(2, SendOp::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    rig.requester.drain(true);
    assert_eq!(rig.send(), [(0, true)]);
    let _ = rig.on(0, ACK);
    assert!(rig.requester.is_drained());
}

#[test]
fn what_could_not_leave_comes_again() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Send, 300);
    rig.push(2, SendOp::Read, 1);
    rig.next();
    // The second packet, then the READ.
    for _ in 0..2 {
        let segment = rig.next().unwrap();
        rig.requester.unsend(&segment);
        assert_eq!(rig.next(), Some(segment));
    }
    assert_eq!(rig.next(), None);
    let mut rig = Rig::new();
    for n in 0..3 {
        rig.push(n, SendOp::Read, 1);
    }
    for _ in 0..5 {
        let read = rig.next().unwrap();
        rig.requester.unsend(&read);
    }
    assert_eq!(rig.numbers(), [0, 1]);
}

#[test]
fn slots_are_used_in_turn() {
    let mut rig = Rig::new();
    for n in 0..16 {
        assert_eq!(rig.requester.push(wr(n, SendOp::Send, 1)), Ok(n as u32));
    }
    assert_eq!(
        rig.requester.push(wr(16, SendOp::Send, 1)),
        Err(PushError::Full)
    );
    rig.send();
    let _ = rig.on(2, ACK);
    assert_eq!(rig.requester.push(wr(16, SendOp::Send, 1)), Ok(0));
    assert_eq!(
        rig.requester.push(wr(17, SendOp::Send, MAX_MESSAGE + 1)),
        Err(PushError::TooLong)
    );
    let mut none = Requester::new(Vec::<SendSlot>::new());
    assert_eq!(none.push(wr(1, SendOp::Send, 1)), Err(PushError::Full));
}

#[test]
fn the_longest_messages_keep_their_offsets() {
    let mut rig = Rig::new();
    rig.push(1, SendOp::Write, MAX_MESSAGE);
    let mut end = 0u64;
    let mut packets = 0u32;
    while let Some(segment) = rig.requester.next_segment(0, u32::MAX) {
        assert_eq!(u64::from(segment.offset), end);
        end += u64::from(segment.len);
        packets += segment.span;
        let _ = rig.on(packets - 1, ACK);
    }
    assert_eq!((end, packets), (1 << 31, 1 << 23));
    assert_eq!(rig.ended(), [(1, Status::Success)]);
}
