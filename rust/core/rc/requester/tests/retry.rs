// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Losses: NAKs, timeouts, and how often.

use super::*;

#[test]
fn a_sequence_nak_goes_back() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 256);
    rig.push(2, Operation::Send, 256 * 3);
    rig.push(3, Operation::Send, 1);
    assert_eq!(rig.numbers(), [0, 1, 2, 3, 4]);
    assert!(!rig.on(2, SEQUENCE).has_failed());
    assert_eq!(rig.ended(), [(1, Status::Success)]);
    // Asks at once, at ends of signaled messages, and at the end of what is repeated.
    assert_eq!(rig.send(), [(2, true), (3, true), (4, true)]);
    assert_eq!(rig.requester.counters().retransmitted, 3);
    let _ = rig.on(4, ACK);
    assert_eq!(rig.done.len(), 3);
}

#[test]
fn a_sequence_nak_that_the_network_doubled_is_one() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ..config()
    });
    rig.push(1, Operation::Send, 256 * 2);
    rig.send();
    assert!(!rig.on(0, SEQUENCE).has_failed());
    assert_eq!(rig.numbers(), [0, 1]);
    assert!(!rig.on(0, SEQUENCE).has_failed());
    assert_eq!(rig.numbers(), []);
    assert_eq!(rig.requester.counters().seq_naks, 1);
    // With progress it is another gap, and so it is after a timeout.
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1]);
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).has_failed());
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
}

/// The responder says it again because the packet that was retransmitted was lost too. That comes a
/// round trip after it, and is not taken for a copy.
#[test]
fn a_sequence_nak_for_a_lost_retransmission_is_honoured() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 2,
        ..config()
    });
    rig.push(0, Operation::Send, 1);
    rig.send();
    rig.now += 200_000;
    let _ = rig.on(0, ACK);
    rig.push(1, Operation::Send, 256 * 2);
    rig.send();
    let _ = rig.on(1, SEQUENCE);
    // Not retransmitted yet, and sooner than an answer could be.
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1, 2]);
    rig.now += 100_000;
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), []);
    rig.now += 100_000;
    let _ = rig.on(1, SEQUENCE);
    assert_eq!(rig.numbers(), [1, 2]);
    assert_eq!(rig.requester.counters().seq_naks, 2);
    assert_eq!(rig.requester.counters().duplicate_responses, 2);
}

/// A network that always loses a packet and never the smaller one behind it, as one with too small
/// an MTU does, does not use up the retries faster than one that loses everything: half of them
/// are for the timeout.
#[test]
fn half_of_the_retries_are_kept_for_the_timeout() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 7,
        ack_timeout_ns: Some(1000 * TIMEOUT),
        ..config()
    });
    rig.push(0, Operation::Send, 256 + 1);
    let began = rig.now;
    loop {
        while !rig.send().is_empty() {
            rig.now += TIMEOUT;
            assert!(!rig.on(0, SEQUENCE).has_failed());
        }
        let deadline = rig.requester.deadline().unwrap();
        if rig.tick(deadline).has_failed() {
            break;
        }
    }
    assert_eq!(rig.ended(), [(0, Status::RetryExcErr)]);
    assert_eq!(rig.requester.counters().seq_naks, 4);
    assert_eq!(rig.requester.counters().timeouts, 4);
    assert!(rig.now - began >= 4000 * TIMEOUT);
}

/// Without a timeout the NAKs are all there is.
#[test]
fn without_a_timeout_naks_may_use_up_all_retries() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 2,
        ack_timeout_ns: None,
        ..config()
    });
    rig.push(0, Operation::Send, 256 + 1);
    for is_last in [false, false, true] {
        assert_eq!(rig.numbers(), [0, 1]);
        rig.now += TIMEOUT;
        assert_eq!(rig.on(0, SEQUENCE).has_failed(), is_last);
    }
    assert_eq!(rig.ended(), [(0, Status::RetryExcErr)]);
}

/// RTS to RTS while a packet is tried again: what it has used up stays used up.
#[test]
fn changed_attributes_do_not_give_retries_back() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ..config()
    });
    rig.push(1, Operation::Send, 1);
    rig.send();
    let deadline = rig.requester.deadline().unwrap();
    assert!(!rig.tick(deadline).has_failed());
    rig.send();
    rig.requester.set_retries(1, 7);
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).has_failed());
}

#[test]
fn an_ack_for_what_was_sent_before_going_back_counts() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 256 * 4);
    rig.send();
    let _ = rig.on(1, SEQUENCE);
    // It had only been late.
    let _ = rig.on(2, ACK);
    assert_eq!(rig.numbers(), [3]);
}

#[test]
fn a_timeout_retransmits_seven_times() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Send, 256 * 2);
    rig.push(2, Operation::Send, 1);
    rig.send();
    for n in 1..=7 {
        let deadline = rig.requester.deadline().unwrap();
        assert_eq!(rig.tick(deadline - 1), Progress::default());
        let progress = rig.tick(deadline);
        assert!(!progress.has_failed());
        assert_eq!(rig.numbers(), [0, 1, 2]);
        assert_eq!(rig.requester.counters().timeouts, n);
    }
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).has_failed());
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
    assert_eq!(rig.next(), None);
    assert_eq!(rig.requester.deadline(), None);
    rig.flush();
    assert_eq!(rig.ended().last(), Some(&(2, Status::WrFlushErr)));
}

#[test]
fn progress_gives_the_retries_back() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 1,
        ..config()
    });
    rig.push(1, Operation::Send, 256 * 10);
    rig.send();
    for n in 0..9 {
        let deadline = rig.requester.deadline().unwrap();
        assert!(!rig.tick(deadline).has_failed());
        rig.send();
        let _ = rig.on(n, ACK);
    }
    let deadline = rig.requester.deadline().unwrap();
    assert!(!rig.tick(deadline).has_failed());
    let deadline = rig.requester.deadline().unwrap();
    assert!(rig.tick(deadline).has_failed());
}

#[test]
fn without_retries_the_first_loss_is_the_end() {
    let mut rig = Rig::with(RequesterConfig {
        retry_cnt: 0,
        ..config()
    });
    rig.push(1, Operation::Send, 256 * 2);
    rig.send();
    assert!(rig.on(0, SEQUENCE).has_failed());
    assert_eq!(rig.ended(), [(1, Status::RetryExcErr)]);
}

#[test]
fn no_timeout_waits_for_ever() {
    let mut rig = Rig::with(RequesterConfig {
        ack_timeout_ns: None,
        ..config()
    });
    rig.push(1, Operation::Send, 1);
    rig.send();
    assert_eq!(rig.requester.deadline(), None);
    assert_eq!(rig.tick(u64::MAX), Progress::default());
}

#[test]
fn the_deadline_starts_with_the_first_packet_and_moves_with_progress() {
    let mut rig = Rig::new();
    assert_eq!(rig.requester.deadline(), None);
    rig.push(1, Operation::Send, 1);
    rig.push(2, Operation::Send, 1);
    rig.next();
    rig.now = 500;
    rig.next();
    assert_eq!(rig.requester.deadline(), Some(100 + TIMEOUT));
    let _ = rig.on(0, ACK);
    assert_eq!(rig.requester.deadline(), Some(500 + TIMEOUT));
    let _ = rig.on(1, ACK);
    assert_eq!(rig.requester.deadline(), None);
}

#[test]
fn the_end_of_what_is_repeated_asks() {
    let mut rig = Rig::new();
    rig.silent(1, Operation::Send, 256 * 10);
    for _ in 0..5 {
        assert!(!rig.next().unwrap().ack_req);
    }
    let _ = rig.on(2, SEQUENCE);
    let asked = rig.send();
    assert_eq!(asked[..4], [(2, true), (3, false), (4, true), (5, false)]);
    let _ = rig.on(3, SEQUENCE);
    let asked = rig.send();
    assert_eq!(asked[..3], [(3, true), (4, false), (5, false)]);
    assert_eq!(asked[6], (9, true));
}
