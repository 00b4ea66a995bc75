// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Losses: of READ responses, of packets and NAKs; and a responder that is not ready.

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

/// The first answer goes on for a while. What comes of another one is behind what came last.
#[test]
fn a_response_that_is_lost_again_is_asked_for_again() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 256 * 5);
    rig.send();
    let gap = |rig: &mut Rig, n| {
        rig.now += 600_000;
        let refused = rig.accept(n, false, false, 256).unwrap_err();
        assert_eq!(refused.reason, Ignored::Gap);
        rig.numbers()
    };
    for (n, again) in [(1, true), (2, false), (3, false), (1, true), (2, false)] {
        assert_eq!(gap(&mut rig, n), if again { vec![0] } else { vec![] });
    }
    // Sooner than an answer could be.
    let _ = gap(&mut rig, 2);
    rig.now -= 500_000;
    assert_eq!(gap(&mut rig, 1), []);
    assert_eq!(rig.requester.counters().implied_naks, 3);
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
fn a_response_before_the_request_is_unexpected() {
    let mut rig = Rig::new();
    rig.push(1, Operation::Read, 1);
    assert_eq!(
        rig.accept(0, true, true, 1).unwrap_err().reason,
        Ignored::Unexpected
    );
    assert!(rig.done.is_empty());
}

// Losses: NAKs, timeouts, and how often.

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
    // As long as nothing is sent, nothing is overdue.
    for _ in 0..9 {
        let deadline = rig.requester.deadline().unwrap();
        assert!(!rig.tick(deadline).has_failed());
    }
    rig.send();
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

// A responder that is not ready.

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
