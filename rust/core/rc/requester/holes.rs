// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Holes: the packets that the peer misses while it keeps others behind them.
//!
//! A report of the peer lists them all. A hole is sent again when a reordering time has passed in
//! which it may still close by itself (RFC 8985, 6.2: a quarter of a round trip, and more on a path
//! that reorders), and once more when a report shows that a packet arrived that was sent for the
//! first time after that.

use crate::core::rc::sequence::Sequence;

/// Most holes that are remembered; those behind them wait for a later report.
const MOST: usize = 32;

/// Most quarters of a round trip that a hole is given to close by itself.
const LONGEST_WAIT: u8 = 4;

/// Holes in a row that did not close by themselves, after which they get less time.
const CALM: u8 = 16;

/// Packets in a row that the peer misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    /// The first one.
    pub(super) from: Sequence,
    /// The one behind the last.
    pub(super) to: Sequence,
    /// What was the next new packet when they were sent again; `None` if they have to be.
    again: Option<Sequence>,
    /// When they were sent again, or may be.
    at: u64,
}

const NONE: Hole = Hole {
    from: 0,
    to: 0,
    again: None,
    at: 0,
};

/// What a report brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Packets that are missing and were not known to be, or were sent again and lost again.
    pub(super) lost: u32,
    /// The oldest packet is one of them.
    pub(super) oldest: bool,
}

/// The holes, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holes {
    list: [Hole; MOST],
    len: usize,
    /// The sequence behind the last packet that the peer keeps.
    end: Sequence,
    /// Quarters of a round trip that a hole is given.
    patience: u8,
    /// Holes that did not close by themselves, in a row.
    calm: u8,
    /// When the timer last fired: holes that were due by then wait for nothing but their turn.
    expired: u64,
}

impl Holes {
    pub(super) const fn new() -> Self {
        Self {
            list: [NONE; MOST],
            len: 0,
            end: 0,
            patience: 1,
            calm: 0,
            expired: 0,
        }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the holes, but not what was learned of the path.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    fn iter(&self) -> impl Iterator<Item = &Hole> {
        self.list.iter().take(self.len)
    }

    /// How many packets the peer keeps, if `una` is the oldest that it misses.
    #[inline]
    pub(super) fn kept(&self, una: Sequence) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let missing = self.iter().map(|hole| hole.to.wrapping_sub(hole.from));
        let missing = missing.fold(0, u64::wrapping_add);
        self.end.saturating_sub(una).saturating_sub(missing)
    }

    /// How long a hole may take to close by itself.
    fn wait(&self, round_trip: u64) -> u64 {
        (round_trip >> 2).saturating_mul(u64::from(self.patience))
    }

    /// A report: `words` has the packets that are kept, from `una` on. `next` is the next new
    /// packet, `round_trip` the shortest one known.
    pub(super) fn report(
        &mut self,
        una: Sequence,
        words: impl Iterator<Item = u64>,
        next: Sequence,
        now: u64,
        round_trip: u64,
    ) -> News {
        let before = *self;
        let mut news = News::default();
        (self.len, self.end) = (0, una);
        let (mut first, mut newest) = (una, una);
        for word in words {
            for bit in 0..u64::BITS {
                let sequence = first.wrapping_add(u64::from(bit));
                if (word >> bit) & 1 != 0 && sequence < next {
                    if newest < sequence {
                        self.add_missing(&before, newest, sequence);
                    }
                    newest = sequence.wrapping_add(1);
                    if self.len < MOST {
                        self.end = newest;
                    }
                }
            }
            first = first.wrapping_add(u64::from(u64::BITS));
        }
        let due = now.saturating_add(self.wait(round_trip));
        for hole in self.list.iter_mut().take(self.len) {
            let is_new = hole.at == 0 && hole.again.is_none();
            let is_again = hole.again.is_some_and(|again| newest > again);
            if is_new || is_again {
                (hole.again, hole.at) = (None, due);
                let packets = hole.to.wrapping_sub(hole.from);
                news.lost = news.lost.saturating_add(packets as u32);
                news.oldest |= hole.from == una;
            }
        }
        for hole in before.iter() {
            let is_open = self
                .iter()
                .any(|now| now.from < hole.to && hole.from < now.to);
            if !is_open {
                self.closed(hole, now, round_trip);
            }
        }
        news
    }

    /// Adds what is missing from `from` to `to`: as it was, where it was known.
    fn add_missing(&mut self, before: &Self, mut from: Sequence, to: Sequence) {
        let known = |at: Sequence| before.iter().find(move |hole| hole.to > at);
        while from < to {
            let mut hole = Hole {
                from,
                to,
                again: None,
                at: 0,
            };
            match known(from) {
                Some(old) if old.from <= from => {
                    (hole.to, hole.again, hole.at) = (old.to.min(to), old.again, old.at);
                }
                Some(old) => hole.to = old.from.min(to),
                None => {}
            }
            let Some(place) = self.list.get_mut(self.len) else {
                return;
            };
            *place = hole;
            self.len = self.len.wrapping_add(1);
            from = hole.to;
        }
    }

    /// A hole has closed. If that was too soon after it was sent again, the path had only been
    /// reordering: the next ones get more time.
    fn closed(&mut self, hole: &Hole, now: u64, round_trip: u64) {
        if hole.again.is_none() {
            return;
        }
        if now.saturating_sub(hole.at) < round_trip {
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
        let before = *self;
        self.len = 0;
        for hole in before.iter() {
            if hole.to <= una {
                self.closed(hole, now, round_trip);
            } else if let Some(place) = self.list.get_mut(self.len) {
                *place = *hole;
                place.from = hole.from.max(una);
                self.len = self.len.wrapping_add(1);
            }
        }
    }

    /// The timer fired at `now`.
    pub(super) fn expire(&mut self, now: u64) {
        self.expired = now;
    }

    /// Whether some are due to be sent again, by the last look at the clock.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        self.iter()
            .any(|hole| hole.again.is_none() && hole.at <= self.expired)
    }

    /// When the next will be due to be sent again.
    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        let unsent = self
            .iter()
            .filter(|hole| hole.again.is_none() && hole.at > self.expired);
        unsent.map(|hole| hole.at).min()
    }

    /// The first packet that is to be sent again.
    #[inline]
    pub(super) fn next(&self, now: u64) -> Option<Sequence> {
        let mut due = self
            .iter()
            .filter(|hole| hole.again.is_none() && hole.at <= now);
        due.next().map(|hole| hole.from)
    }

    /// The packets from that one to `to` were sent again, when `next` was the next new one.
    pub(super) fn sent(&mut self, from: Sequence, to: Sequence, next: Sequence, now: u64) {
        let Some(index) = self.iter().position(|hole| hole.from == from) else {
            return;
        };
        let sent = |hole: &Hole| Hole {
            again: Some(next),
            at: now,
            ..*hole
        };
        let Some(hole) = self.list.get_mut(index) else {
            return;
        };
        if hole.to <= to {
            *hole = sent(hole);
            return;
        }
        let first = Hole { to, ..sent(hole) };
        hole.from = to;
        // They join those before them that left with them, or take a place of their own.
        let before = index.checked_sub(1).and_then(|at| self.list.get_mut(at));
        if let Some(before) = before.filter(|it| it.to == from && it.again == first.again) {
            before.to = to;
            return;
        }
        if let Some(places) = self.list.get_mut(index..MOST) {
            places.rotate_right(1);
            if let Some(place) = places.first_mut() {
                *place = first;
            }
            self.len = self.len.wrapping_add(1).min(MOST);
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_holes)
)]
mod tests {
    use super::*;

    const ROUND_TRIP: u64 = 4000;

    fn lost(lost: u32, oldest: bool) -> News {
        News { lost, oldest }
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
        assert_eq!((holes.next(1049), holes.next(1050)), (None, Some(100)));
        holes.sent(100, 101, 110, 1050);
        assert_eq!(holes.next(1050), Some(102));
        holes.sent(102, 103, 110, 1050);
        assert_eq!(holes.next(1050), Some(103));
        holes.sent(103, 104, 110, 1050);
        assert!(holes.deadline().is_none() && holes.next(9000).is_none());
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
        assert_eq!(holes.next(9000), Some(103));
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
        let news = holes.report(0, [every_other; 2].into_iter(), 1000, 5, ROUND_TRIP);
        assert_eq!(news, lost(MOST as u32, true));
        assert!(holes.kept(0) < MOST as u64);
        // Nothing that was never sent.
        let news = holes.report(0, [every_other; 2].into_iter(), 4, 5, ROUND_TRIP);
        assert_eq!((news, holes.kept(0)), (lost(0, false), 2));
    }
}
