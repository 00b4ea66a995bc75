// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Reports of a peer that keeps what is behind a gap.

use super::*;

/// Six packets from number 1 on are on their way, and a round trip takes 200 us.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.push(0, Operation::Send, 1);
    rig.send();
    rig.now += 200_000;
    let _ = rig.on(0, ACK);
    rig.push(1, Operation::Send, 256 * 6);
    assert_eq!(rig.numbers(), [1, 2, 3, 4, 5, 6]);
    rig
}

/// The peer misses packet `n`, and keeps those behind it whose bits are set.
fn report(rig: &mut Rig, n: u32, kept: u64) -> Progress {
    let aeth = Aeth::new(SEQUENCE, rig.requester.messages_done);
    let done = &mut rig.done;
    let map = kept.to_le_bytes();
    (rig.requester).on_missing(psn(n), aeth, &map, rig.now, &mut |c| done.push(c))
}

#[test]
fn what_is_missing_is_sent_again_alone() {
    let mut rig = rig();
    assert!(!report(&mut rig, 1, 0b11_0010).fatal);
    // It may still come by itself.
    assert_eq!(rig.numbers(), []);
    let due = rig.now + 50_000;
    assert_eq!(rig.requester.deadline(), Some(due));
    let _ = rig.tick(due);
    assert_eq!(rig.send(), [(1, true), (3, true), (4, true)]);
    assert_eq!(rig.requester.counters().retransmitted, 3);
    // The same once more says nothing new.
    let _ = report(&mut rig, 1, 0b11_0010);
    let _ = rig.tick(due + 100_000);
    assert_eq!(rig.numbers(), []);
    let _ = rig.on(6, ACK);
    assert_eq!(rig.ended(), [(0, Status::Success), (1, Status::Success)]);
}

/// All has left again, so what the peer said before that is no loss.
#[test]
fn a_report_that_crosses_what_went_back_is_ignored() {
    let mut rig = rig();
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1, 2, 3, 4, 5, 6]);
    rig.now += 100_000;
    let _ = report(&mut rig, 1, 0b10);
    let _ = rig.tick(rig.now + 60_000);
    assert_eq!(rig.numbers(), []);
    assert_eq!(rig.requester.counters().seq_naks, 1);
    let _ = report(&mut rig, 1, 0b10);
    let _ = rig.tick(rig.now + 60_000);
    assert_eq!(rig.numbers(), [1]);
    assert_eq!(rig.requester.counters().seq_naks, 2);
}
