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
//!     |                         |  ^                                     |     |
//!     |       a timer runs out  |  +-------------------------------------|-----+
//!     |                         +------> Working where it was            |
//!     +------------------------------------------------------------------+
//!                            nothing is left to be done
//! ```
//!
//! # No state waits for what nobody is bound to cause
//!
//! | state | ends by | which comes because |
//! |---|---|---|
//! | Inline | - | it waits for nothing: whatever happens may send |
//! | Working | the worker's turn | it is queued, or runs, and is called again by its own turn |
//! | Moving | the last acknowledgement | the last packet in flight asks for it ([`InFlight::Awaited`]) |
//! | | or a timer | the queue has a deadline as long as packets are in flight |
//!
//! So a move begins only if what is in flight is bound to end, and is given up as soon as that is
//! not so any more, or a timer has something to send: a probe, or what was lost.
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
    /// There are, and their end is bound to come: the last of them asks for an answer, and a
    /// timeout gives them up if none comes.
    Awaited,
    /// There are, and nobody is bound to end them, so nothing may wait for that.
    Unbounded,
}

/// Why somebody looks after a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An ACK, a response, another turn of a doorbell, a user in the kernel: there may be something
    /// to send, or not.
    Progress {
        /// Whether there may be.
        unsent: bool,
    },
    /// A deadline of the queue is over: something is to be sent again, or a wait has ended.
    Deadline,
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
    /// A worker, as soon as all that is in flight is acknowledged. Nobody sends meanwhile.
    Moving {
        /// Where what is in flight left from.
        from: C,
        /// Where the worker will be.
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
            return self.event(moment, Event::Progress { unsent: true });
        };
        let in_flight = moment.in_flight;
        // Where what is in flight left from.
        let from = last.filter(|_| in_flight != InFlight::Nothing);
        if self.stream.rings(now, position) {
            match another() {
                Some(cpu) if in_flight != InFlight::Unbounded => {
                    self.moves.away = self.moves.away.wrapping_add(1);
                    self.idle = 0;
                    return self.move_to(from, cpu, Some(moment.here));
                }
                _ => self.stream.pause(),
            }
        }
        match from {
            Some(cpu) if cpu != moment.here => {
                self.idle = 0;
                self.work_at(cpu, Some(moment.here))
            }
            _ => self.send_here(moment),
        }
    }

    /// Something has happened at this moment.
    #[inline]
    pub fn event(&mut self, moment: Moment<C>, event: Event) -> Answer<C> {
        let nothing_in_flight = moment.in_flight == InFlight::Nothing;
        match self.sender {
            Sender::Inline { last: Some(cpu) } if cpu != moment.here && !nothing_in_flight => {
                match event {
                    Event::Progress { unsent: false } => Answer::Nothing,
                    Event::Progress { unsent: true } | Event::Deadline => self.work_at(cpu, None),
                }
            }
            Sender::Inline { .. } => self.send_here(moment),
            Sender::Working { .. } => Answer::Nothing,
            Sender::Moving { to, process, .. } if nothing_in_flight => self.work_at(to, process),
            Sender::Moving { from, .. } => match (event, moment.in_flight) {
                (Event::Progress { .. }, InFlight::Awaited) => Answer::Nothing,
                _ => self.work_at(from, None),
            },
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
                if self.wanted <= WANTED_TURNS || moment.in_flight == InFlight::Unbounded {
                    return self.work_on(moment.here, Some(process));
                }
                self.wanted = WANTED_TURNS / 2;
                self.stream.pause();
                self.moves.back = self.moves.back.wrapping_add(1);
                let from = (moment.in_flight != InFlight::Nothing).then_some(moment.here);
                self.move_to(from, process, None)
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

    /// Moves to the CPU `to`, where the worker will be, when what is in flight `from` another one has
    /// ended.
    fn move_to(&mut self, from: Option<C>, to: C, process: Option<C>) -> Answer<C> {
        match from {
            Some(from) if from != to => {
                self.sender = Sender::Moving { from, to, process };
                Answer::Wait
            }
            _ => self.work_at(to, process),
        }
    }

    /// Leaves it to a worker on the CPU `on`.
    fn work_at(&mut self, on: C, process: Option<C>) -> Answer<C> {
        self.sender = Sender::Working { on, process };
        Answer::Leave(Self::call(on, process))
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

    const NOTHING: Event = Event::Progress { unsent: false };
    const UNSENT: Event = Event::Progress { unsent: true };

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
        assert_eq!(ring(&mut schedule, 0, InFlight::Awaited), Answer::Send);
        // An ACK elsewhere: only if there is something to send.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(schedule.event(elsewhere, NOTHING), Answer::Nothing);
        assert_eq!(schedule.event(elsewhere, UNSENT), Answer::Leave(near(0)));
        assert_eq!(schedule.event(elsewhere, UNSENT), Answer::Nothing);
        let here = at(0, InFlight::Awaited);
        assert_eq!(
            schedule.worker_runs(Worker::Near, here, false),
            Answer::Send
        );
        assert_eq!(schedule.worker_ran(false, false), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        // The process has moved: a doorbell elsewhere.
        assert_eq!(
            ring(&mut schedule, 2, InFlight::Awaited),
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
        assert_eq!(stream(&mut schedule, InFlight::Awaited), Answer::Wait);
        assert!(schedule.has_worker());
        assert_eq!(schedule.moves().away, 1);
        assert_eq!(ring(&mut schedule, 0, InFlight::Awaited), Answer::Nothing);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(schedule.event(ack, UNSENT), Answer::Nothing);
        assert_eq!(
            schedule.worker_runs(Worker::Far, ack, true),
            Answer::Nothing
        );
        let last = at(0, InFlight::Nothing);
        assert_eq!(schedule.event(last, NOTHING), Answer::Leave(far(1)));
    }

    #[test]
    fn does_not_wait_for_what_need_not_end() {
        let mut schedule = Schedule::default();
        assert_eq!(stream(&mut schedule, InFlight::Unbounded), Answer::Send);
        assert!(!schedule.has_worker());
        // Nor goes on to wait, if that is so all of a sudden.
        let mut schedule = Schedule::default();
        assert_eq!(stream(&mut schedule, InFlight::Awaited), Answer::Wait);
        let unbounded = at(0, InFlight::Unbounded);
        assert_eq!(
            schedule.event(unbounded, NOTHING),
            Answer::Leave(near(0))
        );
    }

    #[test]
    fn a_timer_ends_a_move() {
        let mut schedule = Schedule::default();
        assert_eq!(stream(&mut schedule, InFlight::Awaited), Answer::Wait);
        // A probe is due, on any CPU: it leaves from where the flight did.
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            schedule.event(elsewhere, Event::Deadline),
            Answer::Leave(near(0))
        );
        let there = at(0, InFlight::Awaited);
        assert_eq!(
            schedule.worker_runs(Worker::Near, there, false),
            Answer::Send
        );
    }

    #[test]
    fn comes_back_when_its_cpu_is_wanted() {
        let mut schedule = away();
        let there = at(1, InFlight::Awaited);
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
        assert_eq!(schedule.event(last, UNSENT), Answer::Leave(near(0)));
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
        assert_eq!(ring(&mut schedule, 2, InFlight::Awaited), Answer::Send);
    }
}

#[cfg(test)]
mod model;
