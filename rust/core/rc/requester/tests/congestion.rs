// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A network that marks packets.

use super::*;

/// What is in flight is above the window after a mark, so nothing leaves until half of it has
/// arrived; a second mark in the same flight says nothing new.
#[test]
fn a_mark_halves_the_window_for_the_next_flight() {
    let mut rig = Rig::with(RequesterConfig {
        ecn: true,
        ..config()
    });
    rig.push(0, Operation::Send, 256 * 100);
    assert_eq!(rig.numbers(), (0..32).collect::<Vec<_>>());
    rig.requester.slow_down();
    rig.requester.slow_down();
    assert_eq!(rig.requester.window_size(), 16);
    assert_eq!(rig.requester.counters().slowdowns, 1);
    let _ = rig.on(14, ACK);
    assert_eq!(rig.numbers(), []);
    let _ = rig.on(20, ACK);
    // The last of them asks for an acknowledgement.
    assert_eq!(rig.send().last(), Some(&(37, true)));
    let _ = rig.on(31, ACK);
    rig.requester.slow_down();
    assert_eq!(rig.requester.counters().slowdowns, 2);
    assert!(rig.requester.window_size() < 10);
}

#[test]
fn who_does_not_send_ignores_marks() {
    let mut requester = Requester::new(vec![SendSlot::default(); 4]);
    requester.slow_down();
    requester.connect(config());
    assert_eq!(requester.counters().slowdowns, 0);
    let mut rig = Rig::new();
    rig.push(0, Operation::Send, 1);
    rig.requester.flush(&mut |_| ());
    rig.requester.slow_down();
    assert_eq!(rig.requester.counters().slowdowns, 0);
}
