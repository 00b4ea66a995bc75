// SPDX-License-Identifier: GPL-2.0

//! Upcalls: telling ib_core's users that something happened to a CQ or a QP.
//!
//! The data path keeps a handle after ib_core may have freed the object, so the handle is cleared
//! first and every upcall runs in an RCU read section that clearing waits for. Upcalls are made
//! with no lock of ours held: a handler may poll or post.

use super::object::{
    CqRef,
    QpRef, //
};
use crate::sys::bindings;
use crate::sys::table::wait_for_readers;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::sync::rcu;

/// The upcalls of a completion queue.
///
/// # Invariants
///
/// The pointer is null or a live `ib_cq`; it is cleared, and readers are waited for, before the
/// object is freed.
pub struct CqUpcall(AtomicPtr<bindings::ib_cq>);

impl CqUpcall {
    /// For a CQ that is being created; its owner calls [`Self::detach`] before it is freed.
    pub fn new(cq: CqRef<'_>) -> Self {
        Self(AtomicPtr::new(cq.as_raw()))
    }

    /// A completion was added that somebody waits for.
    pub fn completion(&self, _rcu: &rcu::Guard) {
        let cq = self.0.load(Ordering::Acquire);
        if cq.is_null() {
            return;
        }
        // SAFETY: By the type invariant `cq` lives for this read section; the handler may be
        // called in atomic context.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// The queue overflowed, or cannot be used any more.
    pub fn error(&self, _rcu: &rcu::Guard) {
        let cq = self.0.load(Ordering::Acquire);
        if cq.is_null() {
            return;
        }
        // SAFETY: As in `completion`; the event is filled as its kind wants it.
        unsafe {
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.device = (*cq).device;
            event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
            event.element.cq = cq;
            if let Some(handler) = (*cq).event_handler {
                handler(&mut event, (*cq).cq_context);
            }
        }
    }

    /// Ends the upcalls: when this returns none is running and none will come. May sleep.
    pub fn detach(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::Release);
        wait_for_readers();
    }
}

/// Asynchronous events of a QP (IBTA 11.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The first packet came before the QP was moved to RTS.
    CommEstablished,
    /// The send queue is drained (SQD).
    SqDrained,
    /// Moved to ERR by an error that no completion can report.
    Fatal,
    /// Moved to ERR by an invalid request of the peer.
    RequestError,
    /// Moved to ERR by an access violation of the peer.
    AccessError,
}

/// The upcalls of a QP.
///
/// # Invariants
///
/// As for [`CqUpcall`].
pub struct QpUpcall(AtomicPtr<bindings::ib_qp>);

impl QpUpcall {
    /// For a QP that is being created; its owner calls [`Self::detach`] before it is freed.
    pub fn new(qp: QpRef<'_>) -> Self {
        Self(AtomicPtr::new(qp.as_raw()))
    }

    /// Reports an event.
    pub fn event(&self, event: QpEvent, _rcu: &rcu::Guard) {
        let qp = self.0.load(Ordering::Acquire);
        if qp.is_null() {
            return;
        }
        let kind = match event {
            QpEvent::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            QpEvent::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
        };
        // SAFETY: By the type invariant `qp` lives for this read section; the handler may be
        // called in atomic context; the event is filled as its kind wants it.
        unsafe {
            let mut event: bindings::ib_event = pin_init::zeroed();
            event.device = (*qp).device;
            event.event = kind;
            event.element.qp = qp;
            if let Some(handler) = (*qp).event_handler {
                handler(&mut event, (*qp).qp_context);
            }
        }
    }

    /// Ends the upcalls, as [`CqUpcall::detach`]. May sleep.
    pub fn detach(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::Release);
        wait_for_readers();
    }
}
