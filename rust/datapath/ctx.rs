// SPDX-License-Identifier: GPL-2.0

//! The context of one invocation of the data path: a doorbell, a packet, a timer or a worker.
//!
//! It holds the RCU read guard, the time and the byte budget, as NAPI does for a poll. When it is
//! dropped, after all locks have been released, it moves the QPs that failed to ERR. A caller that
//! sees the invocation end sees their new state too. Completion and event handlers run in a softirq
//! of their own.
//!
//! A process may know that a QP has failed, by a completion, before its state has changed: the
//! invocation may be preempted in between. So a failure is marked in the QP under its lock. Who
//! asks for the state carries it out first ([`post::settle`](super::post::settle)), and a reset
//! ends it with everything else.

use crate::core::completion::{
    DatagramSource,
    RecvCompletion,
    RecvOp,
    SendCompletion,
    Status, //
};
use crate::core::env::TakeReceive;
use crate::core::kick::AskedBy;
use crate::core::offload::WorkerCall;
use crate::core::uabi::cqe::Cqe;
use crate::core::uabi::ring::{
    Module,
    RingOps,
    Words, //
};
use crate::core::wire::opcode;
use crate::datapath::cq::Cq;
use crate::datapath::directory::{
    Directory,
    DIRECTORY, //
};
use crate::datapath::memory::sg::Regions;
use crate::datapath::qp::{
    Ending,
    Qp,
    ReceiveSource, //
};
use crate::datapath::queues::{
    Answering,
    RecvQueue,
    SendQueue, //
};
use crate::observe::Counters;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::QpState;
use crate::sys::trace::StateCause;
use crate::sys::work::{
    self,
    Cpu,
    Deadline,
    Expires, //
};
use core::mem::ManuallyDrop;
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};

/// Bytes that one invocation moves before it releases its locks.
const BYTES_PER_RUN: u32 = 256 << 10;
/// The same in a softirq, during which the CPU can do nothing else: a peer can cause it with a
/// packet of 30 bytes. A multicast packet is copied to all members at once, which exceeds this for
/// 17 members and long packets ([`MAX_MEMBERS`](crate::datapath::port::MAX_MEMBERS)).
const BYTES_PER_SOFTIRQ: u32 = 64 << 10;
/// WQEs that one invocation flushes.
pub(super) const FLUSHED_PER_RUN: u32 = 512;

/// Where an invocation runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunContext {
    /// In a system call or a worker.
    Task,
    /// In the softirq of a packet or a timer.
    Softirq,
}

/// Context of one invocation. QPs and MRs that are looked up through it stay valid until it is
/// dropped.
pub struct Ctx<'a> {
    /// RCU read guard that protects the lookups.
    pub(super) rcu: &'a rcu::Guard,
    /// Lookup of QPs and ports.
    pub(super) directory: &'a Directory,
    /// Start of the invocation, in nanoseconds of the monotonic clock.
    pub(super) now: u64,
    /// Bytes left of its budget.
    bytes: u32,
    /// QPs that are marked to be moved to SQE or ERR; when it is dropped, it moves them and leaves
    /// none.
    failed: ManuallyDrop<[Option<Arc<Qp>>; 2]>,
}

impl Ctx<'_> {
    /// Runs `work` in a new context. The caller holds no lock of the data path, and `work` releases
    /// its own. Returns `None` if the module is being unloaded.
    #[inline]
    pub fn run<R>(context: RunContext, work: impl FnOnce(&mut Ctx<'_>) -> R) -> Option<R> {
        let rcu = rcu::read_lock();
        let mut ctx = Ctx {
            rcu: &rcu,
            directory: DIRECTORY.get(&rcu)?,
            now: work::now(),
            bytes: match context {
                RunContext::Task => BYTES_PER_RUN,
                RunContext::Softirq => BYTES_PER_SOFTIRQ,
            },
            failed: ManuallyDrop::new([None, None]),
        };
        Some(work(&mut ctx))
    }
}

impl Drop for Ctx<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // The first place is the first that is taken.
        if let [Some(_), _] = *self.failed {
            self.end_failed();
        }
    }
}

impl Ctx<'_> {
    #[cold]
    #[inline(never)]
    fn end_failed(&mut self) {
        // A QP in ERR does not fail again, so this terminates.
        while let Some(qp) = self.failed.iter_mut().find_map(Option::take) {
            self.end(qp.as_arc_borrow());
        }
    }

    /// Moves a QP as it is marked. It is not any more if another invocation has done it, or if it
    /// was reset.
    fn end(&mut self, qp: ArcBorrow<'_, Qp>) {
        let mut send = qp.send.lock();
        let mut recv = qp.recv.lock();
        let why = match qp.take_failing() {
            None => return,
            Some(Ending::SendError) => {
                if qp.enter_send_error(&mut send, &mut recv) {
                    self.flush_or_leave_sends(&mut send, qp);
                }
                return;
            }
            Some(Ending::User) => StateCause::User,
            Some(Ending::Error) => StateCause::Error,
            Some(Ending::Fatal) => StateCause::Fatal,
        };
        if !qp.enter_error(&mut send, &mut recv, why) {
            return;
        }
        if why == StateCause::Fatal {
            self.event(qp, QpEvent::Fatal);
        }
        self.flush_or_leave_sends(&mut send, qp);
        if self.flush_receives(&mut recv, qp) {
            self.leave_to_answerer(&mut recv, qp);
        }
        if let ReceiveSource::Shared(_) = qp.receives {
            // The WQEs it had taken from the SRQ are flushed.
            self.event(qp, QpEvent::LastWqeReached);
        }
    }
}

impl<'a> Ctx<'a> {
    /// Whether the budget permits more bytes.
    #[inline]
    pub fn may_move(&self) -> bool {
        self.bytes != 0
    }

    /// Whether the budget permits more after this many bytes.
    #[inline]
    pub fn may_move_beyond(&self, bytes: u32) -> bool {
        self.bytes > bytes
    }

    /// Charges `bytes` to the budget.
    #[inline]
    pub fn moved(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Charges the time of a worker to the budget of its CPU.
    pub fn worked(&self) {
        self.directory.workqueues.worked(self.now, work::now());
    }

    /// The MRs that WQEs of this QP, and requests of its peer, may name.
    #[inline]
    pub fn regions<'q>(&self, qp: &'q Qp) -> Regions<'q>
    where
        'a: 'q,
    {
        qp.regions(self.rcu)
    }

    /// The counters of this QP.
    #[inline]
    pub fn counters<'q>(&self, qp: &'q Qp) -> &'q Counters
    where
        'a: 'q,
    {
        qp.counters(self.rcu)
    }

    /// Completes a WQE of the send queue.
    #[inline]
    pub fn complete_send(&mut self, qp: ArcBorrow<'_, Qp>, done: SendCompletion) {
        // The slot first: a consumer that sees the completion may refill the slot at once.
        qp.sq.store_consumer(done.retired);
        let (cqe, failed) = (done.cqe(qp.number), !done.status.is_success());
        self.push(qp, &qp.send_cq, &cqe, failed);
    }

    /// Completes a receive WQE.
    #[inline(always)]
    pub fn complete_receive(&mut self, qp: ArcBorrow<'_, Qp>, done: RecvCompletion) {
        self.push_receive(qp, &done, &done.cqe(qp.number));
    }

    /// Completes a receive WQE with a datagram.
    pub fn complete_datagram(
        &mut self,
        qp: ArcBorrow<'_, Qp>,
        done: RecvCompletion,
        source: &DatagramSource,
    ) {
        let cqe = source.add_to(done.cqe(qp.number));
        self.push_receive(qp, &done, &cqe);
    }

    #[inline(always)]
    fn push_receive(&mut self, qp: ArcBorrow<'_, Qp>, done: &RecvCompletion, cqe: &Cqe) {
        let solicited = done.solicited || !done.status.is_success();
        self.push(qp, &qp.recv_cq, cqe, solicited);
    }

    #[inline(always)]
    fn push(&mut self, qp: ArcBorrow<'_, Qp>, cq: &Cq, cqe: &Cqe, solicited: bool) {
        let notifications = self.directory.notifications();
        if cq.push(cqe, solicited, self.rcu, notifications).is_err() {
            // A QP that cannot report completions is unusable (IBTA 11.6.3.1).
            self.fail_fatally(qp);
        }
    }

    /// The QP has an asynchronous event.
    pub fn event(&self, qp: ArcBorrow<'_, Qp>, event: QpEvent) {
        qp.notifier.event(event, self.directory.notifications());
    }

    /// Moves the QP to ERR at the end of the invocation: its locks cannot be taken where the error
    /// is found.
    #[cold]
    pub fn fail(&mut self, qp: ArcBorrow<'_, Qp>) {
        self.fail_with(qp, Ending::Error);
    }

    /// A WQE of the send queue ended in error. The QP goes to ERR, or to SQE if its service is
    /// unreliable.
    #[cold]
    pub fn fail_sends(&mut self, qp: ArcBorrow<'_, Qp>) {
        let to = match qp.opcodes {
            opcode::OpcodeService::Rc => Ending::Error,
            _ => Ending::SendError,
        };
        self.fail_with(qp, to);
    }

    /// Like [`Self::fail`], for an error that no completion reports: unless the QP is in ERR
    /// already, it raises `IBV_EVENT_QP_FATAL`.
    #[cold]
    pub fn fail_fatally(&mut self, qp: ArcBorrow<'_, Qp>) {
        self.fail_with(qp, Ending::Fatal);
    }

    /// Defers the state change until the locks are dropped; a worse error may still be found.
    pub(super) fn fail_with(&mut self, qp: ArcBorrow<'_, Qp>, to: Ending) {
        qp.mark_failing(to);
        self.move_marked(qp);
    }

    /// Moves the QP at the end of the invocation, if it is marked.
    pub(super) fn move_marked(&mut self, qp: ArcBorrow<'_, Qp>) {
        if !qp.is_failing() {
            return;
        }
        for place in self.failed.iter_mut() {
            match place {
                Some(failed) if core::ptr::eq(&**failed, &*qp) => return,
                Some(_) => {}
                None => {
                    *place = Some(qp.into());
                    return;
                }
            }
        }
        // An invocation rarely fails more than two QPs; a worker moves the others.
        self.directory.workqueues.call_answerer(qp, self.now);
    }

    /// Flushes the send queue, and leaves what is over the budget to a worker.
    fn flush_or_leave_sends(&mut self, send: &mut SendQueue, qp: ArcBorrow<'_, Qp>) {
        if self.flush_sends(send, qp) {
            let call = send.offload.leave(Cpu::current());
            send.trace_offload(qp.number, AskedBy::Budget);
            self.call_sender(qp, call);
        }
    }

    /// Flushes a QP in ERR. Returns whether there may be more to flush.
    #[cold]
    pub(super) fn flush(&mut self, qp: ArcBorrow<'_, Qp>) -> bool {
        let mut send = qp.send.lock();
        let mut recv = qp.recv.lock();
        if qp.state() != QpState::Err {
            return false;
        }
        let sends = self.flush_sends(&mut send, qp);
        let receives = self.flush_receives(&mut recv, qp);
        sends || receives
    }

    /// Queues the worker that [`Offload`](crate::core::offload::Offload) named. The queue needs no
    /// doorbell until the worker is done.
    pub(super) fn call_sender(&self, qp: ArcBorrow<'_, Qp>, call: WorkerCall<Cpu>) {
        qp.sq.store_flags(0);
        self.directory.workqueues.call_sender(qp, call, self.now);
    }

    /// Queues a worker that may take over. The process rings doorbells until it does.
    pub(super) fn invite_sender(&self, qp: ArcBorrow<'_, Qp>, call: WorkerCall<Cpu>) {
        self.directory.workqueues.call_sender(qp, call, self.now);
    }

    /// Leaves responses, or the flush of receives, to a worker.
    pub(super) fn leave_to_answerer(&self, recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>) {
        recv.answering = Answering::Worker;
        self.directory.workqueues.call_answerer(qp, self.now);
    }

    /// Flushes the send queue, including WQEs still in the ring, up to [`FLUSHED_PER_RUN`]. Returns
    /// whether there may be more.
    pub(super) fn flush_sends(&mut self, send: &mut SendQueue, qp: ArcBorrow<'_, Qp>) -> bool {
        let requester = &mut send.requester;
        let flushed =
            requester.flush_some(FLUSHED_PER_RUN, &mut |done| self.complete_send(qp, done));
        let mut left = FLUSHED_PER_RUN.wrapping_sub(flushed);
        let posted = qp.sq.load_producer().wrapping_sub(requester.pushed());
        if left != 0 && posted <= qp.sq.entries() {
            for _ in 0..posted.min(left) {
                let mut wr_id = [0];
                qp.sq.read_slot(requester.pushed(), 0, &mut wr_id);
                let [wr_id] = wr_id;
                let mut complete = |done| self.complete_send(qp, done);
                if requester
                    .push_failed(wr_id, Status::WrFlushErr, &mut complete)
                    .is_err()
                {
                    break;
                }
                requester.flush(&mut complete);
            }
            left = left.saturating_sub(posted);
        }
        qp.sq.store_consumer(requester.retired());
        left == 0
    }

    /// Flushes the receive in progress and the QP's own receive ring, up to [`FLUSHED_PER_RUN`].
    /// Returns whether there may be more.
    pub(super) fn flush_receives(&mut self, recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>) -> bool {
        recv.kept.clear();
        if let Some(done) = recv.responder.abort() {
            self.complete_receive(qp, done);
        }
        let ReceiveSource::Own(rq) = &qp.receives else {
            // Receives in an SRQ belong to the other QPs.
            return false;
        };
        for _ in 0..FLUSHED_PER_RUN {
            let wr_id = match recv.wqes.take(&**rq) {
                TakeReceive::Taken { wr_id, .. } | TakeReceive::Malformed { wr_id, .. } => wr_id,
                TakeReceive::Empty => return false,
            };
            self.complete_receive(qp, RecvCompletion::flushed(wr_id, RecvOp::Send));
        }
        true
    }
}

impl Expires for Cq {
    fn expired(this: ArcBorrow<'_, Self>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            this.expired(ctx.directory.notifications());
        });
    }

    fn deadline(&self) -> &Deadline<Self> {
        &self.deadline
    }
}
