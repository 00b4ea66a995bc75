// SPDX-License-Identifier: GPL-2.0

//! How users learn of completions and events: one notifier per CQ, QP and SRQ.
//!
//! A handler may take locks of its user and may post, so it never runs on the stack of one who
//! posts, nor under a lock of ours, and never twice at a time for one CQ
//! (Documentation/infiniband/core_locking.rst). Each notifier is a work item that runs in the
//! softirq; what is due when it runs is reported at once, so nothing is lost, however much it is.
//!
//! Notifiers are objects of their own, as they may outlive what they are for by a moment; then the
//! upcall leads nowhere.

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

/// How ib_core is notified about one kind of object.
pub trait Upcall: Send + Sync + 'static {
    /// Tells it all that is due: a set of bits.
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
    /// Nothing is due.
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

    /// These bits are due. Any context, any lock.
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

/// A completion was added that somebody waits for.
const COMPLETION: u32 = 1 << 0;
/// The queue has overflowed.
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
    /// A completion was added that somebody waits for.
    pub fn completion(self: &Arc<Self>, queue: &OwnedQueue) {
        self.raise(COMPLETION, queue);
    }

    /// The queue has overflowed.
    pub fn overrun(self: &Arc<Self>, queue: &OwnedQueue) {
        self.raise(OVERRUN, queue);
    }
}

/// The events that the data path finds, in the order in which they are reported.
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
    /// The way to the QP of ib_core.
    pub(super) fn upcall(&self) -> &QpUpcall {
        &self.upcall
    }

    /// The QP has an asynchronous event.
    pub fn event(self: &Arc<Self>, event: QpEvent, queue: &OwnedQueue) {
        self.raise(bit(event), queue);
    }
}

/// Those of a shared receive queue.
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
    /// The shared receive queue has an asynchronous event.
    pub fn event(self: &Arc<Self>, event: SrqEvent, queue: &OwnedQueue) {
        self.raise(srq_bit(event), queue);
    }
}
