// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::address_vector::{
    AddressVector,
    AhAttr, //
};
use super::call::{
    operations,
    Argument, //
};
use super::object::{
    self,
    Object, //
};
use super::udata::{
    NoUdata,
    Udata, //
};
use crate::sys::bindings;
pub use crate::sys::table::AllocContext;
use core::ptr::NonNull;
use kernel::prelude::*;

/// An address handle of a driver. Dropping it destroys it.
pub trait AddressHandle: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Creates a handle of a process for `av`, or without `udata` of a ULP.
    fn create(
        device: &Self::Device,
        pd: &Self::Pd,
        av: AddressVector,
        context: AllocContext,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self>
    where
        Self: Sized;

    /// What it was created for.
    fn vector(&self) -> &AhAttr;
}

type New<'a, A> = object::New<'a, bindings::ib_ah, A, <A as AddressHandle>::Device>;
type Live<'a, A> = object::Live<'a, bindings::ib_ah, A>;
type Gone<'a, A> = object::Gone<'a, bindings::ib_ah, A>;

/// The value of `size_ib_ah`.
pub(super) const fn size<A: AddressHandle>() -> usize {
    object::Object::<bindings::ib_ah, A>::SIZE
}

impl<'a, A: AddressHandle> New<'a, A> {
    /// The domain that it is made in.
    fn pd(&self) -> Option<&'a A::Pd> {
        // SAFETY: The handle is being created, so that ib_core has filled in its domain, which is
        // complete and outlives the call; its driver's part is what the table says.
        unsafe { NonNull::new((*self.as_raw()).pd).map(|pd| Object::private(pd)) }
    }
}

/// Attributes of a new handle.
struct AhInit(AddressVector, AllocContext);

impl Argument for AhInit {
    type Raw = *mut bindings::rdma_ah_init_attr;

    unsafe fn from_raw(raw: *mut bindings::rdma_ah_init_attr) -> Result<Self> {
        // SAFETY: By the requirement; ib_core has filled in the source GID, and holds it during
        // the call.
        let (av, flags) = unsafe { (AddressVector::from_raw(&*(*raw).ah_attr)?, (*raw).flags) };
        let may_sleep = flags & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0;
        let context = if may_sleep {
            AllocContext::Sleeps
        } else {
            AllocContext::Atomic
        };
        Ok(Self(av, context))
    }
}

operations! {
    <'a, A: AddressHandle>

    create_user_ah(ah: New<'a, A>, init: AhInit, udata: Udata<'a>) -> Result {
        let pd = ah.pd().ok_or(EINVAL)?;
        let AhInit(av, context) = init;
        ah.create(|device, ()| Ok((A::create(device, pd, av, context, Some(&udata))?, ())))?;
        Ok(())
    }

    create_ah(ah: New<'a, A>, init: AhInit, _udata: NoUdata) -> Result {
        let pd = ah.pd().ok_or(EINVAL)?;
        let AhInit(av, context) = init;
        ah.create(|device, ()| Ok((A::create(device, pd, av, context, None)?, ())))?;
        Ok(())
    }

    /// ib_mad asks for it, under a spinlock, to find the question to an answer.
    query_ah(ah: Live<'a, A>, vector: &'a mut bindings::rdma_ah_attr) -> Result {
        *vector = *ah.vector().as_raw();
        Ok(())
    }

    destroy_ah(ah: Gone<'a, A>, _flags: u32) -> Result {
        ah.destroy();
        Ok(())
    }
}
