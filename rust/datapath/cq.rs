// SPDX-License-Identifier: GPL-2.0

//! Completion queues: where the data path puts what is done.

use super::cq_producer::{
    CqProducer,
    CqResize,
    Overrun,
    Overruns, //
};
use super::moderation::{
    Due,
    Moderation, //
};
use super::notify::Notifier;
use crate::sys::ib::event::CqUpcall;
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
use crate::sys::timer::{
    self,
    Deadline, //
};
use crate::sys::work::OwnedQueue;
use crate::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use crate::uabi::words::{
    Word,
    Words, //
};
use core::mem::offset_of;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;
use zerocopy::transmute;

/// What is in the `timestamp` of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamp {
    /// 0.
    None,
    /// When it was pushed.
    Time,
}

/// A completion queue.
#[pin_data]
pub struct Cq {
    /// First, so that it is gone before what it uses.
    #[pin]
    pub(super) deadline: Deadline<Cq>,
    /// Replaced with the lock of the filler held.
    ring: Replaceable<Ring>,
    stamp: Stamp,
    /// Taken after the locks of QPs.
    #[pin]
    producer: SpinLockBh<CqProducer>,
    notifier: Arc<Notifier<CqUpcall>>,
}

/// How a queue stands, for who looks on.
pub struct Standing {
    /// Completions that the process has not consumed.
    pub waiting: u32,
    /// `ARM_*`.
    pub arm: u32,
    /// A completion was lost, so that it is of no use any more.
    pub overrun: bool,
    /// Completions carry the time.
    pub stamps: bool,
    /// Completions for which an event waits; 0 if none waits.
    pub moderation_count: u16,
    /// Microseconds for which it waits at most.
    pub moderation_period_us: u64,
}

/// A ring for `entries` completions, a power of two, of a process or a user in the kernel.
pub fn ring(owner: Option<ContextRef<'_>>, entries: u32) -> Result<Arc<Ring>> {
    Ok(Arc::new(
        Ring::new(owner, entries, CQE_STRIDE)?,
        GFP_KERNEL_ACCOUNT,
    )?)
}

impl Cq {
    /// An empty queue in `ring`.
    pub fn new(
        upcall: CqUpcall,
        ring: Arc<Ring>,
        stamp: Stamp,
        overruns: Overruns,
    ) -> Result<Arc<Self>> {
        let notifier = Notifier::new(upcall)?;
        Arc::pin_init(
            pin_init!(Self {
                deadline <- Deadline::new(),
                ring: Replaceable::new(ring),
                stamp,
                producer <- new_spinlock_bh!(CqProducer::new(overruns), "ferroce_cq"),
                notifier,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The ring, as it is now.
    #[inline]
    pub fn ring<'a>(&'a self, rcu: &'a rcu::Guard) -> &'a Ring {
        self.ring.get(rcu)
    }

    /// Adds a completion, and sees to it that who waits for it is notified by a work item in
    /// `notifications`. `solicited` if it satisfies a request for solicited events only: a receive
    /// whose sender asked for it, or any completion in error (IBTA 11.4.2.2).
    pub fn push(
        &self,
        cqe: &Cqe,
        solicited: bool,
        rcu: &rcu::Guard,
        notifications: &OwnedQueue,
    ) -> Result<(), Overrun> {
        let mut words: [u64; CQE_STRIDE as usize / 8] = transmute!(*cqe);
        let mut producer = self.producer.lock();
        if self.stamp == Stamp::Time {
            // With the lock held, so that entries have the order of their times.
            words[offset_of!(Cqe, timestamp) / 8] = timer::raw_now();
        }
        match producer.push(self.ring.get(rcu), &words, solicited, timer::now) {
            Ok(due) => {
                self.obey(due, notifications);
                Ok(())
            }
            Err(overrun) => {
                if overrun.first {
                    self.notifier.overrun(notifications);
                }
                Err(overrun)
            }
        }
    }

    #[inline]
    fn obey(&self, due: Due, notifications: &OwnedQueue) {
        match due {
            Due::Nothing => {}
            Due::Now => self.notifier.completion(notifications),
            Due::At(time) => self.deadline.arm(time),
        }
    }

    /// How it stands.
    pub fn standing(&self, rcu: &rcu::Guard) -> Standing {
        let producer = self.producer.lock();
        let ring = self.ring.get(rcu);
        let (moderation_count, moderation_period_us) = producer
            .moderation()
            .map_or((0, 0), |moderation| moderation.count_and_period());
        Standing {
            waiting: producer.waiting(ring),
            arm: ring.load(Word::Arm),
            overrun: producer.is_overrun(),
            stamps: self.stamp == Stamp::Time,
            moderation_count,
            moderation_period_us,
        }
    }

    /// Moderates events from here on.
    pub fn moderate(&self, moderation: Option<Moderation>, notifications: &OwnedQueue) {
        let mut producer = self.producer.lock();
        if producer.moderate(moderation) {
            self.notifier.completion(notifications);
        }
    }

    /// The time of an event may have come.
    pub(super) fn expired(&self, notifications: &OwnedQueue) {
        let mut producer = self.producer.lock();
        let due = producer.expired(timer::now());
        self.obey(due, notifications);
    }

    /// Moves from `old`, which is the ring now, to `new`. The caller sees to it that there is one
    /// who does this at a time; the process consumes nothing meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` if what is in the queue has no room in the new ring.
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
            // Without the lock: it may be a lot, and nobody writes over what was pushed.
            resize.copy(old, &*new, end).map_err(|_too_small| EINVAL)?;
        }
    }
}
