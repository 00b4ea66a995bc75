// SPDX-License-Identifier: GPL-2.0

//! The send queue at work: what makes it look for work, from a doorbell to a timer, is a
//! [`Kick`]; it fetches what was posted and transmits. The work items and timers of a QP are here,
//! too.
//!
//! A worker runs one invocation and queues itself again for the next, so that other work on its CPU
//! runs in between. The traits of work items and timers are implemented here and not beside the
//! type, because this file stands above what they call.

use crate::core::completion::Status;
use crate::core::kick::{
    self,
    Activity,
    AskedBy,
    Kick,
    KickEnv, //
};
use crate::core::offload::budget::HelperVerdict;
use crate::core::offload::stream::Position;
use crate::core::offload::{
    Decision,
    Offload,
    SchedPoint,
    Worker,
    WorkerCall, //
};
use crate::core::send::{
    Progress,
    PushError, //
};
use crate::core::storage::Slot;
use crate::core::uabi::ring::{
    Module,
    RingOps,
    Words, //
};
use crate::datapath::cq::Cq;
use crate::datapath::ctx::{
    Ctx,
    RunContext,
    FLUSHED_PER_RUN, //
};
use crate::datapath::protocol::AnyRequester;
use crate::datapath::qp::{
    Ending,
    Qp,
    ANSWER,
    POLL,
    POSTED,
    SEND_FAR,
    SEND_NEAR, //
};
use crate::datapath::queues::{
    Answering,
    SendQueue, //
};
use crate::datapath::{
    local,
    traced,
    tx, //
};
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::QpState;
use crate::sys::trace::{
    self,
    DoorbellServer, //
};
use crate::sys::work::{
    self,
    Cpu,
    Deadline,
    Expires, //
};
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::WorkItem;

/// Invocations of one system call before it leaves the rest to a worker.
const RUNS_PER_DOORBELL: u32 = 16;
/// WQEs that one invocation fetches from the ring.
const FETCHED_PER_RUN: u32 = 256;

/// Handles the doorbell of a send queue.
pub fn send_doorbell(qp: &Arc<Qp>) -> Result {
    let mut measures = false;
    for run in 1..=RUNS_PER_DOORBELL {
        let again = Ctx::run(RunContext::Task, |ctx| {
            let qp = qp.as_arc_borrow();
            let mut send = qp.send.lock();
            if matches!(qp.state(), QpState::Reset | QpState::Init | QpState::Rtr) {
                return Err(EINVAL);
            }
            if run != 1 {
                let last = run == RUNS_PER_DOORBELL;
                return Ok(kick(&mut send, qp, Kick::DoorbellAgain { last }, ctx));
            }
            qp.steering.seen_at_home(qp.number);
            let again = kick(&mut send, qp, Kick::Doorbell, ctx);
            measures = qp.sends() && send.offload.wants_end();
            Ok(again)
        });
        if !again.ok_or(ENODEV)?? {
            break;
        }
    }
    if measures {
        qp.send.lock().offload.served(work::now());
    }
    Ok(())
}

/// Makes the send queue look for work: the one way in, for all events. Returns whether the caller
/// runs again at once.
pub(super) fn kick(
    send: &mut SendQueue,
    qp: ArcBorrow<'_, Qp>,
    why: Kick,
    ctx: &mut Ctx<'_>,
) -> bool {
    kick::kick(&mut Kicked { send, qp, ctx }, why)
}

/// A send queue in one invocation.
struct Kicked<'q, 't, 'a> {
    send: &'t mut SendQueue,
    qp: ArcBorrow<'q, Qp>,
    ctx: &'t mut Ctx<'a>,
}

impl KickEnv<Cpu> for Kicked<'_, '_, '_> {
    #[inline(always)]
    fn offload(&mut self) -> &mut Offload<Cpu> {
        &mut self.send.offload
    }

    #[inline(always)]
    fn point(&self) -> SchedPoint<Cpu> {
        let now = self.ctx.now;
        SchedPoint {
            here: Cpu::current(),
            now,
            in_flight: self.send.in_flight(now),
        }
    }

    #[inline(always)]
    fn activity(&self) -> Activity {
        match self.qp.state() {
            QpState::Rts | QpState::Sqd => Activity::Transmit,
            QpState::Err | QpState::Sqe => Activity::Flush,
            QpState::Reset | QpState::Init | QpState::Rtr => Activity::None,
        }
    }

    #[inline(always)]
    fn has_work(&self) -> bool {
        let producer = self.qp.sq.load_producer();
        self.send.requester.has_unsent() || is_posted(self.send, self.qp, producer)
    }

    #[inline(always)]
    fn fetched(&self) -> u32 {
        self.send.requester.pushed()
    }

    #[inline(always)]
    fn doorbell(&mut self, point: SchedPoint<Cpu>) -> Decision<Cpu> {
        let Self { send, qp, ctx } = self;
        let (is_watched, fetched) = (send.is_watched(), send.requester.pushed());
        let decision = send.offload.doorbell(
            point,
            fetched,
            is_watched,
            || position_of(*qp, ctx),
            |number| {
                let workqueues = &ctx.directory.workqueues;
                workqueues.helper(qp.number.wrapping_add(number), point.now)
            },
        );
        let (queue, qp) = (&**send, *qp);
        trace::doorbell(move || rung(queue, qp, decision));
        decision
    }

    #[inline(always)]
    fn asked(&mut self, by: AskedBy) {
        self.send.trace_offload(self.qp.number, by);
    }

    fn invite(&mut self, call: WorkerCall<Cpu>) {
        self.ctx.invite_sender(self.qp, call);
    }

    fn call(&mut self, call: WorkerCall<Cpu>) {
        self.ctx.call_sender(self.qp, call);
    }

    fn stop_doorbells(&mut self) {
        self.qp.sq.store_flags(0);
    }

    fn ask_for_doorbells(&mut self) -> bool {
        let producer = self.qp.sq.ask_for_doorbells();
        is_posted(self.send, self.qp, producer) && self.qp.state() != QpState::Reset
    }

    #[inline(always)]
    fn transmit(&mut self) -> bool {
        transmit(self.send, self.qp, self.ctx)
    }

    #[cold]
    fn flush(&mut self) -> bool {
        self.ctx.flush_sends(self.send, self.qp)
    }

    #[cold]
    fn fail(&mut self) {
        self.ctx.fail_sends(self.qp);
    }

    fn worked(&mut self, worker: Worker) -> u32 {
        match worker {
            Worker::Timer => self.ctx.directory.workqueues.polled(work::now()),
            Worker::Near | Worker::Far => {
                self.ctx.worked();
                1
            }
        }
    }

    fn judge(&mut self, cpu: Cpu, verdict: HelperVerdict) {
        let workqueues = &self.ctx.directory.workqueues;
        workqueues.judge_helper(cpu, verdict, self.ctx.now);
    }

    #[inline(always)]
    fn publish(&mut self) {
        let Self { send, qp, ctx } = self;
        // Covers slots of WQEs that completed unsignaled.
        qp.sq.store_consumer(send.requester.retired());
        send.count(qp.number, ctx.counters(qp));
        if let Some(at) = send.requester.deadline() {
            qp.deadline.arm(at);
        }
        if send.notify_drained && qp.state() == QpState::Sqd && send.requester.is_drained() {
            send.notify_drained = false;
            ctx.event(*qp, QpEvent::SqDrained);
        }
    }
}

/// A doorbell, and who serves it.
#[cold]
fn rung(send: &SendQueue, qp: ArcBorrow<'_, Qp>, decision: Decision<Cpu>) -> trace::Doorbell {
    let by = match decision {
        Decision::Send => DoorbellServer::Inline,
        Decision::Invite(_) => DoorbellServer::Invites,
        Decision::Leave(call) | Decision::LeaveInviting(call, _) => match call.worker {
            Worker::Near => DoorbellServer::Near,
            Worker::Far => DoorbellServer::Far,
            Worker::Timer => DoorbellServer::Timer,
        },
        Decision::Wait => DoorbellServer::Moving,
        Decision::Nothing => DoorbellServer::Other,
    };
    trace::Doorbell {
        qpn: qp.number,
        producer: qp.sq.load_producer(),
        taken: send.requester.pushed(),
        by: by as u32,
    }
}

/// Handles a post by a ULP. Work beyond the budget goes to a worker.
pub(super) fn posted(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut send = qp.send.lock();
    kick(&mut send, qp, Kick::Progress(Progress::default()), ctx);
}

/// Handles the expiry of the requester's timer.
pub(super) fn expired(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut send = qp.send.lock();
    if !qp.sends() || (send.local && send.offload.has_worker()) {
        // On the local path the peer's responses wait for the worker: if something is overdue, the
        // worker has not run yet.
        return;
    }
    let now = ctx.now;
    let due = send.requester.deadline().is_some_and(|at| at <= now);
    trace::timer(move || trace::Timer {
        qpn: qp.number,
        due,
    });
    match &mut send.requester {
        AnyRequester::Reliable(requester) if due => {
            let progress = requester.on_deadline(now, &mut |done| ctx.complete_send(qp, done));
            kick(&mut send, qp, Kick::Deadline(progress), ctx);
        }
        // Too early: armed again.
        _ => Kicked {
            send: &mut send,
            qp,
            ctx,
        }
        .publish(),
    }
}

/// The progress that the process can see. The send queue is locked.
fn position_of(qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) -> Position {
    let taken = |cq: &Cq| cq.ring(ctx.rcu).load_consumer();
    Position {
        sends: taken(&qp.send_cq),
        receives: taken(&qp.recv_cq),
        requests: qp.recv.lock().responder.expected_psn().get(),
    }
}

/// Handles the doorbell of a receive queue, which a process rings only in ERR.
pub fn receive_doorbell(qp: &Arc<Qp>) -> Result {
    Ctx::run(RunContext::Task, |ctx| {
        let qp = qp.as_arc_borrow();
        let mut recv = qp.recv.lock();
        if qp.state() == QpState::Err
            && recv.answering == Answering::Inline
            && ctx.flush_receives(&mut recv, qp)
        {
            ctx.leave_to_answerer(&mut recv, qp);
        }
    })
    .ok_or(ENODEV)
}

/// Moves the QP to ERR on behalf of the user.
pub fn fail(qp: &Arc<Qp>) {
    // If the module is being unloaded, no QP is left.
    let _ = Ctx::run(RunContext::Task, |ctx| {
        ctx.fail_with(qp.as_arc_borrow(), Ending::User)
    });
}

/// Carries out a failure that an invocation has met and may not have carried out yet, though its
/// completion is known. Afterwards the state is what the completions say.
pub fn settle(qp: &Arc<Qp>) {
    // `None`: the module is being unloaded.
    let _ = Ctx::run(RunContext::Task, |ctx| {
        let qp = qp.as_arc_borrow();
        // An invocation that has met it and not marked the QP yet holds one of the locks.
        let _send = qp.send.lock();
        let _recv = qp.recv.lock();
        ctx.move_marked(qp);
    });
}

/// Like [`fail`], and flushes all WQEs before it returns: WQEs that workers had not reached would
/// be lost if the QP is destroyed next.
pub fn fail_and_flush(qp: &Arc<Qp>) {
    fail(qp);
    let capacity = qp.capacity;
    flush_with(capacity.max_send_wr.max(capacity.max_recv_wr), |ctx| {
        ctx.flush(qp.as_arc_borrow())
    });
}

/// Flushes all WQEs of a send queue in SQE, before it is in RTS again: those that a worker had not
/// reached would be sent, or wait for ever behind one that failed.
pub fn flush_send_error(qp: &Arc<Qp>) {
    flush_with(qp.capacity.max_send_wr, |ctx| {
        let mut send = qp.send.lock();
        qp.state() == QpState::Sqe && ctx.flush_sends(&mut send, qp.as_arc_borrow())
    });
}

/// Flushes as often as so many WQEs take. Bounded: a process that keeps posting does not hold up
/// the caller.
fn flush_with(entries: u32, flush: impl Fn(&mut Ctx<'_>) -> bool) {
    for _ in 0..=entries / FLUSHED_PER_RUN {
        if Ctx::run(RunContext::Task, &flush) != Some(true) {
            break;
        }
    }
}

/// Fetches and transmits up to the budget. Returns whether there is more.
fn transmit(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let posted = fetch(send, qp, ctx);
    if send.requester.is_drained() {
        send.local = local::serves(send, qp, ctx);
    }
    let more = if send.local {
        local::exchange(send, qp, ctx)
    } else {
        tx::send(send, qp, ctx)
    };
    more || posted
}

/// Fetches posted WQEs: copies each once, then checks the copy, up to [`FETCHED_PER_RUN`]. Returns
/// whether there is more.
fn fetch(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let requester = &mut send.requester;
    let entries = qp.sq.entries();
    let taken = requester.pushed().wrapping_sub(requester.retired());
    let posted = qp.sq.load_producer().wrapping_sub(requester.pushed());
    if posted > entries.wrapping_sub(taken) {
        // Our provider never does this: the ring was overwritten. Slots of WQEs in flight must not
        // be copied again.
        ctx.fail_fatally(qp);
        return false;
    }
    for _ in 0..posted.min(FETCHED_PER_RUN) {
        let index = requester.pushed();
        let slot = Slot::of(index, entries);
        let fetched = send.wqes.take(&*qp.sq, index, slot);
        let taker = &*requester;
        trace::taken(move || {
            let index = taker.pushed();
            traced::taken(qp.number, index, Slot::of(index, entries), fetched)
        });
        let pushed = match fetched {
            Ok(request) => match requester.push(request) {
                Ok(_) => {
                    send.asks_for_completions |= request.signaled;
                    Ok(())
                }
                Err(PushError::Full) => return false,
                Err(PushError::TooLong) => Err((request.wr_id, Status::LocLenErr)),
                Err(PushError::NoReads) => Err((request.wr_id, Status::LocQpOpErr)),
            },
            Err(bad) => Err(bad),
        };
        if let Err((wr_id, status)) = pushed {
            let mut complete = |done| ctx.complete_send(qp, done);
            match requester.push_failed(wr_id, status, &mut complete) {
                Ok(progress) if progress.has_failed() => ctx.fail_sends(qp),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
    posted > FETCHED_PER_RUN
}

/// Whether the ring, filled up to `producer`, holds a WQE that could be fetched.
#[inline]
fn is_posted(send: &SendQueue, qp: ArcBorrow<'_, Qp>, producer: u32) -> bool {
    let requester = &send.requester;
    let used = requester.pushed().wrapping_sub(requester.retired());
    let posted = producer.wrapping_sub(requester.pushed());
    // What an overwritten index counts is no WQE: fetching fails the QP, a flush leaves it alone.
    let is_valid = posted <= qp.sq.entries() || qp.sends();
    posted != 0 && used < qp.sq.entries() && is_valid
}

impl WorkItem<SEND_NEAR> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = work(this.as_arc_borrow(), Worker::Near, RunContext::Task);
    }
}

impl WorkItem<SEND_FAR> for Qp {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _ = work(this.as_arc_borrow(), Worker::Far, RunContext::Task);
    }
}

/// Invocations of one poll before it leaves the rest to the next one.
const RUNS_PER_POLL: u32 = 4;

impl Expires<POLL> for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let begins = Ctx::run(RunContext::Softirq, |ctx| {
            let mut send = this.send.lock();
            let rounds = ctx.directory.workqueues.rounds(Cpu::current());
            match rounds.map(|rounds| rounds.enter(send.round, ctx.now)) {
                Some(Ok(round)) => {
                    send.round = round;
                    true
                }
                Some(Err(next)) => {
                    this.poll.arm(next);
                    false
                }
                None => false,
            }
        });
        if begins == Some(true) {
            for _ in 0..RUNS_PER_POLL {
                if !work(this, Worker::Timer, RunContext::Softirq) {
                    break;
                }
            }
        }
    }

    fn deadline(&self) -> &Deadline<Self, POLL> {
        &self.poll
    }
}

/// One invocation of a sending worker or timer. Returns whether the timer is to run again at once.
fn work(qp: ArcBorrow<'_, Qp>, worker: Worker, context: RunContext) -> bool {
    let again = Ctx::run(context, |ctx| {
        let mut send = qp.send.lock();
        let alone = worker == Worker::Far && work::is_alone();
        kick(&mut send, qp, Kick::Worker { worker, alone }, ctx)
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
            ctx.move_marked(qp);
            let mut recv = qp.recv.lock();
            if recv.answering == Answering::Inline {
                return;
            }
            let more = match qp.state() {
                QpState::Err => ctx.flush_receives(&mut recv, qp),
                _ => qp.serves() && tx::answer(&mut recv, qp, ctx),
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
        let _ = Ctx::run(RunContext::Softirq, |ctx| posted(this.as_arc_borrow(), ctx));
        let _ = receive_doorbell(&this);
    }
}

impl Expires for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            expired(this, ctx);
            answer_on(this, ctx);
        });
    }

    fn deadline(&self) -> &Deadline<Self> {
        &self.deadline
    }
}

/// Retries responses that the local stack refused.
fn answer_on(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut recv = qp.recv.lock();
    if let Some(at) = recv.refusals.wait_until(ctx.now) {
        qp.deadline.arm(at);
    } else if qp.serves()
        && recv.responder.has_response()
        && recv.answering == Answering::Inline
        && tx::answer(&mut recv, qp, ctx)
    {
        ctx.leave_to_answerer(&mut recv, qp);
    }
}
