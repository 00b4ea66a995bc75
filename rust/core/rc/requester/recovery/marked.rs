// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! How much smaller the window becomes when the network marks packets instead of dropping them: by
//! the share of flights that were marked, as with DCTCP (RFC 8257).
//!
//! A responder tells of marks at most every 50 us ([`crate::core::rc::cnp`]), so what is known
//! is whether a flight was marked, and not how much of it. The share is that of marked flights: it
//! begins at 1, so that the first mark halves the window, and moves towards 0 or 1 by a sixteenth
//! with each flight. A flight is shrunk for once: until its last packet is acknowledged, further
//! marks are about packets of the same queue.

use crate::core::rc::sequence::Sequence;

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
    kernel::prelude::kunit_tests(ferroce_core_requester_marked)
)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_halves_and_a_flight_shrinks_once() {
        let mut marked = MarkedShare::new();
        assert_eq!(marked.mark(100, 5, 105), Some(50));
        assert_eq!(marked.mark(50, 5, 105), None);
        assert_eq!(marked.mark(50, 104, 140), None);
        assert_eq!(marked.mark(50, 105, 140), Some(25));
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
