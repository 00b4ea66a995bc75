// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: receives for many QPs.

use crate::core::env::TakeReceive;
use crate::core::queue::srq_consumer::{
    SrqConsumer,
    SrqEffect, //
};
use crate::core::queue::wqe::RecvWqes;
use crate::core::uabi::ring::RingOps as _;
use crate::core::uabi::wqe::recv_stride;
use crate::datapath::memory::region::DomainId;
use crate::sys::ib::event::{
    Notifier,
    SrqEvent,
    SrqUpcall, //
};
use crate::sys::ib::ContextRef;
use crate::sys::ring::Ring;
use crate::sys::sync::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::work::OwnedQueue;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A shared receive queue.
#[pin_data]
pub struct Srq {
    /// The protection domain of its receives, whichever QP takes them.
    pub domain: DomainId,
    /// Scatter/gather entries of a WQE.
    pub max_sge: u32,
    notifier: Arc<Notifier<SrqUpcall>>,
    /// Taken after the receive lock of a QP, before a CQ.
    #[pin]
    consumer: SpinLockBh<Guarded>,
}

/// The data under the lock.
struct Guarded {
    ring: Arc<Ring>,
    consumer: SrqConsumer,
}

/// A ring for `entries` receives, a power of two, of a process or a ULP.
pub fn ring(context: Option<ContextRef<'_>>, entries: u32, max_sge: u32) -> Result<Arc<Ring>> {
    let ring = Ring::new(context, entries, recv_stride(max_sge))?;
    Ok(Arc::new(ring, GFP_KERNEL_ACCOUNT)?)
}

impl Srq {
    /// An empty SRQ in `ring`, whose WQEs have up to `max_sge` entries.
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

    /// Size of the ring, and the armed limit; 0 is none.
    pub fn size_and_limit(&self) -> (u32, u32) {
        let guarded = self.consumer.lock();
        (guarded.ring.entries(), guarded.consumer.limit())
    }

    /// Free receives; `None` if the SRQ is broken.
    pub fn left(&self) -> Option<u32> {
        let guarded = self.consumer.lock();
        guarded.consumer.left(&*guarded.ring)
    }

    /// Takes the next receive into `wqes` of the QP that needs it.
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

    /// Arms the limit: one event when fewer receives are left. 0 disarms it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the ring can never hold `limit` receives.
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

    /// Replaces the ring `old` by `new`, and arms `limit` if it is given. The caller serialises
    /// resizes; the process posts nothing meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the new ring is too small for the posted receives or for the limit.
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
        // Without the lock: there may be many, and receives taken meanwhile come from the old ring.
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
