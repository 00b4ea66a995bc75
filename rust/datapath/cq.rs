// SPDX-License-Identifier: GPL-2.0

//! Completion queues: where the data path puts what is done.

use super::filler::{
    Filler,
    Overrun, //
};
use super::notify::Notifier;
use crate::sys::ib::event::CqUpcall;
use crate::sys::ib::reference::ContextRef;
use crate::sys::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::ring::Ring;
use crate::sys::work::OwnedQueue;
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
    /// Taken after the locks of QPs.
    #[pin]
    filler: SpinLockBh<Filler>,
    notifier: Arc<Notifier<CqUpcall>>,
}

impl Cq {
    /// A queue of `entries`, a power of two.
    pub fn new(upcall: CqUpcall, context: ContextRef<'_>, entries: u32) -> Result<Arc<Self>> {
        let ring = Arc::new(Ring::new(context, entries, CQE_STRIDE)?, GFP_KERNEL_ACCOUNT)?;
        let notifier = Notifier::new(upcall)?;
        Arc::pin_init(
            pin_init!(Self {
                ring,
                filler <- new_spinlock_bh!(Filler::default(), "ferroce_cq"),
                notifier,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The ring, to be mapped.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Adds a completion, and sees to it that who waits for it is notified by a work item in
    /// `notifications`. `solicited` if it satisfies a request for solicited events only: a receive
    /// whose sender asked for it, or any completion in error (IBTA 11.4.2.2).
    pub fn push(
        &self,
        cqe: &Cqe,
        solicited: bool,
        notifications: &OwnedQueue,
    ) -> Result<(), Overrun> {
        let words: [u64; CQE_STRIDE as usize / 8] = transmute!(*cqe);
        let mut filler = self.filler.lock();
        match filler.push(&*self.ring, &words, solicited) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.notifier.completion(notifications);
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
}
