// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The end of a flight is lost, and what the network of this host does not take.

use super::*;

const MS: u64 = 1_000_000;

fn patient() -> Rig {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ack_timeout_ns: Some(80 * MS),
        ..config()
    });
    // The first packet takes 500 us to be answered.
    rig.push(0, Operation::Send, 1);
    rig.send();
    rig.now += 500_000;
    let _ = rig.on(0, ACK);
    rig.done.clear();
    rig
}

/// A request of so many bytes is in flight, from packet 1 on.
fn flight(op: Operation, length: u32) -> Rig {
    let mut rig = patient();
    rig.push(1, op, length);
    rig.send();
    rig
}

/// The last packet is retransmitted, then the oldest, each time after twice the time, and no retry
/// is spent on that.
#[test]
fn a_silent_tail_is_probed_until_the_timeout() {
    let mut rig = flight(Operation::Write, 256 * 3);
    let sent = rig.now;
    for (n, at) in [2, 6, 14, 30, 62].into_iter().enumerate() {
        assert_eq!(rig.requester.deadline(), Some(sent + at * MS));
        assert!(!rig.tick(sent + at * MS).has_failed());
        let probe = rig.next().unwrap();
        let (number, opcode, offset) = match n {
            0 => (3, Opcode::RcWriteLast, 512),
            _ => (1, Opcode::RcWriteFirst, 0),
        };
        assert_eq!((probe.psn, probe.ack_req), (psn(number), true));
        assert_eq!((probe.opcode, probe.offset), (opcode, offset));
        assert_eq!(probe.len, 256);
        assert_eq!(rig.next(), None);
        let counters = *rig.requester.counters();
        assert_eq!(
            (counters.tail_probes, counters.retransmitted),
            (n as u32 + 1, 0)
        );
    }
    // Then the timeout, which the probes have not moved.
    assert_eq!(rig.requester.deadline(), Some(sent + 80 * MS));
    assert!(!rig.tick(sent + 80 * MS).has_failed());
    assert_eq!(rig.numbers(), [1, 2, 3]);
    // Its retry is spent now, and not before. What is probed then is what was retransmitted first.
    assert_eq!(rig.requester.deadline(), Some(rig.now + 2 * MS));
    let again = rig.now;
    for at in [2, 6, 14, 30, 62] {
        assert!(!rig.tick(again + at * MS).has_failed());
        assert_eq!(rig.numbers(), [1]);
    }
    let deadline = rig.requester.deadline().unwrap();
    assert_eq!(deadline, again + 80 * MS);
    assert!(rig.tick(deadline).has_failed());
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
}

/// A responder that reports a gap once drops all but the packet that it misses, so if that is lost
/// again when it is retransmitted, nothing else makes the responder say anything.
#[test]
fn the_probe_is_the_oldest_packet_if_that_was_retransmitted() {
    let mut rig = flight(Operation::Write, 256 * 3);
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1, 2, 3]);
    for at in [2, 4] {
        let _ = rig.tick(rig.now + at * MS);
        assert_eq!(rig.numbers(), [1]);
    }
    // It came this time: the tail is what is missing again.
    let _ = rig.on(1, ACK);
    let due = rig.requester.deadline().unwrap();
    let _ = rig.tick(due);
    assert_eq!(rig.numbers(), [3]);
    let _ = rig.on(3, ACK);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.requester.counters().timeouts, 0);
}

/// A responder that reports a gap once, and whose report is lost, drops the last packet in silence.
#[test]
fn the_probe_is_the_oldest_packet_if_the_last_one_got_no_answer() {
    let mut rig = flight(Operation::Write, 256 * 3);
    let _ = rig.tick(rig.now + 2 * MS);
    assert_eq!(rig.numbers(), [3]);
    let _ = rig.tick(rig.now + 4 * MS);
    assert_eq!(rig.numbers(), [1]);
    let _ = rig.on(1, ACK);
    let due = rig.requester.deadline().unwrap();
    let _ = rig.tick(due);
    assert_eq!(rig.numbers(), [3]);
    let _ = rig.on(2, SEQUENCE);
    assert_eq!(rig.numbers(), [2, 3]);
    let _ = rig.on(3, ACK);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.requester.counters().timeouts, 0);
}

/// So it is with a READ, but not with one of several.
#[test]
fn a_read_before_the_last_packet_is_probed_after_that_if_it_is_the_only_one() {
    for reads in [1, 2] {
        let mut rig = patient();
        rig.push(1, Operation::Read, 256 * 4);
        if reads == 2 {
            rig.push(2, Operation::Read, 256 * 4);
        }
        rig.push(3, Operation::Write, 256);
        rig.send();
        let last = 4 * reads + 1;
        for (at, probed) in [(2, last), (4, if reads == 1 { 1 } else { last })] {
            let _ = rig.tick(rig.now + at * MS);
            assert_eq!(rig.numbers(), [probed]);
        }
    }
}

/// The rest waits for what is before it, and need not wait for a probe.
#[test]
fn what_a_fence_or_reads_hold_back_is_asked_about() {
    let mut rig = Rig::with(RequesterConfig {
        max_rd_atomic: 1,
        ..config()
    });
    for fence in [false, true] {
        rig.push(1, Operation::Read, 1);
        rig.requester
            .push(SendRequest {
                op: Operation::Send,
                ..SendRequest::default()
            })
            .unwrap();
        let op = if fence {
            Operation::Send
        } else {
            Operation::Read
        };
        rig.requester
            .push(SendRequest {
                op,
                fence,
                ..SendRequest::default()
            })
            .unwrap();
        assert!(!rig.next().unwrap().ack_req);
        assert!(rig.next().unwrap().ack_req);
        assert!(rig.next().is_none() && rig.requester.is_answer_due());
        rig = Rig::with(RequesterConfig {
            max_rd_atomic: 2,
            ..config()
        });
    }
}

/// A sender that stops requests an ACK first: packets in flight always have one outstanding.
#[test]
fn the_last_packet_before_a_stop_asks() {
    let mut rig = Rig::with(config());
    rig.push(1, Operation::Write, 256 * 9);
    assert!(!rig.next().unwrap().ack_req);
    assert!(!rig.requester.is_answer_due());
    rig.requester.request_ack();
    assert!(rig.next().unwrap().ack_req);
    assert!(rig.requester.is_answer_due());
    assert!(!rig.next().unwrap().ack_req);
}

#[test]
fn the_answer_to_a_probe_repairs_the_flight() {
    // All but the first was lost.
    let mut rig = flight(Operation::Send, 256 * 3);
    let _ = rig.tick(rig.now + 2 * MS);
    assert_eq!(rig.numbers(), [3]);
    let _ = rig.on(2, SEQUENCE);
    assert_eq!(rig.numbers(), [2, 3]);
    rig.now += MS;
    let _ = rig.on(3, ACK);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.requester.counters().timeouts, 0);
    // Only the acknowledgement was lost.
    let mut rig = flight(Operation::Send, 256 * 3);
    let _ = rig.tick(rig.now + 2 * MS);
    rig.send();
    let _ = rig.on(3, ACK);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.requester.counters().retransmitted, 0);
    assert_eq!(rig.requester.deadline(), None);
}

/// All missing data of a READ is requested again: a responder need not remember the part
/// before the last request.
#[test]
fn a_silent_read_is_probed_by_what_is_missing() {
    let mut rig = flight(Operation::Read, 256 * 3 - 6);
    let _ = rig.respond(1, true, false, 256);
    let _ = rig.tick(rig.now + 2 * MS);
    let probe = rig.next().unwrap();
    assert_eq!((probe.psn, probe.opcode), (psn(2), Opcode::RcReadRequest));
    let reth = reth_of(&probe);
    assert_eq!((reth.va(), reth.length()), (0x1000 + 256, 506));
    assert_eq!(rig.next(), None);
    let _ = rig.respond(2, true, false, 256);
    let _ = rig.respond(3, false, true, 250);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // It does not count against the READs that may be outstanding.
    let several = || {
        let mut rig = patient();
        rig.push(1, Operation::Read, 512);
        rig.push(2, Operation::Read, 512);
        rig.send();
        rig
    };
    let mut rig = several();
    // The peer may be at work on either of several.
    let _ = rig.tick(rig.now + 2 * MS);
    assert_eq!(rig.next(), None);
    // Not so when they were sent again.
    let mut again = several();
    let _ = again.tick(again.now + 80 * MS);
    assert_eq!(again.numbers(), [1, 3]);
    let due = again.requester.deadline().unwrap();
    let _ = again.tick(due);
    assert_eq!(again.numbers(), [1]);
    let _ = rig.respond(1, true, false, 256);
    let _ = rig.respond(2, false, true, 256);
    let due = rig.requester.deadline().unwrap();
    let _ = rig.tick(due);
    assert_eq!(rig.numbers(), [3]);
    let _ = rig.respond(3, true, false, 256);
    let _ = rig.respond(4, false, true, 256);
    rig.push(3, Operation::Read, 1);
    rig.push(4, Operation::Read, 1);
    assert_eq!(rig.numbers(), [5, 6]);
}

/// One response is no work, also if there are several.
#[test]
fn the_first_of_several_short_requests_is_probed() {
    for (op, length) in [
        (Operation::Read, 256),
        (Operation::FetchAdd, 8),
        (Operation::Flush, 0),
    ] {
        let mut rig = patient();
        rig.push(1, op, length);
        rig.push(2, op, length);
        rig.send();
        for at in [2, 4] {
            let _ = rig.tick(rig.now + at * MS);
            assert_eq!(rig.numbers(), [1]);
        }
    }
}

/// Responses that come, even if they are not the one that is waited for, show that the peer is at
/// work.
#[test]
fn a_peer_at_work_is_not_probed() {
    let mut rig = flight(Operation::Read, 256 * 4);
    let began = rig.now;
    rig.now += MS;
    let _ = rig.accept(2, false, false, 256);
    assert_eq!(rig.numbers(), [1]);
    rig.now += MS;
    let _ = rig.accept(3, false, false, 256);
    assert_eq!(rig.requester.deadline(), Some(began + 4 * MS));
}

#[test]
fn nobody_probes_where_a_timeout_is_near_or_none() {
    for ack_timeout_ns in [None, Some(4 * MS - 1)] {
        let mut rig = Rig::with(RequesterConfig {
            ack_timeout_ns,
            ..config()
        });
        rig.push(1, Operation::Send, 1);
        rig.send();
        let timeout = ack_timeout_ns.map(|timeout| rig.now + timeout);
        assert_eq!(rig.requester.deadline(), timeout);
    }
}

#[test]
fn what_did_not_leave_is_tried_again_and_spends_no_retry() {
    let mut rig = patient();
    rig.push(1, Operation::Write, 256 * 4);
    let first = rig.next().unwrap();
    rig.send();
    let began = rig.now;
    for n in 1..=10 {
        rig.requester.unsend(&first, rig.now);
        assert_eq!(rig.next(), None);
        assert_eq!(rig.requester.deadline(), Some(began + n * MS));
        assert!(!rig.tick(began + n * MS).has_failed());
        assert_eq!(rig.numbers(), [1, 2, 3, 4]);
    }
    let _ = rig.on(4, ACK);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.requester.counters().timeouts, 0);
}

/// A request without responses leaves in silence, for one with responses is behind it, and that is
/// lost; or both are. Nothing makes the peer say anything, so the first one is the probe.
#[test]
fn what_is_before_a_lost_read_is_asked_about() {
    for (op, length) in [(Operation::Read, 1), (Operation::FetchAdd, 8)] {
        for both in [false, true] {
            let mut rig = patient();
            rig.silent(1, Operation::Write, 256 * 2);
            rig.push(2, op, length);
            assert_eq!(rig.send(), [(1, false), (2, false), (3, false)]);
            let _ = rig.tick(rig.now + 2 * MS);
            assert_eq!(rig.send(), [(1, true)]);
            let _ = if both {
                let _ = rig.on(1, ACK);
                rig.on(2, SEQUENCE)
            } else {
                rig.on(2, ACK)
            };
            if both {
                assert_eq!(rig.numbers(), [2, 3]);
            } else {
                let _ = rig.tick(rig.now + 2 * MS);
                assert_eq!(rig.numbers(), [3]);
            }
            assert_eq!(rig.requester.counters().timeouts, 0);
        }
    }
}

/// In the middle of what is in flight: READs behind it are outstanding no more.
#[test]
fn sending_goes_back_to_what_did_not_leave() {
    let mut rig = patient();
    rig.push(1, Operation::Write, 256 * 2);
    rig.push(2, Operation::Read, 1);
    rig.push(3, Operation::Read, 1);
    rig.next();
    let second = rig.next().unwrap();
    assert_eq!(rig.numbers(), [3, 4]);
    rig.requester.unsend(&second, rig.now);
    rig.now += MS;
    assert_eq!(rig.numbers(), [2, 3, 4]);
    // Something that is acknowledged meanwhile has left after all.
    let _ = rig.on(2, ACK);
    rig.requester.unsend(&second, rig.now);
    assert_eq!(rig.numbers(), []);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
}

#[test]
fn a_probe_that_did_not_leave_is_not_tried_again() {
    for op in [Operation::Write, Operation::Read] {
        let mut rig = flight(op, 256 * 3);
        let _ = rig.tick(rig.now + 2 * MS);
        let probe = rig.next().unwrap();
        rig.requester.unsend(&probe, rig.now);
        rig.now += 2 * MS;
        assert_eq!(rig.next(), None);
        rig.push(2, Operation::Send, 1);
        assert_eq!(rig.numbers(), [4]);
    }
}

/// A device that takes nothing: the ACK timeout runs all the time.
#[test]
fn a_device_that_never_takes_a_packet_ends_the_connection() {
    let mut rig = patient();
    rig.push(1, Operation::Write, 1);
    let began = rig.now;
    while rig.done.is_empty() {
        if let Some(segment) = rig.next() {
            rig.requester.unsend(&segment, rig.now);
        }
        let deadline = rig.requester.deadline().unwrap();
        let _ = rig.tick(deadline);
        assert!(rig.now < began + 200 * MS);
    }
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
    assert_eq!(rig.requester.counters().timeouts, 2);
}
