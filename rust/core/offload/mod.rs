// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Offload: which CPU transmits for a send queue.
//!
//! Usually the queue is inline: a doorbell, an ACK or a timer transmits where it happens. Work
//! beyond its budget goes to a worker. If the process streams ([`stream`]), the queue is
//! offloaded to a worker on another CPU or, without one, to a timer on the process's CPU. A worker
//! or timer in charge polls the ring itself, so the process rings no doorbell.
//!
//! A worker on another CPU helps only while that CPU is idle otherwise. So it is invited first: the
//! timer polls meanwhile, and the worker takes over once it runs and finds itself alone there. (A
//! process that posts long lists needs no timer, and rings on.) It returns the queue when another
//! task wants that CPU, or when WQEs wait for it longer than the process would have taken to send
//! them: a hypervisor may have taken the CPU away, which the kernel cannot see. On a busy host the
//! only cost is the invitation; a queue that was declined tells the others
//! ([`Helper`](budget::Helper)).
//!
//! The timer polls the ring every few ten microseconds ([`budget::Rounds`]). The WQEs posted since
//! then leave as one batch, with one ACK, where each would have cost a system call, a walk through
//! the network stack and an ACK. Polling ends when the process waits for something, when a batch is
//! so large that a worker is due, and in time for the next invitation. A queue that has streamed
//! resumes with its next doorbell: a process that streams on many queues fills one after the other.
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
//!   Inviting or Polling ------------------------------------------------------+  |     \
//!           |                                                                  |  |      v
//!           |  taken, packets in flight                     all acknowledged  |  |     Moving
//!           +----------------------------> Moving ----------------------------+  |   (and back)
//!                                            |                                    |
//!                       a timer expires      +---> Working, where it was          |
//!                                                                                 |
//!          Inline <---------------------------------------------------------------+
//!           ^  |                   no work is left
//!   nothing |  | the process streams
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
mod decision;
pub mod stream;
pub mod ulp;

use budget::{
    Backoff,
    HelperVerdict, //
};
pub use decision::{
    AfterRun,
    Decision,
    InFlight,
    Moves,
    OffloadEvent,
    SchedPoint,
    SenderKind,
    Worker,
    WorkerCall, //
};
use decision::{
    FarRuns,
    Polls, //
};
use stream::{
    Position,
    StreamDetector, //
};

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

/// The offload state of one send queue.
#[derive(Debug)]
pub struct Offload<C> {
    mode: Mode<C>,
    stream: StreamDetector,
    /// Back-off of invitations.
    offload_backoff: Backoff,
    /// Back-off of polling.
    polling_backoff: Backoff,
    /// Runs of the worker on another CPU.
    far: FarRuns,
    /// Invitations so far; each goes to the next CPU.
    invitations: u32,
    /// What a worker on this CPU has shown, which the other queues are not told yet.
    verdict: Option<(C, HelperVerdict)>,
    moves: Moves,
}

impl<C> Default for Offload<C> {
    fn default() -> Self {
        Self {
            mode: Mode::Inline { last: None },
            stream: StreamDetector::default(),
            offload_backoff: Backoff::default(),
            polling_backoff: Backoff::default(),
            far: FarRuns::default(),
            invitations: 0,
            verdict: None,
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

    /// Counts of moves of this queue since they were taken last.
    #[inline]
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// Takes the counts, if one of them is not 0: they begin anew.
    #[inline]
    pub fn take_moves(&mut self) -> Option<Moves> {
        (self.moves != Moves::default()).then(|| core::mem::take(&mut self.moves))
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

    /// The process streams: arms the timer, and invites a worker on another CPU, if there is one.
    #[cold]
    fn serve_stream(
        &mut self,
        point: SchedPoint<C>,
        another: impl FnOnce(u32) -> Option<C>,
    ) -> Decision<C> {
        let SchedPoint { here, now, .. } = point;
        let invited = self.invited(now, another);
        let worker = invited.map(|cpu| Self::call(cpu, Some(here)));
        if self.polling_backoff.is_over(now) && self.stream.posts_singly() {
            self.moves.polled = self.moves.polled.wrapping_add(1);
            let polls = Polls::begin(here, now, worker.is_some());
            self.mode = Mode::Polling(polls);
            return match worker {
                Some(worker) => Decision::LeaveInviting(Self::timer(polls), worker),
                None => Decision::Leave(Self::timer(polls)),
            };
        }
        match worker {
            Some(worker) => {
                let (last, process) = (Some(here), here);
                self.mode = Mode::Inviting { last, process };
                Decision::Invite(worker)
            }
            None => self.send_here(point),
        }
    }

    /// The CPU to whose worker an invitation goes.
    fn invited(&mut self, now: u64, another: impl FnOnce(u32) -> Option<C>) -> Option<C> {
        if !self.may_invite(now) {
            return None;
        }
        self.invitations = self.invitations.wrapping_add(1);
        let cpu = another(self.invitations);
        if cpu.is_none() {
            self.offload_backoff.begin(now);
        }
        cpu
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
            // Beyond its budget the worker may have to wait for a process that polls on this CPU.
            Mode::Working { on, process: None } if on == point.here => Decision::Send,
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
                self.far.found(alone);
                if !self.far.must_leave() || point.in_flight == InFlight::Unbounded {
                    return self.work_for(process, point);
                }
                self.move_back(process, point)
            }
            (Worker::Far, Mode::Inviting { last, process }) => {
                let from = self.elsewhere(point);
                if self.declines(alone, from, point) {
                    self.mode = Mode::Inline { last };
                    return Decision::Nothing;
                }
                self.take_over(from, process, point)
            }
            (Worker::Far, Mode::Polling(polls)) if polls.inviting => {
                let from = Some(polls.on).filter(|_| point.in_flight != InFlight::Nothing);
                if self.declines(alone, from, point) {
                    self.mode = Mode::Polling(polls.declined());
                    return Decision::Nothing;
                }
                self.take_over(from, polls.on, point)
            }
            (Worker::Timer, Mode::Polling(polls)) if polls.on == point.here => Decision::Send,
            // The CPU of the timer has gone offline.
            (Worker::Timer, Mode::Polling(polls)) => self.work_at(polls.on, None),
            // It was queued for an earlier state, or another worker is in charge.
            _ => Decision::Nothing,
        }
    }

    /// Whether an invited worker declines: it is not `alone`, or would wait for packets in flight
    /// `from` another CPU that need not end.
    fn declines(&mut self, alone: bool, from: Option<C>, point: SchedPoint<C>) -> bool {
        let may_wait = from.is_none() || point.in_flight == InFlight::Awaited;
        if alone && may_wait {
            return false;
        }
        self.offload_backoff.begin(point.now);
        if !alone {
            self.verdict = Some((point.here, HelperVerdict::Declines));
            self.moves.back = self.moves.back.wrapping_add(1);
        }
        true
    }

    /// An invited worker takes over, once nothing is in flight `from` another CPU.
    fn take_over(&mut self, from: Option<C>, process: C, point: SchedPoint<C>) -> Decision<C> {
        self.moves.away = self.moves.away.wrapping_add(1);
        self.far = FarRuns::default();
        match from {
            None => self.work_for(process, point),
            from => self.move_to(from, point, point.here, Some(process)),
        }
    }

    /// A run of a worker is over: it fetched `took` WQEs; `more` work is left. `queues` share the
    /// round of the timer.
    pub fn worker_ran(
        &mut self,
        more: bool,
        took: u32,
        queues: u32,
        point: SchedPoint<C>,
    ) -> AfterRun<C> {
        let (on, process) = match self.mode {
            Mode::Working { on, process } => (on, process),
            Mode::Polling(mut polls) => {
                polls.polled(more, took, queues, point.now);
                return self.polled(polls, more, point.now);
            }
            Mode::Inline { .. } | Mode::Inviting { .. } | Mode::Moving { .. } => {
                return AfterRun::Rest;
            }
        };
        let mut lingers = false;
        if let Some(process) = process {
            let is_slow = self.far.is_slow(took, self.stream.cost());
            if point.in_flight != InFlight::Unbounded && is_slow {
                return AfterRun::MoveBack(self.move_back(process, point));
            }
            self.far.ran(took);
            if self.far.has_helped() {
                self.has_helped(on);
            }
            lingers = self.far.lingers();
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

    /// A poll is over.
    fn polled(&mut self, polls: Polls<C>, more: bool, now: u64) -> AfterRun<C> {
        self.mode = Mode::Polling(polls);
        let cost = self.stream.cost();
        if polls.goes_on(cost) && (polls.inviting || !self.may_invite(now)) {
            return AfterRun::Again(Self::timer(polls));
        }
        if polls.has_helped(cost) {
            self.polling_backoff.helped();
            self.stream.resume();
        } else {
            self.polling_backoff.begin(now);
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
        if process.is_some() && self.far.was_alone() {
            self.has_helped(on);
            if self.far.has_streamed() {
                self.stream.resume();
            }
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
        self.far.began(point.now);
        self.work_on(point.here, Some(process))
    }

    /// The worker on another CPU does not help: moves back to the CPU of the process.
    #[cold]
    fn move_back(&mut self, process: C, point: SchedPoint<C>) -> Decision<C> {
        self.offload_backoff.begin(point.now);
        self.verdict = Some((point.here, HelperVerdict::Declines));
        self.moves.back = self.moves.back.wrapping_add(1);
        self.move_to(Some(point.here), point, process, None)
    }

    /// The worker on the CPU `on` has helped.
    fn has_helped(&mut self, on: C) {
        self.offload_backoff.helped();
        self.verdict = Some((on, HelperVerdict::Helps));
    }

    /// What a worker on a CPU has shown since the last call: the owner tells all queues.
    #[inline]
    pub fn take_verdict(&mut self) -> Option<(C, HelperVerdict)> {
        self.verdict.take()
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

    fn timer(polls: Polls<C>) -> WorkerCall<C> {
        WorkerCall {
            worker: Worker::Timer,
            periods: polls.periods(),
            cpu: polls.on,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
mod tests;
