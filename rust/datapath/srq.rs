// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: receives for whichever of many QPs a message comes.

use super::memory::region::DomainId;
use super::notify::Notifier;
use super::srq_consumer::{
    SrqConsumer,
    SrqEffect, //
};
use super::wqe::RecvWqes;
use crate::sys::ib::event::{
    SrqEvent,
    SrqUpcall, //
};
use crate::sys::ib::reference::ContextRef;
use crate::sys::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::ring::Ring;
use crate::sys::work::OwnedQueue;
use crate::transport::env::TakeReceive;
use crate::uabi::words::Ring as _;
use crate::uabi::wqe::recv_stride;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A shared receive queue.
#[pin_data]
pub struct Srq {
    /// Whose regions its receives name, whichever QP takes them.
    domain: DomainId,
    max_sge: u32,
    notifier: Arc<Notifier<SrqUpcall>>,
    /// Taken after the receiving half of a QP, before a CQ.
    #[pin]
    consumer: SpinLockBh<Guarded>,
}

/// What the lock guards.
struct Guarded {
    ring: Arc<Ring>,
    consumer: SrqConsumer,
}

/// A ring for `entries` receives, a power of two, of a process or of a user in the kernel.
pub fn ring(context: Option<ContextRef<'_>>, entries: u32, max_sge: u32) -> Result<Arc<Ring>> {
    let ring = Ring::new(context, entries, recv_stride(max_sge))?;
    Ok(Arc::new(ring, GFP_KERNEL_ACCOUNT)?)
}

impl Srq {
    /// An empty queue in `ring`, which was made for `max_sge` entries a receive.
    pub fn new(
        upcall: SrqUpcall,
        domain: DomainId,
        ring: Arc<Ring>,
        max_sge: u32,
    ) -> Result<Arc<Self>> {
        let notifier = Notifier::new(upcall)?;
        let consumer = Guarded {
            ring,
            consumer: SrqConsumer::default(),
        };
        Arc::pin_init(
            pin_init!(Self {
                domain,
                max_sge,
                notifier,
                consumer <- new_spinlock_bh!(consumer, "ferroce_srq"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whose regions its receives name.
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// Scatter/gather entries of a receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// How many receives it can hold, and the limit that is armed; 0 is none.
    pub fn size_and_limit(&self) -> (u32, u32) {
        let guarded = self.consumer.lock();
        (guarded.ring.entries(), guarded.consumer.limit())
    }

    /// How many receives are left; `None` if it is broken.
    pub fn left(&self) -> Option<u32> {
        let guarded = self.consumer.lock();
        guarded.consumer.left(&*guarded.ring)
    }

    /// Takes the next receive into `wqes` of the QP that a message has come for.
    pub(super) fn take(
        &self,
        wqes: &mut RecvWqes<KVec<u64>>,
        notifications: &OwnedQueue,
    ) -> TakeReceive {
        let mut guarded = self.consumer.lock();
        let Guarded { ring, consumer } = &mut *guarded;
        let (receive, taken) = consumer.take(&**ring, wqes);
        match taken {
            SrqEffect::None => {}
            SrqEffect::LimitReached => self.notifier.event(SrqEvent::LimitReached, notifications),
            SrqEffect::Broken => self.notifier.event(SrqEvent::Error, notifications),
        }
        receive
    }

    /// Arms the limit: when there are fewer receives than that, there is one event. 0 disarms it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there can never be so many.
    pub fn arm(&self, limit: u32, notifications: &OwnedQueue) -> Result {
        let mut guarded = self.consumer.lock();
        let Guarded { ring, consumer } = &mut *guarded;
        if limit > ring.entries() {
            return Err(EINVAL);
        }
        if consumer.arm(&**ring, limit) {
            self.notifier.event(SrqEvent::LimitReached, notifications);
        }
        Ok(())
    }

    /// Moves from `old`, which is the ring now, to `new`, and arms the limit if there is one. The
    /// caller sees to it that there is one who does this at a time; the process posts nothing
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are more receives than the new ring has room for, or if it is smaller than
    /// the limit.
    pub fn resize(
        &self,
        old: &Ring,
        new: Arc<Ring>,
        limit: Option<u32>,
        notifications: &OwnedQueue,
    ) -> Result {
        let posted = {
            let guarded = self.consumer.lock();
            guarded
                .consumer
                .receives_to_copy(old, &*new, limit)
                .ok_or(EINVAL)?
        };
        // Without the lock: it may be a lot, and who takes meanwhile takes from the old ring.
        posted.copy(old, &*new);
        let mut guarded = self.consumer.lock();
        guarded.consumer.finish_resize(&posted, &*new);
        let old = core::mem::replace(&mut guarded.ring, new);
        let Guarded { ring, consumer } = &mut *guarded;
        if limit.is_some_and(|limit| consumer.arm(&**ring, limit)) {
            self.notifier.event(SrqEvent::LimitReached, notifications);
        }
        drop(guarded);
        drop(old);
        Ok(())
    }
}
