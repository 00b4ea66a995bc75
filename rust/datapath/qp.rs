// SPDX-License-Identifier: GPL-2.0

//! The queue pair: two halves, each under its own lock, and the state that both obey.

use super::cq::Cq;
use super::memory::region::DomainId;
use super::memory::sg::Regions;
use super::memory::window::QpId;
use super::notify::Notifier;
use super::path::Path;
use super::port::Port;
use super::protocol::{
    RequesterSetting,
    ResponderSetting, //
};
use super::queues::{
    connect,
    Answering,
    RecvQueue,
    SendQueue, //
};
use super::srq::Srq;
use crate::observe::counters::Counters;
use crate::sys::ib::event::QpUpcall;
use crate::sys::ib::qp::{
    Capacity,
    State, //
};
use crate::sys::ib::reference::ContextRef;
use crate::sys::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::replaceable::{
    Replaceable,
    Successor, //
};
use crate::sys::ring::Ring;
use crate::sys::table::Named;
use crate::sys::timer::Deadline;
use crate::transport::service::Service;
use crate::uabi::ring::FLAG_NEED_DOORBELL;
use crate::uabi::words::{
    Module,
    Ring as _,
    Words, //
};
use crate::uabi::wqe::{
    recv_stride,
    send_stride, //
};
use crate::wire::opcode;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};
use kernel::sync::rcu;
use kernel::sync::Arc;
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work, //
};

/// Work item: sends on a CPU that has sent before.
pub(super) const SEND_NEAR: u64 = 0;
/// Work item: sends on another CPU than that of the process.
pub(super) const SEND_FAR: u64 = 1;
/// Work item: answers.
pub(super) const ANSWER: u64 = 2;
/// Work item: a user in the kernel has posted.
pub(super) const POSTED: u64 = 3;

/// Deadline: the requester, or answers that could not leave, wait for it.
const PROTOCOL: u64 = 0;
/// Deadline: polls the ring of sends.
pub const POLL: u64 = 1;

/// A queue pair.
#[pin_data]
pub struct Qp {
    /// First, so that it is gone before what it uses.
    #[pin]
    deadline: Deadline<Qp, PROTOCOL>,
    #[pin]
    poll: Deadline<Qp, POLL>,
    #[pin]
    near: Work<Qp, SEND_NEAR>,
    #[pin]
    far: Work<Qp, SEND_FAR>,
    #[pin]
    answer: Work<Qp, ANSWER>,
    #[pin]
    posted: Work<Qp, POSTED>,
    number: u32,
    /// Its number in packets.
    known_as: u32,
    /// Which packets are for it.
    opcodes: opcode::Service,
    id: QpId,
    port: Arc<Port>,
    /// Where it is counted: with the others of the port, or apart.
    counters: Replaceable<Counters>,
    /// Whose regions it may use.
    domain: DomainId,
    /// Whose regions its receives name.
    recv_domain: DomainId,
    capacity: Capacity,
    signal_all: bool,
    sq: Arc<Ring>,
    receives: Receives,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    notifier: Arc<Notifier<QpUpcall>>,
    /// A [`State`]: written with both halves locked, read under either.
    state: Atomic<u32>,
    /// An [`Ending`] that a worker will see to, or 0.
    failing: Atomic<u32>,
    /// Requests on their way. Taken before any `recv`.
    #[pin]
    pub(super) send: SpinLockBh<SendQueue>,
    /// Requests of the peer. Taken after `send`; on the local path, after another QP's `send`.
    #[pin]
    pub(super) recv: SpinLockBh<RecvQueue>,
}

impl_has_work! {
    impl HasWork<Self, SEND_NEAR> for Qp { self.near }
    impl HasWork<Self, SEND_FAR> for Qp { self.far }
    impl HasWork<Self, ANSWER> for Qp { self.answer }
    impl HasWork<Self, POSTED> for Qp { self.posted }
}

/// How a QP ends that has failed; the greater one is the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(super) enum Ending {
    /// In SQE: only its send queue has failed.
    SendError = 1,
    /// In ERR; a completion says why.
    Error = 2,
    /// In ERR with the event `IBV_EVENT_QP_FATAL`, for no completion says why.
    Fatal = 3,
}

impl Ending {
    fn from_raw(raw: u32) -> Option<Self> {
        [Self::SendError, Self::Error, Self::Fatal]
            .into_iter()
            .find(|ending| *ending as u32 == raw)
    }
}

/// How a QP stands, for who looks on.
pub struct Standing {
    /// Send requests that are not complete.
    pub pending: u32,
    /// Receives in a queue of its own that no message has come for.
    pub receives: Option<u32>,
    /// If it has a peer: its messages take the local path.
    pub is_local: Option<bool>,
    /// If it has a peer: the UDP source port of its packets.
    pub source_port: Option<u16>,
}

/// Where the receives of a QP come from.
pub enum Receives {
    /// From a ring of its own.
    Own(Arc<Ring>),
    /// From a queue that it shares.
    Shared(Arc<Srq>),
}

/// What a QP is made from.
pub struct NewQp<'a> {
    /// Tells ib_core.
    pub upcall: QpUpcall,
    /// The process whose it is; none for a user in the kernel.
    pub context: Option<ContextRef<'a>>,
    /// Its number, which no other QP has.
    pub number: u32,
    /// Its number in packets: that of the management QP of each device is the same.
    pub known_as: u32,
    /// What goes with its type.
    pub service: Service,
    /// The device it belongs to.
    pub port: Arc<Port>,
    /// Whose regions it may use.
    pub domain: DomainId,
    /// Where completions of sends go.
    pub send_cq: Arc<Cq>,
    /// Where completions of receives go.
    pub recv_cq: Arc<Cq>,
    /// What it can hold; the numbers of requests are powers of two.
    pub capacity: Capacity,
    /// The queue that its receives come from, if it has none of its own.
    pub srq: Option<Arc<Srq>>,
    /// Every send request reports its completion.
    pub signal_all: bool,
}

impl Named for Qp {
    #[inline]
    fn name(&self) -> u32 {
        self.number
    }
}

impl Qp {
    /// A QP in RESET. May sleep.
    pub fn new(new: NewQp<'_>) -> Result<Arc<Self>> {
        let capacity = new.capacity;
        let sq_stride = send_stride(capacity.max_send_sge, capacity.max_inline);
        let ring = |entries, stride| {
            Arc::new(Ring::new(new.context, entries, stride)?, GFP_KERNEL_ACCOUNT)
                .map_err(Error::from)
        };
        let sq = ring(capacity.max_send_wr, sq_stride)?;
        sq.reset(FLAG_NEED_DOORBELL);
        let (receives, recv_domain, recv_sge) = match new.srq {
            Some(srq) => {
                let (domain, max_sge) = (srq.domain(), srq.max_sge());
                (Receives::Shared(srq), domain, max_sge)
            }
            None => {
                let max_sge = capacity.max_recv_sge;
                let rq = ring(capacity.max_recv_wr, recv_stride(max_sge))?;
                rq.reset(0);
                (Receives::Own(rq), new.domain, max_sge)
            }
        };
        let send = SendQueue::new(&new.service, &capacity, new.signal_all)?;
        let recv = RecvQueue::new(&new.service, recv_sge)?;
        let notifier = Notifier::new(new.upcall)?;
        Arc::pin_init(
            pin_init!(Self {
                deadline <- Deadline::new(),
                poll <- Deadline::new(),
                near <- new_work!("ferroce_send_near"),
                far <- new_work!("ferroce_send_far"),
                answer <- new_work!("ferroce_answer"),
                posted <- new_work!("ferroce_posted"),
                number: new.number,
                known_as: new.known_as,
                opcodes: new.service.opcodes,
                id: QpId::next(),
                counters: Replaceable::new(new.port.all_counters().common().clone()),
                port: new.port,
                domain: new.domain,
                recv_domain,
                capacity,
                signal_all: new.signal_all,
                sq,
                receives,
                send_cq: new.send_cq,
                recv_cq: new.recv_cq,
                notifier,
                state: Atomic::new(State::Reset as u32),
                failing: Atomic::new(0),
                send <- new_spinlock_bh!(send, "ferroce_qp_send"),
                recv <- new_spinlock_bh!(recv, "ferroce_qp_recv"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// QP number, which no other QP has.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its number in packets.
    pub fn known_as(&self) -> u32 {
        self.known_as
    }

    /// Which packets are for it.
    #[inline]
    pub(super) fn opcodes(&self) -> opcode::Service {
        self.opcodes
    }

    /// What windows are bound to.
    #[inline]
    pub(super) fn id(&self) -> QpId {
        self.id
    }

    /// The device it belongs to.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// What it can hold.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Whether every send request reports its completion.
    pub fn signals_all(&self) -> bool {
        self.signal_all
    }

    /// The send ring.
    pub fn sq(&self) -> &Arc<Ring> {
        &self.sq
    }

    /// Where its receives come from.
    pub fn receives(&self) -> &Receives {
        &self.receives
    }

    pub(super) fn send_cq(&self) -> &Cq {
        &self.send_cq
    }

    pub(super) fn recv_cq(&self) -> &Cq {
        &self.recv_cq
    }

    pub(super) fn notifier(&self) -> &Arc<Notifier<QpUpcall>> {
        &self.notifier
    }

    pub(super) fn timer(&self) -> &Deadline<Qp, PROTOCOL> {
        &self.deadline
    }

    pub(super) fn poll_timer(&self) -> &Deadline<Qp, POLL> {
        &self.poll
    }

    /// Where it is counted.
    #[inline]
    pub(super) fn counters<'a>(&'a self, rcu: &'a rcu::Guard) -> &'a Counters {
        self.counters.get(rcu)
    }

    /// From here on it is counted there.
    pub fn count_in(&self, counters: Successor<Counters>) {
        self.counters.replace(counters);
    }

    /// The state. Stable while one of the halves is locked.
    pub fn state(&self) -> State {
        State::from_raw(self.state.load(Acquire)).unwrap_or(State::Err)
    }

    /// Whether requests of the peer are served.
    pub(super) fn serves(&self) -> bool {
        matches!(
            self.state(),
            State::Rtr | State::Rts | State::Sqd | State::Sqe
        )
    }

    /// Whether requests of the process are served.
    pub(super) fn sends(&self) -> bool {
        matches!(self.state(), State::Rts | State::Sqd)
    }

    /// Whose regions and address handles it may use.
    pub(super) fn domain(&self) -> DomainId {
        self.domain
    }

    /// The regions that work requests of this QP, and its peer, may name.
    pub(super) fn regions<'a>(&'a self, rcu: &'a rcu::Guard) -> Regions<'a> {
        Regions::new(&self.port, self.domain, rcu)
    }

    /// The regions that its receives may name.
    pub(super) fn recv_regions<'a>(&'a self, rcu: &'a rcu::Guard) -> Regions<'a> {
        Regions::new(&self.port, self.recv_domain, rcu)
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        let send = self.send.lock();
        let recv = self.recv.lock();
        let posted = self.sq.load_producer();
        let pending = posted.wrapping_sub(send.requester.retired());
        let path = send.peer.as_ref().map(|peer| &peer.path);
        Standing {
            pending: pending.min(self.sq.entries()),
            receives: match &self.receives {
                Receives::Own(rq) => Some(recv.wqes.left(&**rq)),
                Receives::Shared(_) => None,
            },
            is_local: path.map(|path| path.is_to_own_device() && self.port.local_path()),
            source_port: path.map(|path| path.flow().source_port),
        }
    }

    /// Back to RESET: everything is forgotten, nothing completes.
    pub fn reset(&self) {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        self.state.store(State::Reset as u32, Release);
        self.failing.store(0, Relaxed);
        send.reset();
        recv.reset();
        self.sq.reset(FLAG_NEED_DOORBELL);
        if let Receives::Own(rq) = &self.receives {
            rq.reset(0);
        }
    }

    /// Moves to `to` and changes what goes with it, if the state is still `from`: an error of the
    /// data path may have moved the QP to ERR meanwhile, and then it stays there.
    fn transition(
        &self,
        from: State,
        to: State,
        change: impl FnOnce(&mut SendQueue, &mut RecvQueue) -> Result,
    ) -> Result {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        if self.state() != from {
            return Err(EINVAL);
        }
        change(&mut send, &mut recv)?;
        self.state.store(to as u32, Release);
        Ok(())
    }

    /// To INIT, from RESET or INIT.
    pub fn init(&self, from: State) -> Result {
        self.transition(from, State::Init, |_, _| Ok(()))
    }

    /// To RTR from INIT: the responder is set up before the state lets packets in. The halves of a
    /// connection get a way each, to the QP of this number.
    pub fn ready_to_receive(
        &self,
        setting: ResponderSetting,
        paths: Option<(u32, [Path; 2])>,
    ) -> Result {
        self.transition(State::Init, State::Rtr, |send, recv| {
            recv.responder.connect(setting)?;
            if let Some((peer, paths)) = paths {
                connect(send, recv, peer, paths);
            }
            recv.established = false;
            Ok(())
        })
    }

    /// To RTS from RTR; what the responder serves may change with that.
    pub fn ready_to_send(
        &self,
        requester: RequesterSetting,
        responder: &ResponderSetting,
    ) -> Result {
        self.transition(State::Rtr, State::Rts, |send, recv| {
            send.requester.connect(requester)?;
            recv.responder.update(responder);
            Ok(())
        })
    }

    /// To SQD from RTS: requests begun are finished, then `notify` raises the event.
    pub fn drain(&self, notify: bool) -> Result {
        self.transition(State::Rts, State::Sqd, |send, _| {
            send.requester.drain(true);
            send.notify_drained = notify;
            Ok(())
        })
    }

    /// Changes what may change in RTS or SQD, new ways to `peer` included, and goes from SQD or SQE
    /// to RTS.
    pub fn update(
        &self,
        from: State,
        to: State,
        requester: &RequesterSetting,
        responder: &ResponderSetting,
        paths: Option<(u32, [Path; 2])>,
    ) -> Result {
        self.transition(from, to, |send, recv| {
            if let Some((peer, paths)) = paths {
                connect(send, recv, peer, paths);
            }
            send.requester.update(requester);
            recv.responder.update(responder);
            if to == State::Rts {
                send.requester.drain(false);
                send.notify_drained = false;
            }
            Ok(())
        })
    }

    /// Whether it is in SQD and not drained yet.
    pub fn is_draining(&self) -> bool {
        let send = self.send.lock();
        self.state() == State::Sqd && !send.requester.is_drained()
    }

    /// The next PSNs of both directions: of requests sent, and of requests received.
    pub fn psns(&self) -> (u32, u32) {
        let send = self.send.lock();
        let recv = self.recv.lock();
        (
            send.requester.next_psn().get(),
            recv.responder.expected_psn().get(),
        )
    }

    /// To ERR, unless it is in ERR or RESET; tells whether it went there, so that both halves must
    /// be flushed. From here on a doorbell flushes what is posted.
    pub(super) fn enter_error(&self, send: &mut SendQueue, recv: &mut RecvQueue) -> bool {
        if matches!(self.state(), State::Err | State::Reset) {
            return false;
        }
        self.state.store(State::Err as u32, Release);
        send.schedule.reset();
        recv.answering = Answering::Inline;
        // Up before the flush: who posts from here on either is found by it, or rings.
        self.sq.store_flags(FLAG_NEED_DOORBELL);
        if let Receives::Own(rq) = &self.receives {
            rq.store_flags(FLAG_NEED_DOORBELL);
        }
        true
    }

    /// To SQE, if it can send; tells whether it went there, so that the sending half must be
    /// flushed.
    pub(super) fn enter_send_error(&self, send: &mut SendQueue, _recv: &mut RecvQueue) -> bool {
        if !self.sends() {
            return false;
        }
        self.state.store(State::Sqe as u32, Release);
        send.schedule.reset();
        // Up before the flush, as above.
        self.sq.store_flags(FLAG_NEED_DOORBELL);
        true
    }

    /// The answering worker, which is called next, is to end it so, or worse if asked again.
    pub(super) fn fail_later(&self, to: Ending) {
        let mut failing = self.failing.load(Relaxed);
        while let Err(now) = self.failing.cmpxchg(failing, failing.max(to as u32), Full) {
            failing = now;
        }
    }

    /// What [`Self::fail_later`] was called with since the last time.
    pub(super) fn take_failing(&self) -> Option<Ending> {
        match self.failing.load(Acquire) {
            0 => None,
            _ => Ending::from_raw(self.failing.xchg(0, Full)),
        }
    }
}
