// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The round-trip time of a connection, in nanoseconds.
//!
//! Three figures answer three questions. The smoothed time is the usual one, queueing included. The
//! minimum is the time without queueing: anything that comes sooner after a packet does not answer
//! it. The recent maximum is how long a peer may be silent that has lost nothing: its CPU may be
//! busy.

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
    kernel::prelude::kunit_tests(ferroce_core_requester_rtt)
)]
mod tests {
    use super::*;

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
