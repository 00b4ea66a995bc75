// SPDX-License-Identifier: GPL-2.0

//! Posting: from the doorbell to the transmit path, and the bookkeeping of a send queue. ACKs,
//! timers and workers enter in the middle.

use super::cq::Cq;
use super::ctx::{
    Ctx,
    RunContext,
    FLUSHED_PER_RUN, //
};
use super::qp::Qp;
use super::queues::{
    Answering,
    SendQueue, //
};
use super::tx::{
    local,
    wire, //
};
use crate::core::completion::Status;
use crate::core::offload::stream::Position;
use crate::core::offload::{
    Decision,
    OffloadEvent, //
};
use crate::core::request::{
    Progress,
    PushError, //
};
use crate::core::uabi::words::{
    Module,
    RingOps,
    Words, //
};
use crate::sys::cpu::Cpu;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::QpState;
use crate::sys::timer;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Invocations of one system call before it leaves the rest to a worker.
const RUNS_PER_DOORBELL: u32 = 16;
/// WQEs that one invocation fetches from the ring.
const FETCHED_PER_RUN: u32 = 256;

/// Handles the doorbell of a send queue.
pub fn send_doorbell(qp: &Arc<Qp>) -> Result {
    let mut measures = false;
    for number in 1..=RUNS_PER_DOORBELL {
        let ctx = |ctx: &mut Ctx<'_>| ring(qp.as_arc_borrow(), number, &mut measures, ctx);
        let again = Ctx::run(RunContext::Task, ctx).ok_or(ENODEV)??;
        if !again {
            break;
        }
    }
    if measures {
        qp.send.lock().offload.served(timer::now());
    }
    Ok(())
}

/// Invocation `number` of a doorbell. Returns whether another one is needed.
fn ring(
    qp: ArcBorrow<'_, Qp>,
    number: u32,
    measures: &mut bool,
    ctx: &mut Ctx<'_>,
) -> Result<bool> {
    let mut send = qp.send.lock();
    match qp.state() {
        QpState::Rts | QpState::Sqd => {}
        QpState::Err | QpState::Sqe => {
            if !send.offload.has_worker() && ctx.flush_sends(&mut send, qp) {
                leave(&mut send, qp, ctx);
            }
            return Ok(false);
        }
        QpState::Reset | QpState::Init | QpState::Rtr => return Err(EINVAL),
    }
    let point = send.sched_point(ctx.now());
    let decision = if number == 1 {
        let (is_watched, taken) = (send.is_watched(), send.requester.pushed());
        let decision = send.offload.doorbell(
            point,
            taken,
            is_watched,
            || position_of(qp, ctx),
            |number| Cpu::another(qp.number().wrapping_add(number)),
        );
        *measures = send.offload.wants_end();
        decision
    } else {
        send.offload
            .event(point, OffloadEvent::Progress { unsent: true })
    };
    match decision {
        Decision::Send => {}
        Decision::Invite(call) => ctx.invite_sender(qp, call),
        decision => {
            apply(qp, decision, ctx);
            return Ok(false);
        }
    }
    let more = advance(&mut send, qp, ctx);
    if more && number == RUNS_PER_DOORBELL {
        leave(&mut send, qp, ctx);
    }
    Ok(more)
}

/// Handles a post by a ULP. Work beyond the budget goes to a worker.
pub(super) fn posted(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut send = qp.send.lock();
    match qp.state() {
        QpState::Rts | QpState::Sqd => proceed(&mut send, qp, Progress::default(), ctx),
        QpState::Err | QpState::Sqe => {
            if !send.offload.has_worker() && ctx.flush_sends(&mut send, qp) {
                leave(&mut send, qp, ctx);
            }
        }
        QpState::Reset | QpState::Init | QpState::Rtr => {}
    }
}

/// The progress that the process can see. The send queue is locked.
fn position_of(qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) -> Position {
    let taken = |cq: &Cq| cq.ring(ctx.rcu()).load_consumer();
    Position {
        sends: taken(qp.send_cq()),
        receives: taken(qp.recv_cq()),
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
    let _ = Ctx::run(RunContext::Task, |ctx| ctx.fail(qp.as_arc_borrow()));
}

/// Like [`fail`], and flushes all WQEs before it returns: WQEs that workers had not reached would
/// be lost if the QP is destroyed next.
pub fn fail_and_flush(qp: &Arc<Qp>) {
    fail(qp);
    let capacity = qp.capacity();
    let entries = capacity.max_send_wr.max(capacity.max_recv_wr);
    // Bounded: a process that keeps posting does not hold up the caller.
    for _ in 0..=entries / FLUSHED_PER_RUN {
        let more = Ctx::run(RunContext::Task, |ctx| ctx.flush(qp.as_arc_borrow()));
        if more != Some(true) {
            break;
        }
    }
}

/// Transmits up to the budget. Returns whether there is more. Call it only after the offload
/// decision [`Decision::Send`] or from a worker in charge.
pub(super) fn advance(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let posted = fetch(send, qp, ctx);
    if send.requester.is_drained() {
        send.local = local::serves(send, qp, ctx);
    }
    let more = if send.local {
        local::exchange(send, qp, ctx)
    } else {
        wire::send(send, qp, ctx)
    };
    settle(send, qp, ctx);
    more || posted
}

/// Fetches posted WQEs: copies each once, then checks the copy, up to [`FETCHED_PER_RUN`]. Returns
/// whether there is more.
fn fetch(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let requester = &mut send.requester;
    let entries = qp.sq().entries();
    let taken = requester.pushed().wrapping_sub(requester.retired());
    let posted = qp.sq().load_producer().wrapping_sub(requester.pushed());
    if posted > entries.wrapping_sub(taken) {
        // Our provider never does this: the ring was overwritten. Slots of WQEs in flight must not
        // be copied again.
        ctx.fail_fatally(qp);
        return false;
    }
    for _ in 0..posted.min(FETCHED_PER_RUN) {
        let index = requester.pushed();
        let slot = index & entries.wrapping_sub(1);
        let pushed = match send.wqes.take(&**qp.sq(), index, slot) {
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
                Ok(progress) if progress.fatal => ctx.fail_sends(qp),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
    posted > FETCHED_PER_RUN
}

/// Continues after an event changed something.
pub(super) fn proceed(
    send: &mut SendQueue,
    qp: ArcBorrow<'_, Qp>,
    progress: Progress,
    ctx: &mut Ctx<'_>,
) {
    if progress.fatal {
        ctx.fail_sends(qp);
        return settle(send, qp, ctx);
    }
    let unsent = send.requester.has_unsent() || is_posted(send, qp, qp.sq().load_producer());
    go_on(send, qp, OffloadEvent::Progress { unsent }, ctx);
}

/// Continues after `event` as the offload decision says.
pub(super) fn go_on(
    send: &mut SendQueue,
    qp: ArcBorrow<'_, Qp>,
    event: OffloadEvent,
    ctx: &mut Ctx<'_>,
) {
    match send.offload.event(send.sched_point(ctx.now()), event) {
        Decision::Send => {
            if advance(send, qp, ctx) {
                leave(send, qp, ctx);
            }
        }
        decision => {
            apply(qp, decision, ctx);
            settle(send, qp, ctx);
        }
    }
}

/// Whether the ring, filled up to `producer`, holds a WQE that could be fetched.
pub(super) fn is_posted(send: &SendQueue, qp: ArcBorrow<'_, Qp>, producer: u32) -> bool {
    let requester = &send.requester;
    let used = requester.pushed().wrapping_sub(requester.retired());
    producer != requester.pushed() && used < qp.sq().entries()
}

/// Leaves the rest to a worker on this CPU.
pub(super) fn leave(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    let call = send.offload.leave(Cpu::current());
    ctx.call_sender(qp, call);
}

/// Carries out an offload decision other than to send here.
pub(super) fn apply(qp: ArcBorrow<'_, Qp>, decision: Decision<Cpu>, ctx: &Ctx<'_>) {
    match decision {
        Decision::Leave(call) => ctx.call_sender(qp, call),
        Decision::Wait => qp.sq().store_flags(0),
        Decision::Invite(call) => ctx.invite_sender(qp, call),
        Decision::Send | Decision::Nothing => {}
    }
}

/// Publishes the consumer index, the counters and the timer at the end of an invocation.
pub(super) fn settle(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    // Covers slots of WQEs that completed unsignaled.
    qp.sq().store_consumer(send.requester.retired());
    send.count(ctx.counters(&qp));
    if let Some(at) = send.requester.deadline() {
        qp.timer().arm(at);
    }
    if send.notify_drained && qp.state() == QpState::Sqd && send.requester.is_drained() {
        send.notify_drained = false;
        ctx.event(qp, QpEvent::SqDrained);
    }
}
