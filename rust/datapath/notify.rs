// SPDX-License-Identifier: GPL-2.0

//! Upcalls for completions and events: one notifier per CQ, QP and SRQ.
//!
//! A handler may take locks of its ULP and may post. So it never runs on the stack of a poster, nor
//! under a lock of the data path, and never twice at a time for one CQ
//! (Documentation/infiniband/core_locking.rst). Each notifier is a work item that runs in a
//! softirq. It reports everything that is due in one call: no event is lost, however many come.
//!
//! A notifier is a separate object: it may outlive its CQ, QP or SRQ for a moment, when its upcall
//! is already revoked.

use crate::sys::ib::event::{
    CqUpcall,
    QpEvent,
    QpUpcall,
    SrqEvent,
    SrqUpcall, //
};
use crate::sys::work::OwnedQueue;
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
    upcall: U,
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

    /// The upcall to the object of ib_core.
    pub(super) fn upcall(&self) -> &U {
        &self.upcall
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

const fn bit(event: QpEvent) -> u32 {
    1 << event as u32
}

impl Upcall for QpUpcall {
    fn report(&self, due: u32) {
        for event in EVENTS {
            if due & bit(event) != 0 {
                self.event(event);
            }
        }
    }
}

impl Notifier<QpUpcall> {
    /// Raises an asynchronous event of the QP.
    pub fn event(self: &Arc<Self>, event: QpEvent, queue: &OwnedQueue) {
        self.raise(bit(event), queue);
    }
}

/// SRQ events that the data path raises.
const SRQ_EVENTS: [SrqEvent; 2] = [SrqEvent::LimitReached, SrqEvent::Error];

const fn srq_bit(event: SrqEvent) -> u32 {
    1 << event as u32
}

impl Upcall for SrqUpcall {
    fn report(&self, due: u32) {
        for event in SRQ_EVENTS {
            if due & srq_bit(event) != 0 {
                self.event(event);
            }
        }
    }
}

impl Notifier<SrqUpcall> {
    /// Raises an asynchronous event of the SRQ.
    pub fn event(self: &Arc<Self>, event: SrqEvent, queue: &OwnedQueue) {
        self.raise(srq_bit(event), queue);
    }
}
