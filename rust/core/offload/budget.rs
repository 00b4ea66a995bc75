// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Limits of CPU time: of workers at high priority ([`Budget`]), and of polling ([`Rounds`]).
//!
//! A worker of high priority is not held up by the process that polls for its completions. But it
//! holds up everything else on its CPU, as long as there is work. So only a share of the time is
//! spent at high priority; beyond it the worker runs at normal priority, where the scheduler is
//! fair to every task.
//!
//! The share is a tenth, plus a millisecond that may be saved up: at most 2 ms in any 10 ms, and
//! the rest of the invocation in which they end.
//!
//! A CPU polls the rings of queues that stream ([`offload`](super)). Each queue has a timer, but
//! all queues polled on one CPU are served in rounds, one after the other in one softirq. Two
//! rounds are apart by half the duration of the first, and by [`PERIOD`] at least. So polling takes
//! two thirds of a CPU at most, however many queues there are, and processes have time to post the
//! WQEs that the next round finds.
//!
//! What did not help is not tried again at once: see [`Backoff`] and [`Helper`].

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{
    AtomicU32,
    AtomicU64, //
};

/// Nanoseconds that must pass for each one spent.
const PRICE: u64 = 10;

/// Nanoseconds that can be spent at once after a long idle time.
const SAVED: u64 = 1_000_000;

/// The budget of one CPU. Times are nanoseconds of one clock.
///
/// It is one word, the time at which everything spent so far is paid for: readers and writers need
/// no lock. Each CPU's word has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Budget {
    paid_at: AtomicU64,
}

impl Budget {
    /// Whether budget is left at `now`.
    #[inline]
    pub fn has_left(&self, now: u64) -> bool {
        self.paid_at.load(Relaxed) < now.saturating_add(SAVED.wrapping_mul(PRICE))
    }

    /// An invocation at high priority ran from `begin` to `end`.
    pub fn spend(&self, begin: u64, end: u64) {
        let cost = end.saturating_sub(begin).saturating_mul(PRICE);
        // Two workers of one CPU may be here at a time: the time of both counts.
        self.paid_at.fetch_max(begin, Relaxed);
        self.paid_at.fetch_add(cost, Relaxed);
    }
}

/// Least time between two rounds, in nanoseconds: so long a WQE waits without a doorbell, if the
/// polls before have found some.
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
    /// Queues served in this round so far, and in the one before.
    queues: AtomicU32,
    queues_before: AtomicU32,
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
            self.queues_before.store(self.queues.load(Relaxed), Relaxed);
            self.queues.store(1, Relaxed);
            return Ok(number);
        }
        if last == number {
            return Err(next);
        }
        let queues = self.queues.load(Relaxed);
        self.queues.store(queues.saturating_add(1), Relaxed);
        Ok(number)
    }

    /// Queues that share a round, as far as is known: so many at least, or as many as in the last
    /// one.
    pub fn queues(&self) -> u32 {
        let before = self.queues_before.load(Relaxed);
        self.queues.load(Relaxed).max(before)
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

// Back-off from what did not help: of one queue ([`Backoff`]), and from one CPU, for all queues
// ([`Helper`]). Times are nanoseconds of one clock.

/// Nanoseconds before an attempt that did not help is repeated for the first time.
const FIRST_PAUSE: u64 = 1_000_000;

/// Each pause is twice as long as the one before, up to this.
const LONGEST_PAUSE: u64 = 128_000_000;

/// The pause behind this one.
fn longer(pause: u64) -> u64 {
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}

/// Back-off for attempts that did not help.
#[derive(Debug)]
pub struct Backoff {
    /// Not before this time.
    until: u64,
    /// Length of the next pause.
    pause: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            until: 0,
            pause: FIRST_PAUSE,
        }
    }
}

impl Backoff {
    /// Whether the back-off is over.
    #[inline]
    pub fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// The attempt did not help: back off, longer each time.
    pub fn begin(&mut self, now: u64) {
        self.until = now.saturating_add(self.pause);
        self.pause = longer(self.pause);
    }

    /// The attempt helped: reset the pause.
    pub fn helped(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// Whether a worker on another CPU is worth its invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelperVerdict {
    /// It has served a queue well.
    Helps,
    /// Another task wants that CPU, or it has been slow.
    Declines,
}

/// Back-off from inviting a worker on one CPU, for all queues: what one of them has seen there, the
/// others need not try.
///
/// Queues of all CPUs come here without a lock; one that comes between two words of another changes
/// the length of a pause, nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub struct Helper {
    until: AtomicU64,
    pause: AtomicU64,
}

impl Default for Helper {
    fn default() -> Self {
        Self {
            until: AtomicU64::new(0),
            pause: AtomicU64::new(FIRST_PAUSE),
        }
    }
}

impl Helper {
    /// Whether to invite a worker there.
    pub fn may_help(&self, now: u64) -> bool {
        self.until.load(Relaxed) <= now
    }

    /// A queue has seen at `now` whether it helps.
    pub fn judge(&self, verdict: HelperVerdict, now: u64) {
        let pause = match verdict {
            HelperVerdict::Helps => FIRST_PAUSE,
            // Several queues that were declined at once are one attempt.
            HelperVerdict::Declines if !self.may_help(now) => return,
            HelperVerdict::Declines => {
                let pause = self.pause.load(Relaxed);
                self.until.store(now.saturating_add(pause), Relaxed);
                longer(pause)
            }
        };
        self.pause.store(pause, Relaxed);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_budget))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_spent_comes_back() {
        let budget = Budget::default();
        assert!(budget.has_left(5 * MS));
        budget.spend(5 * MS, 7 * MS);
        assert!(!budget.has_left(7 * MS));
        assert!(!budget.has_left(14 * MS));
        assert!(budget.has_left(16 * MS));
        // Savings are bounded.
        budget.spend(1000 * MS, 1001 * MS);
        assert!(!budget.has_left(1000 * MS));
        assert!(budget.has_left(1001 * MS));
    }

    #[test]
    fn serves_each_queue_once_a_round() {
        let rounds = Rounds::default();
        let at = rounds.next(1000, 4);
        assert_eq!(at, 1000 + 4 * PERIOD);
        // Two queues, each of which takes 30 us.
        assert_eq!(rounds.enter(0, at), Ok(1));
        rounds.served(at + 30_000);
        assert_eq!(rounds.queues(), 1);
        assert_eq!(rounds.enter(0, at + 30_000), Ok(1));
        assert_eq!(rounds.queues(), 2);
        rounds.served(at + 60_000);
        // The first timer was armed when less time had passed.
        let next = at + 90_000;
        assert_eq!(rounds.enter(1, at + 60_000), Err(next));
        assert_eq!(rounds.next(at + 60_000, 1), next);
        assert_eq!(rounds.enter(1, next), Ok(2));
        // As many as in the round before.
        assert_eq!(rounds.queues(), 2);
        rounds.served(next + 10);
        assert_eq!(rounds.enter(1, next + 10), Ok(2));
        assert_eq!(rounds.enter(2, next + 20), Err(next + 10 + PERIOD));
    }

    #[test]
    fn pauses_grow_until_help_came() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        let mut pause = |backoff: &mut Backoff| {
            assert!(backoff.is_over(now));
            backoff.begin(now);
            (1..)
                .find(|ms| backoff.is_over(now + ms * 1_000_000))
                .inspect(|ms| now += ms * 1_000_000)
        };
        for ms in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            assert_eq!(pause(&mut backoff), Some(ms));
        }
        backoff.helped();
        assert_eq!(pause(&mut backoff), Some(1));
        assert_eq!(pause(&mut backoff), Some(2));
    }

    #[test]
    fn one_queue_that_was_declined_speaks_for_all() {
        let helper = Helper::default();
        assert!(helper.may_help(0));
        for _ in 0..5 {
            helper.judge(HelperVerdict::Declines, 0);
        }
        assert!(!helper.may_help(MS - 1) && helper.may_help(MS));
        helper.judge(HelperVerdict::Declines, MS);
        assert!(!helper.may_help(3 * MS - 1) && helper.may_help(3 * MS));
        helper.judge(HelperVerdict::Helps, 3 * MS);
        helper.judge(HelperVerdict::Declines, 3 * MS);
        assert!(helper.may_help(4 * MS));
    }
}

/// Too large for the kernel's stack.
#[cfg(test)]
mod share {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs whenever the budget permits, for `run` each, and looks again `idle` later otherwise.
    /// Returns the most time spent in any 10 ms of a second.
    fn most_in_10_ms(run: u64, idle: u64) -> u64 {
        // The time in pieces of 10 us: spent or not.
        const PIECE: u64 = 10_000;
        let mut spent = [false; 101_000];
        let budget = Budget::default();
        let mut now = 0;
        while now < 1000 * MS {
            if budget.has_left(now) {
                budget.spend(now, now + run);
                for piece in now / PIECE..(now + run) / PIECE {
                    spent[piece as usize] = true;
                }
                now += run;
            } else {
                now += idle;
            }
        }
        let window = (10 * MS / PIECE) as usize;
        let pieces = spent
            .windows(window)
            .map(|window| window.iter().filter(|spent| **spent).count())
            .max();
        pieces.unwrap_or(0) as u64 * PIECE
    }

    #[test]
    fn at_most_a_fifth_of_any_10_ms() {
        for run in [10_000, 50_000, 200_000] {
            for idle in [10_000, 1_000_000, 30_000_000] {
                let most = most_in_10_ms(run, idle);
                assert!(most <= 2 * MS + run, "{run} {idle}: {most}");
            }
        }
        // The budget is used.
        assert!(most_in_10_ms(50_000, 10_000) >= 3 * MS / 2);
    }
}
