// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Offload: which CPU transmits for a send queue.
//!
//! Usually the queue is inline: a doorbell, an ACK or a timer transmits where it happens. Work
//! beyond its budget goes to a worker. If the process streams ([`stream`]), the queue is
//! offloaded to a worker on another CPU or, without one, to a timer on the process's CPU. A worker
//! or timer in charge polls the ring itself, so the process rings no doorbell.
//!
//! A worker on another CPU helps only while that CPU is idle otherwise. So it is invited first: the
//! process continues as before, and the worker takes over once it runs and finds itself alone
//! there. It returns the queue when another task wants that CPU, or when WQEs wait for it longer
//! than the process would have taken to send them: a hypervisor may have taken the CPU away, which
//! the kernel cannot see. On a busy host the only cost is the invitation.
//!
//! The timer polls the ring every few ten microseconds ([`rounds`]). The WQEs posted since
//! then leave as one batch, with one ACK, where each would have cost a system call, a walk through
//! the network stack and an ACK. Polling ends when the process waits for something, when a batch is
//! so large that a worker is due, and in time for the next invitation.
//!
//! Packets of one queue must not overtake each other. Packets sent on one CPU may still be in a
//! backlog or netdev queue of that CPU while another CPU sends. So while packets are in flight, all
//! others leave from the same CPU as the last one: an event on another CPU calls a worker there,
//! and a queue that moves waits until they are acknowledged.
//!
//! ```text
//!                     budget used up, or packets in flight from another CPU
//!          Inline ------------------------------------------------------------> Working
//!           ^  \                                                                ^  |  \
//!  declined |   \ the process streams                                          |  |   \ its CPU is
//!           |    v                 taken, nothing in flight                    |  |    \ wanted
//!          Inviting ----------------------------------------------------------+  |     \
//!           |                                                                  |  |      v
//!           |  taken, packets in flight                     all acknowledged  |  |     Moving
//!           +----------------------------> Moving ----------------------------+  |   (and back)
//!                                            |                                    |
//!                       a timer expires      +---> Working, where it was          |
//!                                                                                 |
//!          Inline <---------------------------------------------------------------+
//!           ^  |                   no work is left
//!   nothing |  | the process streams, and no worker can be invited
//!   posted  |  v
//!          Polling ----> Working, on the same CPU
//!                  much
//! ```
//!
//! # Every wait has a guaranteed end
//!
//! | state | ends by | guaranteed because |
//! |---|---|---|
//! | Inline | - | it waits for nothing: any event may send |
//! | Inviting | the worker's run | it waits for nothing either: like Inline, until then |
//! | Polling | the timer | each expiry, and the doorbell that began, arm it again |
//! | Working | the worker's run | it is queued or running, and its run queues it again |
//! | Moving | the last acknowledgement | the last packet in flight requests it |
//! | | or a timer | the queue has a deadline while packets are in flight |
//!
//! So a move begins only if the packets in flight have a guaranteed end. It is abandoned as soon as
//! they have none, or when a timer has something to send: a probe or a retransmission.
//!
//! The owner of the queue reports events under the queue lock and carries out the decision.

pub mod budget;
pub mod stream;

use stream::{
    Backoff,
    Position,
    StreamDetector, //
};

/// Runs on a CPU that another task wants, before the queue leaves it.
const WANTED_RUNS: u32 = 8;

/// Runs of a worker on another CPU that find an empty ring, before it ends.
const IDLE_RUNS: u32 = 64;

/// Runs of a worker on another CPU that find fewer WQEs say nothing of its speed: the process may
/// be the slow one.
const JUDGED: u32 = 8;

/// Runs of such a worker, none too slow, after which it has helped.
const HELPED_RUNS: u32 = 256;

/// Consecutive polls of an empty ring before polling ends. Each waits twice as long as the one
/// before: where interrupts are expensive, the process may not have had time to post.
const IDLE_POLLS: u32 = 4;

/// Consecutive runs of the timer that leave work, before a worker is called: there is more work
/// than half of the CPU can do.
const BEHIND_RUNS: u32 = 8;

/// Polls between two assessments.
const JUDGED_POLLS: u32 = 64;

/// WQEs that a poll must find on average. Each must also take less time than with a doorbell.
const WANTED_PER_POLL: u32 = 2;

/// WQEs without a doorbell after which polling has helped.
const HELPED_REQUESTS: u32 = 64;

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
    /// Delay of the timer, in periods of [`rounds`]; 0 for work items.
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
    /// Ask for doorbells, look at the ring once more, then call [`Offload::rest`].
    Rest,
    /// It did not help: return the queue to the CPU of its process, by this decision.
    MoveBack(Decision<C>),
}

/// Counts of moves between CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// To another CPU, because the process streams.
    pub away: u64,
    /// Back from there, or not there at all, because that CPU had other work.
    pub back: u64,
    /// To a timer on the same CPU.
    pub polled: u64,
}

/// The state of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode<C> {
    /// Any event transmits, but while packets are in flight only on the CPU `last`.
    Inline {
        /// CPU of the last packet.
        last: Option<C>,
    },
    /// Like `Inline`; a worker on another CPU was called to see whether it can help.
    Inviting {
        /// Like in `Inline`.
        last: Option<C>,
        /// CPU of the process.
        process: C,
    },
    /// A worker is queued or running.
    Working {
        /// Its CPU.
        on: C,
        /// CPU of the process, if the queue is offloaded from there.
        process: Option<C>,
    },
    /// A worker takes over once all packets in flight are acknowledged. No CPU transmits meanwhile.
    Moving {
        /// CPU of the packets in flight.
        from: C,
        /// CPU of the worker.
        to: C,
        /// Like in `Working`.
        process: Option<C>,
    },
    /// The timer is armed; other events on its CPU transmit too.
    Polling(Polls<C>),
}

/// Statistics of polling. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Polls<C> {
    /// CPU of the timer.
    on: C,
    /// Time of the last poll.
    last: u64,
    /// Number of polls, and of WQEs fetched.
    count: u32,
    took: u32,
    /// Sum of the intervals before each poll that fetched WQEs.
    time: u64,
    /// Consecutive polls that left work.
    behind: u32,
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

/// The offload state of one send queue.
#[derive(Debug)]
pub struct Offload<C> {
    mode: Mode<C>,
    stream: StreamDetector,
    /// Back-off of invitations.
    offload_backoff: Backoff,
    /// Back-off of polling.
    polling_backoff: Backoff,
    /// Consecutive runs in which another task wanted the CPU of the far worker.
    wanted: u32,
    /// Consecutive runs of the far worker or the timer that found an empty ring.
    idle: u32,
    /// Start of its last two runs.
    run_starts: [Option<u64>; 2],
    /// Runs since it took over.
    runs: u32,
    /// Invitations so far; each goes to the next CPU.
    invitations: u32,
    moves: Moves,
}

impl<C> Default for Offload<C> {
    fn default() -> Self {
        Self {
            mode: Mode::Inline { last: None },
            stream: StreamDetector::default(),
            offload_backoff: Backoff::default(),
            polling_backoff: Backoff::default(),
            wanted: 0,
            idle: 0,
            run_starts: [None; 2],
            runs: 0,
            invitations: 0,
            moves: Moves::default(),
        }
    }
}

impl<C: Copy + PartialEq> Offload<C> {
    /// Whether a worker or the timer is in charge or about to be: no doorbell is needed.
    #[inline]
    pub fn has_worker(&self) -> bool {
        !matches!(self.mode, Mode::Inline { .. } | Mode::Inviting { .. })
    }

    /// Who transmits.
    pub fn sender(&self) -> SenderKind {
        match self.mode {
            Mode::Inline { .. } => SenderKind::Inline,
            Mode::Inviting { .. } => SenderKind::Inviting,
            Mode::Working { process: None, .. } => SenderKind::Near,
            Mode::Working { .. } => SenderKind::Far,
            Mode::Moving { .. } => SenderKind::Moving,
            Mode::Polling(_) => SenderKind::Polling,
        }
    }

    /// Counts of moves of this queue.
    #[inline]
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// A doorbell, after earlier doorbells fetched `taken` WQEs. `position` is the progress of the
    /// process; `another` names a CPU that may work for it, a different one for each number if
    /// there are several. Most doorbells evaluate neither. Only if `is_watched` may the queue be
    /// offloaded.
    #[inline]
    pub fn doorbell(
        &mut self,
        point: SchedPoint<C>,
        taken: u32,
        is_watched: bool,
        position: impl FnOnce() -> Position,
        another: impl FnOnce(u32) -> Option<C>,
    ) -> Decision<C> {
        if self.has_worker() {
            return self.event(point, OffloadEvent::Progress { unsent: true });
        }
        let now = point.now;
        let streams = if matches!(self.mode, Mode::Inline { .. })
            && is_watched
            && (self.offload_backoff.is_over(now) || self.polling_backoff.is_over(now))
        {
            self.stream.on_doorbell(now, taken, position)
        } else {
            self.stream.forget();
            false
        };
        match (self.elsewhere(point), point.in_flight) {
            (None, _) if streams => self.serve_stream(point, another),
            (None, _) => self.send_here(point),
            // The process has moved to this CPU and posts here from now on.
            (from, InFlight::Awaited) => self.move_to(from, point, point.here, None),
            (Some(from), _) => self.work_at(from, None),
        }
    }

    /// The process streams: invites a worker on another CPU, if there is one, or arms the timer.
    #[cold]
    fn serve_stream(
        &mut self,
        point: SchedPoint<C>,
        another: impl FnOnce(u32) -> Option<C>,
    ) -> Decision<C> {
        let SchedPoint { here, now, .. } = point;
        if self.may_invite(now) {
            self.invitations = self.invitations.wrapping_add(1);
            if let Some(cpu) = another(self.invitations) {
                let (last, process) = (Some(here), here);
                self.mode = Mode::Inviting { last, process };
                return Decision::Invite(Self::call(cpu, Some(process)));
            }
            self.offload_backoff.begin(now);
        }
        if !self.polling_backoff.is_over(now) || !self.stream.posts_singly() {
            return self.send_here(point);
        }
        self.idle = 0;
        self.moves.polled = self.moves.polled.wrapping_add(1);
        self.mode = Mode::Polling(Polls {
            on: here,
            last: now,
            count: 0,
            took: 0,
            time: 0,
            behind: 0,
        });
        Decision::Leave(self.timer(here))
    }

    /// An event at `point`.
    #[inline]
    pub fn event(&mut self, point: SchedPoint<C>, event: OffloadEvent) -> Decision<C> {
        let in_flight = point.in_flight;
        match self.mode {
            Mode::Inline { .. } | Mode::Inviting { .. } => match self.elsewhere(point) {
                None => self.send_here(point),
                Some(_) if event == (OffloadEvent::Progress { unsent: false }) => Decision::Nothing,
                Some(cpu) => self.work_at(cpu, None),
            },
            // The worker will run.
            Mode::Working { .. } => Decision::Nothing,
            Mode::Polling(polls) if polls.on == point.here => Decision::Send,
            Mode::Polling(_) => Decision::Nothing,
            Mode::Moving { from, to, process } => match (event, in_flight) {
                (_, InFlight::Nothing) => self.work_at(to, process),
                (OffloadEvent::Progress { .. }, InFlight::Awaited) => Decision::Nothing,
                _ => self.work_at(from, None),
            },
        }
    }

    /// An inline sender or a flush has used up its budget, and work is left.
    pub fn leave(&mut self, here: C) -> WorkerCall<C> {
        self.mode = Mode::Working {
            on: here,
            process: None,
        };
        Self::call(here, None)
    }

    /// A queued work item runs. `alone` says that no other task wants to run on its CPU.
    pub fn worker_runs(
        &mut self,
        worker: Worker,
        point: SchedPoint<C>,
        alone: bool,
    ) -> Decision<C> {
        match (worker, self.mode) {
            (Worker::Near, Mode::Working { process: None, .. }) => self.work_on(point.here, None),
            (
                Worker::Far,
                Mode::Working {
                    process: Some(process),
                    ..
                },
            ) => {
                self.wanted = match alone {
                    true => 0,
                    false => self.wanted.saturating_add(1),
                };
                if self.wanted <= WANTED_RUNS || point.in_flight == InFlight::Unbounded {
                    return self.work_for(process, point);
                }
                self.move_back(process, point)
            }
            (Worker::Far, Mode::Inviting { last, process }) => {
                let from = self.elsewhere(point);
                let may_wait = from.is_none() || point.in_flight == InFlight::Awaited;
                if !alone || !may_wait {
                    self.mode = Mode::Inline { last };
                    self.offload_backoff.begin(point.now);
                    self.moves.back = self.moves.back.wrapping_add(u64::from(!alone));
                    return Decision::Nothing;
                }
                self.moves.away = self.moves.away.wrapping_add(1);
                (self.wanted, self.idle, self.runs) = (0, 0, 0);
                self.run_starts = [None; 2];
                match from {
                    None => self.work_for(process, point),
                    from => self.move_to(from, point, point.here, Some(process)),
                }
            }
            (Worker::Timer, Mode::Polling(polls)) if polls.on == point.here => Decision::Send,
            // The CPU of the timer has gone offline.
            (Worker::Timer, Mode::Polling(polls)) => self.work_at(polls.on, None),
            // It was queued for an earlier state, or another worker is in charge.
            _ => Decision::Nothing,
        }
    }

    /// A run of a worker is over: it fetched `took` WQEs; `more` work is left.
    pub fn worker_ran(&mut self, more: bool, took: u32, point: SchedPoint<C>) -> AfterRun<C> {
        let (on, process) = match self.mode {
            Mode::Working { on, process } => (on, process),
            Mode::Polling(polls) => return self.polled(polls, more, took, point.now),
            Mode::Inline { .. } | Mode::Inviting { .. } | Mode::Moving { .. } => {
                return AfterRun::Rest;
            }
        };
        // A process that streams will post soon: to be found polling is cheaper for it than a
        // doorbell.
        let mut lingers = false;
        if let Some(process) = process {
            if point.in_flight != InFlight::Unbounded && self.is_slow(took) {
                return AfterRun::MoveBack(self.move_back(process, point));
            }
            self.runs = self.runs.saturating_add(1);
            if self.runs == HELPED_RUNS {
                self.offload_backoff.helped();
            }
            if self.wanted == 0 {
                self.idle = match took {
                    0 => self.idle.saturating_add(1),
                    _ => 0,
                };
                lingers = self.idle <= IDLE_RUNS;
            }
        }
        if more || lingers {
            AfterRun::Again(Self::call(on, process))
        } else {
            AfterRun::Rest
        }
    }

    /// Whether to invite a worker on another CPU.
    fn may_invite(&self, now: u64) -> bool {
        self.stream.is_kernel_bound() && self.offload_backoff.is_over(now)
    }

    /// A poll is over: it fetched `took` WQEs.
    fn polled(&mut self, before: Polls<C>, more: bool, took: u32, now: u64) -> AfterRun<C> {
        self.idle = match took {
            0 if !more => self.idle.saturating_add(1),
            _ => 0,
        };
        let passed = match took {
            0 => 0,
            _ => now.saturating_sub(before.last),
        };
        let polls = Polls {
            last: now,
            time: before.time.saturating_add(passed),
            count: before.count.saturating_add(1),
            took: before.took.saturating_add(took),
            behind: if more {
                before.behind.saturating_add(1)
            } else {
                0
            },
            ..before
        };
        self.mode = Mode::Polling(polls);
        let is_expensive = polls.time > self.stream.cost().saturating_mul(polls.took.into());
        let wanted = polls.count.saturating_mul(WANTED_PER_POLL);
        let is_useless = polls.count % JUDGED_POLLS == 0 && (polls.took < wanted || is_expensive);
        let is_behind = polls.behind > BEHIND_RUNS;
        let ends = self.idle > IDLE_POLLS || is_useless || self.may_invite(now);
        if !is_behind && !ends {
            return AfterRun::Again(self.timer(polls.on));
        }
        if polls.took < HELPED_REQUESTS || is_useless || is_expensive {
            self.polling_backoff.begin(now);
        } else {
            self.polling_backoff.helped();
        }
        if more {
            return AfterRun::Again(self.leave(polls.on));
        }
        AfterRun::Rest
    }

    /// A resting worker has asked for doorbells. WQEs `posted` before that must not wait for a
    /// doorbell: then the worker stays in charge and is called again.
    pub fn rest(&mut self, posted: bool) -> Option<WorkerCall<C>> {
        let (on, process) = match self.mode {
            Mode::Working { on, process } => (on, process),
            // Polling ended; a worker continues.
            Mode::Polling(polls) => (polls.on, None),
            Mode::Inline { .. } | Mode::Inviting { .. } | Mode::Moving { .. } => return None,
        };
        if posted {
            self.mode = Mode::Working { on, process };
            return Some(Self::call(on, process));
        }
        if process.is_some() && self.wanted == 0 {
            self.offload_backoff.helped();
        }
        self.mode = Mode::Inline { last: Some(on) };
        None
    }

    /// The queue was flushed or reset: no worker is in charge, and a queued one finds nothing to
    /// do.
    pub fn reset(&mut self) {
        self.mode = Mode::Inline { last: None };
    }

    /// Whether the end of the current doorbell matters: if so, call [`Self::served`].
    #[inline]
    pub fn wants_end(&self) -> bool {
        self.stream.wants_end()
    }

    /// The doorbell was served at `now`.
    pub fn served(&mut self, now: u64) {
        self.stream.served(now);
    }

    /// CPU of the packets in flight, if it is not this one.
    #[inline]
    fn elsewhere(&self, point: SchedPoint<C>) -> Option<C> {
        match self.mode {
            Mode::Inline { last } | Mode::Inviting { last, .. } => {
                last.filter(|cpu| point.in_flight != InFlight::Nothing && *cpu != point.here)
            }
            Mode::Working { .. } | Mode::Moving { .. } | Mode::Polling(_) => None,
        }
    }

    #[inline]
    fn send_here(&mut self, point: SchedPoint<C>) -> Decision<C> {
        let last = Some(point.here);
        self.mode = match self.mode {
            Mode::Inviting { process, .. } => Mode::Inviting { last, process },
            _ => Mode::Inline { last },
        };
        Decision::Send
    }

    /// A work item may run on another CPU than it was queued for, if that CPU went offline or if
    /// the item was still running there. Then this CPU counts.
    fn work_on(&mut self, on: C, process: Option<C>) -> Decision<C> {
        self.mode = Mode::Working { on, process };
        Decision::Send
    }

    /// A run of a worker on behalf of a process on another CPU.
    fn work_for(&mut self, process: C, point: SchedPoint<C>) -> Decision<C> {
        let [_, last] = self.run_starts;
        self.run_starts = [last, Some(point.now)];
        self.work_on(point.here, Some(process))
    }

    /// Whether the process would have sent the `took` WQEs of the last run in less time than passed
    /// since the run before.
    fn is_slow(&self, took: u32) -> bool {
        let [Some(before), Some(last)] = self.run_starts else {
            return false;
        };
        // Half as much again, because it was measured once.
        let cost = self.stream.cost().saturating_mul(3) / 2;
        took >= JUDGED && last.saturating_sub(before) > cost.saturating_mul(took.into())
    }

    /// The worker on another CPU does not help: moves back to the CPU of the process.
    #[cold]
    fn move_back(&mut self, process: C, point: SchedPoint<C>) -> Decision<C> {
        self.offload_backoff.begin(point.now);
        self.moves.back = self.moves.back.wrapping_add(1);
        self.move_to(Some(point.here), point, process, None)
    }

    /// Moves to a worker on the CPU `to`, once the packets in flight `from` another CPU are
    /// acknowledged.
    fn move_to(
        &mut self,
        from: Option<C>,
        point: SchedPoint<C>,
        to: C,
        process: Option<C>,
    ) -> Decision<C> {
        match from {
            Some(from) if from != to && point.in_flight != InFlight::Nothing => {
                self.mode = Mode::Moving { from, to, process };
                Decision::Wait
            }
            _ => self.work_at(to, process),
        }
    }

    /// Leaves the work to a worker on the CPU `on`.
    fn work_at(&mut self, on: C, process: Option<C>) -> Decision<C> {
        self.mode = Mode::Working { on, process };
        Decision::Leave(Self::call(on, process))
    }

    fn call(cpu: C, process: Option<C>) -> WorkerCall<C> {
        let worker = match process {
            Some(_) => Worker::Far,
            None => Worker::Near,
        };
        WorkerCall {
            worker,
            cpu,
            periods: 0,
        }
    }

    fn timer(&self, cpu: C) -> WorkerCall<C> {
        WorkerCall {
            worker: Worker::Timer,
            cpu,
            periods: 1 << self.idle.min(IDLE_POLLS),
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_offload))]
mod tests {
    use super::*;

    const NOTHING: OffloadEvent = OffloadEvent::Progress { unsent: false };
    const UNSENT: OffloadEvent = OffloadEvent::Progress { unsent: true };

    fn at(here: u32, in_flight: InFlight) -> SchedPoint<u32> {
        let now = 0;
        SchedPoint {
            here,
            now,
            in_flight,
        }
    }

    fn near(cpu: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Near,
            cpu,
            periods: 0,
        }
    }

    fn far(cpu: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Far,
            cpu,
            periods: 0,
        }
    }

    fn timer(cpu: u32, periods: u32) -> WorkerCall<u32> {
        WorkerCall {
            worker: Worker::Timer,
            cpu,
            periods,
        }
    }

    /// A doorbell of a process without another CPU.
    fn ring(offload: &mut Offload<u32>, here: u32, in_flight: InFlight) -> Decision<u32> {
        offload.doorbell(at(here, in_flight), 0, true, Position::default, |_| None)
    }

    /// Doorbells on CPU 0 until the process streams; CPU 1 may help. Returns the last decision.
    fn stream(offload: &mut Offload<u32>, in_flight: InFlight) -> Decision<u32> {
        let mut point = at(0, in_flight);
        for _ in 0..16 {
            point.now += 1;
            let decision = offload.doorbell(point, 0, true, Position::default, |_| Some(1));
            if decision != Decision::Send {
                return decision;
            }
            point.now += 1000;
            if offload.wants_end() {
                offload.served(point.now);
            }
        }
        Decision::Send
    }

    /// An offload state whose worker on CPU 1 is invited.
    fn inviting() -> Offload<u32> {
        let mut offload = Offload::default();
        let decision = stream(&mut offload, InFlight::Nothing);
        assert_eq!(decision, Decision::Invite(far(1)));
        offload
    }

    /// The same after it has taken over.
    fn away() -> Offload<u32> {
        let mut offload = inviting();
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        offload
    }

    /// The same while it waits for packets in flight from CPU 0.
    fn moving() -> Offload<u32> {
        let mut offload = inviting();
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Wait
        );
        offload
    }

    #[test]
    fn one_cpu_sends_while_packets_are_in_flight() {
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
        // An ACK on another CPU: only if there is something to send.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(offload.event(elsewhere, NOTHING), Decision::Nothing);
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Leave(near(0)));
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Nothing);
        let here = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Near, here, false),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        // All is acknowledged.
        assert_eq!(ring(&mut offload, 2, InFlight::Nothing), Decision::Send);
    }

    #[test]
    fn follows_its_process_to_another_cpu() {
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(ring(&mut offload, 2, InFlight::Awaited), Decision::Wait);
        let ack = at(0, InFlight::Nothing);
        assert_eq!(offload.event(ack, NOTHING), Decision::Leave(near(2)));
        // Packets without a guaranteed end: continues on their CPU.
        let mut offload = Offload::default();
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
        assert_eq!(
            ring(&mut offload, 2, InFlight::Unbounded),
            Decision::Leave(near(0))
        );
    }

    #[test]
    fn a_cpu_with_other_work_costs_an_invitation() {
        let mut offload = inviting();
        assert!(!offload.has_worker());
        // Everything continues meanwhile.
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(offload.event(ack, NOTHING), Decision::Send);
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, false),
            Decision::Nothing
        );
        assert!(!offload.has_worker());
        assert_eq!(offload.moves().back, 1);
        // It is not invited again soon.
        assert_eq!(
            stream(&mut offload, InFlight::Nothing),
            Decision::Leave(timer(0, 1))
        );
    }

    #[test]
    fn invites_one_cpu_after_the_other() {
        let mut offload = Offload::default();
        let (mut asked, mut point) = ([0; 2], at(0, InFlight::Nothing));
        for number in &mut asked {
            while *number == 0 {
                point.now += 100_000;
                offload.served(point.now);
                let name = |n| {
                    *number = n;
                    None
                };
                let _ = offload.doorbell(point, 0, true, Position::default, name);
                // Polling would last until the next invitation.
                offload.reset();
            }
        }
        assert_eq!(asked, [1, 2]);
    }

    #[test]
    fn moves_when_nothing_is_in_flight() {
        let mut offload = moving();
        assert!(offload.has_worker());
        assert_eq!(offload.moves().away, 1);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Nothing);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(offload.event(ack, UNSENT), Decision::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, ack, true),
            Decision::Nothing
        );
        let last = at(0, InFlight::Nothing);
        assert_eq!(offload.event(last, NOTHING), Decision::Leave(far(1)));
    }

    #[test]
    fn does_not_wait_for_what_need_not_end() {
        let mut offload = inviting();
        let there = at(1, InFlight::Unbounded);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Nothing
        );
        assert!(!offload.has_worker());
        // A move also stops waiting when the end is no longer guaranteed.
        let mut offload = moving();
        let unbounded = at(0, InFlight::Unbounded);
        assert_eq!(offload.event(unbounded, NOTHING), Decision::Leave(near(0)));
    }

    #[test]
    fn a_timer_ends_a_move() {
        let mut offload = moving();
        // A probe is due, on any CPU: it leaves from the CPU of the flight.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            offload.event(elsewhere, OffloadEvent::Deadline),
            Decision::Leave(near(0))
        );
        let there = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Near, there, false),
            Decision::Send
        );
    }

    #[test]
    fn comes_back_when_its_cpu_is_wanted() {
        let mut offload = away();
        let there = at(1, InFlight::Awaited);
        for _ in 0..WANTED_RUNS {
            assert_eq!(
                offload.worker_ran(true, 100, there),
                AfterRun::Again(far(1))
            );
            assert_eq!(
                offload.worker_runs(Worker::Far, there, false),
                Decision::Send
            );
        }
        assert_eq!(
            offload.worker_runs(Worker::Far, there, false),
            Decision::Wait
        );
        assert_eq!(offload.moves().back, 1);
        let last = at(1, InFlight::Nothing);
        assert_eq!(offload.event(last, UNSENT), Decision::Leave(near(0)));
        // A far worker that is still queued is not in charge.
        assert_eq!(
            offload.worker_runs(Worker::Far, last, true),
            Decision::Nothing
        );
        let back = at(0, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Near, back, false),
            Decision::Send
        );
    }

    /// The process needs 1000 ns per WQE.
    #[test]
    fn comes_back_when_requests_wait_longer_than_they_need() {
        let mut offload = away();
        let mut there = at(1, InFlight::Nothing);
        assert_eq!(offload.worker_ran(true, 64, there), AfterRun::Again(far(1)));
        // The process is the slow one, or neither is.
        for (took, time) in [(JUDGED - 1, 1_000_000), (100, 150_000)] {
            there.now += time;
            assert_eq!(
                offload.worker_runs(Worker::Far, there, true),
                Decision::Send
            );
            assert_eq!(
                offload.worker_ran(true, took, there),
                AfterRun::Again(far(1))
            );
        }
        there.now += 150_200;
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(
            offload.worker_ran(true, 100, there),
            AfterRun::MoveBack(Decision::Leave(near(0)))
        );
        assert_eq!(offload.moves().back, 1);
    }

    #[test]
    fn a_far_worker_lingers_and_then_rests() {
        let mut offload = away();
        let there = at(1, InFlight::Nothing);
        for _ in 0..IDLE_RUNS {
            assert_eq!(
                offload.worker_runs(Worker::Far, there, true),
                Decision::Send
            );
            assert_eq!(offload.worker_ran(false, 0, there), AfterRun::Again(far(1)));
        }
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, there), AfterRun::Rest);
        assert_eq!(offload.rest(true), Some(far(1)));
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, there), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        assert_eq!(ring(&mut offload, 0, InFlight::Nothing), Decision::Send);
    }

    /// An offload state that polls on CPU 0, without another CPU.
    fn polling() -> Offload<u32> {
        let mut offload = Offload::default();
        let mut point = at(0, InFlight::Nothing);
        for _ in 1..8 {
            point.now += 1;
            let decision = offload.doorbell(point, 0, true, Position::default, |_| None);
            assert_eq!(decision, Decision::Send);
            point.now += 1000;
            if offload.wants_end() {
                offload.served(point.now);
            }
        }
        let decision = offload.doorbell(point, 0, true, Position::default, |_| None);
        assert_eq!(decision, Decision::Leave(timer(0, 1)));
        assert_eq!(offload.moves().polled, 1);
        offload
    }

    #[test]
    fn polls_for_who_streams_and_has_no_other_cpu() {
        let mut offload = polling();
        assert!(offload.has_worker());
        let here = at(0, InFlight::Awaited);
        // An ACK may transmit here; on another CPU it leaves that to the timer.
        assert_eq!(offload.event(here, UNSENT), Decision::Send);
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(offload.event(elsewhere, UNSENT), Decision::Nothing);
        assert_eq!(
            offload.event(elsewhere, OffloadEvent::Deadline),
            Decision::Nothing
        );
        let polls = [
            (20, 1),
            (0, 2),
            (0, 4),
            (50, 1),
            (0, 2),
            (0, 4),
            (0, 8),
            (0, 16),
        ];
        for (took, periods) in polls {
            assert_eq!(
                offload.worker_runs(Worker::Timer, here, false),
                Decision::Send
            );
            assert_eq!(
                offload.worker_ran(false, took, here),
                AfterRun::Again(timer(0, periods))
            );
        }
        // The process waits for something.
        assert_eq!(
            offload.worker_runs(Worker::Timer, here, false),
            Decision::Send
        );
        assert_eq!(offload.worker_ran(false, 0, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        assert_eq!(ring(&mut offload, 0, InFlight::Awaited), Decision::Send);
        // A timer that is still armed finds nothing to do.
        assert_eq!(
            offload.worker_runs(Worker::Timer, here, false),
            Decision::Nothing
        );
        // It has helped.
        assert!(offload.polling_backoff.is_over(0));
    }

    #[test]
    fn polls_no_more_where_it_is_of_no_use() {
        // A few WQEs, then the process waits; or one now and then.
        for (took, polls) in [(0, IDLE_POLLS + 1), (1, JUDGED_POLLS)] {
            let mut offload = polling();
            let here = at(0, InFlight::Awaited);
            for _ in 1..polls {
                let after = offload.worker_ran(false, took, here);
                assert!(matches!(after, AfterRun::Again(_)));
            }
            assert_eq!(offload.worker_ran(false, took, here), AfterRun::Rest);
            assert!(!offload.polling_backoff.is_over(0));
        }
    }

    #[test]
    fn what_is_much_or_late_is_left_to_a_worker() {
        let here = at(0, InFlight::Awaited);
        let mut offload = polling();
        for _ in 0..BEHIND_RUNS {
            assert_eq!(
                offload.worker_ran(true, 100, here),
                AfterRun::Again(timer(0, 1))
            );
        }
        assert_eq!(offload.worker_ran(true, 0, here), AfterRun::Again(near(0)));
        assert_eq!(
            offload.worker_runs(Worker::Near, here, false),
            Decision::Send
        );
        let mut offload = polling();
        for _ in 0..IDLE_POLLS {
            let after = offload.worker_ran(false, 0, here);
            assert!(matches!(after, AfterRun::Again(_)));
        }
        assert_eq!(offload.worker_ran(false, 0, here), AfterRun::Rest);
        assert_eq!(offload.rest(true), Some(near(0)));
        // Its CPU has gone offline.
        let mut offload = polling();
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            offload.worker_runs(Worker::Timer, elsewhere, false),
            Decision::Leave(near(0))
        );
    }

    #[test]
    fn ends_polling_to_invite_again() {
        let mut offload = polling();
        let mut here = at(0, InFlight::Awaited);
        assert_eq!(
            offload.worker_ran(false, 100, here),
            AfterRun::Again(timer(0, 1))
        );
        here.now += 10_000_000;
        assert_eq!(offload.worker_ran(false, 0, here), AfterRun::Rest);
        assert_eq!(offload.rest(false), None);
        offload.stream.forget();
        let decision = stream(&mut offload, InFlight::Nothing);
        assert_eq!(decision, Decision::Leave(timer(0, 1)));
    }

    #[test]
    fn nobody_else_sends_for_who_does_not_watch() {
        let mut offload = Offload::default();
        let mut point = at(0, InFlight::Nothing);
        for _ in 0..64 {
            point.now += 1;
            let decision = offload.doorbell(point, 0, false, Position::default, |_| Some(1));
            assert_eq!(decision, Decision::Send);
            assert!(!offload.wants_end());
        }
    }

    #[test]
    fn after_a_reset_nobody_is_in_charge() {
        let mut offload = away();
        offload.reset();
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            offload.worker_runs(Worker::Far, there, true),
            Decision::Nothing
        );
        assert_eq!(ring(&mut offload, 2, InFlight::Awaited), Decision::Send);
    }
}
