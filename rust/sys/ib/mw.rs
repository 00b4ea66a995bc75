// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use super::call::operations;
use super::object::{
    self,
    Object, //
};
use super::udata::NoUdata;
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A memory window of a driver. Dropping it destroys it: afterwards nothing is
/// accessed through it.
pub trait MemoryWindow: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Makes a window of type 1 or 2 that is not bound, and its key.
    fn allocate(device: &Self::Device, pd: &Self::Pd, is_type_2: bool) -> Result<(Self, u32)>
    where
        Self: Sized;
}

type New<'a, M> = object::New<'a, bindings::ib_mw, M, <M as MemoryWindow>::Device>;
type Gone<'a, M> = object::Gone<'a, bindings::ib_mw, M>;

/// The value of `size_ib_mw`.
pub(super) const fn size<M: MemoryWindow>() -> usize {
    Object::<bindings::ib_mw, M>::SIZE
}

operations! {
    <'a, M: MemoryWindow>

    alloc_mw(mw: New<'a, M>, _udata: NoUdata) -> Result {
        let core = mw.as_raw();
        // SAFETY: ib_core has filled in domain and type of the window that is being created, and
        // the domain lives as long as the window.
        let (pd, kind): (&M::Pd, _) = unsafe {
            let pd = NonNull::new((*core).pd).ok_or(EINVAL)?;
            (Object::private(pd), (*core).type_)
        };
        let is_type_2 = match kind {
            bindings::ib_mw_type_IB_MW_TYPE_1 => false,
            bindings::ib_mw_type_IB_MW_TYPE_2 => true,
            _ => return Err(EOPNOTSUPP()),
        };
        let (_, key) = mw.create(|device, ()| M::allocate(device, pd, is_type_2))?;
        // SAFETY: The window is being created, so that nobody reads it yet.
        unsafe { (*core).rkey = key };
        Ok(())
    }

    dealloc_mw(mw: Gone<'a, M>) -> Result {
        mw.destroy();
        Ok(())
    }
}
