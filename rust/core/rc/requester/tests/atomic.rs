// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Atomic operations and their answers.

use super::*;
use crate::core::uabi::wqe::Flush;

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
