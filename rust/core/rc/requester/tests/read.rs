// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! RDMA READs: their PSNs, their answers, fences.

use super::*;

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
