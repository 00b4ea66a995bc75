// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::call::{
    operations,
    Ignored, //
};
use super::event::CqUpcall;
use super::object;
use super::reference::Reference;
use super::udata::{
    BundleUdata,
    Udata, //
};
use crate::sys::bindings;
use kernel::prelude::*;

/// What a completion queue is to a driver. Dropping it is the end of it; no QP uses it any more.
pub trait CompletionQueue: Send + Sync + 'static {
    /// What the device is.
    type Device: Send + Sync + 'static;

    /// Creates a queue of a process. Also returns how many entries it has.
    fn create(
        device: &Self::Device,
        upcall: CqUpcall,
        init: Init,
        udata: &Udata<'_>,
    ) -> Result<(Self, u32)>
    where
        Self: Sized;
}

/// What a completion queue is created with.
#[derive(Clone, Copy, Debug)]
pub struct Init {
    /// It must have at least so many entries; not 0.
    pub entries: u32,
    /// The completion vector, one of those the device has.
    pub vector: u32,
    /// `enum ib_cq_creation_flags`.
    pub flags: u32,
}

type New<'a, C> = object::New<'a, bindings::ib_cq, C, <C as CompletionQueue>::Device>;
type Gone<'a, C> = object::Gone<'a, bindings::ib_cq, C>;

/// What `size_ib_cq` must say.
pub(super) const fn size<C: CompletionQueue>() -> usize {
    object::Object::<bindings::ib_cq, C>::SIZE
}

impl Reference<'_, bindings::ib_cq> {
    fn set_entries(self, entries: u32) {
        // SAFETY: By the type invariant; the queue is being created, so that nobody reads it yet.
        unsafe { (*self.as_raw()).cqe = entries as c_int };
    }
}

operations! {
    <'a, C: CompletionQueue>

    create_cq(
        cq: New<'a, C>,
        attr: &'a bindings::ib_cq_init_attr,
        udata: BundleUdata<'a>,
    ) -> Result {
        let init = Init {
            entries: attr.cqe,
            vector: attr.comp_vector,
            flags: attr.flags,
        };
        let (cq, entries) = cq.create(|device, upcall| C::create(device, upcall, init, &udata.0))?;
        cq.set_entries(entries);
        Ok(())
    }

    destroy_cq(cq: Gone<'a, C>, _udata: Ignored<*mut bindings::ib_udata>) -> Result {
        cq.destroy();
        Ok(())
    }
}
