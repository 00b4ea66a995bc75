// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the owner of a send queue reports to its [`Offload`](super::Offload), and the decisions
//! that it carries out; and what the runs of a worker or timer say of its use.

use crate::core::storage::Known;

/// Packets that were sent and are neither acknowledged nor given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// None, or no packets at all, or their order does not matter: the next one may leave from any
    /// CPU.
    Nothing,
    /// Some, with a guaranteed end: the last one requests an ACK, and a timeout gives up on it.
    Awaited,
    /// Some, without a guaranteed end: nothing may wait for them.
    Unbounded,
}

/// The event that makes a queue look for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffloadEvent {
    /// An ACK, a response, a further run of a doorbell, a post by a ULP: there may be work.
    Progress {
        /// Whether there may be something to send.
        unsent: bool,
    },
    /// A timer of the queue expired: a retransmission is due, or a back-off has ended.
    Deadline,
}

/// Place and time of an event. `C` names a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SchedPoint<C> {
    /// The CPU of the event.
    pub here: C,
    /// Its time, in nanoseconds of one clock.
    pub now: u64,
    /// Packets in flight at that time.
    pub in_flight: InFlight,
}

/// A worker of a queue: one of two work items, or a timer. A running work item cannot be queued on
/// another CPU, so a move uses the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// Work item on a CPU that has sent before.
    Near,
    /// Work item on another CPU than that of the process.
    Far,
    /// The timer, on the CPU where it is armed.
    Timer,
}

/// A call of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerCall<C> {
    /// The worker.
    pub worker: Worker,
    /// Its CPU. The timer is armed where it will run.
    pub cpu: C,
    /// Delay of the timer, in periods of [`Rounds`](super::budget::Rounds); 0 for work items.
    pub periods: u32,
}

/// The decision for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Decision<C> {
    /// Transmit here.
    Send,
    /// Transmit here, and call this worker, which may take over. Doorbells are needed until it
    /// does.
    Invite(WorkerCall<C>),
    /// Leave the work to this worker, which must be called. No doorbell is needed from now on.
    Leave(WorkerCall<C>),
    /// Leave the work to the timer, the first of these, and call the other one, which may take
    /// over. No doorbell is needed from now on.
    LeaveInviting(WorkerCall<C>, WorkerCall<C>),
    /// Wait until the packets in flight are acknowledged; that calls a worker. No doorbell is
    /// needed from now on.
    Wait,
    /// Do nothing: a worker is in charge, or there is nothing to send.
    Nothing,
}

/// The decision after a run of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AfterRun<C> {
    /// Call it for another run.
    Again(WorkerCall<C>),
    /// Ask for doorbells, look at the ring once more, then call
    /// [`Offload::rest`](super::Offload::rest).
    Rest,
    /// It did not help: return the queue to the CPU of its process, by this decision.
    MoveBack(Decision<C>),
}

/// Counts of moves between CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// To another CPU, because the process streams.
    pub away: u32,
    /// Back from there, or not there at all, because that CPU had other work.
    pub back: u32,
    /// To a timer on the same CPU.
    pub polled: u32,
}

/// Who transmits for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SenderKind {
    /// Whatever happens: a doorbell, an acknowledgement.
    #[default]
    Inline,
    /// The same, while a worker on another CPU is invited.
    Inviting,
    /// A worker on a CPU that has sent before.
    Near,
    /// A worker on another CPU than that of the process.
    Far,
    /// Nobody, until the packets in flight are acknowledged.
    Moving,
    /// The timer.
    Polling,
}

// Whether a worker on another CPU, or a timer that polls the ring, helps: what its runs say.

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
    /// Its part of the intervals before each poll that fetched WQEs, which it shares with the other
    /// queues of the round.
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

    /// A poll is over: it fetched `took` WQEs, and `more` work is left. `queues` share the round.
    pub(super) fn polled(&mut self, more: bool, took: u32, queues: u32, now: u64) {
        self.count = self.count.saturating_add(1);
        self.took = self.took.saturating_add(took);
        if took != 0 {
            // The process filled the other queues in the same time.
            let passed = now.saturating_sub(self.last);
            let share = passed.checked_div(queues.into()).unwrap_or(passed);
            self.time = self.time.saturating_add(share);
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
