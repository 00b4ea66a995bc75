// SPDX-License-Identifier: GPL-2.0

//! Work items and timers of a QP.
//!
//! A worker runs one invocation and queues itself again for the next, so that other work on its CPU
//! runs in between. The traits are implemented here and not beside the type, because this file
//! stands above everything that they call.

use crate::core::kick::Kick;
use crate::core::offload::Worker;
use crate::datapath::backlog::Backlog;
use crate::datapath::cq::Cq;
use crate::datapath::ctx::{
    Ctx,
    RunContext, //
};
use crate::datapath::qp::{
    Qp,
    ANSWER,
    POLL,
    POSTED,
    SEND_FAR,
    SEND_NEAR, //
};
use crate::datapath::queues::Answering;
use crate::datapath::tx::wire;
use crate::datapath::{
    post,
    receive, //
};
use crate::sys::ib::qp::QpState;
use crate::sys::work::{
    self,
    Cpu,
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
            let rounds = ctx.directory().workqueues().rounds(Cpu::current());
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
    let again = Ctx::run(context, |ctx| {
        let mut send = qp.send.lock();
        let alone = worker == Worker::Far && work::is_alone();
        post::kick(&mut send, qp, Kick::Worker { worker, alone }, ctx)
    });
    // `None`: the module is being unloaded.
    again == Some(true)
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

impl WorkItem for Backlog {
    type Pointer = Arc<Self>;

    /// Packets were left to this CPU. Runs in a softirq.
    fn run(this: Arc<Self>) {
        if receive::execute_backlog(&this) {
            // `None`: the module is being unloaded. What is left is freed.
            let _ = Ctx::run(RunContext::Softirq, |ctx| {
                ctx.directory().backlogs().again(this);
            });
        }
    }
}

impl Expires for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            post::expired(this, ctx);
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
