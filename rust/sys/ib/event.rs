// SPDX-License-Identifier: GPL-2.0

//! Upcalls: telling the users of ib_core that something happened to a CQ, a QP or an SRQ; and the
//! notifiers that make them, one per CQ, QP and SRQ.
//!
//! The data path may keep its handle when ib_core has freed the object. So a handle leads to the
//! object by a [`Revocable`], and the object itself has the other end of it ([`Attached`]), which
//! revokes it when the object is destroyed or when its creation fails.
//!
//! A handler may take locks of its ULP and may post. So it never runs under a lock of the data
//! path, nor twice at a time for one CQ (Documentation/infiniband/core_locking.rst). Each
//! [`Notifier`] is a work item that runs in a softirq: it interrupts a poster only where that one
//! permits softirqs. It reports everything that is due in one call: no event is lost, however many
//! come.
//!
//! A notifier is a separate object: it may outlive its CQ, QP or SRQ for a moment, when its upcall
//! is already revoked.

use crate::sys::bindings;
use crate::sys::sync::Revocable;
use crate::sys::trace::{
    self,
    AsyncObject,
    CqNews,
    NewQp, //
};
use crate::sys::work::OwnedQueue;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Full, //
};
use kernel::sync::Arc;
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work,
    WorkItem, //
};

/// The address of an object.
struct Pointer<C>(NonNull<C>);

// SAFETY: An address; each use has its own justification.
unsafe impl<C> Send for Pointer<C> {}
// SAFETY: As above.
unsafe impl<C> Sync for Pointer<C> {}

/// The object's end: while it exists, upcalls reach the object.
pub(super) struct Attached<C: 'static>(Arc<Revocable<Pointer<C>>>);

impl<C> Attached<C> {
    /// # Safety
    ///
    /// `core` must be valid until the result was dropped, and its fields for upcalls (handlers and
    /// their contexts) must not change meanwhile. But `comp_handler` may be set later, once, if its
    /// context is there already.
    pub(super) unsafe fn new(core: NonNull<C>) -> Result<Self> {
        Ok(Self(Arc::new(
            Revocable::new(Pointer(core)),
            GFP_KERNEL_ACCOUNT,
        )?))
    }
}

impl<C> Attached<C> {
    /// When it returns no upcall is running and none will come. May sleep.
    pub(super) fn revoke(&self) {
        self.0.revoke();
    }
}

impl<C> Drop for Attached<C> {
    fn drop(&mut self) {
        self.revoke();
    }
}

/// The upcalls of one object: a CQ, a QP or an SRQ.
///
/// They may be made in any context, but with no lock held that a handler may want (it may poll and
/// post), not from a call by the owner of the handler, and one at a time for a CQ.
///
/// # Invariants
///
/// While access is granted, the pointer leads to a live object: see [`Attached::new`].
pub struct CoreUpcall<C: 'static>(Arc<Revocable<Pointer<C>>>);

/// The upcalls of a completion queue.
pub type CqUpcall = CoreUpcall<bindings::ib_cq>;
/// The upcalls of a QP.
pub type QpUpcall = CoreUpcall<bindings::ib_qp>;
/// The upcalls of a shared receive queue.
pub type SrqUpcall = CoreUpcall<bindings::ib_srq>;

impl<C> CoreUpcall<C> {
    pub(super) fn of(attached: &Attached<C>) -> Self {
        // INVARIANT: By the requirement of `Attached::new`.
        Self(attached.0.clone())
    }

    /// The object, unless it is being destroyed: a name for it, to be handed to its user.
    pub(super) fn object(&self) -> Option<NonNull<C>> {
        self.0.access().map(|object| object.0)
    }

    /// Calls `call` with the object, unless it is being destroyed.
    fn with(&self, call: impl FnOnce(*mut C)) {
        if let Some(object) = self.0.access() {
            call(object.0.as_ptr());
        }
    }
}

impl CqUpcall {
    /// The number of the queue for `rdma resource show`; 0 if it is being destroyed.
    #[cold]
    pub fn id(&self) -> u32 {
        let mut id = 0;
        // SAFETY: `cq` is live, see `CoreUpcall`; the number was set before the queue is used.
        self.with(|cq| id = unsafe { (*cq).res.id });
        id
    }

    /// Traces what happens to an event of the queue.
    #[inline(always)]
    pub fn trace(&self, what: CqNews) {
        trace::cq_event(|| {
            self.emit(what);
            None
        });
    }

    #[cold]
    #[inline(never)]
    fn emit(&self, what: CqNews) {
        // SAFETY: `cq` is live, see `CoreUpcall`.
        self.with(|cq| unsafe { trace::cq_news(cq, what) });
    }

    /// A completion for which the CQ was armed.
    pub fn completion(&self) {
        self.with(|cq| {
            // SAFETY: `cq` is live, see `CoreUpcall`.
            unsafe { trace::cq_news(cq, CqNews::Delivered) };
            // SAFETY: `cq` is live, see `CoreUpcall`. The handler may be just being set; nobody has
            // armed the queue before, so that what else it needs is there when it is called.
            unsafe {
                if let Some(handler) = (&raw const (*cq).comp_handler).read_volatile() {
                    handler(cq, (*cq).cq_context);
                }
            }
        });
    }

    /// The queue has overrun, or is unusable.
    pub fn error(&self) {
        self.with(|cq| {
            // SAFETY: `cq` is live, see `CoreUpcall`; the event is filled as its kind wants it.
            unsafe {
                let mut event: bindings::ib_event = pin_init::zeroed();
                event.device = (*cq).device;
                event.event = bindings::ib_event_type_IB_EVENT_CQ_ERR;
                event.element.cq = cq;
                trace::asynchronous(AsyncObject::Cq, event.device, || (*cq).res.id, event.event);
                if let Some(handler) = (*cq).event_handler {
                    handler(&mut event, (*cq).cq_context);
                }
            }
        });
    }
}

/// Asynchronous events of a QP (IBTA 11.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum QpEvent {
    /// The first packet came before the QP was moved to RTS.
    CommEstablished = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue is drained (SQD).
    SqDrained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// Moved to ERR by an error that no completion can report.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// Moved to ERR by an invalid request of the peer.
    RequestError = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// Moved to ERR by an access violation of the peer.
    AccessError = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// In ERR, it takes nothing more from its SRQ.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

impl QpUpcall {
    /// Traces that the QP was created. Its device is filled in here.
    #[inline(always)]
    pub fn trace_new(&self, event: impl FnOnce() -> NewQp) {
        trace::qp(|| {
            let mut created = None;
            self.with(|qp| {
                // SAFETY: `qp` is live, see `CoreUpcall`; its device does not change.
                let device = unsafe { (*qp).device };
                created = Some(NewQp { device, ..event() });
            });
            created
        });
    }

    /// Reports an event.
    pub fn event(&self, event: QpEvent) {
        self.with(|qp| {
            // SAFETY: `qp` is live, see `CoreUpcall`; the event is filled as its kind wants it.
            unsafe {
                let mut raw: bindings::ib_event = pin_init::zeroed();
                raw.device = (*qp).device;
                raw.event = event as bindings::ib_event_type;
                raw.element.qp = qp;
                trace::asynchronous(AsyncObject::Qp, raw.device, || (*qp).qp_num, raw.event);
                if let Some(handler) = (*qp).event_handler {
                    handler(&mut raw, (*qp).qp_context);
                }
            }
        });
    }
}

/// Asynchronous events of a shared receive queue (IBTA 11.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SrqEvent {
    /// There are fewer receives than the limit that was armed.
    LimitReached = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
    /// It is unusable.
    Error = bindings::ib_event_type_IB_EVENT_SRQ_ERR,
}

impl SrqUpcall {
    /// Reports an event.
    pub fn event(&self, event: SrqEvent) {
        self.with(|srq| {
            // SAFETY: `srq` is live, see `CoreUpcall`; the event is filled as its kind wants it.
            unsafe {
                let mut raw: bindings::ib_event = pin_init::zeroed();
                raw.device = (*srq).device;
                raw.event = event as bindings::ib_event_type;
                raw.element.srq = srq;
                trace::asynchronous(AsyncObject::Srq, raw.device, || (*srq).res.id, raw.event);
                if let Some(handler) = (*srq).event_handler {
                    handler(&mut raw, (*srq).srq_context);
                }
            }
        });
    }
}

/// Upcall to ib_core for one kind of object.
pub trait Upcall: Send + Sync + 'static {
    /// Reports the events in `due`, a set of bits.
    fn report(&self, due: u32);
}

/// The notifier of one CQ, QP or SRQ.
#[pin_data]
pub struct Notifier<U: Upcall> {
    #[pin]
    work: Work<Notifier<U>>,
    /// The upcall to the object of ib_core.
    pub upcall: U,
    due: Atomic<u32>,
}

impl_has_work! {
    impl{U: Upcall} HasWork<Self> for Notifier<U> { self.work }
}

impl<U: Upcall> Notifier<U> {
    /// A notifier with nothing due.
    pub fn new(upcall: U) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("ferroce_notifier"),
                upcall,
                due: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Marks these bits as due. Any context, under any lock.
    fn raise(self: &Arc<Self>, bits: u32, queue: &OwnedQueue) {
        let mut due = self.due.load(kernel::sync::atomic::Relaxed);
        while let Err(now) = self.due.cmpxchg(due, due | bits, Full) {
            due = now;
        }
        // If it is queued already, it has not looked yet.
        let _ = queue.enqueue::<Arc<Self>, 0>(self.clone());
    }
}

impl<U: Upcall> WorkItem for Notifier<U> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let due = this.due.xchg(0, Full);
        if due != 0 {
            this.upcall.report(due);
        }
    }
}

/// A completion for which the CQ was armed.
const COMPLETION: u32 = 1 << 0;
/// The CQ has overrun.
const OVERRUN: u32 = 1 << 1;

impl Upcall for CqUpcall {
    fn report(&self, due: u32) {
        if due & OVERRUN != 0 {
            self.error();
        }
        if due & COMPLETION != 0 {
            self.completion();
        }
    }
}

impl Notifier<CqUpcall> {
    /// Reports a completion for which the CQ was armed.
    pub fn completion(self: &Arc<Self>, queue: &OwnedQueue) {
        self.raise(COMPLETION, queue);
    }

    /// Reports an overrun.
    pub fn overrun(self: &Arc<Self>, queue: &OwnedQueue) {
        self.raise(OVERRUN, queue);
    }
}

/// QP events that the data path raises, in the order in which they are reported.
const EVENTS: [QpEvent; 6] = [
    QpEvent::CommEstablished,
    QpEvent::SqDrained,
    QpEvent::Fatal,
    QpEvent::RequestError,
    QpEvent::AccessError,
    QpEvent::LastWqeReached,
];

/// The bit of an event, of a QP or an SRQ.
const fn bit(event: u32) -> u32 {
    1 << event
}

impl Upcall for QpUpcall {
    fn report(&self, due: u32) {
        for event in EVENTS {
            if due & bit(event as u32) != 0 {
                self.event(event);
            }
        }
    }
}

impl Notifier<QpUpcall> {
    /// Raises an asynchronous event of the QP.
    pub fn event(self: &Arc<Self>, event: QpEvent, queue: &OwnedQueue) {
        self.raise(bit(event as u32), queue);
    }
}

/// SRQ events that the data path raises.
const SRQ_EVENTS: [SrqEvent; 2] = [SrqEvent::LimitReached, SrqEvent::Error];

impl Upcall for SrqUpcall {
    fn report(&self, due: u32) {
        for event in SRQ_EVENTS {
            if due & bit(event as u32) != 0 {
                self.event(event);
            }
        }
    }
}

impl Notifier<SrqUpcall> {
    /// Raises an asynchronous event of the SRQ.
    pub fn event(self: &Arc<Self>, event: SrqEvent, queue: &OwnedQueue) {
        self.raise(bit(event as u32), queue);
    }
}
