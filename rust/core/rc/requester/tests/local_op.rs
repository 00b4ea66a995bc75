// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Requests that ask no peer, between those that do.

use super::*;

impl Rig {
    fn local_op(&mut self) -> Next {
        self.requester.next(self.now, 1)
    }

    fn execute_local_op(&mut self, index: u32, status: Status) -> Progress {
        assert_eq!(self.local_op(), Next::LocalOp(slot(index)));
        let done = &mut self.done;
        self.requester.local_op_done(status, &mut |c| done.push(c))
    }
}

/// It is done in its place among the others, at once, and completes in its place, too.
#[test]
fn it_is_done_in_order_and_completes_in_order() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Write, 600);
    rig.push(2, Operation::BindMw, 0);
    rig.push(3, Operation::Send, 1);
    // Earlier messages are to be acknowledged, although nothing waits for that.
    assert_eq!(rig.send(), [(0, false), (1, false), (2, true)]);
    assert!(!rig.execute_local_op(1, Status::Success).has_failed());
    assert_eq!(rig.ended(), []);
    assert_eq!(rig.send(), [(3, true)]);
    assert_eq!(rig.local_op(), Next::Idle);
    let _ = rig.on_msn(2, ACK, 1);
    assert_eq!(rig.ended(), [(2, Status::Success)]);
    assert_eq!(rig.done[0].op, Operation::BindMw);
    let _ = rig.on_msn(3, ACK, 2);
    assert_eq!(rig.ended(), [(2, Status::Success), (3, Status::Success)]);
    assert!(rig.requester.is_drained());
}

/// Alone it completes as soon as it is done, and takes no PSN.
#[test]
fn alone_it_completes_at_once() {
    let mut rig = Rig::new();
    for id in 0..40 {
        rig.push(id, Operation::LocalInv, 0);
        assert!(!rig
            .execute_local_op(id as u32, Status::Success)
            .has_failed());
        assert_eq!(rig.done.last().map(|c| c.wr_id), Some(id));
    }
    assert_eq!(rig.requester.next_psn(), psn(0));
    assert_eq!(rig.requester.deadline(), None);
    assert!(rig.requester.is_drained() && !rig.requester.has_unsent());
}

#[test]
fn a_fence_holds_it_until_reads_are_complete() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 1);
    rig.push(2, Operation::LocalInv, 0);
    let mut fenced = wr(3, Operation::LocalInv, 0);
    fenced.fence = true;
    rig.requester.push(fenced).unwrap();
    assert_eq!(rig.numbers(), [0]);
    let _ = rig.execute_local_op(1, Status::Success);
    assert_eq!(rig.local_op(), Next::Idle);
    assert_eq!(rig.ended(), []);
    let _ = rig.respond(0, true, true, 1);
    // The one that did not wait is complete with the READ before it.
    assert_eq!(rig.ended(), [(1, Status::Success), (2, Status::Success)]);
    let _ = rig.execute_local_op(2, Status::Success);
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn what_was_done_is_not_done_again_after_a_loss() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 300);
    rig.push(2, Operation::BindMw, 0);
    rig.push(3, Operation::BindMw, 0);
    rig.push(4, Operation::Send, 1);
    assert_eq!(rig.numbers(), [0, 1]);
    let _ = rig.execute_local_op(1, Status::Success);
    let _ = rig.execute_local_op(2, Status::Success);
    assert_eq!(rig.numbers(), [2]);
    let _ = rig.on_msn(0, SEQUENCE, 0);
    assert_eq!(rig.numbers(), [0, 1, 2]);
    assert_eq!(rig.local_op(), Next::Idle);
    let _ = rig.on_msn(2, ACK, 2);
    assert_eq!(
        rig.done.iter().map(|c| c.wr_id).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
}

/// The cursor went back and is before one that was done, when all before it turns out to have
/// arrived: that one retires, and its slot may be filled again before the cursor goes on.
#[test]
fn what_retires_before_the_cursor_takes_the_cursor_along() {
    for last_before in [Operation::Send, Operation::Read] {
        let mut rig = Rig::new();
        rig.push(0, last_before, 1);
        rig.push(1, Operation::LocalInv, 0);
        rig.push(2, Operation::Send, 1);
        assert_eq!(rig.numbers(), [0]);
        let _ = rig.execute_local_op(1, Status::Success);
        assert_eq!(rig.numbers(), [1]);
        let _ = rig.tick(rig.now + TIMEOUT);
        assert_eq!(rig.next().map(|segment| segment.slot), Some(slot(0)));
        let _ = match last_before {
            Operation::Read => rig.respond(0, true, true, 1),
            _ => rig.on_msn(0, ACK, 1),
        };
        assert_eq!(rig.done.len(), 2);
        let mut pushed = 3;
        while rig.requester.push(wr(pushed, Operation::Send, 1)).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 18);
        let slots: Vec<Slot> = core::iter::from_fn(|| rig.next())
            .map(|segment| segment.slot)
            .collect();
        assert_eq!(slots, (2..18).map(slot).collect::<Vec<_>>());
    }
}

/// A probe for the end of a flight is a packet, not what was done behind it.
#[test]
fn a_probe_is_what_was_sent_before() {
    let mut rig = Rig::with(RequesterConfig {
        ack_timeout_ns: Some(80 * TIMEOUT),
        ..config()
    });
    rig.push(0, Operation::Send, 1);
    rig.send();
    rig.now += 500_000;
    let _ = rig.on_msn(0, ACK, 1);
    rig.push(1, Operation::Send, 1);
    rig.push(2, Operation::LocalInv, 0);
    assert_eq!(rig.numbers(), [1]);
    let _ = rig.execute_local_op(2, Status::Success);
    let at = rig.requester.deadline().unwrap();
    assert!(!rig.tick(at).has_failed());
    assert_eq!(rig.numbers(), [1]);
    assert_eq!(rig.requester.counters().tail_probes, 1);
    assert_eq!(rig.local_op(), Next::Idle);
    let _ = rig.on_msn(1, ACK, 2);
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn one_that_fails_ends_the_connection_in_its_turn() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 1);
    rig.push(2, Operation::BindMw, 0);
    rig.push(3, Operation::Send, 1);
    assert_eq!(rig.numbers(), [0]);
    assert!(!rig.execute_local_op(1, Status::MwBindErr).has_failed());
    // Nothing behind it begins.
    assert_eq!(rig.local_op(), Next::Idle);
    assert_eq!(rig.ended(), []);
    assert!(rig.on_msn(0, ACK, 1).has_failed());
    rig.flush();
    assert_eq!(
        rig.ended(),
        [
            (1, Status::Success),
            (2, Status::MwBindErr),
            (3, Status::WrFlushErr)
        ]
    );
}

#[test]
fn it_waits_while_the_queue_drains_or_the_receiver_is_not_ready() {
    let mut rig = Rig::new();
    rig.push(1, Operation::LocalInv, 0);
    rig.requester.drain(true);
    assert_eq!(rig.local_op(), Next::Idle);
    assert!(rig.requester.is_drained());
    rig.requester.drain(false);
    let _ = rig.execute_local_op(0, Status::Success);
    rig.push(2, Operation::Send, 1);
    rig.push(3, Operation::LocalInv, 0);
    assert_eq!(rig.numbers(), [0]);
    let _ = rig.on_msn(0, AethSyndrome::RnrNak { timer: 1 }, 0);
    assert_eq!(rig.local_op(), Next::Idle);
    assert_eq!(rig.done.len(), 1);
}

#[test]
fn a_key_travels_with_the_last_packet() {
    let mut rig = Rig::new();
    rig.push(1, Operation::SendInv, 300);
    rig.push(2, Operation::SendInv, 0);
    let extension = |segment: RequestSegment| segment.extension(|| ARGUMENTS).invalidated();
    let first = rig.next().unwrap();
    assert_eq!(
        (first.opcode, extension(first)),
        (Opcode::RcSendFirst, None)
    );
    for opcode in [Opcode::RcSendLastInvalidate, Opcode::RcSendOnlyInvalidate] {
        let last = rig.next().unwrap();
        assert_eq!((last.opcode, extension(last)), (opcode, Some(0x5566_7788)));
    }
}
