// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A peer that keeps what is behind a gap, and says so; a network that marks packets.

use super::*;
use crate::core::rc::requester::ack::MSN_TRUSTED;
use crate::core::storage::NoMemory;

/// A message of six packets from number 1 on is in flight, and a round trip takes 200 us.
fn flight<A: Spare>(op: Operation) -> Rig<A> {
    let mut rig = Rig::with_spare(config());
    rig.push(0, Operation::Send, 1);
    rig.send();
    rig.now += 200_000;
    let _ = rig.on(0, ACK);
    rig.push(1, op, 256 * 6);
    rig.send();
    rig
}

fn rig<A: Spare>() -> Rig<A> {
    flight(Operation::Send)
}

/// The peer misses packet `n`, and keeps those behind it whose bits are set.
fn report<A: Spare>(rig: &mut Rig<A>, n: u32, kept: u64) -> Progress {
    let aeth = Aeth::new(SEQUENCE, rig.requester.messages_done);
    let done = &mut rig.done;
    let map = kept.to_le_bytes();
    (rig.requester).on_missing(psn(n), aeth, &map, rig.now, &mut |c| done.push(c))
}

#[test]
fn what_is_missing_is_sent_again_alone() {
    let mut rig = rig::<InPlace>();
    assert!(!report(&mut rig, 1, 0b11_0010).has_failed());
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

/// The window is smaller than what went back: a report is about what has left again, and no more.
#[test]
fn a_report_is_heard_while_what_went_back_leaves_again() {
    let mut rig = rig::<InPlace>();
    let _ = rig.on(1, AethSyndrome::RnrNak { timer: 1 });
    let _ = rig.tick(rig.requester.deadline().unwrap());
    assert_eq!(rig.numbers(), [1]);
    let _ = rig.on(1, ACK);
    assert_eq!(rig.numbers(), [2, 3]);
    rig.now += 200_000;
    let _ = report(&mut rig, 2, 0b1_0010);
    assert_eq!(rig.numbers(), [4]);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(rig.numbers(), [2]);
}

/// A timer that runs late finds that a hole and a probe are due: one packet is both.
#[test]
fn a_hole_that_is_sent_again_is_probe_enough() {
    let mut rig = rig::<InPlace>();
    rig.requester.set_ack_timeout(Some(u64::from(u32::MAX)));
    let _ = report(&mut rig, 1, 0b11_1110);
    let probe = rig.now + 2_000_000;
    let _ = rig.tick(probe);
    assert!(rig.requester.recovery.tail.is_due());
    assert_eq!(rig.send(), [(1, true)]);
    assert_eq!(rig.requester.counters().tail_probes, 0);
}

/// All has left again, so what the peer said before that is no loss.
#[test]
fn a_report_that_crosses_what_went_back_is_ignored() {
    let mut rig = rig::<InPlace>();
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

/// What is missing was sent again and lost again, and nothing new is behind it. The probe of the
/// oldest arrives, so the others would have.
#[test]
fn what_is_older_than_a_probe_that_arrived_is_sent_again() {
    let mut rig = rig::<InPlace>();
    rig.requester.set_ack_timeout(Some(u64::from(u32::MAX)));
    let _ = report(&mut rig, 1, 0b10_1010);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(rig.numbers(), [1, 3, 5]);
    let _ = rig.tick(rig.requester.deadline().unwrap());
    assert_eq!(rig.numbers(), [1]);
    rig.now += 200_000;
    let _ = report(&mut rig, 3, 0b1010);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(rig.numbers(), [3, 5]);
}

/// After an ACK timeout a peer that keeps what is behind a gap is asked what it has.
#[test]
fn a_timeout_sends_the_first_hole_again_alone() {
    let mut rig = rig::<InPlace>();
    rig.requester.set_ack_timeout(Some(4_000_000));
    let _ = report(&mut rig, 1, 0b10_1010);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(rig.numbers(), [1, 3, 5]);
    for retries in (0..7).rev() {
        while rig.requester.retries_left().0 > retries {
            let _ = rig.tick(rig.requester.deadline().unwrap());
            assert_eq!(rig.numbers(), [1]);
        }
    }
    let _ = rig.tick(rig.requester.deadline().unwrap());
    assert_eq!(
        rig.ended(),
        [(0, Status::Success), (1, Status::RetryExcErr)]
    );
}

/// A response of a READ, from a peer that answers a part of it again alone.
fn response(n: u32, (first, last): (bool, bool)) -> ReadSegment {
    ReadSegment {
        brings: Brings::Data,
        psn: psn(n),
        span: 1,
        first,
        last,
        keeps: true,
        len: 256,
    }
}

fn early<A: Spare>(rig: &mut Rig<A>, n: u32, ends: (bool, bool)) -> Result<(), Ignored> {
    let response = response(n, ends);
    let place = rig.take(&response).map_err(|refused| refused.reason)?;
    assert_eq!(place.offset, (n - 1) * 256);
    let done = &mut rig.done;
    let _ = rig
        .requester
        .read_response_placed(&place, rig.now, &mut |c| done.push(c));
    Ok(())
}

fn reading<A: Spare>() -> Rig<A> {
    flight(Operation::Read)
}

const MIDDLE: (bool, bool) = (false, false);

/// The PSN and the length of each READ request that is sent.
fn asked<A: Spare>(rig: &mut Rig<A>) -> Vec<(u32, u32)> {
    let mut asked = Vec::new();
    while let Some(segment) = rig.next() {
        let n = segment.psn.distance_from(psn(0)) as u32;
        asked.push((n, segment.message_len));
    }
    asked
}

#[test]
fn responses_behind_a_missing_one_are_placed() {
    let mut rig = reading::<InPlace>();
    rig.now += 200_000;
    early(&mut rig, 1, (true, false)).unwrap();
    for n in [3, 6] {
        early(&mut rig, n, (false, n == 6)).unwrap();
    }
    assert_eq!(early(&mut rig, 3, MIDDLE), Err(Ignored::Duplicate));
    assert_eq!(rig.requester.counters().duplicate_responses, 1);
    // They may still come.
    assert_eq!(asked(&mut rig), []);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(asked(&mut rig), [(2, 256), (4, 512)]);
    rig.now += 200_000;
    // What is asked for alone is the only response, or has a first and a last one.
    early(&mut rig, 2, (true, true)).unwrap();
    assert_eq!(rig.requester.oldest_psn(), psn(4));
    early(&mut rig, 4, (true, false)).unwrap();
    assert_eq!(rig.ended(), [(0, Status::Success)]);
    early(&mut rig, 5, (false, true)).unwrap();
    assert_eq!(rig.ended(), [(0, Status::Success), (1, Status::Success)]);
    assert_eq!(rig.requester.counters().retransmitted, 2);
}

/// The owner sees whether two READs go to the same memory: then the later one waits.
#[test]
fn a_response_that_an_earlier_one_would_overwrite_is_asked_for_again() {
    let mut rig = reading::<InPlace>();
    rig.push(2, Operation::Read, 256);
    rig.push(3, Operation::Read, 256);
    assert_eq!(asked(&mut rig), [(7, 256)]);
    early(&mut rig, 2, MIDDLE).unwrap();
    let place = rig.take(&response(7, (true, true))).unwrap();
    let earlier: Vec<_> = rig.requester.earlier_reads(&place).collect();
    assert_eq!(earlier, [slot(1)]);
    let done = &mut rig.done;
    let _ = (rig.requester).read_response_declined(&place, rig.now, &mut |c| done.push(c));
    assert_eq!(asked(&mut rig), [(1, 1536), (7, 256)]);
}

/// The beginning of what was asked for again is lost again: what comes behind it shows that.
#[test]
fn a_part_that_is_lost_again_is_asked_for_again() {
    let mut rig = reading::<InPlace>();
    early(&mut rig, 6, (false, true)).unwrap();
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(asked(&mut rig), [(1, 1280)]);
    rig.now += 200_000;
    early(&mut rig, 3, MIDDLE).unwrap();
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(asked(&mut rig), [(1, 512)]);
    rig.now += 200_000;
    early(&mut rig, 1, (true, false)).unwrap();
    early(&mut rig, 2, (false, true)).unwrap();
    early(&mut rig, 4, MIDDLE).unwrap();
    early(&mut rig, 5, (false, true)).unwrap();
    assert_eq!(rig.ended(), [(0, Status::Success), (1, Status::Success)]);
}

/// A READ request is missing at the peer, which keeps a SEND behind it, and responses of the one
/// before it are missing here. The parts of the one that was answered are asked for, and the other
/// one whole.
#[test]
fn both_ends_may_miss_something() {
    let mut rig = reading::<InPlace>();
    rig.push(2, Operation::Read, 512);
    rig.push(3, Operation::Send, 1);
    assert_eq!(rig.numbers(), [7, 9]);
    rig.now += 200_000;
    early(&mut rig, 1, (true, false)).unwrap();
    early(&mut rig, 5, MIDDLE).unwrap();
    let _ = report(&mut rig, 7, 0b100);
    let _ = rig.tick(rig.now + 50_000);
    assert_eq!(asked(&mut rig), [(2, 768), (6, 256), (7, 512)]);
}

/// A READ request that the peer has not seen leaves whole after an ACK timeout, too: two parts
/// would count as two messages there. Whatever the peer has counted by then, it is heard again.
#[test]
fn a_timeout_asks_for_a_whole_read_and_trusts_no_count() {
    let mut rig = reading::<InPlace>();
    rig.push(2, Operation::Send, 1);
    assert_eq!(rig.numbers(), [7]);
    rig.requester.set_ack_timeout(Some(4_000_000));
    rig.requester.msn_agreed = MSN_TRUSTED;
    let _ = report(&mut rig, 1, 0b100_0000);
    let _ = rig.tick(rig.now + 50_000);
    while rig.requester.counters().timeouts == 0 {
        assert_eq!(asked(&mut rig), [(1, 1536)]);
        let _ = rig.tick(rig.requester.deadline().unwrap());
    }
    assert_eq!(asked(&mut rig), [(1, 1536)]);
    for n in 1..=6 {
        early(&mut rig, n, (n == 1, n == 6)).unwrap();
    }
    let _ = rig.on_msn(7, ACK, 4);
    assert_eq!(rig.ended().len(), 3);
}

/// An ACK for something else behind it, a wrong length, and a peer that does not say that it keeps
/// anything: nothing is placed early.
#[test]
fn others_begin_again() {
    let mut rig = reading::<InPlace>();
    rig.push(2, Operation::Send, 1);
    rig.send();
    early(&mut rig, 3, MIDDLE).unwrap();
    let _ = rig.on(7, ACK);
    assert_eq!(asked(&mut rig), [(1, 1536), (7, 1)]);

    let mut rig = reading::<InPlace>();
    assert_eq!(early(&mut rig, 3, (true, true)), Err(Ignored::Gap));
    assert_eq!(rig.requester.counters().out_of_sequence, 1);
    assert_eq!(asked(&mut rig), []);
    assert_eq!(
        rig.accept(3, false, false, 256).unwrap_err().reason,
        Ignored::Gap
    );
    assert_eq!(asked(&mut rig), [(1, 1536)]);
}

/// Without memory for what is missing, a report is a NAK, and a response behind a gap implies one.
#[test]
fn all_is_sent_again_without_memory() {
    let mut rig = rig::<NoMemory>();
    let _ = report(&mut rig, 2, 0b1_0010);
    assert_eq!(rig.numbers(), [2, 3, 4, 5, 6]);
    let counters = rig.requester.counters();
    assert_eq!((counters.seq_naks, counters.missing_reports), (1, 0));
    let _ = rig.on(6, ACK);
    assert_eq!(rig.ended(), [(0, Status::Success), (1, Status::Success)]);

    let mut rig = reading::<NoMemory>();
    early(&mut rig, 1, (true, false)).unwrap();
    assert_eq!(early(&mut rig, 3, MIDDLE), Err(Ignored::Gap));
    assert_eq!(asked(&mut rig), [(2, 1280)]);
    // The peer says what it misses behind READs whose responses are missing here.
    rig.push(2, Operation::Send, 1);
    assert_eq!(rig.numbers(), [7]);
    rig.now += 1_000_000;
    early(&mut rig, 2, (true, false)).unwrap();
    let _ = report(&mut rig, 7, 0b10);
    assert_eq!(asked(&mut rig), [(3, 1024), (7, 1)]);
    for n in 3..=6 {
        early(&mut rig, n, (n == 3, n == 6)).unwrap();
    }
    let _ = rig.on(7, ACK);
    assert_eq!(rig.ended().len(), 3);
}

/// The local stack refuses what was to close a hole, and what is new behind it: both leave again,
/// and nothing else.
#[test]
fn what_was_to_close_a_hole_and_did_not_leave_is_sent_again() {
    let mut rig = rig::<InPlace>();
    let _ = report(&mut rig, 1, 0b11_0110);
    let _ = rig.tick(rig.now + 50_000);
    let refused = rig.next().unwrap();
    assert_eq!(refused.psn, psn(1));
    assert_eq!(rig.next().unwrap().psn, psn(4));
    rig.push(2, Operation::Send, 256 * 2);
    assert_eq!(rig.numbers(), [7, 8]);
    rig.requester.set_ack_timeout(Some(u64::from(u32::MAX)));
    rig.requester.unsend(&refused, rig.now);
    assert_eq!(rig.numbers(), []);
    let wait = rig.requester.deadline().unwrap();
    let _ = rig.tick(wait);
    assert_eq!(rig.numbers(), [1, 4, 7, 8]);
    rig.now += 200_000;
    let _ = rig.on(8, ACK);
    assert_eq!(
        rig.ended(),
        [
            (0, Status::Success),
            (1, Status::Success),
            (2, Status::Success)
        ]
    );
}

/// The same where what is behind it had not left before, either.
#[test]
fn what_did_not_leave_twice_behind_a_hole_is_sent_again() {
    let mut rig = rig::<InPlace>();
    rig.requester.set_ack_timeout(Some(u64::from(u32::MAX)));
    let _ = report(&mut rig, 1, 0b11_0110);
    rig.push(2, Operation::Send, 256 * 2);
    for first in [7, 1] {
        let refused = rig.next().unwrap();
        assert_eq!(refused.psn, psn(first));
        rig.send();
        rig.requester.unsend(&refused, rig.now);
        let wait = rig.requester.deadline().unwrap();
        let _ = rig.tick(wait);
    }
    assert_eq!(rig.numbers(), [1, 4, 7, 8]);
}

/// A fence waits for READs that are not complete, and not for parts that were asked for twice.
#[test]
fn a_part_that_did_not_leave_counts_as_no_read() {
    let mut rig = reading::<InPlace>();
    let mut fenced = wr(2, Operation::Send, 1);
    fenced.fence = true;
    rig.requester.push(fenced).unwrap();
    early(&mut rig, 1, (true, false)).unwrap();
    early(&mut rig, 4, MIDDLE).unwrap();
    let _ = rig.tick(rig.now + 50_000);
    let refused = rig.next().unwrap();
    assert_eq!((refused.psn, refused.message_len), (psn(2), 512));
    rig.requester.set_ack_timeout(Some(u64::from(u32::MAX)));
    rig.requester.unsend(&refused, rig.now);
    let wait = rig.requester.deadline().unwrap();
    let _ = rig.tick(wait);
    assert_eq!(asked(&mut rig), [(2, 512)]);
    for n in [5, 6, 2, 3] {
        early(&mut rig, n, ([2, 4].contains(&n), [3, 6].contains(&n))).unwrap();
    }
    assert_eq!(rig.numbers(), [7]);
}

// A network that marks packets.

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

/// What tells of them comes behind the last acknowledgement, and once is enough.
#[test]
fn marks_of_a_flight_that_has_ended_say_nothing_new() {
    let mut rig = Rig::with(RequesterConfig {
        ecn: true,
        ..config()
    });
    rig.push(0, Operation::Send, 256 * 8);
    rig.send();
    rig.requester.slow_down();
    let _ = rig.on(7, ACK);
    let size = rig.requester.window_size();
    rig.requester.slow_down();
    rig.requester.slow_down();
    assert_eq!(rig.requester.window_size(), size);
    assert_eq!(rig.requester.counters().slowdowns, 1);
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
