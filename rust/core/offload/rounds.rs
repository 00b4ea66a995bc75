// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! When a CPU polls the rings of queues that stream ([`offload`](super)).
//!
//! Each queue has a timer, but all queues polled on one CPU are served in rounds, one after the
//! other in one softirq. Two rounds are apart by half the duration of the first, and by [`PERIOD`]
//! at least. So polling takes two thirds of a CPU at most, however many queues there are, and
//! processes have time to post the WQEs that the next round finds.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Least time between two rounds, in nanoseconds: how long a WQE may wait without a doorbell.
///
/// A run of the timer costs as much as one or two doorbells. A process that streams posts more than
/// that in this time.
const PERIOD: u64 = 20_000;

/// The rounds of one CPU. Times are nanoseconds of one clock.
///
/// Only the softirq of that CPU, and system calls that have disabled it, come here. CPUs that share
/// an instance disturb each other's pace, nothing else.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Rounds {
    /// Number of the round.
    number: AtomicU32,
    /// Start of the round.
    began: AtomicU64,
    /// Earliest start of the next round.
    next: AtomicU64,
}

impl Rounds {
    /// The timer of a queue that was served in the round `last` fires at `now`. Returns the round
    /// that serves it now, or when its timer is to fire again.
    pub fn enter(&self, last: u32, now: u64) -> Result<u32, u64> {
        let (number, next) = (self.number.load(Relaxed), self.next.load(Relaxed));
        if now >= next {
            let number = number.wrapping_add(1);
            self.number.store(number, Relaxed);
            self.began.store(now, Relaxed);
            return Ok(number);
        }
        if last == number {
            return Err(next);
        }
        Ok(number)
    }

    /// A queue was served in this round, until `now`.
    pub fn served(&self, now: u64) {
        let took = now.saturating_sub(self.began.load(Relaxed));
        self.next
            .store(now.saturating_add((took / 2).max(PERIOD)), Relaxed);
    }

    /// When the timer of a queue fires that is armed at `now` for `periods`.
    pub fn next(&self, now: u64, periods: u32) -> u64 {
        let wait = PERIOD.saturating_mul(periods.into());
        self.next.load(Relaxed).max(now.saturating_add(wait))
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_rounds))]
mod tests {
    use super::*;

    #[test]
    fn serves_each_queue_once_a_round() {
        let rounds = Rounds::default();
        let at = rounds.next(1000, 4);
        assert_eq!(at, 1000 + 4 * PERIOD);
        // Two queues, each of which takes 30 us.
        assert_eq!(rounds.enter(0, at), Ok(1));
        rounds.served(at + 30_000);
        assert_eq!(rounds.enter(0, at + 30_000), Ok(1));
        rounds.served(at + 60_000);
        // The first timer was armed when less time had passed.
        let next = at + 90_000;
        assert_eq!(rounds.enter(1, at + 60_000), Err(next));
        assert_eq!(rounds.next(at + 60_000, 1), next);
        assert_eq!(rounds.enter(1, next), Ok(2));
        rounds.served(next + 10);
        assert_eq!(rounds.enter(1, next + 10), Ok(2));
        assert_eq!(rounds.enter(2, next + 20), Err(next + 10 + PERIOD));
    }
}
