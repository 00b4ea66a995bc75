// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::call::{
    operations,
    Argument, //
};
use super::object;
use super::path::Path;
use super::udata::NoUdata;
use crate::sys::bindings;
use kernel::prelude::*;

/// What an address handle is to a driver. Dropping it is the end of it.
pub trait AddressHandle: Send + Sync + 'static {
    /// What the device is.
    type Device: Send + Sync + 'static;

    /// Creates a handle of a process for `path`. May sleep.
    fn create(device: &Self::Device, path: Path) -> Result<Self>
    where
        Self: Sized;
}

type New<'a, A> = object::New<'a, bindings::ib_ah, A, <A as AddressHandle>::Device>;
type Gone<'a, A> = object::Gone<'a, bindings::ib_ah, A>;

/// What `size_ib_ah` must say.
pub(super) const fn size<A: AddressHandle>() -> usize {
    object::Object::<bindings::ib_ah, A>::SIZE
}

/// What a handle is created with.
struct Init(Path);

impl Argument for Init {
    type Raw = *mut bindings::rdma_ah_init_attr;

    unsafe fn from_raw(raw: *mut bindings::rdma_ah_init_attr) -> Result<Self> {
        // SAFETY: By the requirement; ib_core has filled in the source GID, and holds it during
        // the call.
        Ok(Self(unsafe { Path::from_raw(&*(*raw).ah_attr) }?))
    }
}

operations! {
    <'a, A: AddressHandle>

    create_user_ah(ah: New<'a, A>, init: Init, _udata: NoUdata) -> Result {
        ah.create(|device, ()| Ok((A::create(device, init.0)?, ())))?;
        Ok(())
    }

    destroy_ah(ah: Gone<'a, A>, _flags: u32) -> Result {
        ah.destroy();
        Ok(())
    }
}
