// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The tail-loss probe. If the last packets of a flight are lost, nothing behind them makes the
//! responder report the loss, and the ACK timeout may be seconds away.
//!
//! So after two round trips of silence one packet is retransmitted with an ACK request: the last
//! one, or the oldest if that was retransmitted before, or if responses answer the last one; but
//! not yet one of several long READs. The responder acknowledges it as a duplicate, or reports
//! which packet it misses; either repairs the rest. If that gets no response either, the next probe
//! follows after twice the time, and so on up to the ACK timeout. It is the oldest packet: a
//! responder that reports a gap once answers no other, if its report was lost. A probe spends no
//! retry, does not move the cursor, and does not touch the ACK timeout. (IBTA leaves it to the
//! requester how often it sends a packet; RFC 8985 does the same for TCP.)

use crate::core::rc::sequence::Sequence;
use crate::core::storage::Known;

/// The shortest silence: less says more about schedulers than about the network.
const SHORTEST: u64 = 2_000_000;

/// The first probe waits at most this part of the ACK timeout.
const TIMEOUT_PART: u64 = 4;

/// The first probe waits at most so long while no round trip was measured: loss may hit the first
/// packets of a connection, and its ACK timeout may be seconds. A peer farther away sees a few
/// packets twice.
const UNMEASURED: u64 = 20_000_000;

/// The state of the probe of a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Not due yet.
    Idle,
    /// Not due yet, after a timer that was late.
    PutOff,
    /// To be sent.
    Due,
    /// Sent, for the packet with this sequence.
    Sent(Sequence),
}

/// A packet whose response is timed.
#[derive(Clone, Copy, Debug)]
struct Timed {
    /// The sequence behind it.
    end: Sequence,
    at: u64,
    /// When the last probe behind it was sent, whose response may come in place of its own.
    probed: Option<Known>,
}

/// The tail of a requester's flight.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Tail {
    pub(super) round_trip: RoundTrip,
    timed: Option<Timed>,
    /// When a packet was last sent, or anything came.
    active: u64,
    probe: Probe,
    /// Probes since something new was sent or acknowledged.
    probes: u32,
}

impl Tail {
    pub(super) const fn new() -> Self {
        Self {
            round_trip: RoundTrip::Unknown,
            timed: None,
            active: 0,
            probe: Probe::Idle,
            probes: 0,
        }
    }

    /// A packet was sent, other than a probe.
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        self.active = now;
        self.begin();
    }

    /// Something came that acknowledges nothing: the peer is at work, so the probe waits.
    pub(in super::super) fn defer(&mut self, now: u64) {
        self.active = self.active.max(now);
    }

    /// A packet was sent for the first time; it will be answered when all before `end` arrived.
    #[inline]
    pub(in super::super) fn time(&mut self, end: Sequence, now: u64) {
        if self.timed.is_none() {
            self.timed = Some(Timed {
                end,
                at: now,
                probed: None,
            });
        }
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(super) fn progress(&mut self, una: Sequence, now: u64) {
        self.begin();
        if let Some(Timed { at, probed, .. }) = self.timed.take_if(|timed| timed.end <= una) {
            let sample = now.saturating_sub(at);
            match probed {
                None => self.round_trip.add(sample, now),
                Some(probed) => {
                    self.round_trip
                        .bound(now.saturating_sub(probed.get()), sample, now)
                }
            }
        }
    }

    /// A response came, for packets of which the oldest waits `since` then.
    #[inline]
    pub(super) fn answered(&mut self, since: u64, now: u64) {
        if matches!(self.timed, Some(Timed { probed: None, .. })) {
            self.round_trip.estimate(now.saturating_sub(since), now);
        }
    }

    /// No response is a sample.
    pub(super) fn forget_timed(&mut self) {
        self.timed = None;
    }

    /// Packets are retransmitted: their responses are no samples.
    pub(super) fn restart(&mut self) {
        self.timed = None;
        self.begin();
    }

    #[inline]
    fn begin(&mut self) {
        self.probe = Probe::Idle;
        self.probes = 0;
    }

    /// When a probe is due, for packets that wait `since` then and time out after `timeout`.
    #[inline]
    pub(super) fn deadline(&self, since: u64, timeout: u64) -> Option<u64> {
        if self.probe == Probe::Due {
            return None;
        }
        let at = self
            .active
            .max(since)
            .saturating_add(self.patience(timeout)?);
        (at < since.saturating_add(timeout)).then_some(at)
    }

    /// Delay of the next probe.
    fn patience(&self, timeout: u64) -> Option<u64> {
        let longest = timeout / TIMEOUT_PART;
        if longest < SHORTEST {
            return None;
        }
        let first = match self.round_trip.patience() {
            None => longest.min(UNMEASURED),
            Some(time) => time.clamp(SHORTEST, longest),
        };
        Some(first.saturating_mul(1u64.checked_shl(self.probes).unwrap_or(u64::MAX)))
    }

    /// The deadline `at` of the probe has passed; it is `now`. A timer that runs much too late may
    /// have missed a response meanwhile; then the probe waits once more, but not for ever where all
    /// timers are late.
    pub(super) fn expired(&mut self, at: u64, now: u64, timeout: u64) {
        let late = now.saturating_sub(at);
        let is_late = self.patience(timeout).is_none_or(|time| late >= time / 2);
        if is_late && self.probe != Probe::PutOff {
            self.active = now;
            self.probe = Probe::PutOff;
        } else {
            self.probe = Probe::Due;
        }
    }

    #[inline]
    pub(in super::super) fn is_due(&self) -> bool {
        self.probe == Probe::Due
    }

    /// Whether there was a probe since something new was sent or acknowledged.
    pub(in super::super) fn is_unanswered(&self) -> bool {
        self.probes != 0
    }

    /// The probe was sent.
    pub(in super::super) fn probed(&mut self, sequence: Sequence, now: u64) {
        if let Some(timed) = &mut self.timed {
            timed.probed = Known::new(now);
        }
        self.active = now;
        self.probe = Probe::Sent(sequence);
        self.probes = self.probes.saturating_add(1);
    }

    /// The probe is left out. The next one follows as if it had been sent.
    pub(in super::super) fn spared(&mut self, now: u64) {
        self.active = now;
        self.probe = Probe::Idle;
        self.probes = self.probes.saturating_add(1);
    }

    /// Whether the last probe was this packet.
    pub(in super::super) fn was_probed(&self, sequence: Sequence) -> bool {
        self.probe == Probe::Sent(sequence)
    }
}

// The round-trip time of a connection, in nanoseconds.
//
// Three figures answer three questions. The smoothed time is the usual one, queueing included. The
// minimum is the time without queueing: anything that comes sooner after a packet does not answer
// it. The recent maximum is how long a peer may be silent that has lost nothing: its CPU may be
// busy.

/// How long a minimum or maximum is remembered.
const WINDOW: u64 = 10_000_000_000;

/// A sample that counts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extreme {
    value: u64,
    since: u64,
}

impl Extreme {
    /// `self`, unless it is too old or the new one `beats` it.
    fn or_newer(self, value: u64, now: u64, beats: bool) -> Self {
        if beats || now.saturating_sub(self.since) > WINDOW {
            Self { value, since: now }
        } else {
            self
        }
    }
}

/// The figures, after the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figures {
    smoothed: u64,
    least: Extreme,
    most: Extreme,
}

/// The round-trip time of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum RoundTrip {
    Unknown,
    /// Not shorter and not longer: the answer may have been to a packet or to a probe behind it.
    Between(u64, u64),
    Measured(Figures),
}

impl RoundTrip {
    /// A sample: a response came at `now`, `sample` after its packet.
    #[inline]
    pub(super) fn add(&mut self, sample: u64, now: u64) {
        let new = Extreme {
            value: sample,
            since: now,
        };
        *self = Self::Measured(match *self {
            Self::Unknown | Self::Between(..) => Figures {
                smoothed: sample,
                least: new,
                most: new,
            },
            Self::Measured(Figures {
                smoothed,
                least,
                most,
            }) => Figures {
                smoothed: smoothed
                    .saturating_sub(smoothed / 8)
                    .saturating_add(sample / 8),
                least: least.or_newer(sample, now, sample <= least.value),
                most: most.or_newer(sample, now, sample >= most.value),
            },
        });
    }

    /// Like [`Self::add`], if nothing is known yet: for a sample that may be too short.
    #[inline]
    pub(super) fn estimate(&mut self, sample: u64, now: u64) {
        if matches!(self, Self::Unknown) {
            self.add(sample, now);
        }
    }

    /// A response came `shortest` after a probe and `longest` after the packet before it, and may
    /// answer either (Karn's rule, RFC 6298 3). Without a better sample both count; else only that
    /// the peer may have been silent for so long, or a busy one would be probed again and again.
    pub(super) fn bound(&mut self, shortest: u64, longest: u64, now: u64) {
        match self {
            Self::Measured(Figures { most, .. }) => {
                *most = most.or_newer(longest, now, longest >= most.value);
            }
            Self::Between(least, most) => {
                *least = shortest.min(*least);
                *most = longest.max(*most);
            }
            Self::Unknown => *self = Self::Between(shortest, longest),
        }
    }

    /// The recent minimum.
    #[inline]
    pub(super) fn least(&self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Between(shortest, _) => Some(*shortest),
            Self::Measured(figures) => Some(figures.least.value),
        }
    }

    /// How long to wait before a response counts as missing: twice the smoothed time, and 1.5 times
    /// the recent maximum.
    #[inline]
    pub(super) fn patience(&self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Between(_, longest) => Some(longest.saturating_mul(2)),
            Self::Measured(Figures { smoothed, most, .. }) => {
                let most = most.value;
                Some(
                    smoothed
                        .saturating_mul(2)
                        .max(most.saturating_add(most / 2)),
                )
            }
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_tail)
)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A tail that has timed one round trip of `sample`, at `100 + sample`, and sent at 200.
    fn timed(sample: u64) -> Tail {
        let mut tail = Tail::new();
        tail.time(1, 100);
        tail.progress(1, 100 + sample);
        tail.sent(200);
        tail
    }

    #[test]
    fn is_due_after_two_round_trips_but_not_too_soon() {
        // Nothing is known: a part of the timeout.
        assert_eq!(Tail::new().deadline(5, 40 * MS), Some(5 + 10 * MS));
        assert_eq!(Tail::new().deadline(5, 9000 * MS), Some(5 + UNMEASURED));
        for (sample, patience) in [(10_000, SHORTEST), (3 * MS, 6 * MS), (19 * MS, 20 * MS)] {
            let tail = timed(sample);
            assert_eq!(tail.deadline(50, 80 * MS), Some(200 + patience));
        }
        // Not if the timeout is near, or too short.
        let mut tail = timed(3 * MS);
        assert_eq!(tail.deadline(5, 4 * SHORTEST - 1), None);
        tail.sent(80 * MS);
        assert_eq!(tail.deadline(5, 80 * MS), None);
    }

    #[test]
    fn waits_twice_as_long_for_each_probe_up_to_the_timeout() {
        let mut tail = timed(3 * MS);
        let (timeout, mut now) = (100 * MS, 200);
        for (sequence, patience) in [(7, 6), (7, 12), (7, 24), (7, 48)] {
            let at = now + patience * MS;
            assert_eq!(tail.deadline(50, timeout), Some(at));
            tail.expired(at, at + 10, timeout);
            assert!(tail.is_due());
            assert_eq!(tail.deadline(50, timeout), None);
            now = at + 10;
            tail.probed(sequence, now);
            assert!(tail.was_probed(sequence) && !tail.is_due());
        }
        assert_eq!(tail.deadline(50, timeout), None);
        tail.progress(8, now);
        assert_eq!(tail.deadline(now, timeout), Some(now + 6 * MS));
    }

    /// However late it looks then.
    #[test]
    fn who_looks_late_waits_once_more() {
        for late in [1, 3 * MS] {
            let mut tail = timed(3 * MS);
            let at = 200 + 6 * MS;
            tail.expired(at, at + 3 * MS, 100 * MS);
            assert!(!tail.is_due());
            let next = at + 3 * MS + 6 * MS;
            assert_eq!(tail.deadline(50, 100 * MS), Some(next));
            tail.expired(next, next + late, 100 * MS);
            assert!(tail.is_due());
        }
    }

    /// The response may be to the packet that was lost, or to the probe.
    #[test]
    fn a_response_after_a_probe_is_no_sample_but_a_bound() {
        let mut tail = Tail::new();
        tail.time(1, 0);
        tail.probed(0, 20 * MS);
        tail.sent(20 * MS);
        tail.answered(0, 20 * MS + 300);
        tail.progress(1, 20 * MS + 300);
        assert_eq!(tail.round_trip.least(), Some(300));
        tail.time(2, 21 * MS);
        tail.progress(2, 21 * MS + 500);
        assert_eq!(tail.round_trip.least(), Some(500));
        assert_eq!(tail.round_trip.patience(), Some(1000));
    }

    #[test]
    fn retransmitted_packets_are_not_timed() {
        let mut tail = timed(800);
        tail.time(20, 3000);
        tail.restart();
        tail.progress(20, 99_000);
        assert_eq!(tail.round_trip.least(), Some(800));
    }

    #[test]
    fn knows_the_least_the_usual_and_the_most() {
        let mut time = RoundTrip::Unknown;
        assert_eq!((time.least(), time.patience()), (None, None));
        time.estimate(800, 0);
        time.estimate(100, 0);
        assert_eq!((time.least(), time.patience()), (Some(800), Some(1600)));
        time.add(1600, 0);
        // 1.5 times 1600 is more than twice 900.
        assert_eq!((time.least(), time.patience()), (Some(800), Some(2400)));
        time.add(400, 1);
        assert_eq!((time.least(), time.patience()), (Some(400), Some(2400)));
    }

    #[test]
    fn a_doubtful_sample_stands_until_there_is_another() {
        let mut time = RoundTrip::Unknown;
        time.bound(100, 20_000, 0);
        time.estimate(3, 0);
        time.bound(200, 10_000, 0);
        assert_eq!((time.least(), time.patience()), (Some(100), Some(40_000)));
        time.add(120, 1);
        assert_eq!((time.least(), time.patience()), (Some(120), Some(240)));
    }

    /// A busy peer is probed once, and then gets more time.
    #[test]
    fn a_probe_of_a_busy_peer_makes_patient() {
        let mut time = RoundTrip::Unknown;
        time.add(120, 1);
        time.bound(7, 5000, 2);
        assert_eq!((time.least(), time.patience()), (Some(120), Some(7500)));
    }

    #[test]
    fn forgets_extremes_after_a_while() {
        let mut time = RoundTrip::Unknown;
        time.add(8000, 0);
        time.add(80, 0);
        for _ in 0..100 {
            time.add(800, WINDOW);
        }
        assert_eq!((time.least(), time.patience()), (Some(80), Some(12_000)));
        time.add(800, WINDOW + 1);
        assert_eq!(time.least(), Some(800));
        // Twice the smoothed time, which came from above.
        assert!(time.patience().is_some_and(|time| time < 2 * 810));
    }
}
