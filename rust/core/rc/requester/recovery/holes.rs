// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Holes: the packets that the peer misses while it keeps others behind them, and the responses
//! that this side misses while it has placed others behind them.
//!
//! A report of the peer lists the former, a bitmap of this side the latter. A hole is sent again
//! when a reordering time has passed in which it may still close by itself (RFC 8985, 6.2: a
//! quarter of a round trip, and more on a path that reorders), and once more when something arrived
//! that was sent after that: a new packet, or those of another hole.

use crate::core::rc::sequence::Sequence;
use crate::core::storage::{
    Spare,
    SpareArray, //
};
use core::num::NonZero;

/// Most holes that are remembered; those behind them wait for a later report.
const MOST: usize = 16;

/// Most quarters of a round trip that a hole is given to close by itself.
const LONGEST_WAIT: u8 = 4;

/// Holes in a row that did not close by themselves, after which they get less time.
const CALM: u8 = 16;

/// Packets in a row that the peer misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hole {
    /// The first one.
    from: Sequence,
    /// The one behind the last.
    to: Sequence,
    /// What was the next new packet when they were sent again; `None` if they have to be.
    again: Option<NonZero<Sequence>>,
    /// When they were sent again, or may be.
    at: u64,
}

impl Hole {
    /// One that nothing is known of.
    const fn new(from: Sequence, to: Sequence) -> Self {
        Self {
            from,
            to,
            again: None,
            at: 0,
        }
    }
}

/// What a report says that was not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewlyLost {
    /// Packets that are missing and were not known to be, or were sent again and lost again.
    pub(super) lost: u32,
    /// The oldest packet is one of them.
    pub(super) oldest: bool,
}

/// The holes, in their order. They are changed where they are: a softirq has little stack left.
///
/// # Invariants
///
/// There is memory for the list if `len` is not 0.
pub(in super::super) struct Holes<A: Spare> {
    list: SpareArray<Hole, MOST, A>,
    len: u8,
    /// The sequence behind the last packet that the peer keeps, before which all holes are known.
    end: Sequence,
    /// Quarters of a round trip that a hole is given.
    patience: u8,
    /// Holes that did not close by themselves, in a row.
    calm: u8,
    /// How many packets that had left before were still behind the cursor, when those of a hole
    /// last left.
    pub(super) behind: u32,
    /// When that had left which closed a hole last: what was sent again before it and is still
    /// missing was lost again.
    arrived: u64,
    /// When the timer last fired: holes that were due by then wait for nothing but their turn.
    expired: u64,
}

impl<A: Spare> Holes<A> {
    pub(super) const fn new() -> Self {
        Self {
            list: SpareArray::new(),
            len: 0,
            end: 0,
            patience: 1,
            calm: 0,
            behind: 0,
            arrived: 0,
            expired: 0,
        }
    }

    #[inline]
    pub(in super::super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn len(&self) -> usize {
        self.len.into()
    }

    /// At most [`MOST`].
    fn set_len(&mut self, len: usize) {
        self.len = len as u8;
    }

    /// Forgets the holes, but not what was learned of the path.
    #[inline]
    pub(in super::super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The same, and gives their memory back.
    pub(super) fn free(&mut self) {
        self.list.free();
        self.len = 0;
    }

    /// Whether there is memory for holes.
    #[cold]
    pub(in super::super) fn provide(&mut self) -> bool {
        self.list.provide()
    }

    /// Nothing from `sequence` on counts as sent any more.
    pub(super) fn cut(&mut self, sequence: Sequence) {
        let kept = self.iter().take_while(|hole| hole.from < sequence).count();
        self.set_len(kept);
        self.end = self.end.min(sequence);
        if let Some(last) = kept.checked_sub(1).and_then(|last| self.at(last)) {
            last.to = last.to.min(sequence);
        }
    }

    /// The local stack refused what was sent for the hole with this packet, and what left behind
    /// it: these holes are due again. Returns where the cursor was, or `None` if there is no such
    /// hole.
    #[cold]
    pub(in super::super) fn unsend(&mut self, sequence: Sequence, now: u64) -> Option<Sequence> {
        let Hole { again, at, .. } = *self
            .iter()
            .find(|hole| (hole.from..hole.to).contains(&sequence))?;
        let next = again?.get();
        let sent = |hole: &&mut Hole| hole.again.is_some() && hole.at >= at;
        let len = self.len();
        for hole in self.list.iter_mut().take(len).filter(sent) {
            (hole.again, hole.at) = (None, now);
        }
        Some(next.wrapping_sub(u64::from(self.behind)))
    }

    /// Of the hole that begins with the oldest packet what is before `rest` is due at once, which
    /// is asked for as one. `false` if there is no such hole.
    #[cold]
    pub(in super::super) fn repeat_oldest(
        &mut self,
        una: Sequence,
        rest: Sequence,
        now: u64,
    ) -> bool {
        let Some(oldest) = self.at(0).filter(|hole| hole.from == una) else {
            return false;
        };
        if oldest.to <= rest {
            (oldest.again, oldest.at) = (None, now);
        } else {
            oldest.from = rest;
            let first = Hole {
                at: now,
                ..Hole::new(una, rest)
            };
            self.insert(0, first);
        }
        true
    }

    fn iter(&self) -> impl Iterator<Item = &Hole> {
        self.list.iter().take(self.len())
    }

    /// How many packets the peer keeps, if `una` is the oldest that it misses.
    #[inline]
    pub(super) fn kept(&self, una: Sequence) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let missing = self
            .iter()
            .map(|hole| hole.to.min(self.end).saturating_sub(hole.from));
        let missing = missing.fold(0, u64::wrapping_add);
        self.end.saturating_sub(una).saturating_sub(missing)
    }

    /// How long a hole may take to close by itself.
    fn wait(&self, round_trip: u64) -> u64 {
        (round_trip >> 2).saturating_mul(u64::from(self.patience))
    }

    /// The known hole with this index.
    fn at(&mut self, index: usize) -> Option<&mut Hole> {
        let len = self.len();
        self.list.get_mut(..len)?.get_mut(index)
    }

    /// Adds a hole in this place. If there are too many, the last one is forgotten.
    fn insert(&mut self, index: usize, hole: Hole) {
        let cut = if self.len() < MOST {
            self.len = self.len.wrapping_add(1);
            None
        } else {
            self.list
                .get(index..)
                .map(|rest| rest.last().unwrap_or(&hole).from)
        };
        let len = self.len();
        if let Some(places) = self.list.get_mut(index..len) {
            places.rotate_right(1);
            if let Some(place) = places.first_mut() {
                *place = hole;
            }
        }
        self.end = self.end.min(cut.unwrap_or(Sequence::MAX));
    }

    /// Removes holes that have closed, those from one index to another.
    fn close(&mut self, from: usize, to: usize, now: u64, round_trip: u64) {
        for index in from..to {
            if let Some(Hole {
                again: Some(_), at, ..
            }) = self.list.get(index).copied()
            {
                let took = now.saturating_sub(at);
                self.learn(took < round_trip);
                // The shortest time may have been measured behind a queue.
                if took >= round_trip / 2 {
                    self.arrived = self.arrived.max(at);
                }
            }
        }
        let len = self.len();
        if let Some(places) = self.list.get_mut(from..len) {
            let closed = to.saturating_sub(from).min(places.len());
            places.rotate_left(closed);
            self.set_len(len.wrapping_sub(closed));
        }
    }

    /// A report: `words` has the packets that are kept, from `una` on; it says nothing of those
    /// behind the last. `next` is the next one to be sent, `round_trip` the shortest one known.
    /// Nothing is learned of it without memory.
    pub(super) fn report(
        &mut self,
        una: Sequence,
        words: impl Iterator<Item = u64>,
        next: Sequence,
        now: u64,
        round_trip: u64,
    ) -> NewlyLost {
        if !self.provide() {
            return NewlyLost::default();
        }
        self.end = Sequence::MAX;
        let (mut first, mut newest, mut index) = (una, una, 0);
        for word in words {
            let mut kept = word;
            while kept != 0 {
                let zeros = kept.trailing_zeros();
                let from = first.wrapping_add(u64::from(zeros));
                if from >= next {
                    break;
                }
                if newest < from {
                    index = self.missing(index, (newest, from), now, round_trip);
                }
                let ones = kept.wrapping_shr(zeros).trailing_ones();
                newest = from.wrapping_add(u64::from(ones)).min(next);
                let behind = zeros.wrapping_add(ones);
                kept &= u64::MAX.checked_shl(behind).unwrap_or(0);
            }
            first = first.wrapping_add(u64::from(u64::BITS));
        }
        let closed = self.iter().skip(index).take_while(|hole| hole.to <= newest);
        let closed = closed.count();
        self.close(index, index.saturating_add(closed), now, round_trip);
        if let Some(known) = self.at(index) {
            known.from = known.from.max(newest);
        }
        self.end = self.end.min(newest);
        let wait = self.wait(round_trip);
        let (due, before) = (now.saturating_add(wait), self.arrived.saturating_sub(wait));
        let mut newly_lost = NewlyLost::default();
        let len = self.len();
        for hole in self.list.iter_mut().take(len) {
            let is_new = hole.at == 0 && hole.again.is_none();
            let is_again = hole
                .again
                .is_some_and(|again| newest > again.get() || hole.at < before);
            if is_new || is_again {
                (hole.again, hole.at) = (None, due);
                let packets = hole.to.wrapping_sub(hole.from);
                newly_lost.lost = newly_lost.lost.saturating_add(packets as u32);
                newly_lost.oldest |= hole.from == una;
            }
        }
        newly_lost
    }

    /// These packets are missing, and all is known up to the hole with this index: what was known
    /// of these stays. Returns the index of the next hole.
    fn missing(
        &mut self,
        mut index: usize,
        (mut from, to): (Sequence, Sequence),
        now: u64,
        round_trip: u64,
    ) -> usize {
        let closed = self.iter().skip(index).take_while(|hole| hole.to <= from);
        let closed = closed.count();
        self.close(index, index.saturating_add(closed), now, round_trip);
        while from < to && index < MOST {
            match self.at(index) {
                Some(known) if known.from <= from && known.to <= to => {
                    known.from = from;
                    from = known.to;
                }
                Some(known) if known.from <= from => {
                    let mut part = Hole { from, to, ..*known };
                    // What comes behind it may have been sent again with it, and has arrived.
                    let is_old = now.saturating_sub(known.at) >= round_trip;
                    if part.again.is_some() && is_old {
                        part = Hole::new(from, to);
                    }
                    known.from = to;
                    from = to;
                    self.insert(index, part);
                }
                known => {
                    let end = known.map_or(to, |known| known.from.min(to));
                    self.insert(index, Hole::new(from, end));
                    from = end;
                }
            }
            index = index.saturating_add(1);
        }
        if from < to {
            self.end = self.end.min(from);
        }
        index
    }

    /// A hole that was sent again has closed. If that was too soon after it, the path had only been
    /// reordering: the next ones get more time.
    fn learn(&mut self, too_soon: bool) {
        if too_soon {
            self.patience = self.patience.saturating_add(1).min(LONGEST_WAIT);
            self.calm = 0;
        } else {
            self.calm = self.calm.saturating_add(1);
            if self.calm >= CALM {
                self.calm = 0;
                self.patience = self.patience.saturating_sub(1).max(1);
            }
        }
    }

    /// All before `una` is acknowledged.
    #[inline]
    pub(super) fn progress(&mut self, una: Sequence, now: u64, round_trip: u64) {
        if !self.is_empty() {
            self.forget_before(una, now, round_trip);
        }
    }

    #[cold]
    fn forget_before(&mut self, una: Sequence, now: u64, round_trip: u64) {
        let closed = self.iter().take_while(|hole| hole.to <= una).count();
        self.close(0, closed, now, round_trip);
        if let Some(oldest) = self.at(0) {
            oldest.from = oldest.from.max(una);
        }
    }

    /// The timer fired at `now`.
    pub(super) fn expire(&mut self, now: u64) {
        self.expired = now;
    }

    /// Whether some are due to be sent again, by the last look at the clock.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        let is_due = |hole: &Hole| hole.again.is_none() && hole.at <= self.expired;
        !self.is_empty() && self.iter().any(is_due)
    }

    /// When the next will be due to be sent again.
    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        let unsent = self
            .iter()
            .filter(|hole| hole.again.is_none() && hole.at > self.expired);
        unsent.map(|hole| hole.at).min()
    }

    /// The first packet that is to be sent again, and the end of its hole.
    #[inline]
    pub(in super::super) fn next(&self, now: u64) -> Option<(Sequence, Sequence)> {
        let mut due = self
            .iter()
            .filter(|hole| hole.again.is_none() && hole.at <= now);
        due.next().map(|hole| (hole.from, hole.to))
    }

    /// The packets from that one to `to` were sent again, when `next` was the next new one.
    pub(super) fn sent(&mut self, from: Sequence, to: Sequence, next: Sequence, now: u64) {
        let Some(index) = self.iter().position(|hole| hole.from == from) else {
            return;
        };
        let again = NonZero::new(next);
        let Some(hole) = self.at(index) else {
            return;
        };
        if hole.to <= to {
            (hole.again, hole.at) = (again, now);
            return;
        }
        hole.from = to;
        // They join those before them that left with them, or take a place of their own.
        let before = index.checked_sub(1).and_then(|before| self.at(before));
        if let Some(before) = before.filter(|it| it.to == from && it.again == again) {
            before.to = to;
            return;
        }
        let at = now;
        self.insert(
            index,
            Hole {
                from,
                to,
                again,
                at,
            },
        );
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_holes)
)]
mod tests {
    use super::*;
    use crate::core::storage::InPlace;

    type Holes = super::Holes<InPlace>;

    const ROUND_TRIP: u64 = 4000;

    fn next(holes: &Holes, now: u64) -> Option<Sequence> {
        holes.next(now).map(|(from, _)| from)
    }

    fn lost(lost: u32, oldest: bool) -> NewlyLost {
        NewlyLost { lost, oldest }
    }

    #[test]
    fn are_sent_once_and_again_when_something_later_arrived() {
        let mut holes = Holes::new();
        // 100 is missing, 101 is kept, 102 and 103 are missing, 104 is kept.
        let report = |holes: &mut Holes, word: u64, next, now| {
            holes.report(100, [word].into_iter(), next, now, ROUND_TRIP)
        };
        assert_eq!(report(&mut holes, 0b1_0010, 110, 50), lost(3, true));
        assert_eq!((holes.kept(100), holes.deadline()), (2, Some(1050)));
        assert_eq!((next(&holes, 1049), next(&holes, 1050)), (None, Some(100)));
        holes.sent(100, 101, 110, 1050);
        assert_eq!(next(&holes, 1050), Some(102));
        holes.sent(102, 103, 110, 1050);
        assert_eq!(next(&holes, 1050), Some(103));
        holes.sent(103, 104, 110, 1050);
        assert!(holes.deadline().is_none() && next(&holes, 9000).is_none());
        // What was sent before tells nothing, what was sent since does.
        assert_eq!(
            report(&mut holes, 0b10_0001_0010, 112, 2000),
            lost(4, false)
        );
        assert_eq!(
            report(&mut holes, 0b101_1111_0010, 112, 6000),
            lost(4, true)
        );
        holes.progress(103, 7000, ROUND_TRIP);
        assert_eq!(next(&holes, 9000), Some(103));
        holes.progress(111, 7000, ROUND_TRIP);
        assert!(holes.is_empty() && holes.kept(111) == 0);
    }

    #[test]
    fn get_more_time_on_a_path_that_reorders() {
        let mut holes = Holes::new();
        let mut now = 0;
        for quarters in [1, 2, 3, 4, 4] {
            holes.report(7, [2].into_iter(), 20, now, ROUND_TRIP);
            assert_eq!(holes.deadline(), Some(now + quarters * ROUND_TRIP / 4));
            now += ROUND_TRIP;
            holes.sent(7, 8, 20, now);
            holes.progress(8, now + 100, ROUND_TRIP);
        }
        for _ in 0..CALM {
            holes.report(7, [2].into_iter(), 20, now, ROUND_TRIP);
            now += ROUND_TRIP;
            holes.sent(7, 8, 20, now);
            now += ROUND_TRIP;
            holes.progress(8, now, ROUND_TRIP);
        }
        holes.report(7, [2].into_iter(), 20, now, ROUND_TRIP);
        assert_eq!(holes.deadline(), Some(now + 3 * ROUND_TRIP / 4));
    }

    /// More holes than places: those behind wait, and nothing behind them counts as kept.
    #[test]
    fn a_report_of_too_many_is_cut() {
        let mut holes = Holes::new();
        let every_other = 0xaaaa_aaaa_aaaa_aaaa;
        let newly_lost = holes.report(0, [every_other; 2].into_iter(), 1000, 5, ROUND_TRIP);
        assert_eq!(newly_lost, lost(MOST as u32, true));
        assert_eq!(holes.kept(0), MOST as u64);
        // Nothing that was never sent.
        let newly_lost = holes.report(0, [every_other; 2].into_iter(), 4, 5, ROUND_TRIP);
        assert_eq!((newly_lost, holes.kept(0)), (lost(0, false), 2));
    }

    /// A hole that gives way to a part of another one does not count as kept.
    #[test]
    fn a_part_that_was_sent_takes_the_place_of_the_last_hole() {
        let mut holes = Holes::new();
        // 0 to 2 are missing, then every other one up to 34.
        let words = [0xaaaa_aaaa_aaaa_aaa8, 0];
        holes.report(0, words.into_iter(), 1000, 5, ROUND_TRIP);
        let kept = holes.kept(0);
        assert_eq!((holes.len(), kept), (MOST, MOST as u64));
        holes.sent(0, 1, 1000, 9);
        assert_eq!((holes.len(), holes.kept(0)), (MOST, kept - 1));
        // What is known of the parts stays, and the rest is still to be sent.
        assert_eq!(next(&holes, 5000), Some(1));
        holes.report(0, words.into_iter(), 1000, 5000, ROUND_TRIP);
        assert_eq!(next(&holes, 5000), Some(1));
        // The beginning arrived, and the middle of what was one hole.
        holes.report(1, [0b10].into_iter(), 1000, 5000, ROUND_TRIP);
        assert_eq!(
            (holes.len(), next(&holes, 5000), holes.kept(1)),
            (MOST - 1, Some(1), 1)
        );
    }
}
