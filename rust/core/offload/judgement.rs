// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Whether a worker on another CPU, or a timer that polls the ring, helps: what its runs say.

use crate::core::known::Known;

/// Runs on a CPU that another task wants, before the queue leaves it.
pub(super) const WANTED_RUNS: u32 = 8;

/// Runs of a worker on another CPU that find an empty ring, before it ends.
pub(super) const IDLE_RUNS: u32 = 64;

/// Runs of a worker on another CPU that find fewer WQEs say nothing of its speed: the process may
/// be the slow one.
pub(super) const JUDGED: u32 = 8;

/// Runs of such a worker, none too slow, after which it has helped.
const HELPED_RUNS: u32 = 256;

/// Consecutive polls of an empty ring before polling ends. Each waits twice as long as the one
/// before: where interrupts are expensive, the process may not have had time to post.
pub(super) const IDLE_POLLS: u32 = 4;

/// Consecutive runs of the timer that leave work, before a worker is called: there is more work
/// than half of the CPU can do.
pub(super) const BEHIND_RUNS: u32 = 8;

/// Polls between two assessments.
pub(super) const JUDGED_POLLS: u32 = 64;

/// WQEs that a poll must find on average. Each must also take less time than with a doorbell.
const WANTED_PER_POLL: u32 = 2;

/// WQEs without a doorbell after which polling has helped, and the process streams.
const HELPED_REQUESTS: u32 = 64;

/// The runs of a worker on another CPU since it took over.
#[derive(Debug, Default)]
pub(super) struct FarRuns {
    /// Consecutive runs in which another task wanted its CPU.
    wanted: u32,
    /// Consecutive runs that found an empty ring.
    idle: u32,
    /// Start of the last two runs.
    starts: [Option<Known>; 2],
    /// Number of runs.
    count: u32,
    /// WQEs fetched.
    took: u32,
}

impl FarRuns {
    /// A run begins. `alone` says that no other task wants the CPU.
    pub(super) fn found(&mut self, alone: bool) {
        self.wanted = match alone {
            true => 0,
            false => self.wanted.saturating_add(1),
        };
    }

    /// Whether another task has wanted the CPU for so long that the queue must leave it.
    pub(super) fn must_leave(&self) -> bool {
        self.wanted > WANTED_RUNS
    }

    /// Whether the worker was alone on its CPU in the last run.
    pub(super) fn was_alone(&self) -> bool {
        self.wanted == 0
    }

    /// A run begins at `now` and transmits.
    pub(super) fn began(&mut self, now: u64) {
        let [_, last] = self.starts;
        self.starts = [last, Known::new(now)];
    }

    /// Whether the process, which needs `cost` nanoseconds per WQE, would have sent the `took` WQEs
    /// of the last run in less time than passed since the run before.
    pub(super) fn is_slow(&self, took: u32, cost: u64) -> bool {
        let [Some(before), Some(last)] = self.starts else {
            return false;
        };
        // Half as much again, because it was measured once.
        let cost = cost.saturating_mul(3) / 2;
        took >= JUDGED && last.get().saturating_sub(before.get()) > cost.saturating_mul(took.into())
    }

    /// A run is over: it fetched `took` WQEs.
    pub(super) fn ran(&mut self, took: u32) {
        self.count = self.count.saturating_add(1);
        self.took = self.took.saturating_add(took);
        if self.was_alone() {
            self.idle = match took {
                0 => self.idle.saturating_add(1),
                _ => 0,
            };
        }
    }

    /// Whether this run was the one with which the worker has helped.
    pub(super) fn has_helped(&self) -> bool {
        self.count == HELPED_RUNS
    }

    /// Whether the process has streamed meanwhile, and may go on with that later.
    pub(super) fn has_streamed(&self) -> bool {
        self.was_alone() && self.took >= HELPED_REQUESTS
    }

    /// Whether to look at the ring again though it was empty: a process that streams will post
    /// soon, and to be found polling is cheaper for it than a doorbell.
    pub(super) fn lingers(&self) -> bool {
        self.was_alone() && self.idle <= IDLE_RUNS
    }
}

/// The polls of a timer since it began. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Polls<C> {
    /// CPU of the timer.
    pub(super) on: C,
    /// A worker on another CPU was called to see whether it can help, and has not run yet.
    pub(super) inviting: bool,
    /// Time of the last poll.
    last: u64,
    /// Number of polls, and of WQEs fetched.
    count: u32,
    took: u32,
    /// Sum of the intervals before each poll that fetched WQEs.
    time: u64,
    /// Consecutive polls that found an empty ring.
    idle: u32,
    /// Consecutive polls that left work.
    behind: u32,
}

impl<C> Polls<C> {
    /// None yet: the timer is armed at `now`.
    pub(super) fn begin(on: C, now: u64, inviting: bool) -> Self {
        Self {
            on,
            inviting,
            last: now,
            count: 0,
            took: 0,
            time: 0,
            idle: 0,
            behind: 0,
        }
    }

    /// The worker that was called does not help.
    pub(super) fn declined(self) -> Self {
        Self {
            inviting: false,
            ..self
        }
    }

    /// A poll is over: it fetched `took` WQEs, and `more` work is left.
    pub(super) fn polled(&mut self, more: bool, took: u32, now: u64) {
        self.count = self.count.saturating_add(1);
        self.took = self.took.saturating_add(took);
        if took != 0 {
            let passed = now.saturating_sub(self.last);
            self.time = self.time.saturating_add(passed);
        }
        self.last = now;
        self.idle = match took {
            0 if !more => self.idle.saturating_add(1),
            _ => 0,
        };
        self.behind = match more {
            true => self.behind.saturating_add(1),
            false => 0,
        };
    }

    /// Whether the WQEs took longer than by doorbells, at `cost` nanoseconds each.
    fn is_expensive(&self, cost: u64) -> bool {
        self.time > cost.saturating_mul(self.took.into())
    }

    /// Whether polling is of no use, which is judged now and then.
    fn is_useless(&self, cost: u64) -> bool {
        let wanted = self.count.saturating_mul(WANTED_PER_POLL);
        self.count % JUDGED_POLLS == 0 && (self.took < wanted || self.is_expensive(cost))
    }

    /// Whether the timer goes on: its process still posts, and at less cost than by doorbells.
    pub(super) fn goes_on(&self, cost: u64) -> bool {
        self.idle <= IDLE_POLLS && self.behind <= BEHIND_RUNS && !self.is_useless(cost)
    }

    /// Whether polling has helped, when it ends.
    pub(super) fn has_helped(&self, cost: u64) -> bool {
        self.took >= HELPED_REQUESTS && !self.is_useless(cost) && !self.is_expensive(cost)
    }

    /// Rounds until the next poll.
    pub(super) fn periods(&self) -> u32 {
        1 << self.idle.min(IDLE_POLLS)
    }
}
