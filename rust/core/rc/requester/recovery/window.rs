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

use super::marked::MarkedShare;
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
pub(super) struct CongestionWindow {
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
    pub(super) const fn size(&self) -> u32 {
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
    pub(super) fn marked(&mut self, una: Sequence, next: Sequence) -> bool {
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
}
