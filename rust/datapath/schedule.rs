// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Who sends for a send queue, and on which CPU.
//!
//! Usually nobody in particular: a doorbell, an ACK or a timer sends what may be sent, where it
//! comes up. A worker takes over for what is beyond the budget of that, and, on another CPU, for a
//! process that streams ([`super::stream`]). While a worker is in charge it looks at the ring
//! itself, so the process rings no doorbell.
//!
//! Packets of one queue must not overtake each other, and those sent on one CPU may still wait
//! there, in a backlog or in a queue of the netdev, while another CPU sends. So as long as packets
//! are in flight all others leave from the CPU that the last one left from: what comes up elsewhere
//! calls a worker there, and a queue that is to move waits until they are acknowledged.
//!
//! ```text
//!             budget used up, or packets in flight from another CPU
//!   Inline --------------------------------------------------------> Working
//!     ^  \                                                            ^  |  \
//!     |   \ the process streams                        all acknowledged  |   \ its CPU is wanted
//!     |    +-----------------> Moving --------------------------------+  |    \ by other tasks
//!     |                           ^                                      |     |
//!     |                           +--------------------------------------|-----+
//!     +------------------------------------------------------------------+
//!                            nothing is left to be done
//! ```
//!
//! The owner of the queue calls in with what happened, under the lock of the queue, and does what
//! the answer says.

use super::stream::{
    Position,
    Stream, //
};

/// Turns on a CPU that has other work as well, before the queue leaves it.
const WANTED_TURNS: u32 = 8;

/// Turns in which a worker on another CPU finds nothing in the ring before it ends.
const IDLE_TURNS: u32 = 64;

/// Packets that were sent and are neither acknowledged nor given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// There are none, or no packets at all, or their order is of no matter: the next one may be
    /// sent anywhere.
    Nothing,
    /// There are, and a timeout gives them up if no answer comes.
    Some,
    /// There are, and without a timeout: if they are lost only those behind them will tell, so
    /// nothing may wait for their end.
    Untimed,
}

/// Where and when something happens. `C` names a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Moment<C> {
    /// The CPU that it happens on.
    pub here: C,
    /// What is under way then.
    pub in_flight: InFlight,
}

/// The two work items of a queue. One that is running cannot be queued for another CPU, so whoever
/// moves the queue uses the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// On a CPU that has sent before.
    Near,
    /// On another CPU than that of the process.
    Far,
}

/// A worker to be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<C> {
    /// Which one.
    pub worker: Worker,
    /// Where.
    pub cpu: C,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Answer<C> {
    /// Send, here.
    Send,
    /// Leave it to a worker, which has to be called. No doorbell is needed from now on.
    Leave(Call<C>),
    /// Wait until what is under way is acknowledged: that will call a worker. No doorbell is needed
    /// from now on.
    Wait,
    /// Nothing: a worker is in charge, or there is nothing to send.
    Nothing,
}

/// What a worker does after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AfterTurn<C> {
    /// It is to be called for another turn.
    Again(Call<C>),
    /// It asks for doorbells, looks at the ring once more and then says [`Schedule::rest`].
    Rest,
}

/// How often queues changed their CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// To another CPU, because the process streams.
    pub away: u64,
    /// Back from there, because that CPU had other work.
    pub back: u64,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender<C> {
    /// Whoever has a reason, but while packets are in flight only on the CPU `last`.
    Inline {
        /// Where the last packet left.
        last: Option<C>,
    },
    /// A worker, which is queued or running.
    Working {
        /// Where.
        on: C,
        /// The CPU of the process, if the worker is there for a doorbell on another CPU.
        process: Option<C>,
    },
    /// A worker, as soon as all that is in flight is acknowledged.
    Moving {
        /// Where it will be.
        to: C,
        /// As in `Working`.
        process: Option<C>,
    },
}

/// Who sends for one queue.
#[derive(Debug)]
pub struct Schedule<C> {
    sender: Sender<C>,
    stream: Stream,
    /// Turns in a row in which something else wanted to run where the far worker sends.
    wanted: u32,
    /// Turns in a row in which that one found nothing in the ring.
    idle: u32,
    moves: Moves,
}

impl<C> Default for Schedule<C> {
    fn default() -> Self {
        Self {
            sender: Sender::Inline { last: None },
            stream: Stream::default(),
            // There are short tasks everywhere: one turn says nothing, but a CPU that is busy from
            // the beginning is left sooner than one that becomes so.
            wanted: WANTED_TURNS / 2,
            idle: 0,
            moves: Moves::default(),
        }
    }
}

impl<C: Copy + PartialEq> Schedule<C> {
    /// A worker is in charge, or will be: no doorbell is needed.
    #[inline]
    pub fn has_worker(&self) -> bool {
        !matches!(self.sender, Sender::Inline { .. })
    }

    /// How often the queue changed its CPU.
    #[inline]
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// The process rang at `now`. `position` says how far it has come, `another` names a CPU that
    /// may work for it; most doorbells ask for neither.
    #[inline]
    pub fn doorbell(
        &mut self,
        moment: Moment<C>,
        now: u64,
        position: impl FnOnce() -> Position,
        another: impl FnOnce() -> Option<C>,
    ) -> Answer<C> {
        let Sender::Inline { last } = self.sender else {
            return self.event(moment, true);
        };
        if self.stream.rings(now, position) {
            match another() {
                Some(cpu) if moment.in_flight != InFlight::Untimed => {
                    self.moves.away = self.moves.away.wrapping_add(1);
                    self.idle = 0;
                    // What left from there already need not be waited for.
                    let waits = moment.in_flight != InFlight::Nothing && last != Some(cpu);
                    return self.move_to(cpu, Some(moment.here), waits);
                }
                _ => self.stream.pause(),
            }
        }
        match last {
            Some(cpu) if cpu != moment.here && moment.in_flight != InFlight::Nothing => {
                self.idle = 0;
                self.move_to(cpu, Some(moment.here), false)
            }
            _ => self.send_here(moment),
        }
    }

    /// An ACK, a response, a timer, or another turn of a doorbell. `unsent` says whether there may
    /// be something to send.
    #[inline]
    pub fn event(&mut self, moment: Moment<C>, unsent: bool) -> Answer<C> {
        let nothing_in_flight = moment.in_flight == InFlight::Nothing;
        match self.sender {
            Sender::Inline { last: Some(cpu) } if cpu != moment.here && !nothing_in_flight => {
                if unsent {
                    self.move_to(cpu, None, false)
                } else {
                    Answer::Nothing
                }
            }
            Sender::Inline { .. } => self.send_here(moment),
            Sender::Moving { to, process } if nothing_in_flight => self.move_to(to, process, false),
            Sender::Working { .. } | Sender::Moving { .. } => Answer::Nothing,
        }
    }

    /// Who sent here, or flushed, has used up its budget, and there is more to do.
    pub fn leave(&mut self, here: C) -> Call<C> {
        self.sender = Sender::Working {
            on: here,
            process: None,
        };
        Call {
            worker: Worker::Near,
            cpu: here,
        }
    }

    /// A work item that was queued runs. `alone` says that nothing else wants to run there.
    pub fn worker_runs(&mut self, worker: Worker, moment: Moment<C>, alone: bool) -> Answer<C> {
        let Sender::Working { process, .. } = self.sender else {
            // It was queued for a state that has gone.
            return Answer::Nothing;
        };
        match (worker, process) {
            (Worker::Near, None) => self.work_on(moment.here, None),
            (Worker::Far, Some(process)) => {
                if alone {
                    self.wanted = 0;
                    return self.work_on(moment.here, Some(process));
                }
                self.wanted = self.wanted.saturating_add(1);
                if self.wanted <= WANTED_TURNS || moment.in_flight == InFlight::Untimed {
                    return self.work_on(moment.here, Some(process));
                }
                self.wanted = WANTED_TURNS / 2;
                self.stream.pause();
                self.moves.back = self.moves.back.wrapping_add(1);
                self.move_to(process, None, moment.in_flight != InFlight::Nothing)
            }
            // The other one is in charge.
            (Worker::Near, Some(_)) | (Worker::Far, None) => Answer::Nothing,
        }
    }

    /// The turn of a worker is over. `more` is left to be done; it `took` new requests from the
    /// ring or not.
    pub fn worker_ran(&mut self, more: bool, took: bool) -> AfterTurn<C> {
        let Sender::Working { on, process } = self.sender else {
            return AfterTurn::Rest;
        };
        // Who streams posts more in a moment, and then to be found is cheaper than to ring.
        let mut lingers = false;
        if process.is_some() && self.wanted == 0 {
            self.idle = if took { 0 } else { self.idle.saturating_add(1) };
            lingers = self.idle <= IDLE_TURNS;
        }
        if more || lingers {
            AfterTurn::Again(Self::call(on, process))
        } else {
            AfterTurn::Rest
        }
    }

    /// A worker that rests has asked for doorbells. What was `posted` before it asked must not wait
    /// for one: then it stays in charge, and is to be called again.
    pub fn rest(&mut self, posted: bool) -> Option<Call<C>> {
        let Sender::Working { on, process } = self.sender else {
            return None;
        };
        if posted {
            return Some(Self::call(on, process));
        }
        if process.is_some() && self.wanted == 0 {
            self.stream.helped();
        }
        self.sender = Sender::Inline { last: Some(on) };
        None
    }

    /// Everything is flushed or forgotten: no worker is in charge any more, and one that is queued
    /// finds nothing to do.
    pub fn reset(&mut self) {
        self.sender = Sender::Inline { last: None };
    }

    /// Whether the end of the doorbell that just rang matters, so that [`Self::served`] is due.
    #[inline]
    pub fn wants_end(&self) -> bool {
        self.stream.wants_end()
    }

    /// The doorbell was served at `now`.
    pub fn served(&mut self, now: u64) {
        self.stream.served(now);
    }

    #[inline]
    fn send_here(&mut self, moment: Moment<C>) -> Answer<C> {
        self.sender = Sender::Inline {
            last: Some(moment.here),
        };
        Answer::Send
    }

    /// A work item may run elsewhere than it was queued for, if that CPU has gone offline or if it
    /// was still running there: then this is its CPU.
    fn work_on(&mut self, here: C, process: Option<C>) -> Answer<C> {
        self.sender = Sender::Working { on: here, process };
        Answer::Send
    }

    fn move_to(&mut self, to: C, process: Option<C>, waits: bool) -> Answer<C> {
        if waits {
            self.sender = Sender::Moving { to, process };
            return Answer::Wait;
        }
        self.sender = Sender::Working { on: to, process };
        Answer::Leave(Self::call(to, process))
    }

    fn call(cpu: C, process: Option<C>) -> Call<C> {
        let worker = match process {
            Some(_) => Worker::Far,
            None => Worker::Near,
        };
        Call { worker, cpu }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_datapath_schedule)
)]
mod tests {
    use super::*;

    fn at(here: u32, in_flight: InFlight) -> Moment<u32> {
        Moment { here, in_flight }
    }

    fn near(cpu: u32) -> Call<u32> {
        let worker = Worker::Near;
        Call { worker, cpu }
    }

    fn far(cpu: u32) -> Call<u32> {
        let worker = Worker::Far;
        Call { worker, cpu }
    }

    /// A doorbell of a process that does not stream.
    fn ring(schedule: &mut Schedule<u32>, here: u32, in_flight: InFlight) -> Answer<u32> {
        schedule.doorbell(at(here, in_flight), 0, Position::default, || None)
    }

    /// Doorbells on CPU 0 until the process streams; CPU 1 may help. The last answer.
    fn stream(schedule: &mut Schedule<u32>, in_flight: InFlight) -> Answer<u32> {
        let mut now = 1;
        for _ in 0..16 {
            let moment = at(0, in_flight);
            let answer = schedule.doorbell(moment, now, Position::default, || Some(1));
            if answer != Answer::Send {
                return answer;
            }
            now += 1000;
            if schedule.wants_end() {
                schedule.served(now);
            }
        }
        Answer::Send
    }

    /// A schedule whose far worker on CPU 1 is in charge.
    fn away() -> Schedule<u32> {
        let mut schedule = Schedule::default();
        let answer = stream(&mut schedule, InFlight::Nothing);
        assert_eq!(answer, Answer::Leave(far(1)));
        schedule
    }

    #[test]
    fn one_cpu_sends_while_packets_are_in_flight() {
        let mut schedule = Schedule::default();
        assert_eq!(ring(&mut schedule, 0, InFlight::Nothing), Answer::Send);
        assert_eq!(ring(&mut schedule, 0, InFlight::Some), Answer::Send);
        // An ACK elsewhere: only if there is something to send.
        let elsewhere = at(2, InFlight::Some);
        assert_eq!(schedule.event(elsewhere, false), Answer::Nothing);
        assert_eq!(schedule.event(elsewhere, true), Answer::Leave(near(0)));
        assert_eq!(schedule.event(elsewhere, true), Answer::Nothing);
        let here = at(0, InFlight::Some);
        assert_eq!(
            schedule.worker_runs(Worker::Near, here, false),
            Answer::Send
        );
        assert_eq!(schedule.worker_ran(false, false), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        // The process has moved: a doorbell elsewhere.
        assert_eq!(
            ring(&mut schedule, 2, InFlight::Some),
            Answer::Leave(far(0))
        );
        assert_eq!(schedule.worker_runs(Worker::Far, here, true), Answer::Send);
        while schedule.worker_ran(false, false) != AfterTurn::Rest {}
        assert_eq!(schedule.rest(false), None);
        // All is acknowledged.
        assert_eq!(ring(&mut schedule, 2, InFlight::Nothing), Answer::Send);
    }

    #[test]
    fn moves_when_nothing_is_in_flight() {
        let mut schedule = Schedule::default();
        assert_eq!(stream(&mut schedule, InFlight::Some), Answer::Wait);
        assert!(schedule.has_worker());
        assert_eq!(schedule.moves().away, 1);
        assert_eq!(ring(&mut schedule, 0, InFlight::Some), Answer::Nothing);
        let ack = at(0, InFlight::Some);
        assert_eq!(schedule.event(ack, true), Answer::Nothing);
        assert_eq!(
            schedule.worker_runs(Worker::Far, ack, true),
            Answer::Nothing
        );
        let last = at(0, InFlight::Nothing);
        assert_eq!(schedule.event(last, false), Answer::Leave(far(1)));
    }

    #[test]
    fn does_not_wait_for_what_need_not_end() {
        let mut schedule = Schedule::default();
        assert_eq!(stream(&mut schedule, InFlight::Untimed), Answer::Send);
        assert!(!schedule.has_worker());
    }

    #[test]
    fn comes_back_when_its_cpu_is_wanted() {
        let mut schedule = away();
        let there = at(1, InFlight::Some);
        for _ in WANTED_TURNS / 2..WANTED_TURNS {
            assert_eq!(
                schedule.worker_runs(Worker::Far, there, false),
                Answer::Send
            );
            assert_eq!(schedule.worker_ran(true, true), AfterTurn::Again(far(1)));
        }
        assert_eq!(
            schedule.worker_runs(Worker::Far, there, false),
            Answer::Wait
        );
        assert_eq!(schedule.moves().back, 1);
        let last = at(1, InFlight::Nothing);
        assert_eq!(schedule.event(last, true), Answer::Leave(near(0)));
        // A far worker that is still queued is not the one in charge.
        assert_eq!(
            schedule.worker_runs(Worker::Far, last, true),
            Answer::Nothing
        );
        let back = at(0, InFlight::Nothing);
        assert_eq!(
            schedule.worker_runs(Worker::Near, back, false),
            Answer::Send
        );
    }

    #[test]
    fn a_far_worker_lingers_and_then_rests() {
        let mut schedule = away();
        let there = at(1, InFlight::Nothing);
        for _ in 0..IDLE_TURNS {
            assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
            assert_eq!(schedule.worker_ran(false, false), AfterTurn::Again(far(1)));
        }
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        assert_eq!(schedule.worker_ran(false, false), AfterTurn::Rest);
        assert_eq!(schedule.rest(true), Some(far(1)));
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        assert_eq!(schedule.worker_ran(false, false), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        assert_eq!(ring(&mut schedule, 0, InFlight::Nothing), Answer::Send);
    }

    #[test]
    fn after_a_reset_nobody_is_in_charge() {
        let mut schedule = away();
        schedule.reset();
        let there = at(1, InFlight::Nothing);
        assert_eq!(
            schedule.worker_runs(Worker::Far, there, true),
            Answer::Nothing
        );
        assert_eq!(ring(&mut schedule, 2, InFlight::Some), Answer::Send);
    }
}

#[cfg(test)]
mod model;
