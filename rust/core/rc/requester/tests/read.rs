// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What asks for a response: READs, with fences, and atomic operations; local operations between
//! them.

use super::*;
use crate::core::uabi::wqe::Flush;

#[test]
fn a_read_takes_the_psns_of_its_responses() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 600);
    rig.push(2, Operation::Send, 1);
    let read = rig.next().unwrap();
    assert_eq!(
        (read.opcode, read.span, read.len),
        (Opcode::RcReadRequest, 1, 0)
    );
    assert_eq!(reth_of(&read).length(), 600);
    assert_eq!(rig.next().unwrap().psn, psn(3));
    let place = rig.accept(0, true, false, 256).unwrap();
    assert_eq!((place.slot, place.offset, place.len), (slot(0), 0, 256));
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
fn a_placement_of_another_connection_is_void() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 1);
    rig.send();
    let place = rig.accept(0, true, true, 1).unwrap();
    rig.requester.reset();
    rig.requester.connect(config());
    rig.push(2, Operation::Read, 1);
    rig.send();
    let done = &mut rig.done;
    let _ = rig
        .requester
        .read_response_placed(&place, 0, &mut |c| done.push(c));
    assert!(rig.done.is_empty());
}

#[test]
fn reads_outstanding_are_limited() {
    let mut rig = Rig::new();
    for n in 0..4 {
        rig.push(n, Operation::Read, 1);
    }
    rig.push(4, Operation::Send, 1);
    assert_eq!(rig.numbers(), [0, 1]);
    assert!(!rig.respond(0, true, true, 1).has_failed());
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
    let refused = rig.requester.push(wr(1, Operation::Read, 1));
    assert_eq!(refused, Err(PushError::NoReads));
}

#[test]
fn a_fence_waits_for_reads() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 1);
    rig.requester
        .push(SendRequest {
            fence: true,
            ..wr(2, Operation::Send, 1)
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
    rig.push(1, Operation::Read, packets * 256 - 1);
    let first = rig.next().unwrap();
    assert_eq!(reth_of(&first).length(), READ_PIECE * 256);
    // The window is full of responses to come.
    assert_eq!(rig.next(), None);
    let mut reth = Vec::new();
    for n in 0..packets {
        let place = n % READ_PIECE;
        let last = place == READ_PIECE - 1 || n == packets - 1;
        let len = if n == packets - 1 { 255 } else { 256 };
        let _ = rig.respond(n, place == 0, last, len);
        while let Some(segment) = rig.next() {
            reth.push(reth_of(&segment));
        }
    }
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    let pieces: Vec<_> = reth.iter().map(|r| (r.va(), r.length())).collect();
    let piece = READ_PIECE * 256;
    let second = (0x1000 + u64::from(piece), piece);
    assert_eq!(
        pieces,
        [second, (0x1000 + 2 * u64::from(piece), 10 * 256 - 1)]
    );
}

/// A piece that does not fit into the window waits for what is in flight, and sees to it that this
/// is acknowledged.
#[test]
fn a_read_is_asked_for_when_the_window_has_room_for_its_responses() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Write, 1);
    rig.push(2, Operation::Read, 256 * 256);
    rig.silent(3, Operation::Write, 1);
    assert_eq!(rig.send(), [(0, true)]);
    let _ = rig.on(0, ACK);
    // The window grew by one, for the packet behind it.
    assert_eq!(rig.numbers(), [1, 257]);
    // What left without an ACK request, for the READ was not there yet, requests one now.
    let mut rig = Rig::new();
    rig.silent(1, Operation::Write, 1);
    rig.silent(2, Operation::Write, 1);
    assert!(!rig.next().unwrap().ack_req);
    rig.push(3, Operation::Read, 256 * 256);
    assert_eq!(rig.send(), [(1, true)]);
    let _ = rig.on(1, ACK);
    assert_eq!(rig.numbers(), [2]);
}

// Atomic operations and their answers.

const SWAP: Operation = Operation::CompareSwap;
const ADD: Operation = Operation::FetchAdd;

fn original(n: u32) -> ReadSegment {
    ReadSegment::original(psn(n))
}

impl Rig {
    fn answer(&mut self, n: u32) -> Progress {
        let place = self.take(&original(n)).unwrap();
        assert_eq!((place.offset, place.len), (0, 8));
        let done = &mut self.done;
        self.requester
            .read_response_placed(&place, self.now, &mut |c| done.push(c))
    }
}

#[test]
fn each_is_one_packet_and_completes_with_its_answer() {
    let mut rig = Rig::new();
    rig.push(1, SWAP, 8);
    rig.push(2, ADD, 8);
    rig.push(3, Operation::Send, 1);
    let swap = rig.next().unwrap();
    assert_eq!((swap.opcode, swap.span), (Opcode::RcCompareSwap, 1));
    assert_eq!((swap.len, swap.message_len), (0, 8));
    let header = swap.extension(|| ARGUMENTS).atomic().unwrap();
    assert_eq!((header.va(), header.rkey()), (0x1000, 5));
    assert_eq!((header.compare(), header.swap_add()), (7, 8));
    let add = rig.next().unwrap();
    assert_eq!((add.opcode, add.psn), (Opcode::RcFetchAdd, psn(1)));
    let header = add.extension(|| ARGUMENTS).atomic().unwrap();
    assert_eq!((header.compare(), header.swap_add()), (0, 7));
    assert_eq!(rig.next().unwrap().psn, psn(2));
    let _ = rig.answer(0);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!((rig.done[0].op, rig.done[0].byte_len), (SWAP, 8));
    let _ = rig.answer(1);
    let _ = rig.on(2, ACK);
    assert_eq!(rig.done.len(), 3);
}

/// The depth is one for READs and atomic operations together; a fence waits for either.
#[test]
fn they_count_with_reads() {
    let mut rig = Rig::new();
    rig.push(0, Operation::Read, 1);
    rig.push(1, ADD, 8);
    rig.push(2, SWAP, 8);
    rig.push(3, Operation::Read, 1);
    assert_eq!(rig.numbers(), [0, 1]);
    let _ = rig.respond(0, true, true, 1);
    assert_eq!(rig.numbers(), [2]);
    let _ = rig.answer(1);
    assert_eq!(rig.numbers(), [3]);
    let fenced = SendRequest {
        fence: true,
        ..wr(4, Operation::Write, 1)
    };
    rig.requester.push(fenced).unwrap();
    assert_eq!(rig.numbers(), []);
    let _ = rig.answer(2);
    let _ = rig.respond(3, true, true, 1);
    assert_eq!(rig.numbers(), [4]);
    rig.requester.set_max_rd_atomic(0);
    let refused = rig.requester.push(wr(5, ADD, 8));
    assert_eq!(refused, Err(PushError::NoReads));
}

/// An ACK behind it implies that its response was lost: it is requested again, as after a timeout.
#[test]
fn a_lost_answer_is_asked_for_again() {
    let mut rig = Rig::new();
    rig.push(1, ADD, 8);
    rig.push(2, Operation::Send, 1);
    assert_eq!(rig.numbers(), [0, 1]);
    let _ = rig.on(1, ACK);
    assert!(rig.done.is_empty());
    assert_eq!(rig.numbers(), [0, 1]);
    let _ = rig.answer(0);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    let _ = rig.on(1, ACK);
    rig.push(3, SWAP, 8);
    assert_eq!(rig.numbers(), [2]);
    let _ = rig.tick(rig.now + TIMEOUT);
    assert_eq!(rig.numbers(), [2]);
    let _ = rig.answer(2);
    assert_eq!(rig.done.len(), 3);
    // Once is enough.
    let twice = rig.take(&original(2)).unwrap_err();
    assert_eq!(twice.reason, Ignored::Duplicate);
}

/// An ATOMIC WRITE carries its 8 bytes; it and a FLUSH are answered by an empty READ response.
#[test]
fn an_atomic_write_and_a_flush() {
    let mut rig = Rig::new();
    rig.push(1, Operation::AtomicWrite, 0);
    rig.push(2, Operation::Flush, 0);
    let write = rig.next().unwrap();
    assert_eq!((write.opcode, write.span), (Opcode::RcAtomicWrite, 1));
    assert_eq!((write.offset, write.len), (0, 8));
    assert_eq!(reth_of(&write).length(), 8);
    let flush = rig.next().unwrap();
    assert_eq!((flush.opcode, flush.len), (Opcode::RcFlush, 0));
    assert_eq!(flush.psn, psn(1));
    let operands = Flush {
        length: 100,
        placement: 3,
        selectivity: 1,
        ..Flush::default()
    };
    let arguments = Arguments {
        operands: zerocopy::transmute!(operands),
        ..ARGUMENTS
    };
    let (feth, reth) = flush.extension(|| arguments).flush().unwrap();
    assert_eq!((feth.placement(), feth.selectivity()), (3, 1));
    assert_eq!((reth.va(), reth.rkey(), reth.length()), (0x1000, 5, 100));
    assert_eq!(rig.numbers(), []);
    let _ = rig.respond(0, true, true, 0);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // They did not request data.
    assert!(rig.accept(1, true, true, 8).is_err());
    assert_eq!(rig.ended()[1], (2, Status::BadRespErr));
}

/// Data for an atomic operation, and an original for a READ, are nonsense.
#[test]
fn an_answer_of_another_kind_ends_the_request() {
    for (op, brings) in [
        (ADD, Brings::Data),
        (SWAP, Brings::Data),
        (Operation::Read, Brings::Original),
        (Operation::Write, Brings::Original),
    ] {
        let mut rig = Rig::new();
        rig.push(1, op, 8);
        rig.send();
        let response = ReadSegment {
            brings,
            ..original(0)
        };
        let refused = rig.take(&response).unwrap_err();
        assert_eq!(refused.reason, Ignored::Bad);
        assert!(refused.progress.has_failed());
        assert_eq!(rig.ended(), [(1, Status::BadRespErr)]);
    }
}

// Requests that ask no peer, between those that do.

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
fn a_fence_holds_it_until_all_before_it_is_complete() {
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
    rig.push(4, Operation::Send, 1);
    rig.requester.push(fenced).unwrap();
    assert_eq!(rig.numbers(), [1]);
    assert_eq!(rig.local_op(), Next::Idle);
    let _ = rig.on(1, ACK);
    let _ = rig.execute_local_op(4, Status::Success);
    assert_eq!(rig.done.len(), 5);
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
