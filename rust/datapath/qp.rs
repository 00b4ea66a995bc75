// SPDX-License-Identifier: GPL-2.0

//! The queue pair: two halves, each under its own lock, and the state that both obey.

use super::connection::Connection;
use super::cq::Cq;
use super::deferred::Deferred;
use super::fabric::FABRIC;
use super::offload::{
    Offload,
    OFFLOAD, //
};
use super::payload::Regions;
use super::port::Port;
use super::recv_queue::{
    Receives,
    RecvHalf, //
};
use super::region::DomainId;
use super::send_queue::{
    SendHalf,
    SendWqes, //
};
use super::stream::Heard;
use super::Turn;
use crate::sys::ib::event::QpUpcall;
use crate::sys::ib::object::QpRef;
use crate::sys::ib::qp::{
    Capacity,
    State, //
};
use crate::sys::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::ring::Ring;
use crate::sys::timer::Deadline;
use crate::transport::config::{
    RequesterConfig,
    ResponderConfig, //
};
use crate::transport::counters::RequesterCounters;
use crate::transport::requester::{
    Requester,
    SendSlot, //
};
use crate::transport::responder::Responder;
use crate::uabi::ring::FLAG_NEED_DOORBELL;
use crate::uabi::wqe::{
    recv_stride,
    send_stride, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Release, //
};
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work, //
};

/// A reliable connected queue pair.
#[pin_data]
pub struct Qp {
    /// First, so that it is gone before what it uses.
    #[pin]
    pub(super) deadline: Deadline<Qp>,
    #[pin]
    pub(super) work: Work<Qp>,
    #[pin]
    pub(super) offload: Work<Qp, OFFLOAD>,
    /// QP number.
    pub number: u32,
    /// The device it belongs to.
    pub port: Arc<Port>,
    /// Whose regions it may use.
    pub domain: DomainId,
    /// What it can hold.
    pub capacity: Capacity,
    /// Every send request reports its completion.
    pub signal_all: bool,
    /// The send ring.
    pub sq: Arc<Ring>,
    /// The receive ring.
    pub rq: Arc<Ring>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    /// Tells ib_core.
    pub upcall: QpUpcall,
    /// A [`State`]: written with both halves locked, read under either.
    state: Atomic<u32>,
    /// Requests on their way. Taken before any `recv`.
    #[pin]
    pub(super) send: SpinLockBh<SendHalf>,
    /// Requests of the peer. Taken after `send`; on the local path, after another QP's `send`.
    #[pin]
    pub(super) recv: SpinLockBh<RecvHalf>,
}

impl_has_work! {
    impl HasWork<Self> for Qp { self.work }
    impl HasWork<Self, OFFLOAD> for Qp { self.offload }
}

/// What a QP is made from.
pub struct NewQp<'a> {
    /// The object of ib_core.
    pub qp: QpRef<'a>,
    /// Its number.
    pub number: u32,
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
    /// Every send request reports its completion.
    pub signal_all: bool,
}

impl Qp {
    /// A QP in RESET. May sleep.
    pub fn new(new: NewQp<'_>) -> Result<Arc<Self>> {
        let capacity = new.capacity;
        let sq_stride = send_stride(capacity.max_send_sge, capacity.max_inline);
        let rq_stride = recv_stride(capacity.max_recv_sge);
        let sq = Arc::new(Ring::new(capacity.max_send_wr, sq_stride)?, GFP_KERNEL)?;
        let rq = Arc::new(Ring::new(capacity.max_recv_wr, rq_stride)?, GFP_KERNEL)?;
        sq.reset(FLAG_NEED_DOORBELL);
        rq.reset(0);
        let mut slots = KVVec::new();
        slots.resize(
            capacity.max_send_wr as usize,
            SendSlot::default(),
            GFP_KERNEL_ACCOUNT,
        )?;
        let send = SendHalf {
            requester: Requester::new(slots),
            wqes: SendWqes::new(
                capacity.max_send_wr,
                sq_stride,
                capacity.max_send_sge,
                capacity.max_inline,
                new.signal_all,
            )?,
            connection: None,
            worker: false,
            offload: Offload::default(),
            local: false,
            counted: RequesterCounters::default(),
            notify_drained: false,
        };
        let recv = RecvHalf {
            responder: Responder::new(),
            receives: Receives::new(rq_stride, capacity.max_recv_sge)?,
            connection: None,
            worker: false,
            established: false,
        };
        let upcall = QpUpcall::new(new.qp);
        let qp = Arc::pin_init(
            pin_init!(Self {
                deadline <- Deadline::new(),
                work <- new_work!("ferroce_qp"),
                offload <- new_work!("ferroce_qp_offload"),
                number: new.number,
                port: new.port,
                domain: new.domain,
                capacity,
                signal_all: new.signal_all,
                sq,
                rq,
                send_cq: new.send_cq,
                recv_cq: new.recv_cq,
                upcall,
                state: Atomic::new(State::Reset as u32),
                send <- new_spinlock_bh!(send, "ferroce_qp_send"),
                recv <- new_spinlock_bh!(recv, "ferroce_qp_recv"),
            }),
            GFP_KERNEL,
        )?;
        Deadline::start(&qp);
        Ok(qp)
    }

    /// The state. Stable while one of the halves is locked.
    pub fn state(&self) -> State {
        State::from_raw(self.state.load(Acquire)).unwrap_or(State::Err)
    }

    /// The regions that work requests of this QP, and its peer, may name.
    pub fn regions<'a>(&'a self, rcu: &'a rcu::Guard) -> Regions<'a> {
        Regions {
            port: &self.port,
            domain: self.domain,
            rcu,
        }
    }

    /// Back to RESET: everything is forgotten, nothing completes.
    pub fn reset(&self) {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        self.state.store(State::Reset as u32, Release);
        send.requester.reset();
        send.requester.drain(false);
        send.connection = None;
        send.dismiss_worker();
        recv.worker = false;
        recv.responder.reset();
        recv.receives.reset();
        recv.connection = None;
        recv.established = false;
        self.sq.reset(FLAG_NEED_DOORBELL);
        self.rq.reset(0);
    }

    /// Moves to `to` and changes what goes with it, if the state is still `from`: an error of the
    /// data path may have moved the QP to ERR meanwhile, and then it stays there.
    fn transition(
        &self,
        from: State,
        to: State,
        change: impl FnOnce(&mut SendHalf, &mut RecvHalf),
    ) -> Result {
        let mut send = self.send.lock();
        let mut recv = self.recv.lock();
        if self.state() != from {
            return Err(EINVAL);
        }
        change(&mut send, &mut recv);
        self.state.store(to as u32, Release);
        Ok(())
    }

    /// To INIT, from RESET or INIT.
    pub fn init(&self, from: State) -> Result {
        self.transition(from, State::Init, |_, _| {})
    }

    /// To RTR from INIT: the responder is set up before the state lets packets in.
    pub fn ready_to_receive(
        &self,
        config: ResponderConfig,
        sending: Connection,
        receiving: Connection,
    ) -> Result {
        self.transition(State::Init, State::Rtr, |send, recv| {
            send.connection = Some(sending);
            recv.connection = Some(receiving);
            recv.established = false;
            recv.responder.connect(config);
        })
    }

    /// To RTS from RTR.
    pub fn ready_to_send(&self, config: RequesterConfig) -> Result {
        self.transition(State::Rtr, State::Rts, |send, _| {
            send.requester.connect(config);
        })
    }

    /// To SQD from RTS: requests begun are finished, then `notify` raises the event.
    pub fn drain(&self, notify: bool) -> Result {
        self.transition(State::Rts, State::Sqd, |send, _| {
            send.requester.drain(true);
            send.notify_drained = notify;
        })
    }

    /// Changes attributes in RTS or SQD, and goes from SQD to RTS.
    pub fn update(
        &self,
        from: State,
        to: State,
        change: impl FnOnce(&mut SendHalf, &mut RecvHalf),
    ) -> Result {
        self.transition(from, to, |send, recv| {
            change(send, recv);
            if to == State::Rts {
                send.requester.drain(false);
                send.notify_drained = false;
            }
        })
    }

    /// Whether it is in SQD and not drained yet.
    pub fn is_draining(&self) -> bool {
        let send = self.send.lock();
        self.state() == State::Sqd && !send.requester.is_drained()
    }

    /// How far the process has come with what it is told. The sending half is locked.
    pub(super) fn heard(&self) -> Heard {
        Heard {
            sends: self.send_cq.ring().load_consumer(),
            receives: self.recv_cq.ring().load_consumer(),
            requests: self.recv.lock().responder.expected_psn().get(),
        }
    }

    /// Looks at both halves.
    pub fn inspect(&self, look: impl FnOnce(&SendHalf, &RecvHalf)) {
        let send = self.send.lock();
        let recv = self.recv.lock();
        look(&send, &recv);
    }

    /// To ERR from any state but RESET, by the user or by an error: all requests are flushed, and
    /// from here on a doorbell flushes what is posted.
    pub fn enter_error(self: ArcBorrow<'_, Self>, rcu: &rcu::Guard, deferred: &mut Deferred) {
        let Some(fabric) = FABRIC.get(rcu) else {
            return;
        };
        let mut turn = Turn::new(rcu, fabric);
        core::mem::swap(&mut turn.deferred, deferred);
        {
            let mut send = self.send.lock();
            let mut recv = self.recv.lock();
            if !matches!(self.state(), State::Err | State::Reset) {
                self.state.store(State::Err as u32, Release);
                // Up before the flush: who posts from here on either is found by it, or rings.
                send.dismiss_worker();
                self.sq.store_flags(FLAG_NEED_DOORBELL);
                self.rq.store_flags(FLAG_NEED_DOORBELL);
                recv.worker = false;
                if send.flush(self, &mut turn.deferred) {
                    send.hand_over(self, &turn);
                }
                if recv.flush(self, &mut turn) {
                    recv.hand_over(self, &turn);
                }
            }
        }
        core::mem::swap(&mut turn.deferred, deferred);
    }

    /// Ends the QP: nothing runs for it afterwards. The number leads nowhere any more. May sleep.
    pub fn shut_down(&self) {
        self.reset();
        self.deadline.stop();
        self.upcall.detach();
    }
}
