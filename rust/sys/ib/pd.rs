// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::call::{
    operations,
    IgnoredArgument, //
};
use super::object;
use super::udata::NoUdata;
use crate::sys::bindings;
use kernel::prelude::*;

/// A protection domain of a driver. Dropping it destroys it.
pub trait ProtectionDomain: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;

    /// Creates a domain.
    fn create(device: &Self::Device) -> Result<Self>
    where
        Self: Sized;
}

type New<'a, P> = object::New<'a, bindings::ib_pd, P, <P as ProtectionDomain>::Device>;
type Gone<'a, P> = object::Gone<'a, bindings::ib_pd, P>;

/// The value of `size_ib_pd`.
pub(super) const fn size<P: ProtectionDomain>() -> usize {
    object::Object::<bindings::ib_pd, P>::SIZE
}

operations! {
    <'a, P: ProtectionDomain>

    alloc_pd(pd: New<'a, P>, _udata: NoUdata) -> Result {
        pd.create(|device, ()| Ok((P::create(device)?, ())))?;
        Ok(())
    }

    dealloc_pd(pd: Gone<'a, P>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        pd.destroy();
        Ok(())
    }
}
