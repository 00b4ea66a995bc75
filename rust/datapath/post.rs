// SPDX-License-Identifier: GPL-2.0

//! A process has posted: from the doorbell to the carrier, and the bookkeeping of a queue that
//! sends. ACKs, timers and workers go on from the middle of it.

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
use super::schedule::{
    Answer,
    Event, //
};
use super::stream::Position;
use super::tx::{
    local,
    wire, //
};
use crate::sys::cpu::Cpu;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::State;
use crate::sys::timer;
use crate::transport::completion::Status;
use crate::transport::request::{
    Progress,
    PushError, //
};
use crate::uabi::words::{
    Module,
    Ring,
    Words, //
};
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Turns that a system call takes before it leaves the rest to a worker.
const RUNS_PER_DOORBELL: u32 = 16;
/// Requests that one turn takes from the ring.
const FETCHED_PER_RUN: u32 = 256;

/// The process rang the doorbell of its send queue.
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
        qp.send.lock().schedule.served(timer::now());
    }
    Ok(())
}

/// The turn `number` of a doorbell; tells whether it wants another one.
fn ring(
    qp: ArcBorrow<'_, Qp>,
    number: u32,
    measures: &mut bool,
    ctx: &mut Ctx<'_>,
) -> Result<bool> {
    let mut send = qp.send.lock();
    match qp.state() {
        State::Rts | State::Sqd => {}
        State::Err | State::Sqe => {
            if !send.schedule.has_worker() && ctx.flush_sends(&mut send, qp) {
                leave(&mut send, qp, ctx);
            }
            return Ok(false);
        }
        State::Reset | State::Init | State::Rtr => return Err(EINVAL),
    }
    let moment = send.moment(ctx.now());
    let answer = if number == 1 {
        let (is_watched, taken) = (send.is_watched(), send.requester.pushed());
        let answer = send.schedule.doorbell(
            moment,
            taken,
            is_watched,
            || how_far(qp, ctx),
            |number| Cpu::another(qp.number().wrapping_add(number)),
        );
        *measures = send.schedule.wants_end();
        answer
    } else {
        send.schedule
            .event(moment, Event::Progress { unsent: true })
    };
    match answer {
        Answer::Send => {}
        Answer::Invite(call) => ctx.invite_sender(qp, call),
        answer => {
            obey(qp, answer, ctx);
            return Ok(false);
        }
    }
    let more = advance(&mut send, qp, ctx);
    if more && number == RUNS_PER_DOORBELL {
        leave(&mut send, qp, ctx);
    }
    Ok(more)
}

/// A user in the kernel has posted. What is beyond the budget of the turn goes to a worker.
pub(super) fn posted(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut send = qp.send.lock();
    match qp.state() {
        State::Rts | State::Sqd => proceed(&mut send, qp, Progress::default(), ctx),
        State::Err | State::Sqe => {
            if !send.schedule.has_worker() && ctx.flush_sends(&mut send, qp) {
                leave(&mut send, qp, ctx);
            }
        }
        State::Reset | State::Init | State::Rtr => {}
    }
}

/// How far the process has come with what it can see. The sending half is locked.
fn how_far(qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) -> Position {
    let taken = |cq: &Cq| cq.ring(ctx.rcu()).load_consumer();
    Position {
        sends: taken(qp.send_cq()),
        receives: taken(qp.recv_cq()),
        requests: qp.recv.lock().responder.expected_psn().get(),
    }
}

/// The process rang the doorbell of its receive queue, which it does in ERR only.
pub fn receive_doorbell(qp: &Arc<Qp>) -> Result {
    Ctx::run(RunContext::Task, |ctx| {
        let qp = qp.as_arc_borrow();
        let mut recv = qp.recv.lock();
        if qp.state() == State::Err
            && recv.answering == Answering::Inline
            && ctx.flush_receives(&mut recv, qp)
        {
            ctx.leave_to_answerer(&mut recv, qp);
        }
    })
    .ok_or(ENODEV)
}

/// The user moves the QP to ERR.
pub fn fail(qp: &Arc<Qp>) {
    // If the module is being unloaded there is no QP any more.
    let _ = Ctx::run(RunContext::Task, |ctx| ctx.fail(qp.as_arc_borrow()));
}

/// As [`fail`], and whatever waits is flushed before this returns: what workers have not come to
/// yet would be lost if the QP goes next.
pub fn fail_and_flush(qp: &Arc<Qp>) {
    fail(qp);
    let capacity = qp.capacity();
    let entries = capacity.max_send_wr.max(capacity.max_recv_wr);
    // A process that goes on posting meanwhile does not hold up who waits here.
    for _ in 0..=entries / FLUSHED_PER_RUN {
        let more = Ctx::run(RunContext::Task, |ctx| ctx.flush(qp.as_arc_borrow()));
        if more != Some(true) {
            break;
        }
    }
}

/// Sends what may be sent, up to the budget of the turn; tells whether there is more. Only for whom
/// the schedule has said so.
pub(super) fn advance(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let posted = take_posted(send, qp, ctx);
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

/// Takes what the process has posted, each request copied once and then checked, up to
/// [`FETCHED_PER_RUN`]; tells whether there is more.
fn take_posted(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let requester = &mut send.requester;
    let entries = qp.sq().entries();
    let taken = requester.pushed().wrapping_sub(requester.retired());
    let posted = qp.sq().load_producer().wrapping_sub(requester.pushed());
    if posted > entries.wrapping_sub(taken) {
        // Not what a provider of ours does: the ring was scribbled over. Slots of requests
        // that are under way must not be copied again.
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

/// Goes on after an event has changed something.
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
    go_on(send, qp, Event::Progress { unsent }, ctx);
}

/// Goes on because of `event`, as the schedule says.
pub(super) fn go_on(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, event: Event, ctx: &mut Ctx<'_>) {
    match send.schedule.event(send.moment(ctx.now()), event) {
        Answer::Send => {
            if advance(send, qp, ctx) {
                leave(send, qp, ctx);
            }
        }
        answer => {
            obey(qp, answer, ctx);
            settle(send, qp, ctx);
        }
    }
}

/// Whether there is a request in the ring, which is filled up to `producer`, that could be taken.
pub(super) fn is_posted(send: &SendQueue, qp: ArcBorrow<'_, Qp>, producer: u32) -> bool {
    let requester = &send.requester;
    let used = requester.pushed().wrapping_sub(requester.retired());
    producer != requester.pushed() && used < qp.sq().entries()
}

/// Leaves the rest to a worker on this CPU.
pub(super) fn leave(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    let call = send.schedule.leave(Cpu::current());
    ctx.call_sender(qp, call);
}

/// Does what the schedule says, if that is not to send here.
pub(super) fn obey(qp: ArcBorrow<'_, Qp>, answer: Answer<Cpu>, ctx: &Ctx<'_>) {
    match answer {
        Answer::Leave(call) => ctx.call_sender(qp, call),
        Answer::Wait => qp.sq().store_flags(0),
        Answer::Invite(call) => ctx.invite_sender(qp, call),
        Answer::Send | Answer::Nothing => {}
    }
}

/// Publishes where the queue stands, at the end of a turn.
pub(super) fn settle(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    // Slots of requests that completed without a completion.
    qp.sq().store_consumer(send.requester.retired());
    send.count(ctx.counters(&qp));
    if let Some(at) = send.requester.deadline() {
        qp.timer().arm(at);
    }
    if send.notify_drained && qp.state() == State::Sqd && send.requester.is_drained() {
        send.notify_drained = false;
        ctx.event(qp, QpEvent::SqDrained);
    }
}
