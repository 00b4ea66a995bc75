// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! SQD.

use super::*;

#[test]
fn draining_finishes_what_was_begun() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.silent(2, Operation::Send, 600);
    rig.push(3, Operation::Send, 1);
    rig.next();
    rig.next();
    rig.requester.drain(true);
    assert!(!rig.requester.is_drained());
    assert_eq!(rig.send(), [(2, false), (3, true)]);
    assert!(!rig.requester.is_drained());
    let _ = rig.on(3, ACK);
    assert!(rig.requester.is_drained());
    assert_eq!(rig.next(), None);
    rig.requester.drain(false);
    assert_eq!(rig.numbers(), [4]);
}

#[test]
fn draining_asks_about_what_left_in_silence() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    assert!(!rig.next().unwrap().ack_req);
    rig.requester.drain(true);
    assert_eq!(rig.send(), [(0, true)]);
    let _ = rig.on(0, ACK);
    assert!(rig.requester.is_drained());
}
