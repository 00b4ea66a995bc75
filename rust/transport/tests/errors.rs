// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! How conversations end: each error as both sides see it.

extern crate std;

use super::pair::*;
use crate::transport::completion::SendOp;
use crate::transport::completion::Status;
use crate::transport::requester::SendRequest;
use crate::transport::responder::Fatal;
use crate::transport::responder::TakeReceive;
use crate::wire::headers::AethSyndrome;
use crate::wire::opcode::Kind;
use crate::wire::opcode::Opcode;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

fn pair() -> Pair {
    Pair::new(256, 1, CALM)
}

/// Posts a good request, the one in question, and a third one that must be flushed.
fn around(pair: &mut Pair, request_in_question: SendRequest) {
    let host = &mut pair.hosts[0];
    let len = request_in_question.length as usize;
    host.post(request(1, SendOp::Write, 600), vec![1; 600]);
    host.post(request_in_question, vec![2; len]);
    host.post(request(3, SendOp::Write, 10), vec![3; 10]);
}

fn ended(pair: &Pair) -> Vec<(u64, Status)> {
    let sent = &pair.hosts[0].sent;
    sent.iter().map(|c| (c.wr_id, c.status)).collect()
}

fn finish(pair: &mut Pair) -> Vec<(u64, Status)> {
    pair.run();
    let host = &mut pair.hosts[0];
    assert!(host.send_fatal);
    let sent = &mut host.sent;
    host.requester.flush(&mut |c| sent.push(c));
    assert_eq!(host.requester.retired(), host.requester.pushed());
    ended(pair)
}

fn outcome(status: Status) -> [(u64, Status); 3] {
    [(1, Status::Success), (2, status), (3, Status::WrFlushErr)]
}

#[test]
fn no_right_to_the_memory() {
    for op in [SendOp::Write, SendOp::WriteImm, SendOp::Read] {
        for (va, rkey) in [(BASE, RKEY + 1), (u64::MAX - 100, RKEY), (0, RKEY)] {
            let mut pair = pair();
            let mut bad = request(2, op, 1000);
            bad.remote_addr = va;
            bad.rkey = rkey;
            around(&mut pair, bad);
            assert_eq!(finish(&mut pair), outcome(Status::RemAccessErr));
            let peer = &pair.hosts[1];
            assert_eq!(peer.fatal, Some(Fatal::AccessError));
            assert_eq!(peer.memory.writes.len(), 3);
        }
    }
}

#[test]
fn a_read_that_runs_out_of_the_region() {
    let mut pair = pair();
    let mut bad = request(2, SendOp::Read, 300_000);
    bad.remote_addr = BASE + REGION as u64 - 200_000;
    around(&mut pair, bad);
    assert_eq!(finish(&mut pair), outcome(Status::RemAccessErr));
}

#[test]
fn a_send_that_does_not_fit() {
    let mut pair = pair();
    pair.hosts[1].memory.post(7, 999);
    around(&mut pair, request(2, SendOp::Send, 1000));
    assert_eq!(finish(&mut pair), outcome(Status::RemInvReqErr));
    let peer = &pair.hosts[1];
    assert_eq!(peer.fatal, Some(Fatal::LocalError));
    assert_eq!(peer.memory.received[0].0.status, Status::LocLenErr);
    assert_eq!(peer.memory.received[0].0.wr_id, 7);
}

#[test]
fn a_receive_without_memory() {
    let mut pair = pair();
    pair.hosts[1].memory.post(7, 9999);
    pair.hosts[1].memory.scatter_fails = true;
    around(&mut pair, request(2, SendOp::SendImm, 1000));
    assert_eq!(finish(&mut pair), outcome(Status::RemOpErr));
    let status = pair.hosts[1].memory.received[0].0.status;
    assert_eq!(status, Status::LocProtErr);
}

#[test]
fn a_receive_that_makes_no_sense() {
    let mut pair = pair();
    let status = Status::LocQpOpErr;
    let malformed = TakeReceive::Malformed { wr_id: 7, status };
    pair.hosts[1].memory.receives.push_back(malformed);
    around(&mut pair, request(2, SendOp::Send, 10));
    assert_eq!(finish(&mut pair), outcome(Status::RemOpErr));
}

#[test]
fn local_memory_that_is_gone() {
    for op in [SendOp::Send, SendOp::Write, SendOp::Read] {
        for max_span in [1, 50] {
            let mut pair = Pair::new(256, 3, Weather { max_span, ..CALM });
            pair.hosts[1].memory.post(7, 9999);
            pair.hosts[0].broken.push(2);
            around(&mut pair, request(2, op, 1000));
            assert_eq!(finish(&mut pair), outcome(Status::LocProtErr));
        }
    }
}

#[test]
fn remote_memory_that_vanishes_while_it_is_read() {
    for reads_left in [0, 1, 390, 391] {
        let mut pair = pair();
        pair.hosts[1].memory.reads_left = reads_left;
        around(&mut pair, request(2, SendOp::Read, 100_000));
        if reads_left == 391 {
            // All that there is.
            pair.run();
            assert_eq!(ended(&pair).len(), 3);
            continue;
        }
        // What came behind the READ was executed, but not acknowledged.
        assert_eq!(finish(&mut pair), outcome(Status::RemAccessErr));
        assert_eq!(pair.hosts[1].fatal, Some(Fatal::AccessError));
    }
}

#[test]
fn nobody_answers() {
    let mut pair = pair();
    pair.filter = Some(Box::new(|side, _| side == 1));
    pair.hosts[0].post(request(1, SendOp::Write, 10), vec![0; 10]);
    let begin = pair.now;
    let ends = finish(&mut pair);
    assert_eq!(ends, [(1, Status::RetryExcErr)]);
    // The first time and seven more.
    assert_eq!(pair.packets, 8 + 8);
    assert_eq!(pair.now - begin, 8 * 1_000_000);
}

#[test]
fn a_receiver_that_is_never_ready() {
    let mut pair = pair();
    pair.hosts[0].requester.set_retries(0, 3);
    pair.hosts[0].post(request(1, SendOp::Send, 1000), vec![0; 1000]);
    let begin = pair.now;
    let ends = finish(&mut pair);
    assert_eq!(ends, [(1, Status::RnrRetryExcErr)]);
    let waited = pair.now - begin;
    assert!(waited >= 3 * Pair::rnr_delay() && waited < 4 * Pair::rnr_delay());
    assert!(pair.hosts[1].memory.received.is_empty());
}

#[test]
fn a_receiver_that_is_ready_late() {
    let mut pair = pair();
    pair.hosts[0].requester.set_retries(0, 7);
    pair.hosts[0].post(request(1, SendOp::Send, 1000), vec![6; 1000]);
    pair.hosts[0].post(request(2, SendOp::Write, 10), vec![6; 10]);
    for _ in 0..200 {
        assert!(pair.step());
    }
    // Between the NAKs nothing is sent but the two messages.
    let counters = *pair.hosts[0].requester.counters();
    assert!(counters.rnr_naks > 3);
    assert!(counters.packets <= 5 * (counters.rnr_naks + 1));
    assert_eq!(counters.timeouts, 0);
    assert_eq!(pair.hosts[1].responder.counters().seq_naks, 0);
    pair.hosts[1].memory.post(1, 1000);
    pair.run();
    assert_eq!(ended(&pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.hosts[1].memory.received[0].1, [6; 1000]);
}

#[test]
fn one_lost_packet_costs_one_round_trip_and_no_timeout() {
    let mut pair = pair();
    let mut n = 0;
    pair.filter = Some(Box::new(move |side, headers| {
        n += u32::from(side == 0);
        side == 0 && n == 3 && headers.opcode == Opcode::RcWriteMiddle
    }));
    pair.hosts[0].post(request(1, SendOp::Write, 2560), vec![9; 2560]);
    pair.run();
    assert_eq!(ended(&pair), [(1, Status::Success)]);
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.seq_naks, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 8);
    assert_eq!(pair.hosts[1].memory.writes.len(), 10);
}

#[test]
fn a_lost_read_response_costs_no_timeout() {
    let mut pair = pair();
    let mut n = 0;
    pair.filter = Some(Box::new(move |_, headers| {
        let is_response = headers.opcode.info().kind == Kind::ReadResponse;
        n += u32::from(is_response);
        is_response && n == 3
    }));
    pair.hosts[0].post(request(1, SendOp::Read, 2560), vec![9; 2560]);
    pair.run();
    assert_eq!(ended(&pair), [(1, Status::Success)]);
    let counters = pair.hosts[0].requester.counters();
    assert_eq!((counters.implied_naks, counters.timeouts), (1, 0));
    assert_eq!(pair.hosts[0].buffers[&1], [0; 2560]);
}

#[test]
fn a_lost_ack_is_asked_for_again() {
    let mut pair = pair();
    pair.hosts[1].memory.post(1, 10);
    let mut lost = false;
    pair.filter = Some(Box::new(move |_, headers| {
        let is_ack = matches!(
            headers.aeth.map(|aeth| aeth.syndrome),
            Some(AethSyndrome::Ack { .. })
        );
        is_ack && !core::mem::replace(&mut lost, true)
    }));
    pair.hosts[0].post(request(1, SendOp::Send, 10), vec![9; 10]);
    pair.run();
    assert_eq!(ended(&pair), [(1, Status::Success)]);
    assert_eq!(pair.hosts[1].memory.received.len(), 1);
    assert_eq!(pair.hosts[0].requester.counters().timeouts, 1);
    assert_eq!(pair.hosts[1].responder.counters().duplicates, 1);
}

#[test]
fn acks_are_few() {
    let mut pair = pair();
    for n in 0..50 {
        let mut quiet = request(n, SendOp::Write, 256);
        quiet.signaled = n == 49;
        pair.hosts[0].post(quiet, vec![9; 256]);
    }
    pair.run();
    assert_eq!(ended(&pair), [(49, Status::Success)]);
    // One for the last message.
    assert_eq!(pair.packets, 51);
}
