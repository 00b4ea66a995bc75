// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::call::{
    operations,
    Ignored, //
};
use super::object;
use super::udata::NoUdata;
use crate::sys::bindings;
use kernel::prelude::*;

/// What a protection domain is to a driver. Dropping it is the end of it.
pub trait ProtectionDomain: Send + Sync + 'static {
    /// What the device is.
    type Device: Send + Sync + 'static;

    /// Creates a domain.
    fn create(device: &Self::Device) -> Result<Self>
    where
        Self: Sized;
}

type New<'a, P> = object::New<'a, bindings::ib_pd, P, <P as ProtectionDomain>::Device>;
type Gone<'a, P> = object::Gone<'a, bindings::ib_pd, P>;

/// What `size_ib_pd` must say.
pub(super) const fn size<P: ProtectionDomain>() -> usize {
    object::Object::<bindings::ib_pd, P>::SIZE
}

operations! {
    <'a, P: ProtectionDomain>

    alloc_pd(pd: New<'a, P>, _udata: NoUdata) -> Result {
        pd.create(|device, ()| Ok((P::create(device)?, ())))?;
        Ok(())
    }

    dealloc_pd(pd: Gone<'a, P>, _udata: Ignored<*mut bindings::ib_udata>) -> Result {
        pd.destroy();
        Ok(())
    }
}
