// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! READ responses that are lost, or wrong.

use super::*;

#[test]
fn lost_responses_are_asked_for_again_from_the_first_missing() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 256 * 5);
    rig.send();
    let _ = rig.respond(0, true, false, 256);
    // Response 1 is lost: 2 shows it, and 3 says nothing new.
    let refused = rig.accept(2, false, false, 256).unwrap_err();
    assert_eq!(refused.reason, Ignored::Gap);
    assert!(!refused.progress.has_failed());
    let again = rig.next().unwrap();
    assert_eq!((again.psn, again.offset), (psn(1), 256));
    let reth = reth_of(&again);
    assert_eq!((reth.va(), reth.length()), (0x1100, 4 * 256));
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
    rig.push(1, Operation::Read, 256 * 5);
    rig.send();
    assert!(!rig
        .accept(1, false, false, 256)
        .unwrap_err()
        .progress
        .has_failed());
    assert_eq!(rig.numbers(), [0]);
    let deadline = rig.requester.deadline().unwrap();
    let _ = rig.tick(deadline);
    assert_eq!(rig.numbers(), [0]);
    assert!(!rig
        .accept(1, false, false, 256)
        .unwrap_err()
        .progress
        .has_failed());
    assert_eq!(rig.numbers(), [0]);
    assert_eq!(rig.requester.counters().implied_naks, 2);
}

#[test]
fn an_ack_behind_a_read_says_that_its_responses_were_lost() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 1);
    rig.push(2, Operation::Read, 300);
    rig.push(3, Operation::Send, 1);
    rig.send();
    assert!(!rig.on(3, ACK).has_failed());
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    assert_eq!(rig.numbers(), [1, 3]);
    let _ = rig.respond(1, true, false, 256);
    let _ = rig.respond(2, false, true, 44);
    let _ = rig.on(3, ACK);
    assert_eq!(rig.done.len(), 3);
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
        rig.push(1, Operation::Send, 1);
        rig.push(2, Operation::Read, 600);
        rig.push(3, Operation::Send, 1);
        rig.send();
        let refused = rig.accept(n, first, last, len).unwrap_err();
        assert_eq!(refused.reason, Ignored::Bad);
        assert!(refused.progress.has_failed());
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
        rig.push(1, Operation::Send, 1);
        rig.push(2, Operation::Read, 600);
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
fn a_response_before_the_request_is_unexpected() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 1);
    assert_eq!(
        rig.accept(0, true, true, 1).unwrap_err().reason,
        Ignored::Unexpected
    );
    assert!(rig.done.is_empty());
}
