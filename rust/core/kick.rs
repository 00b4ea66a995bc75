// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Kick: an event makes a send queue look for work.
//!
//! Doorbells, posts of ULPs, ACKs, timers and workers all come here. [`Offload`] decides which CPU
//! transmits. If it is this one, the queue transmits; in ERR and SQE it flushes instead. What
//! exceeds the budget always has somebody who continues: the caller, or a worker that was called.

use super::offload::budget::HelperVerdict;
use super::offload::{
    AfterRun,
    Decision,
    Offload,
    OffloadEvent,
    SchedPoint,
    Worker,
    WorkerCall, //
};
use super::send::Progress;

/// Why a send queue looks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// A doorbell. If there is more than the budget permits, [`Kick::DoorbellAgain`] follows.
    Doorbell,
    /// A further run of a doorbell. After the `last` one a worker continues.
    DoorbellAgain {
        /// The doorbell has run long enough.
        last: bool,
    },
    /// An ACK, a response or a post by a ULP.
    Progress(Progress),
    /// The timer of the requester expired.
    Deadline(Progress),
    /// A worker runs.
    Worker {
        /// Which one.
        worker: Worker,
        /// No other task wants its CPU.
        alone: bool,
    },
}

/// Where [`Offload`] was asked who transmits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedBy {
    /// A doorbell.
    Doorbell,
    /// An ACK, a timer of the requester, a post by a ULP, another run of a doorbell.
    Event,
    /// A worker, before it transmits.
    WorkerRuns,
    /// A worker, after it has transmitted.
    WorkerRan,
    /// An invocation that has used up its budget.
    Budget,
    /// The end of all traffic.
    End,
}

/// What the state of the QP permits its send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// RTS, SQD.
    Transmit,
    /// SQE, ERR: WQEs complete as flushed.
    Flush,
    /// Nothing.
    None,
}

/// A send queue, locked, with all that surrounds it. `C` names a CPU.
pub trait KickEnv<C> {
    /// Who transmits.
    fn offload(&mut self) -> &mut Offload<C>;
    /// Place and time, and packets in flight.
    fn point(&self) -> SchedPoint<C>;
    /// What the state permits.
    fn activity(&self) -> Activity;
    /// Whether there is something to send: WQEs in the ring, or fetched and not sent.
    fn has_work(&self) -> bool;
    /// WQEs fetched so far.
    fn fetched(&self) -> u32;

    /// [`Offload`] was asked: another CPU may transmit from now on.
    fn asked(&mut self, _: AskedBy) {}
    /// [`Offload::doorbell`], told how far the process is.
    fn doorbell(&mut self, point: SchedPoint<C>) -> Decision<C>;
    /// Calls a worker, which may take over. Doorbells are needed until it does.
    fn invite(&mut self, call: WorkerCall<C>);
    /// Calls a worker, which is in charge. No doorbell is needed from now on.
    fn call(&mut self, call: WorkerCall<C>);
    /// No doorbell is needed from now on.
    fn stop_doorbells(&mut self);
    /// Doorbells are needed from now on. Returns whether there are WQEs that came without one.
    fn ask_for_doorbells(&mut self) -> bool;

    /// Fetches and transmits up to the budget. Returns whether there is more.
    fn transmit(&mut self) -> bool;
    /// Flushes up to the budget. Returns whether there is more.
    fn flush(&mut self) -> bool;
    /// The queue has failed.
    fn fail(&mut self);
    /// Charges the run of a worker to its CPU. Returns how many queues share the round of a timer.
    fn worked(&mut self, worker: Worker) -> u32;
    /// A worker on this CPU has served a queue well or not: for all who may invite one there.
    fn judge(&mut self, cpu: C, verdict: HelperVerdict);
    /// Publishes the consumer index, the counters and the deadline.
    fn publish(&mut self);
}

/// Does what follows from an event. Returns whether the caller runs again at once: a doorbell by
/// [`Kick::DoorbellAgain`], the timer that polls as before.
#[inline(always)]
pub fn kick<C: Copy + PartialEq>(queue: &mut impl KickEnv<C>, why: Kick) -> bool {
    let activity = queue.activity();
    let asked_by = match why {
        Kick::Doorbell => AskedBy::Doorbell,
        Kick::Worker { .. } => AskedBy::WorkerRuns,
        Kick::DoorbellAgain { .. } | Kick::Progress(_) | Kick::Deadline(_) => AskedBy::Event,
    };
    let decision = match why {
        Kick::Progress(progress) | Kick::Deadline(progress) if progress.has_failed() => {
            queue.fail();
            Decision::Nothing
        }
        Kick::Doorbell if activity == Activity::Transmit => {
            let point = queue.point();
            queue.doorbell(point)
        }
        Kick::Doorbell | Kick::DoorbellAgain { .. } => event(queue, true),
        Kick::Progress(_) => {
            let unsent = activity == Activity::Flush || queue.has_work();
            event(queue, unsent)
        }
        Kick::Deadline(_) => {
            let point = queue.point();
            queue.offload().event(point, OffloadEvent::Deadline)
        }
        Kick::Worker { worker, alone } => {
            let point = queue.point();
            let decision = queue.offload().worker_runs(worker, point, alone);
            tell(queue);
            decision
        }
    };
    queue.asked(asked_by);
    if !is_for_here(queue, decision) {
        queue.publish();
        return false;
    }
    let before = queue.fetched();
    let more = match activity {
        Activity::Transmit => queue.transmit(),
        Activity::Flush => queue.flush(),
        Activity::None => false,
    };
    queue.publish();
    match why {
        Kick::Doorbell | Kick::DoorbellAgain { last: false } => more,
        Kick::Worker { worker, .. } => {
            let queues = queue.worked(worker);
            let fetched = queue.fetched().wrapping_sub(before);
            after_run(queue, more, fetched, queues)
        }
        Kick::DoorbellAgain { last: true } | Kick::Progress(_) | Kick::Deadline(_) => {
            if more {
                let here = queue.point().here;
                let call = queue.offload().leave(here);
                queue.asked(AskedBy::Budget);
                queue.call(call);
            }
            false
        }
    }
}

#[inline(always)]
fn event<C: Copy + PartialEq>(queue: &mut impl KickEnv<C>, unsent: bool) -> Decision<C> {
    let point = queue.point();
    let event = OffloadEvent::Progress { unsent };
    queue.offload().event(point, event)
}

/// Carries out a decision. Returns whether this CPU transmits.
#[inline(always)]
fn is_for_here<C>(queue: &mut impl KickEnv<C>, decision: Decision<C>) -> bool {
    match decision {
        Decision::Send => return true,
        Decision::Invite(call) => {
            queue.invite(call);
            return true;
        }
        Decision::Leave(call) => queue.call(call),
        Decision::LeaveInviting(timer, worker) => {
            queue.call(timer);
            queue.invite(worker);
        }
        Decision::Wait => queue.stop_doorbells(),
        Decision::Nothing => {}
    }
    false
}

/// Tells the other queues what a worker on another CPU has shown.
fn tell<C>(queue: &mut impl KickEnv<C>)
where
    C: Copy + PartialEq,
{
    if let Some((cpu, verdict)) = queue.offload().take_verdict() {
        queue.judge(cpu, verdict);
    }
}

/// A worker has run: sees who continues. Returns whether the timer runs again at once.
fn after_run<C: Copy + PartialEq>(
    queue: &mut impl KickEnv<C>,
    more: bool,
    fetched: u32,
    queues: u32,
) -> bool {
    let point = queue.point();
    let ran = queue.offload().worker_ran(more, fetched, queues, point);
    tell(queue);
    queue.asked(AskedBy::WorkerRan);
    let call = match ran {
        AfterRun::Again(call) => Some(call),
        AfterRun::MoveBack(decision) => {
            is_for_here(queue, decision);
            return false;
        }
        AfterRun::Rest => {
            let posted = queue.ask_for_doorbells();
            let call = queue.offload().rest(posted);
            tell(queue);
            queue.asked(AskedBy::WorkerRan);
            call
        }
    };
    if let Some(call) = call {
        queue.call(call);
    }
    more && call.is_some_and(|call| call.worker == Worker::Timer)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_kick))]
mod tests {
    use super::*;
    use crate::core::offload::InFlight;

    /// WQEs that one run flushes.
    const BUDGET: u32 = 2;

    /// A queue that has failed, with so many WQEs to be flushed.
    struct Failed {
        offload: Offload<u32>,
        here: u32,
        activity: Activity,
        left: u32,
        flushed: u32,
        called: Option<Worker>,
    }

    impl Failed {
        fn new(left: u32) -> Self {
            Self {
                offload: Offload::default(),
                here: 0,
                activity: Activity::Flush,
                left,
                flushed: 0,
                called: None,
            }
        }
    }

    impl KickEnv<u32> for Failed {
        fn offload(&mut self) -> &mut Offload<u32> {
            &mut self.offload
        }

        fn point(&self) -> SchedPoint<u32> {
            SchedPoint {
                here: self.here,
                now: 0,
                in_flight: InFlight::Nothing,
            }
        }

        fn activity(&self) -> Activity {
            self.activity
        }

        fn has_work(&self) -> bool {
            false
        }

        fn fetched(&self) -> u32 {
            self.flushed
        }

        fn doorbell(&mut self, _: SchedPoint<u32>) -> Decision<u32> {
            unreachable!("a failed queue does not stream")
        }

        fn invite(&mut self, _: WorkerCall<u32>) {
            unreachable!("a failed queue does not stream")
        }

        fn call(&mut self, call: WorkerCall<u32>) {
            self.called = Some(call.worker);
        }

        fn stop_doorbells(&mut self) {
            unreachable!("nothing is in flight")
        }

        fn ask_for_doorbells(&mut self) -> bool {
            self.left != 0
        }

        fn transmit(&mut self) -> bool {
            unreachable!("a failed queue does not transmit")
        }

        fn flush(&mut self) -> bool {
            let now = self.left.min(BUDGET);
            self.left -= now;
            self.flushed += now;
            now == BUDGET
        }

        fn fail(&mut self) {}

        fn worked(&mut self, _: Worker) -> u32 {
            1
        }

        fn judge(&mut self, _: u32, _: HelperVerdict) {}

        fn publish(&mut self) {}
    }

    /// Lets workers run until none is called.
    fn finish(queue: &mut Failed) {
        for _ in 0..100 {
            let Some(worker) = queue.called.take() else {
                return;
            };
            assert!(!kick(
                queue,
                Kick::Worker {
                    worker,
                    alone: true
                }
            ));
        }
        panic!("a worker is called for ever");
    }

    #[test]
    fn a_flush_ends_with_all_done_or_somebody_who_continues() {
        let all = [
            Kick::Doorbell,
            Kick::DoorbellAgain { last: false },
            Kick::DoorbellAgain { last: true },
            Kick::Progress(Progress::default()),
        ];
        for why in all {
            for wqes in 0..8 {
                let mut queue = Failed::new(wqes);
                let again = kick(&mut queue, why);
                assert!(queue.left == 0 || again || queue.called.is_some());
                if again {
                    kick(&mut queue, Kick::DoorbellAgain { last: true });
                }
                finish(&mut queue);
                assert_eq!((queue.left, queue.flushed), (0, wqes));
                assert!(!queue.offload.has_worker());
            }
        }
    }

    #[test]
    fn who_is_not_in_charge_does_not_flush() {
        let mut queue = Failed::new(9);
        kick(&mut queue, Kick::Progress(Progress::default()));
        let flushed = queue.flushed;
        queue.here = 1;
        assert!(!kick(&mut queue, Kick::Doorbell));
        assert_eq!(queue.flushed, flushed);
        queue.here = 0;
        finish(&mut queue);
        assert_eq!(queue.left, 0);
    }

    #[test]
    fn a_queue_that_is_reset_does_nothing() {
        let mut queue = Failed::new(3);
        queue.activity = Activity::None;
        for why in [Kick::Doorbell, Kick::Progress(Progress::default())] {
            assert!(!kick(&mut queue, why));
        }
        assert_eq!((queue.flushed, queue.called), (0, None));
    }
}

mod model;
