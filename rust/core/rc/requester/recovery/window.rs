// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The congestion window: how many packets may be in flight.
//!
//! IBTA leaves it to the requester. As in RFC 5681, the window opens quickly up to a threshold,
//! then slowly. A single loss does not halve it: the responder drops what is behind a lost packet,
//! so between two losses only so many packets arrive, however many are in flight. The window has
//! room for [`FLIGHTS`] times the usual number: a path that loses one packet in a hundred stays in
//! use, and a queue that is too short for the window is not flooded.
//!
//! A responder that keeps those packets reports each one that is missing. As long as no more than
//! one packet in [`TOLERATED`] is, that says nothing about the load of the path, and the window
//! stays as it is. If more are, it becomes 0.7 times as large, once a flight (RFC 9438, 4.6).
//!
//! Where the network marks packets instead of dropping them, the window begins small and shrinks
//! with the share of flights that are marked ([`MarkedShare`]), down to two packets.
//!
//! After an RNR NAK it restarts at one packet: the responder drops packets behind a refused one, so
//! the first one alone is retransmitted, and the others follow as receives turn out to be posted.
//! Otherwise a receiver that is slow to post would be kept from it by the very packets that it has
//! no room for.

use crate::core::rc::sequence::Sequence;

/// Losses do not make the window smaller than this, in packets.
const MIN: u32 = 16;

/// At the beginning of a connection.
const START: u32 = 256;

/// The same where packets may be marked: it doubles with each flight up to the first mark.
const START_MARKED: u32 = 32;

/// Marks do not make the window smaller than this.
const MIN_MARKED: u32 = 2;

/// The largest window: far below 2^23, where PSNs would become ambiguous (IBTA 9.7.1).
const MAX: u32 = 1024;

/// With a peer that drops what is behind a loss, the window has room for so many times the packets
/// that usually arrive between two losses.
const FLIGHTS: u32 = 2;

/// Packets that must arrive for each one that is reported missing.
const TOLERATED: u32 = 20;

/// The congestion window.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CongestionWindow {
    size: u32,
    /// Below it the window opens by each acknowledged packet, above it by one per window.
    threshold: u32,
    /// Packets acknowledged since the window last opened, at or above the threshold.
    credit: u32,
    /// Packets acknowledged since the last loss.
    arrived: u32,
    /// How many usually are, between two losses.
    between: u32,
    /// Packets acknowledged that have not yet made up for a missing one.
    allowance: u32,
    /// Where the flight ends that made the window smaller.
    shrunk_at: Sequence,
    marked: MarkedShare,
}

impl CongestionWindow {
    /// That of a new connection, whose packets may be marked with `ecn`.
    pub(super) const fn begin(ecn: bool) -> Self {
        Self {
            size: if ecn { START_MARKED } else { START },
            threshold: MAX,
            credit: 0,
            arrived: 0,
            between: START / FLIGHTS,
            allowance: MAX,
            shrunk_at: 0,
            marked: MarkedShare::new(),
        }
    }

    /// In packets.
    #[inline]
    pub(in super::super) const fn size(&self) -> u32 {
        self.size
    }

    /// How many more packets may be sent when `in_flight` are not acknowledged.
    #[inline]
    pub(super) const fn room(&self, in_flight: u64) -> u32 {
        if in_flight >= self.size as u64 {
            return 0;
        }
        // In flight is less than `size` here, so it fits.
        self.size.wrapping_sub(in_flight as u32)
    }

    /// `acknowledged` packets arrived.
    #[inline]
    pub(super) fn grow(&mut self, acknowledged: u64) {
        let acknowledged = u32::try_from(acknowledged).unwrap_or(u32::MAX).min(MAX);
        self.arrived = self.arrived.saturating_add(acknowledged);
        self.allowance = self.allowance.saturating_add(acknowledged).min(MAX);
        if self.size >= MAX {
            return;
        }
        if self.size < self.threshold {
            self.size = self.size.saturating_add(acknowledged).min(self.threshold);
            return;
        }
        self.credit = self.credit.saturating_add(acknowledged);
        if self.credit >= self.size {
            self.credit = 0;
            self.size = self.size.saturating_add(1);
        }
    }

    /// A packet was lost, and what is behind it has to be sent again.
    pub(super) fn shrink(&mut self) {
        let arrived = core::mem::take(&mut self.arrived).min(MAX);
        self.between = self.between.saturating_mul(3).saturating_add(arrived) / 4;
        self.threshold = self.between.saturating_mul(FLIGHTS).clamp(MIN, MAX);
        self.size = self.size.min(self.threshold);
        self.credit = 0;
    }

    /// Packets are reported missing, the oldest being `una` and the next new one `next`.
    pub(super) fn lost(&mut self, packets: u32, una: Sequence, next: Sequence) {
        let cost = packets.saturating_mul(TOLERATED);
        if let Some(left) = self.allowance.checked_sub(cost) {
            self.allowance = left;
            return;
        }
        self.allowance = 0;
        if una >= self.shrunk_at {
            self.shrunk_at = next;
            self.threshold = (self.size.saturating_mul(7) / 10).max(MIN);
            self.size = self.size.min(self.threshold);
            self.credit = 0;
        }
    }

    /// The network marks packets, the oldest in flight being `una` and the next new one `next`.
    /// Returns whether the window shrinks.
    pub(in super::super) fn marked(&mut self, una: Sequence, next: Sequence) -> bool {
        let Some(size) = self.marked.mark(self.size, una, next) else {
            return false;
        };
        // After an RNR NAK it may be smaller already.
        self.size = size.max(MIN_MARKED.min(self.size));
        self.threshold = self.size.max(MIN_MARKED);
        self.credit = 0;
        true
    }

    /// The receiver refused the oldest packet. That says nothing about the network: the window
    /// opens quickly to its former size.
    pub(super) fn begin_anew(&mut self) {
        self.threshold = self.threshold.max(self.size);
        self.size = 1;
        self.credit = 0;
    }
}

// How much smaller the window becomes when the network marks packets instead of dropping them: by
// the share of flights that were marked, as with DCTCP (RFC 8257).
//
// A responder tells of marks at most every 50 us ([`crate::core::rc::CnpPacer`]), so what is known
// is whether a flight was marked, and not how much of it. The share is that of marked flights: it
// begins at 1, so that the first mark halves the window, and moves towards 0 or 1 by a sixteenth
// with each flight. A flight is shrunk for once: until its last packet is acknowledged, further
// marks are about packets of the same queue.

/// All flights, as a share.
const ALL: u32 = 1024;

/// A flight moves the share towards 0 or 1 by this part of the difference: 1 / 2^4.
const GAIN: u32 = 4;

/// After so many flights without a mark the share is 0.
const FORGOTTEN: u64 = 128;

/// The share of flights that were marked.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedShare {
    share: u32,
    /// Where the last marked flight ends.
    end: Sequence,
}

impl MarkedShare {
    pub(super) const fn new() -> Self {
        Self { share: ALL, end: 0 }
    }

    /// A mark is told, the oldest packet in flight being `una` and the next new one `next`. Returns
    /// what remains of a window of `size`, or `None` if that has shrunk for this flight.
    pub(super) fn mark(&mut self, size: u32, una: Sequence, next: Sequence) -> Option<u32> {
        let since = una.checked_sub(self.end)?;
        if next == self.end {
            // Nothing was sent since: the last mark was about the same packets.
            return None;
        }
        // Flights that passed without a mark. The window was smaller before, so they are rather
        // more; and the first flight has none before it.
        let quiet = if self.end == 0 {
            0
        } else {
            since.checked_div(u64::from(size)).unwrap_or(0)
        };
        if quiet >= FORGOTTEN {
            self.share = 0;
        } else {
            for _ in 0..quiet {
                self.share = self.share.saturating_sub(self.share >> GAIN);
            }
        }
        self.share = self.share.saturating_sub(self.share >> GAIN);
        self.share = self.share.saturating_add(ALL >> GAIN).min(ALL);
        // Not 0, which is where the connection begins.
        self.end = next.max(1);
        // A window has far less than 2^22 packets.
        let cut = size.saturating_mul(self.share) / (2 * ALL);
        Some(size.saturating_sub(cut))
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_window)
)]
mod tests {
    use super::*;

    #[test]
    fn opens_to_the_maximum_and_no_further() {
        let mut window = CongestionWindow::begin(false);
        assert_eq!(window.size(), START);
        for _ in 0..100 {
            window.grow(100);
        }
        assert_eq!(window.size(), MAX);
        window.grow(u64::MAX);
        assert_eq!(window.size(), MAX);
    }

    /// One packet in a hundred is lost: the window stays at twice what arrives between two losses,
    /// wherever it was before.
    #[test]
    fn follows_what_arrives_between_losses() {
        let mut window = CongestionWindow::begin(false);
        for _ in 0..20 {
            window.grow(100);
            window.shrink();
        }
        assert!((190..=200).contains(&window.size()));
        // It opens quickly up to there, then slowly.
        window.begin_anew();
        window.grow(300);
        assert!((190..=200).contains(&window.size()));
        let size = window.size();
        window.grow(u64::from(size));
        assert_eq!(window.size(), size + 1);
        // Nothing arrives.
        for _ in 0..20 {
            window.shrink();
        }
        assert_eq!(window.size(), MIN);
    }

    #[test]
    fn tolerates_some_missing_packets_and_shrinks_once_a_flight_for_more() {
        let mut window = CongestionWindow::begin(false);
        for _ in 0..100 {
            window.grow(100);
            window.lost(1, 0, 10);
        }
        assert_eq!(window.size(), MAX);
        window.lost(MAX, 7, 500);
        window.lost(MAX, 499, 900);
        assert_eq!(window.size(), MAX * 7 / 10);
        window.lost(MAX, 500, 900);
        assert_eq!(window.size(), MAX * 7 / 10 * 7 / 10);
    }

    /// Marks shrink it once a flight, to two packets; without them it opens slowly.
    #[test]
    fn marks_shrink_it() {
        let mut window = CongestionWindow::begin(true);
        window.grow(u64::from(START_MARKED));
        assert_eq!(window.size(), 2 * START_MARKED);
        assert!(window.marked(32, 96));
        assert!(!window.marked(40, 100));
        assert_eq!(window.size(), START_MARKED);
        window.grow(u64::from(START_MARKED));
        assert_eq!(window.size(), START_MARKED + 1);
        for flight in 1..20 {
            assert!(window.marked(100 * flight, 100 * flight + 90));
        }
        assert_eq!(window.size(), MIN_MARKED);
        window.begin_anew();
        assert!(window.marked(3000, 3001));
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn a_first_loss_does_not_halve_it() {
        let mut window = CongestionWindow::begin(false);
        window.grow(100);
        window.shrink();
        assert!(window.size() > START / 2 + START / 4);
    }

    #[test]
    fn begins_anew_with_one_packet_and_opens_quickly_to_where_it_was() {
        let mut window = CongestionWindow::begin(false);
        for _ in 0..2 {
            window.begin_anew();
            assert_eq!(window.size(), 1);
            assert_eq!(window.room(1), 0);
        }
        for size in [2, 4, 8, 16, 32, 64, 128, START] {
            window.grow(u64::from(window.size()));
            assert_eq!(window.size(), size);
        }
        // A loss now makes it no larger.
        window.begin_anew();
        window.shrink();
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn room_is_what_is_left() {
        let window = CongestionWindow::begin(false);
        assert_eq!(window.room(0), START);
        assert_eq!(window.room(u64::from(START) - 1), 1);
        assert_eq!(window.room(u64::from(START)), 0);
        assert_eq!(window.room(u64::MAX), 0);
    }

    #[test]
    fn the_first_mark_halves_and_a_flight_shrinks_once() {
        let mut marked = MarkedShare::new();
        assert_eq!(marked.mark(100, 5, 105), Some(50));
        assert_eq!(marked.mark(50, 5, 105), None);
        assert_eq!(marked.mark(50, 104, 140), None);
        assert_eq!(marked.mark(50, 105, 105), None);
        assert_eq!(marked.mark(50, 105, 140), Some(25));
        // Told when all had arrived: once.
        assert!(marked.mark(25, 150, 150).is_some());
        assert_eq!(marked.mark(25, 150, 150), None);
    }

    /// A mark in each flight halves the window each time; one in ten hardly shrinks it.
    #[test]
    fn follows_the_share_of_marked_flights() {
        for (every, least, most) in [(1, 500, 512), (10, 880, 960)] {
            let mut marked = MarkedShare::new();
            let mut remains = 0;
            for round in 0..100 {
                let una = 1 + round * every * 1024;
                remains = marked.mark(1024, una, una + 1024).unwrap_or(0);
            }
            assert!((least..=most).contains(&remains));
        }
    }

    #[test]
    fn forgets_what_was_long_ago() {
        let mut marked = MarkedShare::new();
        assert_eq!(marked.mark(1024, 0, 1024), Some(512));
        let una = 1024 + 1024 * FORGOTTEN;
        assert_eq!(marked.mark(1024, una, una + 1), Some(1024 - 32));
    }
}
