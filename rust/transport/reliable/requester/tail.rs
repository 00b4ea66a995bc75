// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The tail-loss probe: when the last packets of a flight are lost, nothing behind them makes the
//! responder say so, and the ACK timeout may be seconds away.
//!
//! So when nothing came for several round trips, the last packet is sent again and asks. The
//! responder acknowledges it as a duplicate, or says which packet it misses; either repairs the
//! rest. If nothing was lost, a duplicate is all it was: a probe spends no retry, does not move the
//! cursor, and does not touch the ACK timeout. (IBTA leaves it to the requester how often it sends
//! a packet; for TCP the same is RFC 8985.)

use crate::transport::reliable::sequence::Sequence;

/// The shortest time without an answer: less says more about schedulers than about the network.
const SHORTEST: u64 = 1_000_000;

/// So many round trips without an answer.
const ROUND_TRIPS: u64 = 4;

/// At most this part of the ACK timeout.
const TIMEOUT_PART: u64 = 4;

/// A round trip that is not known is taken for this.
const UNKNOWN_ROUND_TRIP: u64 = 1_000_000;

/// Where the probe of a flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// None was needed so far.
    Idle,
    /// It is to be sent.
    Due,
    /// It was sent, for the packet with this sequence.
    Sent(Sequence),
}

/// The tail of a requester's flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// Smoothed round-trip time.
    round_trip: Option<u64>,
    /// A packet whose answer is timed: the sequence behind it, and when it was sent.
    timed: Option<(Sequence, u64)>,
    /// When a packet was sent last, or anything came.
    active: u64,
    probe: Probe,
}

impl Tail {
    pub(super) const fn new() -> Self {
        Self {
            round_trip: None,
            timed: None,
            active: 0,
            probe: Probe::Idle,
        }
    }

    /// A new packet was sent.
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        self.active = now;
        self.probe = Probe::Idle;
    }

    /// Something came that acknowledges nothing: the peer is at work, so the probe waits.
    pub(super) fn defer(&mut self, now: u64) {
        self.active = self.active.max(now);
    }

    /// A packet was sent for the first time that will be answered when all before `end` arrived.
    #[inline]
    pub(super) fn time(&mut self, end: Sequence, now: u64) {
        if self.timed.is_none() {
            self.timed = Some((end, now));
        }
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(super) fn progress(&mut self, una: Sequence, now: u64) {
        self.probe = Probe::Idle;
        if let Some((_, at)) = self.timed.take_if(|(end, _)| *end <= una) {
            let sample = now.saturating_sub(at);
            let smoothed = match self.round_trip {
                None => sample,
                Some(old) => old.saturating_sub(old / 8).saturating_add(sample / 8),
            };
            self.round_trip = Some(smoothed);
        }
    }

    /// An answer to a packet came that was sent once, so long ago: better than nothing.
    #[inline]
    pub(super) fn estimate(&mut self, time: u64) {
        if self.round_trip.is_none() {
            self.round_trip = Some(time);
        }
    }

    /// Packets are sent again: their answers say nothing about time.
    pub(super) fn restart(&mut self) {
        self.timed = None;
        self.probe = Probe::Idle;
    }

    /// Half a round trip: what comes sooner after a packet is no answer to it.
    pub(super) fn half_round_trip(&self) -> u64 {
        self.round_trip.unwrap_or(UNKNOWN_ROUND_TRIP) / 2
    }

    /// When the probe is due, for packets that wait `since` then and time out after `timeout`.
    #[inline]
    pub(super) fn deadline(&self, since: u64, timeout: u64) -> Option<u64> {
        let longest = timeout / TIMEOUT_PART;
        if self.probe != Probe::Idle || longest < SHORTEST {
            return None;
        }
        let patience = match self.round_trip {
            None => longest,
            Some(time) => time.saturating_mul(ROUND_TRIPS).clamp(SHORTEST, longest),
        };
        let at = self.active.max(since).saturating_add(patience);
        (at < since.saturating_add(timeout)).then_some(at)
    }

    /// The deadline is over.
    pub(super) fn set_due(&mut self) {
        self.probe = Probe::Due;
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.probe == Probe::Due
    }

    /// The probe was sent.
    pub(super) fn probed(&mut self, sequence: Sequence) {
        self.probe = Probe::Sent(sequence);
    }

    /// Whether the probe was this packet.
    pub(super) fn was_probed(&self, sequence: Sequence) -> bool {
        self.probe == Probe::Sent(sequence)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_requester_tail)
)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn is_due_after_some_round_trips_but_not_too_soon() {
        let mut tail = Tail::new();
        // Nothing is known: a part of the timeout.
        assert_eq!(tail.deadline(5, 80 * MS), Some(5 + 20 * MS));
        for (sample, patience) in [(10_000, MS), (2 * MS, 8 * MS), (9 * MS, 20 * MS)] {
            let mut tail = Tail::new();
            tail.time(1, 100);
            tail.progress(1, 100 + sample);
            tail.sent(200);
            assert_eq!(tail.deadline(50, 80 * MS), Some(200 + patience));
        }
        // Not if the timeout is near, too short, or the probe was sent.
        tail.sent(80 * MS);
        assert_eq!(tail.deadline(5, 80 * MS), None);
        tail.sent(0);
        assert_eq!(tail.deadline(5, 4 * MS - 1), None);
        tail.set_due();
        tail.probed(7);
        assert_eq!(tail.deadline(5, 80 * MS), None);
        tail.progress(8, 9);
        assert_eq!(tail.deadline(5, 80 * MS), Some(5 + 20 * MS));
    }

    #[test]
    fn the_round_trip_is_smoothed_and_not_measured_by_repeated_packets() {
        let mut tail = Tail::new();
        tail.time(4, 0);
        tail.time(8, 999);
        tail.progress(3, 500);
        tail.progress(4, 800);
        assert_eq!(tail.half_round_trip(), 400);
        tail.time(9, 1000);
        tail.progress(12, 2600);
        assert_eq!(tail.half_round_trip(), 450);
        tail.time(20, 3000);
        tail.restart();
        tail.progress(20, 99_000);
        assert_eq!(tail.half_round_trip(), 450);
    }
}
