// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A responder that is not ready.

use super::*;

#[test]
fn an_rnr_nak_stops_all_for_its_time() {
    for timer in [0, 1, 12, 31] {
        let mut rig = Rig::new();
        rig.push(1, Operation::Send, 1);
        rig.push(2, Operation::Send, 1);
        rig.send();
        let progress = rig.on(1, AethSyndrome::RnrNak { timer });
        assert!(!progress.has_failed());
        assert_eq!(rig.ended(), [(1, Status::Success)]);
        rig.push(3, Operation::Send, 1);
        let until = rig.now + rnr_delay_ns(timer);
        assert_eq!(rig.requester.deadline(), Some(until));
        // The same NAK again does not prolong it.
        rig.now += 5;
        let _ = rig.on(1, AethSyndrome::RnrNak { timer });
        assert_eq!(rig.requester.deadline(), Some(until));
        rig.now = until - 1;
        assert_eq!(rig.next(), None);
        assert!(!rig.tick(until).has_failed());
        assert_eq!(rig.numbers(), [1]);
        assert_eq!(rig.requester.counters().timeouts, 0);
        assert_eq!(rig.requester.deadline(), Some(until + TIMEOUT));
    }
}

/// What is sent behind a refused packet is thrown away. So the packet goes alone until it is
/// accepted, and the others follow as receives turn out to be there.
#[test]
fn a_refused_packet_asks_alone() {
    let mut rig = Rig::new();
    for n in 0..12 {
        rig.silent(n, Operation::Send, 1);
    }
    assert_eq!(rig.send().len(), 12);
    for _ in 0..3 {
        let _ = rig.on(2, AethSyndrome::RnrNak { timer: 1 });
        rig.now += rnr_delay_ns(1);
        assert_eq!(rig.send(), [(2, true)]);
    }
    let _ = rig.on(2, ACK);
    assert_eq!(rig.send(), [(3, true), (4, true)]);
    let _ = rig.on(4, ACK);
    assert_eq!(rig.numbers(), [5, 6, 7, 8]);
    let _ = rig.on(6, AethSyndrome::RnrNak { timer: 1 });
    rig.now += rnr_delay_ns(1);
    assert_eq!(rig.send(), [(6, true)]);
    // 12 at first, 3 + 2 + 4 + 1 again.
    assert_eq!(rig.requester.counters().retransmitted, 10);
}

/// The same on the local path, where a segment is as long as a message.
#[test]
fn of_a_refused_message_one_packet_asks() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 256 * 8);
    let spans = |rig: &mut Rig| {
        let mut spans = Vec::new();
        while let Some(segment) = rig.requester.next_segment(rig.now, u32::MAX) {
            spans.push(segment.span);
        }
        spans
    };
    assert_eq!(spans(&mut rig), [8]);
    let _ = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
    rig.now += rnr_delay_ns(1);
    assert_eq!(spans(&mut rig), [1]);
    let _ = rig.on(0, ACK);
    assert_eq!(spans(&mut rig), [2]);
    let _ = rig.on(2, ACK);
    assert_eq!(spans(&mut rig), [4]);
}

/// The network had brought the packet twice. The second NAK comes when the wait is over, but before
/// the packet went out again: it is about the same sending, and costs no second retry.
#[test]
fn one_sending_is_refused_once() {
    let mut rig = Rig::with(RequesterConfig {
        rnr_retry: 2,
        ..config()
    });
    rig.push(1, Operation::Send, 1);
    rig.send();
    let _ = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
    let until = rig.now + rnr_delay_ns(1);
    assert!(!rig.tick(until).has_failed());
    let progress = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
    assert!(!progress.has_failed());
    assert_eq!(rig.requester.counters().rnr_naks, 1);
    assert_eq!(rig.requester.counters().duplicate_responses, 1);
    assert_eq!(rig.numbers(), [0]);
    // What is refused now was retransmitted.
    assert!(!rig.on(0, AethSyndrome::RnrNak { timer: 1 }).has_failed());
    assert!(!rig.tick(rig.now + rnr_delay_ns(1)).has_failed());
    assert_eq!(rig.numbers(), [0]);
    assert!(rig.on(0, AethSyndrome::RnrNak { timer: 1 }).has_failed());
    assert_eq!(rig.ended(), [(1, Status::RnrRetryExcErr)]);
}

#[test]
fn an_ack_ends_an_rnr_wait() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.send();
    let _ = rig.on(0, AethSyndrome::RnrNak { timer: 0 });
    // The network had brought the packet twice, and the second one found a receive.
    assert!(!rig.on(0, ACK).has_failed());
    assert_eq!(rig.numbers(), [1]);
}

#[test]
fn rnr_retries_run_out_unless_they_are_seven() {
    for rnr_retry in [0, 3, 7] {
        let mut rig = Rig::with(RequesterConfig {
            rnr_retry,
            retry_cnt: 0,
            ..config()
        });
        rig.push(1, Operation::Send, 1);
        for n in 0..20 {
            assert_eq!(rig.numbers(), [0]);
            let progress = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
            if n == rnr_retry && rnr_retry != 7 {
                assert!(progress.has_failed());
                assert_eq!(rig.ended(), [(1, Status::RnrRetryExcErr)]);
                break;
            }
            assert!(!progress.has_failed());
            rig.now = rig.requester.deadline().unwrap();
        }
        assert_eq!(rnr_retry == 7, rig.done.is_empty());
    }
}

/// A packet behind the refused one came twice, so that the responder reports a gap: there is none.
#[test]
fn a_sequence_nak_for_a_refused_packet_is_no_loss() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 0,
        ..config()
    });
    rig.push(1, Operation::Send, 300);
    rig.send();
    let _ = rig.on(0, AethSyndrome::RnrNak { timer: 1 });
    assert!(!rig.on(0, SEQUENCE).has_failed());
    rig.now += rnr_delay_ns(1);
    assert_eq!(rig.numbers(), [0]);
    rig.now += 1;
    assert!(rig.on(0, SEQUENCE).has_failed());
}
