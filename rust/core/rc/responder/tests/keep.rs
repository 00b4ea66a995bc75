// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Requests behind a gap that are kept.

use super::*;
use crate::core::storage::NoMemory;

fn kept(n: u32, ack_req: bool) -> IncomingRequest {
    IncomingRequest {
        keeps: true,
        ack_req,
        ..write(n, true, true, 3, 3)
    }
}

/// The report that is due: the packet that it is about, and its first word.
fn report(rig: &mut Rig) -> Option<(u32, u64)> {
    match rig.responder.next_response(1)? {
        Response::Missing {
            psn: about, len, ..
        } => {
            assert_eq!(len, 8);
            let word = rig.responder.kept_words().next()?;
            Some((about.distance_from(psn(0)) as u32, word))
        }
        _ => None,
    }
}

#[test]
fn what_is_behind_a_gap_is_kept_and_executed_in_its_turn() {
    let mut rig = Rig::new();
    rig.env.keep = Some(Keep::Kept);
    for n in [1, 2, 4] {
        assert_eq!(rig.on(kept(n, false)).dropped, Some(DropReason::Kept));
    }
    assert_eq!(report(&mut rig), Some((0, 0b1_0110)));
    assert!(!rig.responder.has_response() && rig.responder.next_kept().is_none());
    // It is reported again to a peer that asks, or sends again what is kept.
    let _ = rig.on(kept(5, false));
    assert!(!rig.responder.has_response());
    let _ = rig.on(kept(6, true));
    assert_eq!(report(&mut rig), Some((0, 0b111_0110)));
    rig.env.keep = Some(Keep::Again);
    let _ = rig.on(kept(4, false));
    assert_eq!(report(&mut rig), Some((0, 0b111_0110)));

    rig.ok(kept(0, true));
    for n in [1, 2] {
        assert_eq!(rig.responder.next_kept(), Some(n));
        rig.ok(kept(n as u32, false));
    }
    assert_eq!(rig.responder.next_kept(), None);
    assert_eq!(report(&mut rig), Some((3, 0b1110)));
    rig.ok(kept(3, true));
    for n in [4, 5, 6] {
        assert_eq!(rig.responder.next_kept(), Some(n));
        rig.ok(kept(n as u32, n == 6));
    }
    assert!(rig.responder.keeps_nothing());
    assert_eq!(rig.answers(), [(6, Ok(ACK))]);
}

/// Without memory, what is behind a gap is dropped, and a READ is answered again from there on.
#[test]
fn nothing_is_kept_without_memory() {
    let mut rig = Rig::<NoMemory>::with_spare(config());
    rig.env.keep = Some(Keep::Kept);
    let outcome = rig.on(kept(1, false));
    assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
    assert!(rig.responder.keeps_nothing() && rig.responder.next_kept().is_none());
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    rig.ok(kept(0, true));
    rig.ok(kept(1, true));
    assert_eq!(rig.answers(), [(1, Ok(ACK))]);

    let from = |n: u32| IncomingRequest {
        keeps: true,
        ..read(2 + n, BASE + u64::from(n * MTU), (4 - n) * MTU)
    };
    rig.ok(from(0));
    assert_eq!(rig.answers().len(), 4);
    assert_eq!(rig.on(from(2)).dropped, Some(DropReason::Duplicate));
    assert_eq!(
        rig.answers().iter().map(|it| it.0).collect::<Vec<_>>(),
        [4, 5]
    );
}

/// Of two that say different things under one PSN none is kept; nor is one that the owner has lost.
#[test]
fn a_forged_one_does_not_win_by_being_early() {
    let mut rig = Rig::new();
    rig.env.keep = Some(Keep::Kept);
    let _ = rig.on(kept(1, false));
    let _ = rig.on(kept(3, false));
    assert_eq!(report(&mut rig), Some((0, 0b1010)));
    rig.env.keep = Some(Keep::Conflict);
    let _ = rig.on(kept(1, false));
    assert_eq!(report(&mut rig), Some((0, 0b1000)));
    rig.ok(kept(0, false));
    assert_eq!(rig.responder.next_kept(), None);
    rig.ok(kept(1, false));
    rig.ok(kept(2, false));
    assert_eq!(rig.responder.next_kept(), Some(3));
    rig.responder.kept_is_gone();
    assert_eq!(rig.responder.next_kept(), None);
    rig.ok(kept(3, true));
    assert!(rig.responder.keeps_nothing());
    assert_eq!(rig.answers(), [(3, Ok(ACK))]);
}

/// A packet within a kept READ, and another one that contradicts it, do not make the READ missing
/// for good: when it comes again, it counts as kept.
#[test]
fn what_is_kept_survives_a_conflict_within_it() {
    let mut rig = Rig::new();
    let long = IncomingRequest {
        keeps: true,
        ..read(1, BASE, 4 * MTU)
    };
    rig.env.keep = Some(Keep::Kept);
    let _ = rig.on(long);
    let _ = rig.on(kept(3, false));
    assert_eq!(report(&mut rig), Some((0, 0b1_1110)));
    rig.env.keep = Some(Keep::Conflict);
    let _ = rig.on(kept(3, false));
    assert_eq!(report(&mut rig), Some((0, 0b1_0110)));
    rig.env.keep = Some(Keep::Again);
    let _ = rig.on(long);
    assert_eq!(report(&mut rig), Some((0, 0b1_1110)));
}

/// Packet 0 had an ACK request, and 1 is missing: the NAK or report about it implies the ACK, is
/// refused by the local stack, and is needless when 1 has come.
#[test]
fn an_ack_is_not_lost_with_a_refused_nak_or_report() {
    for keeps in [false, true] {
        let plain = |n: u32, ack_req: bool| IncomingRequest {
            keeps,
            ..kept(n, ack_req)
        };
        let mut rig = Rig::new();
        rig.env.keep = Some(Keep::Kept);
        rig.ok(plain(0, true));
        let _ = rig.on(plain(2, false));
        rig.responder.begin_run();
        let response = rig.responder.next_response(1).unwrap();
        assert_eq!(
            (response.psn(), rig.responder.has_response()),
            (psn(1), false)
        );
        rig.responder.unsend(&response);
        rig.ok(plain(1, false));
        if keeps {
            assert_eq!(rig.responder.next_kept(), Some(2));
        }
        rig.ok(plain(2, false));
        assert_eq!(rig.answers(), [(2, Ok(ACK))]);
    }
}

/// The same with a response in place of the NAK, whose resource is gone before it leaves.
#[test]
fn an_ack_is_not_lost_with_a_refused_response() {
    let mut rig = Rig::new();
    rig.ok(kept(0, true));
    rig.ok(read(1, BASE, 1));
    rig.responder.begin_run();
    let response = rig.responder.next_response(1).unwrap();
    assert!(!rig.responder.has_response());
    rig.responder.unsend(&response);
    assert_eq!(rig.responder.due.ack, Known::new(0));
    assert_eq!(rig.answers(), [(1, Err((true, true, 1)))]);
}

/// The peer asks for a report, and what it misses comes before the report leaves: it gets an ACK,
/// unless the report had only news for it.
#[test]
fn who_asks_is_answered_though_the_gap_has_closed() {
    for (asks, is_refused) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rig = Rig::new();
        rig.env.keep = Some(Keep::Kept);
        let _ = rig.on(kept(1, false));
        assert_eq!(report(&mut rig), Some((0, 0b10)));
        rig.env.keep = Some(Keep::Again);
        let _ = rig.on(kept(1, asks));
        if is_refused {
            rig.responder.begin_run();
            let response = rig.responder.next_response(1).unwrap();
            rig.responder.unsend(&response);
        }
        rig.ok(kept(0, false));
        assert_eq!(rig.responder.next_kept(), Some(1));
        rig.ok(kept(1, false));
        assert!(rig.responder.keeps_nothing());
        let ack = [(1, Ok(ACK))];
        assert_eq!(rig.answers(), &ack[..usize::from(asks)]);
    }
}

/// Without the bit, without room, too far away, and behind a refused packet it is as ever.
#[test]
fn others_get_a_nak() {
    let mut rig = Rig::new();
    rig.env.keep = Some(Keep::Kept);
    let plain = IncomingRequest {
        keeps: false,
        ..kept(1, false)
    };
    assert_eq!(rig.on(plain).dropped, Some(DropReason::OutOfSequence));
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    rig.env.keep = None;
    let outcome = rig.on(kept(1, false));
    assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
    assert_eq!(rig.answers(), [(0, Ok(SEQUENCE))]);
    rig.env.keep = Some(Keep::Kept);
    let outcome = rig.on(kept(3000, false));
    assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
    assert_eq!(rig.answers(), []);
    // No receive: what follows comes again.
    let _ = rig.on(kept(2, false));
    assert!(!rig.responder.keeps_nothing());
    assert_eq!(
        rig.on(send(0, true, true, 1)).dropped,
        Some(DropReason::NoReceive)
    );
    assert!(rig.responder.keeps_nothing());
    let outcome = rig.on(kept(2, false));
    assert_eq!(outcome.dropped, Some(DropReason::OutOfSequence));
}

/// What of a part that is answered again did not leave leaves later, and nothing else does twice:
/// the peer would spend a retry to ask for it once more.
#[test]
fn a_part_that_has_not_left_is_answered_later() {
    let mut rig = Rig::new();
    let keeping = |n: u32, from: u32, packets: u32| IncomingRequest {
        keeps: true,
        ..read(n + from, BASE + u64::from(from * MTU), packets * MTU)
    };
    rig.ok(keeping(0, 0, 8));
    assert_eq!(rig.answers().len(), 8);
    for (from, packets) in [(1, 3), (6, 1)] {
        let again = rig.on(keeping(0, from, packets));
        assert_eq!(again.dropped, Some(DropReason::Duplicate));
    }
    let number = |response: &Response| response.psn().distance_from(psn(0)) as u32;
    let mut next = || rig.responder.next_response(1);
    let first = next().unwrap();
    let second = next().unwrap();
    assert_eq!((number(&first), number(&second)), (1, 2));
    // In the middle of it, and after its end.
    rig.responder.unsend(&second);
    for _ in 0..2 {
        let second = rig.responder.next_response(1).unwrap();
        let last = rig.responder.next_response(1).unwrap();
        assert_eq!((number(&second), number(&last)), (2, 3));
        assert!(!second.ends_part() && last.ends_part());
        rig.responder.unsend(&second);
    }
    let sent = [2, 3, 6].map(|_| number(&rig.responder.next_response(1).unwrap()));
    assert_eq!(sent, [2, 3, 6]);
    // The only one.
    let last = keeping(0, 7, 1);
    let _ = rig.on(last);
    let response = rig.responder.next_response(1).unwrap();
    assert!(!rig.responder.has_response());
    rig.responder.unsend(&response);
    assert!(rig.responder.has_response());
    assert_eq!(rig.responder.next_response(1), Some(response));
    assert!(!rig.responder.has_response());
}
