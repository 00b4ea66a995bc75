// SPDX-License-Identifier: GPL-2.0

//! Completion queues: where the data path tells a process what is done.

use crate::sys::ib::event::CqUpcall;
use crate::sys::ib::object::CqRef;
use crate::sys::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::ring::Ring;
use crate::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use kernel::prelude::*;
use kernel::sync::Arc;
use zerocopy::transmute;

/// A completion queue.
#[pin_data]
pub struct Cq {
    ring: Arc<Ring>,
    /// Guards `producer`, and that entries are published in order. Taken after the locks of QPs.
    #[pin]
    inner: SpinLockBh<Inner>,
    /// Tells ib_core.
    pub upcall: CqUpcall,
}

struct Inner {
    /// Index of the next entry; the process sees a copy and cannot change this one.
    producer: u32,
    /// An entry was lost: the queue is of no use any more.
    overrun: bool,
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the queue, and nobody waits for it.
    Quiet,
    /// It is in the queue, and [`CqUpcall::completion`] is due.
    Notify,
    /// There was no room; the first time [`CqUpcall::error`] is due.
    Overrun {
        /// The first time.
        first: bool,
    },
}

impl Cq {
    /// A queue of `entries`, a power of two.
    pub fn new(cq: CqRef<'_>, entries: u32) -> Result<Arc<Self>> {
        let ring = Arc::new(Ring::new(entries, CQE_STRIDE)?, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                ring,
                inner <- new_spinlock_bh!(Inner { producer: 0, overrun: false }, "ferroce_cq"),
                upcall: CqUpcall::new(cq),
            }),
            GFP_KERNEL,
        )
    }

    /// The ring, to be mapped.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Adds a completion. `solicited` if it satisfies a request for solicited events only: a
    /// receive whose sender asked for it, or any completion in error (IBTA 11.4.2.2).
    pub fn push(&self, cqe: &Cqe, solicited: bool) -> Pushed {
        let words: [u64; CQE_STRIDE as usize / 8] = transmute!(*cqe);
        let mut inner = self.inner.lock();
        let used = inner.producer.wrapping_sub(self.ring.load_consumer());
        if inner.overrun || used >= self.ring.entries() {
            let first = !inner.overrun;
            inner.overrun = true;
            return Pushed::Overrun { first };
        }
        self.ring.write_slot(inner.producer, &words);
        inner.producer = inner.producer.wrapping_add(1);
        self.ring.store_producer(inner.producer);
        if self.ring.take_arm(solicited) {
            Pushed::Notify
        } else {
            Pushed::Quiet
        }
    }
}
