// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! How long an answer takes: the round-trip time of a connection, in nanoseconds.
//!
//! Three figures, for three questions. The smoothed time says what is usual, queues on the way
//! included. The least one says how long the way is without queues: what comes sooner after a
//! packet is no answer to it. The most that an answer has taken of late says how long a peer may be
//! silent who has lost nothing: its CPU may be busy.

/// How long a least or a most is remembered.
const WINDOW: u64 = 10_000_000_000;

/// A sample that stands for a while.
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

/// The figures, once there was a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    smoothed: u64,
    least: Extreme,
    most: Extreme,
}

/// The round-trip time of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip(Option<Figures>);

impl RoundTrip {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// An answer came at `now`, and has taken so long.
    #[inline]
    pub(super) fn add(&mut self, sample: u64, now: u64) {
        let new = Extreme {
            value: sample,
            since: now,
        };
        self.0 = Some(match self.0 {
            None => Figures {
                smoothed: sample,
                least: new,
                most: new,
            },
            Some(Figures {
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

    /// As [`Self::add`], if nothing is known yet: for a sample that may be too short.
    #[inline]
    pub(super) fn estimate(&mut self, sample: u64, now: u64) {
        if self.0.is_none() {
            self.add(sample, now);
        }
    }

    /// The least that an answer has taken of late.
    #[inline]
    pub(super) fn least(&self) -> Option<u64> {
        self.0.map(|figures| figures.least.value)
    }

    /// How long to wait for an answer until it is missing: twice as long as usual, and half as long
    /// again as the slowest of late.
    #[inline]
    pub(super) fn patience(&self) -> Option<u64> {
        self.0.map(|Figures { smoothed, most, .. }| {
            let most = most.value;
            smoothed
                .saturating_mul(2)
                .max(most.saturating_add(most / 2))
        })
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_requester_rtt)
)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_least_the_usual_and_the_most() {
        let mut time = RoundTrip::new();
        assert_eq!((time.least(), time.patience()), (None, None));
        time.estimate(800, 0);
        time.estimate(100, 0);
        assert_eq!((time.least(), time.patience()), (Some(800), Some(1600)));
        time.add(1600, 0);
        // Half as long again as 1600 is more than twice 900.
        assert_eq!((time.least(), time.patience()), (Some(800), Some(2400)));
        time.add(400, 1);
        assert_eq!((time.least(), time.patience()), (Some(400), Some(2400)));
    }

    #[test]
    fn forgets_extremes_after_a_while() {
        let mut time = RoundTrip::new();
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
