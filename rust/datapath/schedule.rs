// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Who sends for a send queue, and on which CPU.
//!
//! Usually nobody in particular: a doorbell, an ACK or a timer sends what may be sent, where it
//! comes up. A worker takes over for what is beyond the budget of that. For a process that streams
//! ([`super::stream`]) a worker on another CPU does, or, if there is none, a timer on its own one.
//! While one of them is in charge it looks at the ring itself, so the process rings no doorbell.
//!
//! A worker on another CPU helps only while that CPU has nothing else to do. So it is invited
//! first: the process goes on as before, and the worker takes over when its turn has come and it
//! finds itself alone there. It gives the queue back when something else wants that CPU, or when
//! requests wait for it longer than the process would have taken to send them: a hypervisor may
//! have given the CPU to somebody else, which nobody in here sees. A CPU that is busy costs a
//! stream nothing but the invitation.
//!
//! The timer polls the ring every few ten microseconds ([`super::rounds`]): what was posted since
//! leaves as one batch, and is acknowledged as one, where each request had a system call, a way
//! through the network stack and an ACK of its own. It ends when the process waits for something,
//! when a batch is so large that a worker is due, and in time for the next invitation.
//!
//! Packets of one queue must not overtake each other, and those sent on one CPU may still wait
//! there, in a backlog or in a queue of the netdev, while another CPU sends. So as long as packets
//! are in flight all others leave from the CPU that the last one left from: what comes up elsewhere
//! calls a worker there, and a queue that is to move waits until they are acknowledged.
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
//!                       a timer runs out     +---> Working, where it was          |
//!                                                                                 |
//!          Inline <---------------------------------------------------------------+
//!           ^  |                   nothing is left to be done
//!   nothing |  | the process streams, and nobody is to be invited
//!   posted  |  v
//!          Polling ----> Working, on the same CPU
//!                  much
//! ```
//!
//! # No state waits for what nobody is bound to cause
//!
//! | state | ends by | which comes because |
//! |---|---|---|
//! | Inline | - | it waits for nothing: whatever happens may send |
//! | Inviting | the worker's turn | it waits for nothing either: as Inline, until then |
//! | Polling | the timer | each call of it, and the doorbell that began, set it again |
//! | Working | the worker's turn | it is queued, or runs, and is called again by its own turn |
//! | Moving | the last acknowledgement | the last packet in flight asks for it |
//! | | or a timer | the queue has a deadline as long as packets are in flight |
//!
//! So a move begins only if what is in flight is bound to end, and is given up as soon as that is
//! not so any more, or a timer has something to send: a probe, or what was lost.
//!
//! The owner of the queue calls in with what happened, under the lock of the queue, and does what
//! the answer says.

use super::stream::{
    Backoff,
    Position,
    Stream, //
};

/// Turns on a CPU that has other work as well, before the queue leaves it.
const WANTED_TURNS: u32 = 8;

/// Turns in which a worker on another CPU finds nothing in the ring before it ends.
const IDLE_TURNS: u32 = 64;

/// Turns in which a worker on another CPU finds fewer requests than this say nothing of its speed:
/// the process may be the slow one.
const JUDGED: u32 = 8;

/// Turns of such a worker, none too slow, after which it has helped.
const HELPED_TURNS: u32 = 256;

/// Polls in a row that find nothing in the ring before they end. Each waits twice as long as the
/// one before: where interrupts are dear the process may not have come to post.
const IDLE_POLLS: u32 = 4;

/// Turns of the timer in a row that leave something to be done before a worker is called: there is
/// more than half of the CPU can send.
const BEHIND_TURNS: u32 = 8;

/// Polls after which they are judged.
const JUDGED_POLLS: u32 = 64;

/// Requests that a poll must find on average. Each must have taken less time than with a doorbell,
/// too.
const WANTED_PER_POLL: u32 = 2;

/// Requests without a doorbell after which polling has helped.
const HELPED_REQUESTS: u32 = 64;

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
    /// When, in nanoseconds of one clock.
    pub now: u64,
    /// What is under way then.
    pub in_flight: InFlight,
}

/// Who can be called for a queue: one of two work items, or a timer. A work item that is running
/// cannot be queued for another CPU, so whoever moves the queue uses the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// On a CPU that has sent before.
    Near,
    /// On another CPU than that of the process.
    Far,
    /// The timer, on the CPU where it is set.
    Timer,
}

/// A worker to be called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<C> {
    /// Which one.
    pub worker: Worker,
    /// Where. The timer is called where it will run.
    pub cpu: C,
    /// How long the timer waits, in periods of [`super::rounds`]; 0 of the others.
    pub periods: u32,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Answer<C> {
    /// Send, here.
    Send,
    /// Send, here, and call this worker, which may take over. Doorbells are needed until it does.
    Invite(Call<C>),
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
    /// It was of no help, and the queue goes back to the CPU of its process, as this says.
    GoBack(Answer<C>),
}

/// How often queues changed their CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    /// To another CPU, because the process streams.
    pub away: u64,
    /// Back from there, or not there at all, because that CPU had other work.
    pub back: u64,
    /// To no other CPU but to a timer on the same one.
    pub polled: u64,
}

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender<C> {
    /// Whoever has a reason, but while packets are in flight only on the CPU `last`.
    Inline {
        /// Where the last packet left.
        last: Option<C>,
    },
    /// As `Inline`, and a worker on another CPU was called to look whether it can help.
    Inviting {
        /// As in `Inline`.
        last: Option<C>,
        /// The CPU of the process.
        process: C,
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
    /// The timer, which is set, and on its CPU whoever else has a reason.
    Polling(Polls<C>),
}

/// Polls of a ring by a timer. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Polls<C> {
    /// Where.
    on: C,
    /// When the last one was.
    last: u64,
    /// How many there were, and how many requests they took.
    count: u32,
    took: u32,
    /// The time from the poll before to each that took any: it had them sent while it polled.
    time: u64,
    /// How many in a row have left something to be done.
    behind: u32,
}

/// Who sends for one queue.
#[derive(Debug)]
pub struct Schedule<C> {
    sender: Sender<C>,
    stream: Stream,
    /// When to invite a worker on another CPU again.
    offload: Backoff,
    /// When to poll again.
    polling: Backoff,
    /// Turns in a row in which something else wanted to run where the far worker sends.
    wanted: u32,
    /// Turns in a row in which that one, or the timer, found nothing in the ring.
    idle: u32,
    /// When its turn before the last one began, and the last one.
    turns: [Option<u64>; 2],
    /// Turns since it took over.
    turned: u32,
    /// Invitations so far, each to the next CPU that there is.
    invitations: u32,
    moves: Moves,
}

impl<C> Default for Schedule<C> {
    fn default() -> Self {
        Self {
            sender: Sender::Inline { last: None },
            stream: Stream::default(),
            offload: Backoff::default(),
            polling: Backoff::default(),
            wanted: 0,
            idle: 0,
            turns: [None; 2],
            turned: 0,
            invitations: 0,
            moves: Moves::default(),
        }
    }
}

impl<C: Copy + PartialEq> Schedule<C> {
    /// A worker or the timer is in charge, or will be: no doorbell is needed.
    #[inline]
    pub fn has_worker(&self) -> bool {
        !matches!(self.sender, Sender::Inline { .. } | Sender::Inviting { .. })
    }

    /// How often the queue changed its CPU.
    #[inline]
    pub fn moves(&self) -> Moves {
        self.moves
    }

    /// The process rang, when so many requests have been `taken` from the ring by the doorbells
    /// before. `position` says how far it has come; `another` names a CPU that may work for it,
    /// another one for each number if there are several. Most doorbells ask for neither. Only for a
    /// queue that `is_watched` may somebody else send, later.
    #[inline]
    pub fn doorbell(
        &mut self,
        moment: Moment<C>,
        taken: u32,
        is_watched: bool,
        position: impl FnOnce() -> Position,
        another: impl FnOnce(u32) -> Option<C>,
    ) -> Answer<C> {
        if self.has_worker() {
            return self.event(moment, Event::Progress { unsent: true });
        }
        let now = moment.now;
        let streams = if matches!(self.sender, Sender::Inline { .. })
            && is_watched
            && (self.offload.is_over(now) || self.polling.is_over(now))
        {
            self.stream.rings(now, taken, position)
        } else {
            self.stream.forget();
            false
        };
        match (self.elsewhere(moment), moment.in_flight) {
            (None, _) if streams => self.serve_stream(moment, another),
            (None, _) => self.send_here(moment),
            // The process has changed its CPU: it posts here from now on.
            (from, InFlight::Awaited) => self.move_to(from, moment, moment.here, None),
            (Some(from), _) => self.work_at(from, None),
        }
    }

    /// The process streams: calls a worker on another CPU, if there is one, to look whether it can
    /// help, or sets the timer.
    #[cold]
    fn serve_stream(
        &mut self,
        moment: Moment<C>,
        another: impl FnOnce(u32) -> Option<C>,
    ) -> Answer<C> {
        let Moment { here, now, .. } = moment;
        if self.may_invite(now) {
            self.invitations = self.invitations.wrapping_add(1);
            if let Some(cpu) = another(self.invitations) {
                let (last, process) = (Some(here), here);
                self.sender = Sender::Inviting { last, process };
                return Answer::Invite(Self::call(cpu, Some(process)));
            }
            self.offload.begin(now);
        }
        if !self.polling.is_over(now) || !self.stream.rings_often() {
            return self.send_here(moment);
        }
        self.idle = 0;
        self.moves.polled = self.moves.polled.wrapping_add(1);
        self.sender = Sender::Polling(Polls {
            on: here,
            last: now,
            count: 0,
            took: 0,
            time: 0,
            behind: 0,
        });
        Answer::Leave(self.timer(here))
    }

    /// Something has happened at this moment.
    #[inline]
    pub fn event(&mut self, moment: Moment<C>, event: Event) -> Answer<C> {
        let in_flight = moment.in_flight;
        match self.sender {
            Sender::Inline { .. } | Sender::Inviting { .. } => match self.elsewhere(moment) {
                None => self.send_here(moment),
                Some(_) if event == (Event::Progress { unsent: false }) => Answer::Nothing,
                Some(cpu) => self.work_at(cpu, None),
            },
            // Its turn comes.
            Sender::Working { .. } => Answer::Nothing,
            Sender::Polling(polls) if polls.on == moment.here => Answer::Send,
            Sender::Polling(_) => Answer::Nothing,
            Sender::Moving { from, to, process } => match (event, in_flight) {
                (_, InFlight::Nothing) => self.work_at(to, process),
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
        Self::call(here, None)
    }

    /// A work item that was queued runs. `alone` says that nothing else wants to run there.
    pub fn worker_runs(&mut self, worker: Worker, moment: Moment<C>, alone: bool) -> Answer<C> {
        match (worker, self.sender) {
            (Worker::Near, Sender::Working { process: None, .. }) => {
                self.work_on(moment.here, None)
            }
            (
                Worker::Far,
                Sender::Working {
                    process: Some(process),
                    ..
                },
            ) => {
                self.wanted = match alone {
                    true => 0,
                    false => self.wanted.saturating_add(1),
                };
                if self.wanted <= WANTED_TURNS || moment.in_flight == InFlight::Unbounded {
                    return self.work_for(process, moment);
                }
                self.go_back(process, moment)
            }
            (Worker::Far, Sender::Inviting { last, process }) => {
                let from = self.elsewhere(moment);
                let may_wait = from.is_none() || moment.in_flight == InFlight::Awaited;
                if !alone || !may_wait {
                    self.sender = Sender::Inline { last };
                    self.offload.begin(moment.now);
                    self.moves.back = self.moves.back.wrapping_add(u64::from(!alone));
                    return Answer::Nothing;
                }
                self.moves.away = self.moves.away.wrapping_add(1);
                (self.wanted, self.idle, self.turned) = (0, 0, 0);
                self.turns = [None; 2];
                match from {
                    None => self.work_for(process, moment),
                    from => self.move_to(from, moment, moment.here, Some(process)),
                }
            }
            (Worker::Timer, Sender::Polling(polls)) if polls.on == moment.here => Answer::Send,
            // That CPU has gone offline.
            (Worker::Timer, Sender::Polling(polls)) => self.work_at(polls.on, None),
            // It was queued for a state that has gone, or another one is in charge.
            _ => Answer::Nothing,
        }
    }

    /// The turn of a worker is over. `more` is left to be done; it `took` so many new requests from
    /// the ring.
    pub fn worker_ran(&mut self, more: bool, took: u32, moment: Moment<C>) -> AfterTurn<C> {
        let (on, process) = match self.sender {
            Sender::Working { on, process } => (on, process),
            Sender::Polling(polls) => return self.polled(polls, more, took, moment.now),
            Sender::Inline { .. } | Sender::Inviting { .. } | Sender::Moving { .. } => {
                return AfterTurn::Rest;
            }
        };
        // Who streams posts more in a moment, and then to be found is cheaper than to ring.
        let mut lingers = false;
        if let Some(process) = process {
            if moment.in_flight != InFlight::Unbounded && self.is_slow(took) {
                return AfterTurn::GoBack(self.go_back(process, moment));
            }
            self.turned = self.turned.saturating_add(1);
            if self.turned == HELPED_TURNS {
                self.offload.helped();
            }
            if self.wanted == 0 {
                self.idle = match took {
                    0 => self.idle.saturating_add(1),
                    _ => 0,
                };
                lingers = self.idle <= IDLE_TURNS;
            }
        }
        if more || lingers {
            AfterTurn::Again(Self::call(on, process))
        } else {
            AfterTurn::Rest
        }
    }

    /// Whether it is time to invite a worker on another CPU.
    fn may_invite(&self, now: u64) -> bool {
        self.stream.is_ours() && self.offload.is_over(now)
    }

    /// A poll is over, which `took` so many requests.
    fn polled(&mut self, before: Polls<C>, more: bool, took: u32, now: u64) -> AfterTurn<C> {
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
        self.sender = Sender::Polling(polls);
        let dear = polls.time > self.stream.cost().saturating_mul(polls.took.into());
        let wanted = polls.count.saturating_mul(WANTED_PER_POLL);
        let is_of_no_use = polls.count % JUDGED_POLLS == 0 && (polls.took < wanted || dear);
        let is_behind = polls.behind > BEHIND_TURNS;
        let ends = self.idle > IDLE_POLLS || is_of_no_use || self.may_invite(now);
        if !is_behind && !ends {
            return AfterTurn::Again(self.timer(polls.on));
        }
        if polls.took < HELPED_REQUESTS || is_of_no_use || dear {
            self.polling.begin(now);
        } else {
            self.polling.helped();
        }
        if more {
            return AfterTurn::Again(self.leave(polls.on));
        }
        AfterTurn::Rest
    }

    /// A worker that rests has asked for doorbells. What was `posted` before it asked must not wait
    /// for one: then it stays in charge, and is to be called again.
    pub fn rest(&mut self, posted: bool) -> Option<Call<C>> {
        let (on, process) = match self.sender {
            Sender::Working { on, process } => (on, process),
            // Its work is a worker's now.
            Sender::Polling(polls) => (polls.on, None),
            Sender::Inline { .. } | Sender::Inviting { .. } | Sender::Moving { .. } => return None,
        };
        if posted {
            self.sender = Sender::Working { on, process };
            return Some(Self::call(on, process));
        }
        if process.is_some() && self.wanted == 0 {
            self.offload.helped();
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

    /// Where what is in flight left from, if that was not here.
    #[inline]
    fn elsewhere(&self, moment: Moment<C>) -> Option<C> {
        match self.sender {
            Sender::Inline { last } | Sender::Inviting { last, .. } => {
                last.filter(|cpu| moment.in_flight != InFlight::Nothing && *cpu != moment.here)
            }
            Sender::Working { .. } | Sender::Moving { .. } | Sender::Polling(_) => None,
        }
    }

    #[inline]
    fn send_here(&mut self, moment: Moment<C>) -> Answer<C> {
        let last = Some(moment.here);
        self.sender = match self.sender {
            Sender::Inviting { process, .. } => Sender::Inviting { last, process },
            _ => Sender::Inline { last },
        };
        Answer::Send
    }

    /// A work item may run elsewhere than it was queued for, if that CPU has gone offline or if it
    /// was still running there: then this is its CPU.
    fn work_on(&mut self, on: C, process: Option<C>) -> Answer<C> {
        self.sender = Sender::Working { on, process };
        Answer::Send
    }

    /// A turn of the worker that works for a process on another CPU.
    fn work_for(&mut self, process: C, moment: Moment<C>) -> Answer<C> {
        let [_, last] = self.turns;
        self.turns = [last, Some(moment.now)];
        self.work_on(moment.here, Some(process))
    }

    /// Whether the process would have sent the requests that the last turn `took` in less time than
    /// has passed since the turn before.
    fn is_slow(&self, took: u32) -> bool {
        let [Some(before), Some(last)] = self.turns else {
            return false;
        };
        // Half as long again, since it was measured once.
        let cost = self.stream.cost().saturating_mul(3) / 2;
        took >= JUDGED && last.saturating_sub(before) > cost.saturating_mul(took.into())
    }

    /// The worker on another CPU is of no help: back to that of the process.
    #[cold]
    fn go_back(&mut self, process: C, moment: Moment<C>) -> Answer<C> {
        self.offload.begin(moment.now);
        self.moves.back = self.moves.back.wrapping_add(1);
        self.move_to(Some(moment.here), moment, process, None)
    }

    /// Moves to the CPU `to`, where the worker will be, when what is in flight `from` another one
    /// has ended.
    fn move_to(
        &mut self,
        from: Option<C>,
        moment: Moment<C>,
        to: C,
        process: Option<C>,
    ) -> Answer<C> {
        match from {
            Some(from) if from != to && moment.in_flight != InFlight::Nothing => {
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
        Call {
            worker,
            cpu,
            periods: 0,
        }
    }

    fn timer(&self, cpu: C) -> Call<C> {
        Call {
            worker: Worker::Timer,
            cpu,
            periods: 1 << self.idle.min(IDLE_POLLS),
        }
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
        let now = 0;
        Moment {
            here,
            now,
            in_flight,
        }
    }

    fn near(cpu: u32) -> Call<u32> {
        Call {
            worker: Worker::Near,
            cpu,
            periods: 0,
        }
    }

    fn far(cpu: u32) -> Call<u32> {
        Call {
            worker: Worker::Far,
            cpu,
            periods: 0,
        }
    }

    fn timer(cpu: u32, periods: u32) -> Call<u32> {
        Call {
            worker: Worker::Timer,
            cpu,
            periods,
        }
    }

    /// A doorbell of a process that has no other CPU.
    fn ring(schedule: &mut Schedule<u32>, here: u32, in_flight: InFlight) -> Answer<u32> {
        schedule.doorbell(at(here, in_flight), 0, true, Position::default, |_| None)
    }

    /// Doorbells on CPU 0 until the process streams; CPU 1 may help. The last answer.
    fn stream(schedule: &mut Schedule<u32>, in_flight: InFlight) -> Answer<u32> {
        let mut moment = at(0, in_flight);
        for _ in 0..16 {
            moment.now += 1;
            let answer = schedule.doorbell(moment, 0, true, Position::default, |_| Some(1));
            if answer != Answer::Send {
                return answer;
            }
            moment.now += 1000;
            if schedule.wants_end() {
                schedule.served(moment.now);
            }
        }
        Answer::Send
    }

    /// A schedule whose worker on CPU 1 was invited.
    fn inviting() -> Schedule<u32> {
        let mut schedule = Schedule::default();
        let answer = stream(&mut schedule, InFlight::Nothing);
        assert_eq!(answer, Answer::Invite(far(1)));
        schedule
    }

    /// The same when it has taken over.
    fn away() -> Schedule<u32> {
        let mut schedule = inviting();
        let there = at(1, InFlight::Nothing);
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        schedule
    }

    /// The same when it waits for what is in flight from CPU 0.
    fn moving() -> Schedule<u32> {
        let mut schedule = inviting();
        let there = at(1, InFlight::Awaited);
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Wait);
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
        assert_eq!(schedule.worker_ran(false, 0, here), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        // All is acknowledged.
        assert_eq!(ring(&mut schedule, 2, InFlight::Nothing), Answer::Send);
    }

    #[test]
    fn follows_its_process_to_another_cpu() {
        let mut schedule = Schedule::default();
        assert_eq!(ring(&mut schedule, 0, InFlight::Nothing), Answer::Send);
        assert_eq!(ring(&mut schedule, 2, InFlight::Awaited), Answer::Wait);
        let ack = at(0, InFlight::Nothing);
        assert_eq!(schedule.event(ack, NOTHING), Answer::Leave(near(2)));
        // Where nothing is bound to end it goes on from there.
        let mut schedule = Schedule::default();
        assert_eq!(ring(&mut schedule, 0, InFlight::Nothing), Answer::Send);
        assert_eq!(
            ring(&mut schedule, 2, InFlight::Unbounded),
            Answer::Leave(near(0))
        );
    }

    #[test]
    fn a_cpu_with_other_work_costs_an_invitation() {
        let mut schedule = inviting();
        assert!(!schedule.has_worker());
        // All goes on meanwhile.
        assert_eq!(ring(&mut schedule, 0, InFlight::Awaited), Answer::Send);
        let ack = at(0, InFlight::Awaited);
        assert_eq!(schedule.event(ack, NOTHING), Answer::Send);
        let there = at(1, InFlight::Awaited);
        assert_eq!(
            schedule.worker_runs(Worker::Far, there, false),
            Answer::Nothing
        );
        assert!(!schedule.has_worker());
        assert_eq!(schedule.moves().back, 1);
        // It is not asked again soon.
        assert_eq!(
            stream(&mut schedule, InFlight::Nothing),
            Answer::Leave(timer(0, 1))
        );
    }

    #[test]
    fn invites_one_cpu_after_the_other() {
        let mut schedule = Schedule::default();
        let (mut asked, mut moment) = ([0; 2], at(0, InFlight::Nothing));
        for number in &mut asked {
            while *number == 0 {
                moment.now += 100_000;
                schedule.served(moment.now);
                let name = |n| {
                    *number = n;
                    None
                };
                let _ = schedule.doorbell(moment, 0, true, Position::default, name);
                // Polling would go on until the next invitation.
                schedule.reset();
            }
        }
        assert_eq!(asked, [1, 2]);
    }

    #[test]
    fn moves_when_nothing_is_in_flight() {
        let mut schedule = moving();
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
        let mut schedule = inviting();
        let there = at(1, InFlight::Unbounded);
        assert_eq!(
            schedule.worker_runs(Worker::Far, there, true),
            Answer::Nothing
        );
        assert!(!schedule.has_worker());
        // Nor goes on to wait, if that is so all of a sudden.
        let mut schedule = moving();
        let unbounded = at(0, InFlight::Unbounded);
        assert_eq!(schedule.event(unbounded, NOTHING), Answer::Leave(near(0)));
    }

    #[test]
    fn a_timer_ends_a_move() {
        let mut schedule = moving();
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
        for _ in 0..WANTED_TURNS {
            assert_eq!(
                schedule.worker_ran(true, 100, there),
                AfterTurn::Again(far(1))
            );
            assert_eq!(
                schedule.worker_runs(Worker::Far, there, false),
                Answer::Send
            );
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

    /// The process needs 1000 ns a request.
    #[test]
    fn comes_back_when_requests_wait_longer_than_they_need() {
        let mut schedule = away();
        let mut there = at(1, InFlight::Nothing);
        assert_eq!(
            schedule.worker_ran(true, 64, there),
            AfterTurn::Again(far(1))
        );
        // The process is the slow one, or nobody is.
        for (took, time) in [(JUDGED - 1, 1_000_000), (100, 150_000)] {
            there.now += time;
            assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
            assert_eq!(
                schedule.worker_ran(true, took, there),
                AfterTurn::Again(far(1))
            );
        }
        there.now += 150_200;
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        assert_eq!(
            schedule.worker_ran(true, 100, there),
            AfterTurn::GoBack(Answer::Leave(near(0)))
        );
        assert_eq!(schedule.moves().back, 1);
    }

    #[test]
    fn a_far_worker_lingers_and_then_rests() {
        let mut schedule = away();
        let there = at(1, InFlight::Nothing);
        for _ in 0..IDLE_TURNS {
            assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
            assert_eq!(
                schedule.worker_ran(false, 0, there),
                AfterTurn::Again(far(1))
            );
        }
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        assert_eq!(schedule.worker_ran(false, 0, there), AfterTurn::Rest);
        assert_eq!(schedule.rest(true), Some(far(1)));
        assert_eq!(schedule.worker_runs(Worker::Far, there, true), Answer::Send);
        assert_eq!(schedule.worker_ran(false, 0, there), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        assert_eq!(ring(&mut schedule, 0, InFlight::Nothing), Answer::Send);
    }

    /// A schedule that polls on CPU 0, for nobody else may send.
    fn polling() -> Schedule<u32> {
        let mut schedule = Schedule::default();
        let mut moment = at(0, InFlight::Nothing);
        for _ in 1..8 {
            moment.now += 1;
            let answer = schedule.doorbell(moment, 0, true, Position::default, |_| None);
            assert_eq!(answer, Answer::Send);
            moment.now += 1000;
            if schedule.wants_end() {
                schedule.served(moment.now);
            }
        }
        let answer = schedule.doorbell(moment, 0, true, Position::default, |_| None);
        assert_eq!(answer, Answer::Leave(timer(0, 1)));
        assert_eq!(schedule.moves().polled, 1);
        schedule
    }

    #[test]
    fn polls_for_who_streams_and_has_no_other_cpu() {
        let mut schedule = polling();
        assert!(schedule.has_worker());
        let here = at(0, InFlight::Awaited);
        // An ACK may send here; elsewhere it is left to the timer.
        assert_eq!(schedule.event(here, UNSENT), Answer::Send);
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(schedule.event(elsewhere, UNSENT), Answer::Nothing);
        assert_eq!(schedule.event(elsewhere, Event::Deadline), Answer::Nothing);
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
                schedule.worker_runs(Worker::Timer, here, false),
                Answer::Send
            );
            assert_eq!(
                schedule.worker_ran(false, took, here),
                AfterTurn::Again(timer(0, periods))
            );
        }
        // The process waits for something.
        assert_eq!(
            schedule.worker_runs(Worker::Timer, here, false),
            Answer::Send
        );
        assert_eq!(schedule.worker_ran(false, 0, here), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        assert_eq!(ring(&mut schedule, 0, InFlight::Awaited), Answer::Send);
        // A timer that is still set finds nothing to do.
        assert_eq!(
            schedule.worker_runs(Worker::Timer, here, false),
            Answer::Nothing
        );
        // It has helped.
        assert!(schedule.polling.is_over(0));
    }

    #[test]
    fn polls_no_more_where_it_is_of_no_use() {
        // A few requests, then the process waits; or one now and then.
        for (took, polls) in [(0, IDLE_POLLS + 1), (1, JUDGED_POLLS)] {
            let mut schedule = polling();
            let here = at(0, InFlight::Awaited);
            for _ in 1..polls {
                let after = schedule.worker_ran(false, took, here);
                assert!(matches!(after, AfterTurn::Again(_)));
            }
            assert_eq!(schedule.worker_ran(false, took, here), AfterTurn::Rest);
            assert!(!schedule.polling.is_over(0));
        }
    }

    #[test]
    fn what_is_much_or_late_is_left_to_a_worker() {
        let here = at(0, InFlight::Awaited);
        let mut schedule = polling();
        for _ in 0..BEHIND_TURNS {
            assert_eq!(
                schedule.worker_ran(true, 100, here),
                AfterTurn::Again(timer(0, 1))
            );
        }
        assert_eq!(
            schedule.worker_ran(true, 0, here),
            AfterTurn::Again(near(0))
        );
        assert_eq!(
            schedule.worker_runs(Worker::Near, here, false),
            Answer::Send
        );
        let mut schedule = polling();
        for _ in 0..IDLE_POLLS {
            let after = schedule.worker_ran(false, 0, here);
            assert!(matches!(after, AfterTurn::Again(_)));
        }
        assert_eq!(schedule.worker_ran(false, 0, here), AfterTurn::Rest);
        assert_eq!(schedule.rest(true), Some(near(0)));
        // Its CPU has gone offline.
        let mut schedule = polling();
        let elsewhere = at(2, InFlight::Awaited);
        assert_eq!(
            schedule.worker_runs(Worker::Timer, elsewhere, false),
            Answer::Leave(near(0))
        );
    }

    #[test]
    fn ends_polling_to_invite_again() {
        let mut schedule = polling();
        let mut here = at(0, InFlight::Awaited);
        assert_eq!(
            schedule.worker_ran(false, 100, here),
            AfterTurn::Again(timer(0, 1))
        );
        here.now += 10_000_000;
        assert_eq!(schedule.worker_ran(false, 0, here), AfterTurn::Rest);
        assert_eq!(schedule.rest(false), None);
        schedule.stream.forget();
        let answer = stream(&mut schedule, InFlight::Nothing);
        assert_eq!(answer, Answer::Leave(timer(0, 1)));
    }

    #[test]
    fn nobody_else_sends_for_who_does_not_watch() {
        let mut schedule = Schedule::default();
        let mut moment = at(0, InFlight::Nothing);
        for _ in 0..64 {
            moment.now += 1;
            let answer = schedule.doorbell(moment, 0, false, Position::default, |_| Some(1));
            assert_eq!(answer, Answer::Send);
            assert!(!schedule.wants_end());
        }
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
