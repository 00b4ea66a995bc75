// SPDX-License-Identifier: GPL-2.0

//! A process that has opened the device.

use super::call::{
    operations,
    Argument,
    ContextRef,
    IgnoredArgument,
    Unseen, //
};
use super::object;
use super::udata::Udata;
use crate::sys::bindings;
use crate::sys::ring::Mapping;
use core::marker::PhantomData;
use kernel::prelude::*;

/// An open device file of a driver. Dropping it destroys it.
pub trait Context: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;

    /// A process opens the device.
    fn open(device: &Self::Device, udata: &Udata<'_>) -> Result<Self>
    where
        Self: Sized;
}

type New<'a, C> = object::New<'a, bindings::ib_ucontext, C, <C as Context>::Device>;
type Live<'a, C> = object::Live<'a, bindings::ib_ucontext, C>;
type Gone<'a, C> = object::Gone<'a, bindings::ib_ucontext, C>;

/// An area that a process maps.
///
/// # Invariants
///
/// It is the argument of the `mmap` that is running.
struct Area<'a>(*mut bindings::vm_area_struct, PhantomData<&'a ()>);

impl Argument for Area<'_> {
    type Raw = *mut bindings::vm_area_struct;

    unsafe fn from_raw(raw: *mut bindings::vm_area_struct) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(raw, PhantomData))
    }
}

impl Area<'_> {
    /// Maps what the context offers at the offset of the area.
    fn map(self, context: ContextRef<'_>) -> Result {
        // SAFETY: Both are arguments of `mmap`.
        unsafe { Mapping::mmap(context.as_raw(), self.0) }
    }
}

/// An mmap offer without references.
///
/// # Invariants
///
/// It is the argument of the `mmap_free` that is running.
struct Offer(*mut bindings::rdma_user_mmap_entry);

impl Argument for Offer {
    type Raw = *mut bindings::rdma_user_mmap_entry;

    unsafe fn from_raw(raw: *mut bindings::rdma_user_mmap_entry) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(raw))
    }
}

impl Offer {
    fn free(self) {
        // SAFETY: By the type invariant the last reference is gone.
        unsafe { Mapping::free(self.0) }
    }
}

operations! {
    install<'a, C: Context>

    alloc_ucontext(context: New<'a, C>, udata: Udata<'a>) -> Result {
        context.create(|device, ()| Ok((C::open(device, &udata)?, ())))?;
        Ok(())
    }

    dealloc_ucontext(context: Gone<'a, C>) -> Result<Unseen> {
        context.destroy();
        Ok(Unseen)
    }

    /// The device goes away under an open file. Rings stay mapped until the process unmaps them:
    /// their pages are counted, and a ring whose queue is gone is only memory.
    ///
    /// That this operation exists is what lets a netdev or the module go at any time. It also lets
    /// an administrator move the device alone into another network namespace (`rdma dev set NAME
    /// netns`, in exclusive mode): ib_core asks the driver nothing then (`ib_device_set_netns_put`
    /// in device.c). When `enable_driver` runs the move is done, and an error of it leaves the
    /// device in the new namespace without uverbs. So this cannot be refused; as with hardware, the
    /// packets of the device go on to travel through the namespace of its netdev.
    disassociate_ucontext(_context: IgnoredArgument<*mut bindings::ib_ucontext>) -> Result<Unseen> {
        Ok(Unseen)
    }

    /// A process imports the context: what it may learn of it, ib_core has said already.
    query_ucontext(
        _context: IgnoredArgument<*mut bindings::ib_ucontext>,
        _attributes: IgnoredArgument<*mut bindings::uverbs_attr_bundle>,
    ) -> Result {
        Ok(())
    }

    mmap(context: Live<'a, C>, area: Area<'a>) -> Result {
        area.map(context.reference())
    }

    mmap_free(offer: Offer) -> Result<Unseen> {
        offer.free();
        Ok(Unseen)
    }
}
