// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Acknowledgements: what they complete, and what they do not.

use super::*;
use crate::core::rc::requester::ack::MSN_TRUSTED;

#[test]
fn one_ack_completes_all_before_it_in_order() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 10);
    rig.silent(2, Operation::Write, 300);
    rig.push(3, Operation::Send, 10);
    rig.push(4, Operation::Send, 600);
    rig.send();
    assert!(!rig.on(4, ACK).has_failed());
    assert_eq!(rig.ended(), [(1, Status::Success), (3, Status::Success)]);
    assert_eq!(rig.requester.retired(), 3);
    let _ = rig.on(6, ACK);
    assert_eq!(rig.ended().last(), Some(&(4, Status::Success)));
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn responses_to_nothing_change_nothing() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 10);
    rig.push(2, Operation::Send, 10);
    rig.send();
    let _ = rig.on(0, ACK);
    let deadline = rig.requester.deadline();
    rig.now += 10;
    let _ = rig.on(0, ACK);
    let _ = rig.on(0, AethSyndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(rig.requester.counters().duplicate_responses, 2);
    for n in [2, 3, 1 << 22, (1 << 23) - 1] {
        let _ = rig.on(n, ACK);
    }
    let _ = rig.on(1, AethSyndrome::Reserved(0x7f));
    assert_eq!(rig.requester.counters().unexpected_responses, 5);
    assert_eq!(rig.done.len(), 1);
    assert_eq!(rig.requester.deadline(), deadline);
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
        rig.push(1, Operation::Send, 1);
        rig.silent(2, Operation::Write, 600);
        rig.push(3, Operation::Send, 1);
        rig.send();
        assert!(rig.on(2, AethSyndrome::Nak(code)).has_failed());
        assert_eq!(rig.ended(), [(1, Status::Success), (2, status)]);
        assert_eq!(rig.requester.retired(), 2);
        // Nothing waits for the next one.
        assert_eq!(rig.on(4, ACK), Progress::default());
        rig.flush();
        assert_eq!(rig.ended()[2..], [(3, Status::WrFlushErr)]);
        assert_eq!(rig.requester.retired(), rig.requester.pushed());
    }
}

#[test]
fn a_response_acknowledges_all_before_it() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Write, 1);
    rig.push(2, Operation::Read, 1);
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
        Ignored::Duplicate
    );
}

/// A PSN that is outstanding does not suffice: the MSN has to be one that the responder can have
/// counted to.
#[test]
fn an_acknowledgement_with_an_impossible_msn_is_nobodys() {
    let mut rig = Rig::new();
    rig.requester.msn_agreed = MSN_TRUSTED;
    rig.push(1, Operation::Send, 300);
    rig.push(2, Operation::Read, 1);
    rig.push(3, Operation::Send, 1);
    rig.push(4, Operation::Send, 1);
    for _ in 0..4 {
        rig.next();
    }
    // Three messages left so far.
    for msn in [4, 5, 100, 0xff_ffff] {
        for syndrome in [ACK, SEQUENCE, AethSyndrome::Nak(NakCode::RemoteAccess)] {
            assert_eq!(rig.on_msn(1, syndrome, msn), Progress::default());
        }
    }
    assert_eq!(rig.requester.counters().unexpected_responses, 12);
    assert!(rig.done.is_empty());
    // A responder counts a READ when it accepts it.
    let _ = rig.on_msn(1, ACK, 3);
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    let _ = rig.respond(2, true, true, 1);
    rig.send();
    // Two messages are complete, four were sent.
    assert_eq!(rig.on_msn(4, ACK, 1), Progress::default());
    assert_eq!(rig.on_msn(4, ACK, 5), Progress::default());
    assert_eq!(rig.done.len(), 2);
    let _ = rig.on_msn(4, ACK, 4);
    assert_eq!(rig.done.len(), 4);
}

/// Each piece of a long READ is a request by itself, and counts.
#[test]
fn pieces_of_a_read_count_as_messages() {
    let mut rig = Rig::new();
    rig.requester.msn_agreed = MSN_TRUSTED;
    rig.push(1, Operation::Read, (READ_PIECE + 1) * 256);
    rig.push(2, Operation::Send, 1);
    rig.send();
    for n in 0..READ_PIECE {
        let _ = rig.respond(n, n == 0, n + 1 == READ_PIECE, 256);
    }
    rig.send();
    let _ = rig.respond(READ_PIECE, true, true, 256);
    rig.send();
    let _ = rig.on_msn(READ_PIECE + 1, ACK, 4);
    assert_eq!(rig.done.len(), 1);
    let _ = rig.on_msn(READ_PIECE + 1, ACK, 3);
    assert_eq!(rig.done.len(), 2);
}

/// A responder that does not count, or otherwise than we, is one all the same.
#[test]
fn a_responder_that_does_not_count_as_we_do() {
    let ways: [fn(u32) -> u32; 4] = [
        |_| 0,
        |done| done + 2,
        |done| done.wrapping_mul(0x9e_3779),
        |done| done.wrapping_sub(1) & 0xff_ffff,
    ];
    for count in ways {
        let mut rig = Rig::new();
        for n in 0..100 {
            rig.push(n.into(), Operation::Send, 1);
            rig.push(n.into(), Operation::Send, 1);
            rig.send();
            let _ = rig.on_msn(2 * n, ACK, count(2 * n + 1));
            let _ = rig.on_msn(2 * n + 1, ACK, count(2 * n + 2));
            assert_eq!(rig.done.len() as u32, 2 * n + 2);
        }
    }
}

/// One that has counted right four times in a row is expected to go on so.
#[test]
fn a_responder_is_trusted_to_count_when_it_has_counted() {
    let mut rig = Rig::new();
    let mut n = 0;
    for right in [3, 4] {
        for _ in 0..right {
            rig.push(1, Operation::Send, 1);
            rig.send();
            let _ = rig.on_msn(n, ACK, n + 1);
            n += 1;
        }
        rig.push(1, Operation::Send, 1);
        rig.send();
        let done = rig.done.len();
        let _ = rig.on_msn(n, ACK, n + 100);
        // After three it is honoured, and begins anew; after four it is not.
        assert_eq!(rig.done.len() > done, right == 3);
        if right == 3 {
            n += 1;
        }
    }
    let _ = rig.on_msn(n, ACK, n + 1);
    assert_eq!(rig.done.len() as u32, n + 1);
    assert_eq!(rig.requester.counters().unexpected_responses, 2);
}
