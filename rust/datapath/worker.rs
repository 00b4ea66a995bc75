// SPDX-License-Identifier: GPL-2.0

//! Work items and timers of a QP.
//!
//! A worker runs one invocation and queues itself again for the next, so that other work on its CPU
//! runs in between. The traits are implemented here and not beside the type, because this file
//! stands above everything that they call.

use super::cq::Cq;
use super::ctx::{
    Ctx,
    RunContext, //
};
use super::post;
use super::protocol::AnyRequester;
use super::qp::{
    Qp,
    ANSWER,
    POLL,
    POSTED,
    SEND_FAR,
    SEND_NEAR, //
};
use super::queues::Answering;
use super::tx::wire;
use crate::core::offload::{
    AfterRun,
    Decision,
    OffloadEvent,
    Worker, //
};
use crate::core::uabi::words::Module;
use crate::sys::cpu::{
    self,
    Cpu, //
};
use crate::sys::ib::qp::QpState;
use crate::sys::timer::{
    self,
    Deadline,
    Expires, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::WorkItem;

impl WorkItem<SEND_NEAR> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = send(this.as_arc_borrow(), Worker::Near, RunContext::Task);
    }
}

impl WorkItem<SEND_FAR> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = send(this.as_arc_borrow(), Worker::Far, RunContext::Task);
    }
}

/// Invocations of one poll before it leaves the rest to the next one.
const RUNS_PER_POLL: u32 = 4;

impl Expires<POLL> for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let begins = Ctx::run(RunContext::Softirq, |ctx| {
            let mut send = this.send.lock();
            let rounds = ctx.directory().rounds(Cpu::current());
            match rounds.map(|rounds| rounds.enter(send.round, ctx.now())) {
                Some(Ok(round)) => {
                    send.round = round;
                    true
                }
                Some(Err(next)) => {
                    this.poll_timer().arm(next);
                    false
                }
                None => false,
            }
        });
        if begins == Some(true) {
            for _ in 0..RUNS_PER_POLL {
                if !send(this, Worker::Timer, RunContext::Softirq) {
                    break;
                }
            }
        }
    }

    fn deadline(&self) -> &Deadline<Self, POLL> {
        self.poll_timer()
    }
}

/// One invocation of a sending worker or timer. Returns whether the timer is to run again at once.
fn send(qp: ArcBorrow<'_, Qp>, worker: Worker, context: RunContext) -> bool {
    let ctx = Ctx::run(context, |ctx| {
        let mut send = qp.send.lock();
        let point = send.sched_point(ctx.now());
        let alone = worker == Worker::Far && cpu::is_alone();
        let decision = send.offload.worker_runs(worker, point, alone);
        if decision != Decision::Send {
            post::apply(qp, decision, ctx);
            post::settle(&mut send, qp, ctx);
            return false;
        }
        let before = send.requester.pushed();
        let more = match qp.state() {
            QpState::Rts | QpState::Sqd => post::advance(&mut send, qp, ctx),
            QpState::Err | QpState::Sqe => ctx.flush_sends(&mut send, qp),
            _ => false,
        };
        let took = send.requester.pushed().wrapping_sub(before);
        match worker {
            Worker::Timer => ctx.directory().polled(timer::now()),
            Worker::Near | Worker::Far => ctx.worked(),
        }
        let point = send.sched_point(ctx.now());
        let call = match send.offload.worker_ran(more, took, point) {
            AfterRun::Again(call) => Some(call),
            AfterRun::MoveBack(decision) => {
                post::apply(qp, decision, ctx);
                return false;
            }
            AfterRun::Rest => {
                let producer = qp.sq().ask_for_doorbells();
                let posted = post::is_posted(&send, qp, producer) && qp.state() != QpState::Reset;
                send.offload.rest(posted)
            }
        };
        if let Some(call) = call {
            ctx.call_sender(qp, call);
        }
        more && call.is_some_and(|call| call.worker == Worker::Timer)
    });
    // `None`: the module is being unloaded.
    ctx == Some(true)
}

impl WorkItem<ANSWER> for Qp {
    type Pointer = Arc<Self>;

    /// One invocation of the worker that responds or, in ERR, flushes receives.
    fn run(this: Arc<Self>) {
        let qp = this.as_arc_borrow();
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Task, |ctx| {
            if let Some(to) = qp.take_failing() {
                ctx.fail_with(qp, to);
            }
            let mut recv = qp.recv.lock();
            if recv.answering == Answering::Inline {
                return;
            }
            let more = match qp.state() {
                QpState::Err => ctx.flush_receives(&mut recv, qp),
                _ => qp.serves() && wire::answer(&mut recv, qp, ctx),
            };
            ctx.worked();
            if more {
                ctx.leave_to_answerer(&mut recv, qp);
            } else {
                recv.answering = Answering::Inline;
            }
        });
    }
}

impl WorkItem<POSTED> for Qp {
    type Pointer = Arc<Self>;

    /// A ULP has posted. Runs in a softirq, because nothing can be sent in the context of the
    /// poster.
    fn run(this: Arc<Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            post::posted(this.as_arc_borrow(), ctx)
        });
        let _ = post::receive_doorbell(&this);
    }
}

impl Expires for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            send_on(this, ctx);
            answer_on(this, ctx);
        });
    }

    fn deadline(&self) -> &Deadline<Self> {
        self.timer()
    }
}

impl Expires for Cq {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            this.expired(ctx.directory().notifications());
        });
    }

    fn deadline(&self) -> &Deadline<Self> {
        &self.deadline
    }
}

/// The timer of the requester may have expired.
fn send_on(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut send = qp.send.lock();
    if !qp.sends() || (send.local && send.offload.has_worker()) {
        // On the local path the peer's responses wait for the worker: if something is overdue, the
        // worker has not run yet.
        return;
    }
    let now = ctx.now();
    let due = send.requester.deadline().is_some_and(|at| at <= now);
    match &mut send.requester {
        AnyRequester::Reliable(requester) if due => {
            let progress = requester.on_deadline(now, &mut |done| ctx.complete_send(qp, done));
            if progress.fatal {
                post::proceed(&mut send, qp, progress, ctx);
            } else {
                post::go_on(&mut send, qp, OffloadEvent::Deadline, ctx);
            }
        }
        // Too early: armed again.
        _ => post::settle(&mut send, qp, ctx),
    }
}

/// Retries responses that the local stack refused.
fn answer_on(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut recv = qp.recv.lock();
    if let Some(at) = recv.refusals.wait_until(ctx.now()) {
        qp.timer().arm(at);
    } else if qp.serves()
        && recv.responder.has_response()
        && recv.answering == Answering::Inline
        && wire::answer(&mut recv, qp, ctx)
    {
        ctx.leave_to_answerer(&mut recv, qp);
    }
}
