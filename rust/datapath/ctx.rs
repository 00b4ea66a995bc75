// SPDX-License-Identifier: GPL-2.0

//! One turn of the data path: what a doorbell, a packet, a timer or a worker does at a time.
//!
//! A turn is a scope. It begins with what everybody in it needs and ends by itself, when all locks
//! were given back: then QPs that failed go to ERR, so that their state is seen by whoever sees the
//! turn end. Users are notified in a softirq of their own.

use super::directory::{
    Directory,
    DIRECTORY, //
};
use super::memory::sg::Regions;
use super::qp::{
    Ending,
    Qp,
    Receives, //
};
use super::queues::{
    Answering,
    RecvQueue,
    SendQueue, //
};
use super::schedule::Call;
use crate::observe::counters::Counters;
use crate::sys::cpu::Cpu;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::State;
use crate::sys::net::Link;
use crate::sys::timer;
use crate::transport::completion::{
    vendor,
    Carried,
    RecvCompletion,
    RecvOp,
    SendCompletion,
    Status, //
};
use crate::transport::env::{
    AccessError,
    Change,
    Placement,
    RemoteAccess,
    ResponderEnv,
    TakeReceive, //
};
use crate::uabi::cqe::{
    Cqe,
    NETWORK_IPV4,
    NETWORK_IPV6,
    WC_GRH,
    WC_WITH_IMM,
    WC_WITH_INV,
    WC_WITH_NETWORK_HDR,
    WC_WITH_SMAC,
    WC_WITH_VLAN, //
};
use crate::uabi::words::{
    Module,
    Ring,
    Words, //
};
use crate::wire::opcode;
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Bytes that a turn moves before it gives its locks back.
const BYTES_PER_RUN: u32 = 256 << 10;
/// The same in a softirq, which the CPU can do nothing besides: a peer pays a packet of 30 bytes
/// for it. A packet to a group is copied to all its members at once, which is more for 17 of them
/// and long packets ([`MAX_MEMBERS`](super::groups::MAX_MEMBERS)).
const BYTES_PER_SOFTIRQ: u32 = 64 << 10;
/// Requests that a turn flushes.
pub(super) const FLUSHED_PER_RUN: u32 = 512;

/// Where a turn runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunContext {
    /// In a system call or a worker.
    Task,
    /// In the softirq of a packet or a timer.
    Softirq,
}

/// One turn. QPs and regions that are looked up during it stay until it ends.
pub struct Ctx<'a> {
    rcu: &'a rcu::Guard,
    directory: &'a Directory,
    /// When it began, in nanoseconds of the monotonic clock.
    now: u64,
    /// Bytes that it may still move.
    bytes: u32,
    /// QPs that leave their state at the end.
    failed: [Option<Failed>; 2],
}

/// A QP that leaves its state at the end of a turn. Not before: until then another error may be
/// found.
struct Failed {
    qp: Arc<Qp>,
    to: Ending,
}

impl Ctx<'_> {
    /// Runs `work` as a turn. No lock of ours is held, neither before nor when `work` returns.
    /// `None` if the module is being unloaded.
    #[inline]
    pub fn run<R>(context: RunContext, work: impl FnOnce(&mut Ctx<'_>) -> R) -> Option<R> {
        let rcu = rcu::read_lock();
        let mut ctx = Ctx {
            rcu: &rcu,
            directory: DIRECTORY.get(&rcu)?,
            now: timer::now(),
            bytes: match context {
                RunContext::Task => BYTES_PER_RUN,
                RunContext::Softirq => BYTES_PER_SOFTIRQ,
            },
            failed: [None, None],
        };
        Some(work(&mut ctx))
    }
}

impl Drop for Ctx<'_> {
    #[inline]
    fn drop(&mut self) {
        // A QP that is in ERR already is not failed again, so this ends.
        while let Some(Failed { qp, to }) = self.failed.iter_mut().find_map(Option::take) {
            match to {
                Ending::SendError => self.enter_send_error(qp.as_arc_borrow()),
                Ending::Error => self.enter_error(qp.as_arc_borrow(), None),
                Ending::Fatal => self.enter_error(qp.as_arc_borrow(), Some(QpEvent::Fatal)),
            }
        }
    }
}

impl<'a> Ctx<'a> {
    /// What keeps that which is looked up.
    #[inline]
    pub fn rcu(&self) -> &'a rcu::Guard {
        self.rcu
    }

    /// QPs and ports.
    #[inline]
    pub fn directory(&self) -> &'a Directory {
        self.directory
    }

    /// When it began.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether it may move more bytes.
    #[inline]
    pub fn may_move(&self) -> bool {
        self.bytes != 0
    }

    /// Whether it may move more when it has moved so many bytes.
    #[inline]
    pub fn may_move_beyond(&self, bytes: u32) -> bool {
        self.bytes > bytes
    }

    /// It has moved `bytes`.
    #[inline]
    pub fn moved(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A worker's turn is all but over: it pays for its time.
    pub fn worked(&self) {
        self.directory.worked(self.now, timer::now());
    }

    /// The regions that requests of this QP, and its peer, may name.
    #[inline]
    pub fn regions<'q>(&self, qp: &'q Qp) -> Regions<'q>
    where
        'a: 'q,
    {
        qp.regions(self.rcu)
    }

    /// Where what happens to this QP is counted.
    #[inline]
    pub fn counters<'q>(&self, qp: &'q Qp) -> &'q Counters
    where
        'a: 'q,
    {
        qp.counters(self.rcu)
    }

    /// Completes a send request.
    #[inline]
    pub fn complete_send(&mut self, qp: ArcBorrow<'_, Qp>, done: SendCompletion) {
        let cqe = Cqe {
            wr_id: done.wr_id,
            status: done.status.as_u32(),
            opcode: done.op.wc_opcode(),
            byte_len: done.byte_len,
            qp_num: qp.number(),
            vendor_err: done.vendor_err,
            ..Cqe::default()
        };
        // The slot first: who sees the completion may fill the slot at once.
        qp.sq().store_consumer(done.retired);
        let notifications = self.directory.notifications();
        let pushed = qp
            .send_cq()
            .push(&cqe, !done.status.is_success(), self.rcu, notifications);
        if pushed.is_err() {
            // A QP that cannot report completions is of no use (IBTA 11.6.3.1).
            self.fail_fatally(qp);
        }
    }

    /// Completes a receive.
    #[inline(always)]
    pub fn complete_receive(&mut self, qp: ArcBorrow<'_, Qp>, done: RecvCompletion) {
        let cqe = Self::received(qp, &done);
        self.push_receive(qp, &done, &cqe);
    }

    /// Completes a receive by a datagram of the QP `source`.
    pub fn complete_datagram(
        &mut self,
        qp: ArcBorrow<'_, Qp>,
        done: RecvCompletion,
        source: u32,
        is_v6: bool,
        link: Link,
    ) {
        let cqe = Self::received(qp, &done);
        let cqe = Cqe {
            src_qp: source,
            flags: cqe.flags
                | WC_GRH
                | WC_WITH_NETWORK_HDR
                | link.vlan.map_or(0, |_| WC_WITH_VLAN)
                | link.mac.map_or(0, |_| WC_WITH_SMAC),
            network_hdr: if is_v6 { NETWORK_IPV6 } else { NETWORK_IPV4 },
            vlan: link.vlan.unwrap_or(0),
            smac: link.mac.unwrap_or_default(),
            ..cqe
        };
        self.push_receive(qp, &done, &cqe);
    }

    #[inline]
    fn received(qp: ArcBorrow<'_, Qp>, done: &RecvCompletion) -> Cqe {
        let (imm, flags) = match done.carried {
            Carried::Nothing => (0, 0),
            // Both are big-endian.
            Carried::Imm(imm) => (u32::from_ne_bytes(imm), WC_WITH_IMM),
            Carried::Invalidated(key) => (key, WC_WITH_INV),
        };
        Cqe {
            wr_id: done.wr_id,
            status: done.status.as_u32(),
            opcode: done.op.wc_opcode(),
            byte_len: done.byte_len,
            imm,
            flags,
            qp_num: qp.number(),
            vendor_err: done.vendor_err,
            ..Cqe::default()
        }
    }

    #[inline(always)]
    fn push_receive(&mut self, qp: ArcBorrow<'_, Qp>, done: &RecvCompletion, cqe: &Cqe) {
        let solicited = done.solicited || !done.status.is_success();
        let notifications = self.directory.notifications();
        let pushed = qp.recv_cq().push(cqe, solicited, self.rcu, notifications);
        if pushed.is_err() {
            // A QP that cannot report completions is of no use (IBTA 11.6.3.1).
            self.fail_fatally(qp);
        }
    }

    /// The QP has an asynchronous event.
    pub fn event(&self, qp: ArcBorrow<'_, Qp>, event: QpEvent) {
        qp.notifier().event(event, self.directory.notifications());
    }

    /// The QP goes to ERR when the turn ends: its locks may not be taken where the error is found.
    #[cold]
    pub fn fail(&mut self, qp: ArcBorrow<'_, Qp>) {
        self.fail_with(qp, Ending::Error);
    }

    /// A request of the send queue ended in error: the QP goes to ERR or, if its service is
    /// unreliable, to SQE.
    #[cold]
    pub fn fail_sends(&mut self, qp: ArcBorrow<'_, Qp>) {
        let to = match qp.opcodes() {
            opcode::Service::Rc => Ending::Error,
            opcode::Service::Uc | opcode::Service::Ud => Ending::SendError,
        };
        self.fail_with(qp, to);
    }

    /// As [`Self::fail`], for what no completion tells: if the QP was not in ERR before, it has the
    /// event `IBV_EVENT_QP_FATAL`.
    #[cold]
    pub fn fail_fatally(&mut self, qp: ArcBorrow<'_, Qp>) {
        self.fail_with(qp, Ending::Fatal);
    }

    /// The QP ends so when the turn ends.
    pub(super) fn fail_with(&mut self, qp: ArcBorrow<'_, Qp>, to: Ending) {
        for place in &mut self.failed {
            match place {
                Some(failed) if core::ptr::eq(&*failed.qp, &*qp) => {
                    failed.to = failed.to.max(to);
                    return;
                }
                Some(_) => {}
                None => {
                    *place = Some(Failed { qp: qp.into(), to });
                    return;
                }
            }
        }
        // A turn that fails more than two is rare; a worker sees to the others.
        qp.fail_later(to);
        self.directory.call_answerer(qp, self.now);
    }

    /// To ERR: all requests are flushed.
    #[cold]
    fn enter_error(&mut self, qp: ArcBorrow<'_, Qp>, event: Option<QpEvent>) {
        let mut send = qp.send.lock();
        let mut recv = qp.recv.lock();
        if !qp.enter_error(&mut send, &mut recv) {
            return;
        }
        if let Some(event) = event {
            self.event(qp, event);
        }
        if self.flush_sends(&mut send, qp) {
            let call = send.schedule.leave(Cpu::current());
            self.call_sender(qp, call);
        }
        if self.flush_receives(&mut recv, qp) {
            self.leave_to_answerer(&mut recv, qp);
        }
        if let Receives::Shared(_) = qp.receives() {
            // What it had taken is flushed.
            self.event(qp, QpEvent::LastWqeReached);
        }
    }

    /// Completes what waits in a QP in ERR; tells whether there may be more.
    #[cold]
    pub(super) fn flush(&mut self, qp: ArcBorrow<'_, Qp>) -> bool {
        let mut send = qp.send.lock();
        let mut recv = qp.recv.lock();
        if qp.state() != State::Err {
            return false;
        }
        let sends = self.flush_sends(&mut send, qp);
        let receives = self.flush_receives(&mut recv, qp);
        sends || receives
    }

    /// To SQE: the requests of the send queue are flushed.
    #[cold]
    fn enter_send_error(&mut self, qp: ArcBorrow<'_, Qp>) {
        let mut send = qp.send.lock();
        let mut recv = qp.recv.lock();
        if !qp.enter_send_error(&mut send, &mut recv) {
            return;
        }
        drop(recv);
        if self.flush_sends(&mut send, qp) {
            let call = send.schedule.leave(Cpu::current());
            self.call_sender(qp, call);
        }
    }

    /// Calls a worker that sends, as the schedule says; until it is done no doorbell is needed.
    pub(super) fn call_sender(&self, qp: ArcBorrow<'_, Qp>, call: Call<Cpu>) {
        qp.sq().store_flags(0);
        self.directory.call_sender(qp, call, self.now);
    }

    /// Calls a worker that may take over, as the schedule says; the process rings until it does.
    pub(super) fn invite_sender(&self, qp: ArcBorrow<'_, Qp>, call: Call<Cpu>) {
        self.directory.call_sender(qp, call, self.now);
    }

    /// Leaves what is to be answered, or flushed, to a worker.
    pub(super) fn leave_to_answerer(&self, recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>) {
        recv.answering = Answering::Worker;
        self.directory.call_answerer(qp, self.now);
    }

    /// Completes send requests with a flush error, also what is still in the ring, up to
    /// [`FLUSHED_PER_RUN`]; tells whether there may be more.
    pub(super) fn flush_sends(&mut self, send: &mut SendQueue, qp: ArcBorrow<'_, Qp>) -> bool {
        let requester = &mut send.requester;
        let flushed =
            requester.flush_some(FLUSHED_PER_RUN, &mut |done| self.complete_send(qp, done));
        let mut left = FLUSHED_PER_RUN.wrapping_sub(flushed);
        let posted = qp.sq().load_producer().wrapping_sub(requester.pushed());
        if left != 0 && posted <= qp.sq().entries() {
            for _ in 0..posted.min(left) {
                let mut wr_id = [0];
                qp.sq().read_slot(requester.pushed(), 0, &mut wr_id);
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
        qp.sq().store_consumer(requester.retired());
        left == 0
    }

    /// Completes the receive in progress and what is in its own ring with a flush error, up to
    /// [`FLUSHED_PER_RUN`]; tells whether there may be more.
    pub(super) fn flush_receives(&mut self, recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>) -> bool {
        recv.responder.abort(&mut Flushed { qp, ctx: self });
        let Receives::Own(rq) = qp.receives() else {
            // What is in a shared queue is for the others.
            return false;
        };
        for _ in 0..FLUSHED_PER_RUN {
            let wr_id = match recv.wqes.take(&**rq) {
                TakeReceive::Taken { wr_id, .. } | TakeReceive::Malformed { wr_id, .. } => wr_id,
                TakeReceive::Empty => return false,
            };
            self.complete_receive(
                qp,
                RecvCompletion {
                    wr_id,
                    status: Status::WrFlushErr,
                    op: RecvOp::Send,
                    byte_len: 0,
                    carried: Carried::Nothing,
                    solicited: false,
                    vendor_err: vendor::FLUSHED,
                },
            );
        }
        true
    }
}

/// What the responder of a QP in ERR still has: completions. It takes and touches nothing.
struct Flushed<'q, 't, 'a> {
    qp: ArcBorrow<'q, Qp>,
    ctx: &'t mut Ctx<'a>,
}

impl ResponderEnv for Flushed<'_, '_, '_> {
    fn take_receive(&mut self) -> TakeReceive {
        TakeReceive::Empty
    }

    fn check_remote(&mut self, _: RemoteAccess, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn write_remote(&mut self, _: u32, _: u64, _: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn change_remote(&mut self, _: u32, _: u64, _: Change) -> Result<u64, AccessError> {
        Err(AccessError)
    }

    fn write_word(&mut self, _: u32, _: u64) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn flush(&mut self, _: u32, _: Option<(u64, u32)>, _: Placement) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn scatter(&mut self, _: u32, _: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }

    fn complete(&mut self, done: RecvCompletion) {
        self.ctx.complete_receive(self.qp, done);
    }
}
