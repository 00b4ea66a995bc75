// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use crate::core::queue::cq_producer::{
    CqProducer,
    CqResize,
    Due,
    Moderation,
    OnOverrun,
    Overrun, //
};
use crate::core::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use crate::core::uabi::ring::{
    Word,
    Words, //
};
use crate::datapath::traced;
use crate::sys::ib::event::{
    CqUpcall,
    Notifier, //
};
use crate::sys::ib::ContextRef;
use crate::sys::ring::Ring;
use crate::sys::sync::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::table::{
    Replaceable,
    Successor, //
};
use crate::sys::trace::{
    self,
    CqNews, //
};
use crate::sys::work::{
    self,
    Deadline,
    OwnedQueue, //
};
use core::mem::offset_of;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc, //
};
use zerocopy::transmute;

/// A completion queue.
#[pin_data]
pub struct Cq {
    /// First: dropped before the data that the timer uses.
    #[pin]
    pub(super) deadline: Deadline<Cq>,
    /// Replaced under the producer lock.
    ring: Replaceable<Ring>,
    /// CQEs carry the time when they were added, or else 0.
    stamps: bool,
    /// Taken after the locks of QPs.
    #[pin]
    producer: SpinLockBh<CqProducer>,
    notifier: Arc<Notifier<CqUpcall>>,
}

/// Snapshot of a CQ for `rdma resource show`.
pub struct CqInfo {
    /// CQEs that the process has not consumed.
    pub waiting: u32,
    /// `ARM_*`.
    pub arm: u32,
    /// A CQE was lost: the CQ is unusable.
    pub overrun: bool,
    /// CQEs carry timestamps.
    pub stamps: bool,
    /// Completions that an event waits for; 0 without moderation.
    pub moderation_count: u16,
    /// Longest delay of an event, in microseconds.
    pub moderation_period_us: u64,
}

/// A ring for `entries` CQEs, a power of two, of a process or a ULP.
pub fn ring(owner: Option<ContextRef<'_>>, entries: u32) -> Result<Arc<Ring>> {
    Ok(Arc::new(
        Ring::new(owner, entries, CQE_STRIDE)?,
        GFP_KERNEL_ACCOUNT,
    )?)
}

impl Cq {
    /// An empty CQ in `ring`.
    pub fn new(
        upcall: CqUpcall,
        ring: Arc<Ring>,
        stamps: bool,
        overruns: OnOverrun,
    ) -> Result<Arc<Self>> {
        let notifier = Notifier::new(upcall)?;
        Arc::pin_init(
            pin_init!(Self {
                deadline <- Deadline::new(),
                ring: Replaceable::new(ring),
                stamps,
                producer <- new_spinlock_bh!(CqProducer::new(overruns), "ferroce_cq"),
                notifier,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The current ring.
    #[inline]
    pub fn ring<'a>(&'a self, rcu: &'a rcu::Guard) -> &'a Ring {
        self.ring.get(rcu)
    }

    /// Adds a CQE. If the consumer armed the CQ for it, a work item in `notifications` raises the
    /// event. `solicited` marks a CQE that matches arming for solicited events only: a receive with
    /// the Solicited Event bit, or any completion in error (IBTA 11.4.2.2).
    pub fn push(
        &self,
        cqe: &Cqe,
        solicited: bool,
        rcu: &rcu::Guard,
        notifications: &OwnedQueue,
    ) -> Result<(), Overrun> {
        trace::complete(move || traced::completed(self.id(), cqe));
        let mut words: [u64; CQE_STRIDE as usize / 8] = transmute!(*cqe);
        let mut producer = self.producer.lock();
        if self.stamps {
            // Under the lock: CQEs are in the order of their timestamps.
            words[offset_of!(Cqe, timestamp) / 8] = work::raw_now();
        }
        match producer.push(self.ring.get(rcu), &words, solicited, work::now) {
            Ok(due) => {
                self.apply(due, notifications);
                Ok(())
            }
            Err(overrun) => {
                self.notifier.upcall.trace(CqNews::Overrun);
                if overrun.first {
                    self.notifier.overrun(notifications);
                }
                Err(overrun)
            }
        }
    }

    #[inline(always)]
    fn apply(&self, due: Due, notifications: &OwnedQueue) {
        match due {
            Due::Nothing => {}
            Due::Now => {
                self.notifier.upcall.trace(CqNews::Raised);
                self.notifier.completion(notifications)
            }
            Due::At(time) => {
                self.notifier.upcall.trace(CqNews::HeldBack);
                self.deadline.arm(time)
            }
        }
    }

    /// Its number for `rdma resource show`.
    #[cold]
    pub fn id(&self) -> u32 {
        self.notifier.upcall.id()
    }

    /// Takes the snapshot.
    pub fn info(&self, rcu: &rcu::Guard) -> CqInfo {
        let producer = self.producer.lock();
        let ring = self.ring.get(rcu);
        let (moderation_count, moderation_period_us) = producer
            .moderation()
            .map_or((0, 0), |moderation| moderation.count_and_period());
        CqInfo {
            waiting: producer.waiting(ring),
            arm: ring.load(Word::Arm),
            overrun: producer.is_overrun(),
            stamps: self.stamps,
            moderation_count,
            moderation_period_us,
        }
    }

    /// Sets the moderation of events.
    pub fn moderate(&self, moderation: Option<Moderation>, notifications: &OwnedQueue) {
        let mut producer = self.producer.lock();
        if producer.moderate(moderation) {
            self.notifier.completion(notifications);
        }
    }

    /// Timer: an event may be due.
    pub(super) fn expired(&self, notifications: &OwnedQueue) {
        let mut producer = self.producer.lock();
        let due = producer.expired(work::now());
        self.apply(due, notifications);
    }

    /// Replaces the ring `old` by `new`. The caller serialises resizes; the process consumes
    /// nothing meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the new ring is too small for the CQEs of the old one.
    pub fn resize(&self, old: &Ring, new: Successor<Ring>) -> Result {
        let mut resize = CqResize::new(old);
        loop {
            let end = {
                let producer = self.producer.lock();
                if resize.is_short(&producer) {
                    resize
                        .finish(&producer, old, &*new)
                        .map_err(|_too_small| EINVAL)?;
                    self.ring.replace(new);
                    return Ok(());
                }
                producer.producer()
            };
            // Without the lock: there may be many, and nothing overwrites CQEs that were not
            // consumed.
            resize.copy(old, &*new, end).map_err(|_too_small| EINVAL)?;
        }
    }
}
