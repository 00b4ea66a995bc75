// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Requests that fail on this side, segments that cannot leave, and the flush.

use super::*;

#[test]
fn what_failed_here_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 600);
    rig.push(3, Operation::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    let segment = rig.next().unwrap();
    let progress = rig.fail(segment.slot);
    assert!(!progress.has_failed());
    assert!(rig.done.is_empty());
    // No ACK was requested for the first message yet: its end is retransmitted with a request.
    assert_eq!(rig.send(), [(0, true)]);
    assert_eq!(rig.next(), None);
    let progress = rig.on(0, ACK);
    assert!(progress.has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    rig.flush();
    assert_eq!(rig.ended()[1..], [(3, Status::WrFlushErr)]);
}

#[test]
fn a_read_before_what_failed_here_is_not_asked_for_again() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 3);
    rig.push(2, Operation::Send, 1);
    rig.next();
    let segment = rig.next().unwrap();
    let _ = rig.fail(segment.slot);
    assert_eq!(rig.next(), None);
}

#[test]
fn what_failed_here_does_not_count_as_a_question() {
    // The second message would have requested an ACK for both, but it never leaves.
    for unsend in [false, true] {
        let mut rig = Rig::new();
        rig.silent(1, Operation::Send, 1);
        rig.push(2, Operation::Send, 1);
        assert!(!rig.next().unwrap().ack_req);
        let segment = rig.next().unwrap();
        assert!(segment.ack_req);
        if unsend {
            rig.requester.unsend(&segment, rig.now);
            rig.now += 1_000_000;
        }
        let _ = rig.fail(segment.slot);
        assert_eq!(rig.send(), [(0, true)]);
        assert!(rig.on(0, ACK).has_failed());
        assert_eq!(rig.ended(), [(2, Status::LocProtErr)]);
    }
}

#[test]
fn what_could_not_leave_has_not_asked() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.next();
    let segment = rig.next().unwrap();
    rig.requester.unsend(&segment, rig.now);
    rig.now += 1_000_000;
    rig.requester.drain(true);
    // The second message counts as begun, so it is finished.
    assert_eq!(rig.send(), [(1, true)]);
}

#[test]
fn what_failed_here_first_ends_at_once() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 600);
    let segment = rig.next().unwrap();
    assert!(rig.fail(segment.slot).has_failed());
    assert_eq!(rig.ended(), [(1, Status::LocProtErr)]);
    // A free slot.
    assert_eq!(rig.fail(slot(9)), Progress::default());
}

#[test]
fn a_malformed_request_waits_for_its_turn() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.next();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert_eq!(pushed, Ok(Progress::Continue));
    assert_eq!(rig.next(), None);
    assert!(rig.on(0, ACK).has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);

    let mut rig = Rig::new();
    let done = &mut rig.done;
    let pushed = rig
        .requester
        .push_failed(2, Status::LocQpOpErr, &mut |c| done.push(c));
    assert!(pushed.unwrap().has_failed());
    assert_eq!(rig.ended(), [(2, Status::LocQpOpErr)]);
}

#[test]
fn a_flush_keeps_the_order_and_the_status_of_what_failed() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.push(3, Operation::Send, 1);
    rig.next();
    let slot = rig.next().unwrap().slot;
    assert!(!rig.fail(slot).has_failed());
    rig.flush();
    let ended = [
        (1, Status::WrFlushErr),
        (2, Status::LocProtErr),
        (3, Status::WrFlushErr),
    ];
    assert_eq!(rig.ended(), ended);
    rig.push(4, Operation::Send, 1);
    assert_eq!(rig.next(), None);
    rig.flush();
    assert_eq!(rig.ended().last(), Some(&(4, Status::WrFlushErr)));
}

#[test]
fn what_could_not_leave_comes_again() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 300);
    rig.push(2, Operation::Read, 1);
    rig.next();
    // The second packet, then the READ.
    for _ in 0..2 {
        let segment = rig.next().unwrap();
        rig.requester.unsend(&segment, rig.now);
        rig.now += 1_000_000;
        assert_eq!(rig.next(), Some(segment));
    }
    assert_eq!(rig.next(), None);
    let mut rig = Rig::new();
    for n in 0..3 {
        rig.push(n, Operation::Read, 1);
    }
    for _ in 0..5 {
        let read = rig.next().unwrap();
        rig.requester.unsend(&read, rig.now);
        rig.now += 1_000_000;
    }
    assert_eq!(rig.numbers(), [0, 1]);
}
