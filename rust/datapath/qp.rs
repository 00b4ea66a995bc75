// SPDX-License-Identifier: GPL-2.0

//! The queue pair: send queue and receive queue, each under its own lock, and the state of both.

use crate::core::kick::AskedBy;
use crate::core::message::Mtu;
use crate::core::service::Service;
use crate::core::steering::Sender;
use crate::core::uabi::ring::{
    Module,
    RingOps as _,
    Words,
    FLAG_NEED_DOORBELL, //
};
use crate::core::uabi::wqe::{
    recv_stride,
    send_stride, //
};
use crate::core::wire::opcode;
use crate::datapath::backlog::Steering;
use crate::datapath::cq::Cq;
use crate::datapath::directory::Directory;
use crate::datapath::memory::region::DomainId;
use crate::datapath::memory::sg::Regions;
use crate::datapath::memory::window::QpId;
use crate::datapath::path::Path;
use crate::datapath::port::{
    Port,
    MANAGEMENT_QP, //
};
use crate::datapath::protocol::{
    AnyRequester,
    ResourceSlots, //
};
use crate::datapath::queues::{
    connect,
    Answering,
    RecvQueue,
    SendQueue, //
};
use crate::datapath::srq::Srq;
use crate::observe::Counters;
use crate::sys::ib::event::{
    Notifier,
    QpUpcall, //
};
use crate::sys::ib::qp::{
    Attributes,
    Capacity,
    QpState, //
};
use crate::sys::ib::ContextRef;
use crate::sys::ring::Ring;
use crate::sys::sync::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::table::{
    Named,
    Replaceable,
    Successor, //
};
use crate::sys::trace::{
    self,
    StateCause, //
};
use crate::sys::work::{
    Cpu,
    Deadline, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};
use kernel::sync::{
    rcu,
    Arc, //
};
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work, //
};

/// Work item: sends on a CPU that has sent before.
pub(super) const SEND_NEAR: u64 = 0;
/// Work item: sends on another CPU than the poster's.
pub(super) const SEND_FAR: u64 = 1;
/// Work item: sends responses.
pub(super) const ANSWER: u64 = 2;
/// Work item: a ULP has posted.
pub(super) const POSTED: u64 = 3;

/// Timer of the requester, and of responses that the local stack refused.
const PROTOCOL: u64 = 0;
/// Timer that polls the send ring.
pub const POLL: u64 = 1;

/// A queue pair.
#[pin_data]
pub struct Qp {
    /// First: dropped before the data that the timer uses.
    #[pin]
    pub(super) deadline: Deadline<Qp, PROTOCOL>,
    #[pin]
    pub(super) poll: Deadline<Qp, POLL>,
    #[pin]
    near: Work<Qp, SEND_NEAR>,
    #[pin]
    far: Work<Qp, SEND_FAR>,
    #[pin]
    answer: Work<Qp, ANSWER>,
    #[pin]
    posted: Work<Qp, POSTED>,
    /// QP number, unique in the module.
    pub number: u32,
    /// Its number on the wire.
    pub known_as: u32,
    /// The opcodes that it accepts.
    pub(super) opcodes: opcode::OpcodeService,
    /// The identity that memory windows are bound to.
    pub(super) id: QpId,
    /// Its device.
    pub port: Arc<Port>,
    /// Its counters: those of the port, or a set of its own.
    counters: Replaceable<Counters>,
    /// The protection domain of its WQEs, and of its MRs and AHs.
    pub(super) domain: DomainId,
    /// The protection domain of its receives.
    recv_domain: DomainId,
    /// Sizes of its queues.
    pub capacity: Capacity,
    /// Every send WQE is signaled.
    pub signal_all: bool,
    /// The send ring.
    pub sq: Arc<Ring>,
    /// The source of its receives.
    pub receives: ReceiveSource,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) notifier: Arc<Notifier<QpUpcall>>,
    /// A [`QpState`]. Written under both queue locks, read under either.
    state: Atomic<u32>,
    pub(super) steering: Steering,
    /// An [`Ending`] that is not carried out yet, or 0.
    failing: Atomic<u32>,
    /// The send queue. Taken before any `recv`.
    #[pin]
    pub(super) send: SpinLockBh<SendQueue>,
    /// The receive queue. Taken after `send`; on the local path, after another QP's `send`.
    #[pin]
    pub(super) recv: SpinLockBh<RecvQueue>,
}

impl_has_work! {
    impl HasWork<Self, SEND_NEAR> for Qp { self.near }
    impl HasWork<Self, SEND_FAR> for Qp { self.far }
    impl HasWork<Self, ANSWER> for Qp { self.answer }
    impl HasWork<Self, POSTED> for Qp { self.posted }
}

/// A QP and its reference count fit into the 2 KiB class of the kernel's allocator, and do not pay
/// for 4 KiB. With the checks of a debugging kernel, whose locks are larger, they need not.
const _: () = {
    let counted = size_of::<Qp>().wrapping_add(size_of::<u64>());
    assert!(counted <= 2048 || size_of::<SpinLockBh<()>>() > size_of::<u32>());
};

/// How a QP fails, in ascending order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(super) enum Ending {
    /// To SQE: only its send queue has failed.
    SendError = 1,
    /// To ERR, because the user wants it.
    User = 2,
    /// To ERR; a completion reports the reason.
    Error = 3,
    /// To ERR with the event `IBV_EVENT_QP_FATAL`, because no completion reports the reason.
    Fatal = 4,
}

impl Ending {
    fn from_raw(raw: u32) -> Option<Self> {
        [Self::SendError, Self::User, Self::Error, Self::Fatal]
            .into_iter()
            .find(|ending| *ending as u32 == raw)
    }
}

/// Snapshot of a QP for `rdma resource show`.
pub struct QpInfo {
    /// WQEs of the send queue that are not complete.
    pub pending: u32,
    /// Free receives in its own receive queue.
    pub receives: Option<u32>,
    /// Whether messages use the local path, if it has a peer.
    pub is_local: Option<bool>,
    /// UDP source port of its packets, if it has a peer.
    pub source_port: Option<u16>,
    /// Whether its packets may be marked by the network.
    pub ecn: bool,
    /// Packets that it may have in flight, if that is limited.
    pub window: Option<u32>,
}

/// The source of the receives of a QP.
pub enum ReceiveSource {
    /// Its own receive queue.
    Own(Arc<Ring>),
    /// A shared receive queue.
    Shared(Arc<Srq>),
}

/// Parameters of a new QP.
pub struct NewQp<'a> {
    /// Upcalls to ib_core.
    pub upcall: QpUpcall,
    /// The owning process; `None` for a ULP.
    pub context: Option<ContextRef<'a>>,
    /// QP number, unique in the module.
    pub number: u32,
    /// Its number on the wire: that of the GSI QP is the same on each device.
    pub known_as: u32,
    /// The row of its type.
    pub service: Service,
    /// Its device.
    pub port: Arc<Port>,
    /// Protection domain.
    pub domain: DomainId,
    /// CQ of the send queue.
    pub send_cq: Arc<Cq>,
    /// CQ of the receive queue.
    pub recv_cq: Arc<Cq>,
    /// Sizes of its queues; the numbers of WQEs are powers of two.
    pub capacity: Capacity,
    /// The SRQ, if it has no receive queue of its own.
    pub srq: Option<Arc<Srq>>,
    /// Every send WQE is signaled.
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
                let (domain, max_sge) = (srq.domain, srq.max_sge);
                (ReceiveSource::Shared(srq), domain, max_sge)
            }
            None => {
                let max_sge = capacity.max_recv_sge;
                let rq = ring(capacity.max_recv_wr, recv_stride(max_sge))?;
                rq.reset(0);
                (ReceiveSource::Own(rq), new.domain, max_sge)
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
                counters: Replaceable::new(new.port.all_counters.common().clone()),
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
                state: Atomic::new(QpState::Reset as u32),
                steering: Steering::default(),
                failing: Atomic::new(0),
                send <- new_spinlock_bh!(send, "ferroce_qp_send"),
                recv <- new_spinlock_bh!(recv, "ferroce_qp_recv"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The event that says what its number means, for a QP of the type `kind`.
    pub fn trace_new(&self, kind: u32) {
        self.notifier.upcall.trace_new(|| trace::NewQp {
            qpn: self.number,
            known_as: self.known_as,
            type_: kind,
            send_cq: self.send_cq.id(),
            recv_cq: self.recv_cq.id(),
            max_send_wr: self.capacity.max_send_wr,
            max_recv_wr: self.capacity.max_recv_wr,
            max_send_sge: self.capacity.max_send_sge,
            max_recv_sge: self.capacity.max_recv_sge,
            max_inline: self.capacity.max_inline,
            ..trace::NewQp::default()
        });
    }

    /// Whether it is the GSI QP of its device.
    #[inline]
    pub(super) fn is_management(&self) -> bool {
        self.known_as == MANAGEMENT_QP
    }

    /// Another CPU than this one, where what has arrived here may be executed.
    pub(super) fn elsewhere(&self) -> Option<Cpu> {
        let homes = Some(self.steering.homes()).filter(|_| self.port.steering.is_on())?;
        Cpu::online(homes.other_than(Cpu::current().number())?)
    }

    /// The other CPU that sends at the moment: what is for the send queue would wait for it.
    #[inline]
    pub(super) fn sender(&self) -> Option<Sender> {
        self.steering
            .sender()
            .filter(|_| self.port.steering.is_on())
    }

    /// Its counters.
    #[inline]
    pub(super) fn counters<'a>(&'a self, rcu: &'a rcu::Guard) -> &'a Counters {
        self.counters.get(rcu)
    }

    /// Counts in `counters` from now on.
    pub fn count_in(&self, counters: Successor<Counters>) {
        self.counters.replace(counters);
    }

    /// The state. Stable while one of the queue locks is held.
    pub fn state(&self) -> QpState {
        QpState::from_raw(self.state.load(Acquire)).unwrap_or(QpState::Err)
    }

    /// Whether it serves requests of the peer.
    pub(super) fn serves(&self) -> bool {
        matches!(
            self.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        )
    }

    /// Whether it transmits requests.
    pub(super) fn sends(&self) -> bool {
        matches!(self.state(), QpState::Rts | QpState::Sqd)
    }

    /// The MRs that WQEs of this QP, and requests of its peer, may name.
    pub(super) fn regions<'a>(&'a self, rcu: &'a rcu::Guard) -> Regions<'a> {
        Regions::new(&self.port.keys, self.domain, rcu)
    }

    /// The MRs that its receives may name.
    pub(super) fn recv_regions<'a>(&'a self, rcu: &'a rcu::Guard) -> Regions<'a> {
        Regions::new(&self.port.keys, self.recv_domain, rcu)
    }

    /// Takes the snapshot.
    pub fn info(&self) -> QpInfo {
        let send = self.send.lock();
        let recv = self.recv.lock();
        let posted = self.sq.load_producer();
        let pending = posted.wrapping_sub(send.requester.retired());
        let path = send.peer.as_ref().map(|peer| &peer.path);
        QpInfo {
            pending: pending.min(self.sq.entries()),
            receives: match &self.receives {
                ReceiveSource::Own(rq) => Some(recv.wqes.left(&**rq)),
                ReceiveSource::Shared(_) => None,
            },
            is_local: path.map(|path| path.is_to_own_device() && self.port.local_path.is_on()),
            source_port: path.map(|path| path.flow().source_port),
            ecn: path.is_some_and(Path::may_be_marked),
            window: match &send.requester {
                AnyRequester::Reliable(requester) => Some(requester.window_size()),
                AnyRequester::Unreliable(_) | AnyRequester::Datagram(_) => None,
            },
        }
    }

    /// Resets the QP: discards everything; no WQE completes.
    pub fn reset(&self) {
        self.discard(SendQueue::reset, Ring::reset, 0);
    }

    /// Discards everything for ever; no WQE completes. A process whose device was taken away has
    /// the rings still. Their indices stay, so that there is room, and they ask for doorbells:
    /// what is posted from here on is refused, and not forgotten.
    pub fn end(&self) {
        self.discard(SendQueue::end, Ring::store_flags, FLAG_NEED_DOORBELL);
    }

    /// Discards everything; `empty` leaves the rings with these flags, the receive ring with
    /// `rq_flags`.
    fn discard(
        &self,
        clear: impl FnOnce(&mut SendQueue),
        empty: impl Fn(&Ring, u32),
        rq_flags: u32,
    ) {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        self.enter(QpState::Reset, StateCause::User);
        self.failing.store(0, Relaxed);
        clear(&mut send);
        send.trace_offload(self.number, AskedBy::End);
        recv.reset();
        empty(&self.sq, FLAG_NEED_DOORBELL);
        if let ReceiveSource::Own(rq) = &self.receives {
            empty(rq, rq_flags);
        }
    }

    /// Another state. The caller holds both queue locks.
    fn enter(&self, to: QpState, why: StateCause) {
        trace::qp_state(|| trace::QpStateChange {
            qpn: self.number,
            from: self.state() as u32,
            to: to as u32,
            why: why as u32,
        });
        self.state.store(to as u32, Release);
    }

    /// Moves to `to` and applies `change`, if the state is still `from`. An error of the data path
    /// may have moved the QP to ERR meanwhile; then it stays there.
    fn transition(
        &self,
        from: QpState,
        to: QpState,
        change: impl FnOnce(&mut SendQueue, &mut RecvQueue) -> Result,
    ) -> Result {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        if self.state() != from {
            return Err(EINVAL);
        }
        change(&mut send, &mut recv)?;
        self.enter(to, StateCause::User);
        Ok(())
    }

    /// To INIT, from RESET or INIT.
    pub fn init(&self, from: QpState) -> Result {
        self.transition(from, QpState::Init, |_, _| Ok(()))
    }

    /// To RTR from INIT. The responder is set up before the state admits packets. Each queue of a
    /// connection gets its own path. What waits in a backlog since an earlier connection is dropped
    /// before, in INIT: programs choose the same PSNs again, by which it would belong to this one.
    pub fn ready_to_receive(&self, attributes: &Attributes, paths: Option<[Path; 2]>) -> Result {
        let mut slots = ResourceSlots::new(self.opcodes, attributes)?;
        Directory::current()?.backlogs.wait_for(&self.steering);
        self.transition(QpState::Init, QpState::Rtr, |send, recv| {
            recv.responder.grow(&mut slots);
            recv.responder.connect(attributes)?;
            if let Some(paths) = paths {
                connect(send, recv, attributes.dest_qpn, paths);
            }
            recv.established = false;
            self.steering.seen_at_home(self.number);
            Ok(())
        })
    }

    /// To RTS from RTR. May change the responder's settings too, but not how many requests it
    /// permits. `longest` is the longest datagram.
    pub fn ready_to_send(&self, attributes: &Attributes, longest: Mtu) -> Result {
        self.transition(QpState::Rtr, QpState::Rts, |send, recv| {
            let ecn = self.port.ecn.is_on();
            send.requester.connect(attributes, longest, ecn)?;
            recv.responder.update(attributes);
            Ok(())
        })
    }

    /// To SQD from RTS: WQEs in progress complete, then `notify` raises the event.
    pub fn drain(&self, notify: bool) -> Result {
        self.transition(QpState::Rts, QpState::Sqd, |send, _| {
            send.requester.drain(true);
            send.notify_drained = notify;
            Ok(())
        })
    }

    /// Changes the attributes that may change in RTS or SQD, including new paths to the peer, and
    /// moves from SQD or SQE to RTS.
    pub fn update(
        &self,
        [from, to]: [QpState; 2],
        attributes: &Attributes,
        paths: Option<[Path; 2]>,
    ) -> Result {
        let mut slots = ResourceSlots::new(self.opcodes, attributes)?;
        self.transition(from, to, |send, recv| {
            if let Some(paths) = paths {
                connect(send, recv, attributes.dest_qpn, paths);
            }
            send.requester.update(attributes);
            recv.responder.grow(&mut slots);
            recv.responder.update(attributes);
            if to == QpState::Rts {
                send.requester.drain(false);
                send.notify_drained = false;
            }
            Ok(())
        })
    }

    /// Whether it is in SQD and not drained yet.
    pub fn is_draining(&self) -> bool {
        let send = self.send.lock();
        self.state() == QpState::Sqd && !send.requester.is_drained()
    }

    /// The next PSNs: of requests to be sent, and of requests expected.
    pub fn psns(&self) -> (u32, u32) {
        let send = self.send.lock();
        let recv = self.recv.lock();
        (
            send.requester.next_psn().get(),
            recv.responder.expected_psn().get(),
        )
    }

    /// Moves to ERR, unless the state is ERR or RESET. Returns whether it did; the caller then
    /// flushes both queues. From here on a doorbell flushes posted WQEs.
    pub(super) fn enter_error(
        &self,
        send: &mut SendQueue,
        recv: &mut RecvQueue,
        why: StateCause,
    ) -> bool {
        if matches!(self.state(), QpState::Err | QpState::Reset) {
            return false;
        }
        self.enter(QpState::Err, why);
        send.offload.reset();
        send.trace_offload(self.number, AskedBy::End);
        recv.answering = Answering::Inline;
        // Set before the flush: the flush finds a WQE posted from here on, or its poster rings.
        self.sq.store_flags(FLAG_NEED_DOORBELL);
        if let ReceiveSource::Own(rq) = &self.receives {
            rq.store_flags(FLAG_NEED_DOORBELL);
        }
        true
    }

    /// Moves to SQE, if the QP can send. Returns whether it did; the caller then flushes the send
    /// queue.
    pub(super) fn enter_send_error(&self, send: &mut SendQueue, _recv: &mut RecvQueue) -> bool {
        if !self.sends() {
            return false;
        }
        self.enter(QpState::Sqe, StateCause::SendError);
        send.offload.reset();
        send.trace_offload(self.number, AskedBy::End);
        // Set before the flush, as above.
        self.sq.store_flags(FLAG_NEED_DOORBELL);
        true
    }

    /// Marks it as failing; the caller sees to it that [`Ctx`](super::ctx::Ctx) moves it. Keeps the
    /// most severe ending. The data path holds one of the queue locks.
    pub(super) fn mark_failing(&self, to: Ending) {
        let mut failing = self.failing.load(Relaxed);
        while let Err(now) = self.failing.cmpxchg(failing, failing.max(to as u32), Full) {
            failing = now;
        }
    }

    /// Whether it is marked.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Acquire) != 0
    }

    /// Takes the mark. The caller holds both queue locks.
    pub(super) fn take_failing(&self) -> Option<Ending> {
        Ending::from_raw(self.failing.xchg(0, Full))
    }
}
