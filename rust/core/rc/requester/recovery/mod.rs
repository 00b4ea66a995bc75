// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Recovery: what is known of the packets in flight, and what follows when one of them is lost.
//!
//! The requester knows messages and the send cursor. It reports here what has happened to packets,
//! and asks what may be sent, or is to be sent again. What concerns one part of the state alone, it
//! says to that part.
//!
//! | lost packet | noticed by | cost |
//! |---|---|---|
//! | one in the middle | the responder, by NAK, repeatedly | one of half the retries |
//! | the same, and the responder keeps what is behind it | its report ([`holes`]) | the same |
//! | a READ response in the middle | this side, by a later response or ACK | one retry |
//! | the same, and the peer answers parts alone | this side ([`holes`]) | one of half the retries |
//! | the end of a flight | the probe of [`tail`], or the ACK timeout | none, or one retry |
//! | one that did not leave this host | the owner: `Requester::unsend` | nothing |
//! | none, but there is no receive | the responder, by RNR NAK | one RNR retry, and a back-off |
//!
//! | event | what is done |
//! |---|---|
//! | a packet leaves | the probe waits from now on; if it is the oldest, the ACK timeout begins |
//! | the oldest packet is acknowledged | all retries are back, the window opens |
//! | NAK, implied NAK, timeout | a retry is spent, the window shrinks, all is sent again |
//! | timeout with holes | the same, but the oldest packet alone is sent again |
//! | report, READ response behind a gap | what is missing is a hole, which is sent again alone |
//! | RNR NAK | an RNR retry is spent, and after a back-off one packet is sent alone |
//! | two round trips of silence | one packet is sent again with an ACK request: the probe |
//! | a packet is refused by the local stack | a back-off; the ACK timeout goes on |
//! | a mark of the network | the window shrinks |
//!
//! A NAK or a report about the oldest packet may be a duplicate, or cross its retransmission, so it
//! counts once for each transmission, and not within half a round trip of it.
//!
//! | state | file |
//! |---|---|
//! | retries left, the ACK timeout, back-offs | [`retry`] |
//! | the probe of a silent flight, round-trip time | [`tail`] |
//! | how many packets may be in flight | [`window`] |
//! | holes, which are sent again alone | [`holes`] |

mod holes;
mod retry;
mod tail;
mod window;

use crate::core::rc::sequence::{
    Ahead,
    Sequence,
    REACH, //
};
use crate::core::rc::RequesterConfig;
use crate::core::storage::{
    Known,
    Spare, //
};
use holes::{
    Holes,
    NewlyLost, //
};
use retry::Retry;
use tail::Tail;
use window::CongestionWindow;

/// Assumed round-trip time before the first sample, in nanoseconds.
const UNKNOWN_ROUND_TRIP: u64 = 1_000_000;

/// The packets in flight.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    /// The oldest one.
    pub(super) una: Sequence,
    /// The next one to be sent, or sent again.
    pub(super) next: Sequence,
    /// The next one that is new.
    pub(super) sent: Sequence,
}

impl Flight {
    /// How many there are.
    #[inline]
    pub(super) const fn len(self) -> u64 {
        self.next.wrapping_sub(self.una)
    }

    /// Whether anything that was sent is not acknowledged: in flight, or given up for lost.
    #[inline]
    const fn is_outstanding(self) -> bool {
        self.una != self.sent
    }
}

/// What missing packets mean for the oldest one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Oldest {
    /// Nothing new.
    NoNews,
    /// It was reported too often: the ACK timeout decides.
    LeftToTimeout,
    /// It is sent again, for a retry.
    SentAgain,
    /// No retry is left.
    GivenUp,
}

/// What is known of the packets in flight.
pub(super) struct LossRecovery<A: Spare> {
    pub(super) window: CongestionWindow,
    pub(super) retry: Retry,
    pub(super) tail: Tail,
    pub(super) holes: Holes<A>,
    /// READ responses placed behind a missing one, of a peer that answers a part again alone.
    pub(super) placed: Ahead<A>,
    /// The newest packet whose answer has implied that `una` was lost.
    implied_by: Option<Known>,
    /// The `una` for which a sequence error NAK was honoured, until it is retransmitted.
    reported_at: Option<Known>,
    /// When `una` was last retransmitted.
    repeated_at: Option<Known>,
}

impl<A: Spare> LossRecovery<A> {
    pub(super) fn new() -> Self {
        Self {
            window: CongestionWindow::begin(false),
            retry: Retry::new(),
            tail: Tail::new(),
            holes: Holes::new(),
            placed: Ahead::new(),
            implied_by: None,
            reported_at: None,
            repeated_at: None,
        }
    }

    /// A connection begins, behind [`Self::forget_flight`].
    pub(super) fn connect(&mut self, config: &RequesterConfig) {
        self.window = CongestionWindow::begin(config.ecn);
        self.retry = Retry::new();
        self.retry.set_counts(config.retry_cnt, config.rnr_retry);
        self.retry.set_ack_timeout(config.ack_timeout_ns);
        self.tail = Tail::new();
        self.holes = Holes::new();
    }

    /// How many more packets may be sent. Those that the peer keeps are not in the network, but it
    /// keeps no more than [`REACH`].
    #[inline(always)]
    pub(super) fn room(&self, flight: Flight) -> u32 {
        let in_network = flight.len().wrapping_sub(self.holes.kept(flight.una));
        let room = self.window.room(in_network);
        room.min(REACH.saturating_sub(flight.len()) as u32)
    }

    /// Whether the window has no room behind `end` packets in flight.
    #[inline(always)]
    pub(super) fn is_full(&self, una: Sequence, end: u64) -> bool {
        let size = u64::from(self.window.size());
        (end >= size && end.wrapping_sub(self.holes.kept(una)) >= size) || end >= REACH
    }

    // What happens to packets.

    /// Packets leave at the cursor, which was `flight.next`.
    #[inline(always)]
    pub(super) fn sent(&mut self, flight: Flight, now: u64) {
        if flight.next == flight.una {
            self.retry.sent(now);
            if flight.next < flight.sent {
                self.repeated_at = Known::new(now);
                self.reported_at = None;
            }
        }
        self.tail.sent(now);
    }

    /// The local stack refused a packet. Returns where the cursor was when it was sent, if that was
    /// to close a hole: what is due of them leaves before anything else.
    pub(super) fn unsent(
        &mut self,
        sequence: Sequence,
        una: Sequence,
        now: u64,
    ) -> Option<Sequence> {
        if sequence == una {
            self.retry.unsent();
            if self.repeated_at.take().is_some() {
                self.reported_at = Known::new(sequence);
            }
        }
        self.holes.unsend(sequence, now)
    }

    /// A response came.
    #[inline(always)]
    pub(super) fn answered(&mut self, now: u64) {
        if self.repeated_at.is_none() {
            self.tail.answered(self.retry.since(), now);
        }
    }

    /// The oldest packet was `before` and is now `una`.
    #[inline]
    pub(super) fn progressed(&mut self, before: Sequence, una: Sequence, now: u64) {
        self.window.grow(una.wrapping_sub(before));
        self.retry.progress(now);
        if !self.holes.is_empty() {
            // Their time is that of a repair.
            self.tail.forget_timed();
            let round_trip = self.shortest_round_trip();
            self.holes.progress(una, now, round_trip);
        }
        self.tail.progress(una, now);
        self.repeated_at = None;
        self.forget_losses();
    }

    // Losses.

    /// Whether to honour an implied NAK for the oldest packet: the first one, and, as a NAK, one
    /// that comes of its repetition. That begins anew, behind what the first answer still brings.
    pub(super) fn honours_implied(&mut self, by: Sequence, now: u64) -> bool {
        let newest = core::mem::replace(&mut self.implied_by, Known::new(by));
        let is_again = newest.is_some_and(|newest| by <= newest.get())
            && self.repeated_at.is_some()
            && !self.was_just_repeated(now);
        (is_again || newest.is_none()) && (self.retry.honours_report() || newest.is_none())
    }

    /// Whether to honour a NAK for the oldest packet.
    pub(super) fn honours_nak(&mut self, una: Sequence, now: u64) -> bool {
        let is_honoured = self.reported_at != Known::new(una)
            && !self.was_just_repeated(now)
            && self.retry.honours_report();
        if is_honoured {
            self.reported_at = Known::new(una);
        }
        is_honoured
    }

    /// Whether a report of missing packets crossed their retransmission: the cursor went back, and
    /// all has left again.
    pub(super) fn has_crossed(&self, now: u64) -> bool {
        self.holes.is_empty() && self.was_just_repeated(now)
    }

    /// The oldest packet was lost, and all behind it is sent again. `false` if no retry is left.
    pub(super) fn lost(&mut self) -> bool {
        let is_left = self.retry.take();
        if is_left {
            self.window.shrink();
        }
        is_left
    }

    /// The oldest packet is sent again, alone, after a back-off.
    pub(super) fn wait_for_receiver(&mut self, now: u64, delay: u64) {
        self.window.begin_anew();
        self.retry.wait_for_receiver(now, delay);
    }

    /// Whether there is memory for READ responses that are placed behind a missing one.
    pub(super) fn can_place_early(&mut self) -> bool {
        self.holes.provide() && self.placed.provide()
    }

    /// The peer misses packets; `map` gives the words that say what it keeps from `at` on. What has
    /// not left again since the cursor went back is not missing.
    pub(super) fn reported(
        &mut self,
        flight: Flight,
        at: Sequence,
        map: impl Fn(u64) -> u64,
        now: u64,
    ) -> Oldest {
        let round_trip = self.shortest_round_trip();
        let words = self.placed.words_with(at.saturating_sub(flight.una), map);
        let newly_lost = self
            .holes
            .report(flight.una, words, flight.next, now, round_trip);
        self.missing(newly_lost, flight)
    }

    /// A READ response was placed behind a missing one.
    pub(super) fn placed_early(
        &mut self,
        flight: Flight,
        sequence: Sequence,
        span: u32,
        now: u64,
    ) -> Oldest {
        self.placed.add(flight.una, sequence, u64::from(span));
        self.tail.defer(now);
        let round_trip = self.shortest_round_trip();
        let words = self.placed.words();
        let newly_lost = self
            .holes
            .report(flight.una, words, flight.next, now, round_trip);
        self.missing(newly_lost, flight)
    }

    fn missing(&mut self, newly_lost: NewlyLost, flight: Flight) -> Oldest {
        self.window.lost(newly_lost.lost, flight.una, flight.sent);
        if !newly_lost.oldest {
            return Oldest::NoNews;
        }
        if !self.retry.honours_report() {
            self.holes.clear();
            return Oldest::LeftToTimeout;
        }
        match self.retry.take() {
            true => Oldest::SentAgain,
            false => Oldest::GivenUp,
        }
    }

    /// The cursor goes back to this packet: what is known of it and of later ones no longer holds.
    pub(super) fn rewind(&mut self, to: Sequence, una: Sequence) {
        if to > una {
            self.cut(to);
        } else {
            self.holes.clear();
            self.placed.clear();
        }
        self.tail.restart();
    }

    #[cold]
    fn cut(&mut self, sequence: Sequence) {
        self.holes.cut(sequence);
        self.placed.cut(sequence);
    }

    /// Earlier loss reports no longer matter: the next one is news.
    #[inline]
    fn forget_losses(&mut self) {
        self.implied_by = None;
        self.reported_at = None;
    }

    /// Forgets everything about packets in flight, and gives back the memory for losses.
    pub(super) fn forget_flight(&mut self) {
        self.forget_losses();
        self.retry.cancel_wait();
        self.holes.free();
        self.placed.free();
        self.repeated_at = None;
        self.tail.restart();
    }

    pub(super) fn shortest_round_trip(&self) -> u64 {
        let least = self.tail.round_trip.least();
        least.unwrap_or(UNKNOWN_ROUND_TRIP)
    }

    /// The oldest packet was sent again so short a time ago that what the peer says of it is about
    /// an earlier transmission.
    fn was_just_repeated(&self, now: u64) -> bool {
        let half = self.shortest_round_trip() / 2;
        self.repeated_at
            .is_some_and(|at| now.saturating_sub(at.get()) <= half)
    }

    // Time.

    /// When to call [`Self::on_deadline`].
    #[inline]
    pub(super) fn deadline(&self, flight: Flight) -> Option<u64> {
        let deadline = self.retry.deadline(flight.is_outstanding());
        if flight.len() == 0 || self.retry.has_wait() {
            return deadline;
        }
        let tail = self.tail_deadline().or(deadline);
        if self.holes.is_empty() {
            return tail;
        }
        match (tail, self.holes.deadline()) {
            (Some(tail), Some(hole)) => Some(tail.min(hole)),
            (tail, hole) => tail.or(hole),
        }
    }

    /// When a tail-loss probe is due.
    #[inline]
    fn tail_deadline(&self) -> Option<u64> {
        let timeout = self.retry.ack_timeout_ns()?;
        self.tail.deadline(self.retry.since(), timeout)
    }

    /// The deadline has passed. Returns whether it was that of the ACK timeout.
    pub(super) fn on_deadline(&mut self, flight: Flight, now: u64) -> bool {
        self.holes.expire(now);
        let timeout = self.retry.timeout_at(flight.is_outstanding());
        if timeout.is_some_and(|at| at <= now) {
            self.forget_losses();
            self.retry.cancel_wait();
            self.retry.restart(now);
            return true;
        }
        if self.retry.has_wait() {
            // The end of a back-off is no timeout.
            self.retry.end_wait(now);
        } else if let (Some(at), Some(timeout)) =
            (self.tail_deadline(), self.retry.ack_timeout_ns())
        {
            if at <= now {
                self.tail.expired(at, now, timeout);
            }
        }
        false
    }

    // What is sent again ahead of the cursor.

    /// Whether a hole or a probe is due.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        self.tail.is_due() || self.holes.has_due()
    }

    /// The packets of a hole from that one to `to` are sent again.
    pub(super) fn hole_sent(&mut self, from: Sequence, to: Sequence, flight: Flight, now: u64) {
        self.repeated(from, to, flight, now);
        self.tail.sent(now);
        if from == flight.una {
            self.retry.sent(now);
            self.repeated_at = Known::new(now);
        }
    }

    /// The packets from that one to `to` are sent as a probe. If they are a hole, their arrival
    /// tells which others were lost again.
    pub(super) fn probed(&mut self, from: Sequence, to: Sequence, flight: Flight, now: u64) {
        self.tail.probed(from, now);
        self.repeated(from, to, flight, now);
    }

    fn repeated(&mut self, from: Sequence, to: Sequence, flight: Flight, now: u64) {
        self.holes.sent(from, to, flight.sent, now);
        // Fewer than there are PSNs.
        self.holes.behind = flight.sent.saturating_sub(flight.next) as u32;
    }

    /// Whether the probe is the oldest packet: that was retransmitted or reported missing, and a
    /// responder that reports a gap once drops everything else until it comes (IBTA 9.7.5.2.2).
    pub(super) const fn probes_oldest(&self) -> bool {
        self.repeated_at.is_some() || !self.holes.is_empty()
    }
}
