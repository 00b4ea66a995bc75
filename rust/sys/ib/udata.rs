// SPDX-License-Identifier: GPL-2.0

//! The provider's part of a verbs command.

use super::object::ContextRef;
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use core::marker::PhantomData;
use kernel::error::to_result;
use kernel::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Request and response buffers of one command of a user process.
///
/// # Invariants
///
/// The pointer is the `driver_udata` of a live attribute bundle.
pub struct Udata<'a>(*mut bindings::ib_udata, PhantomData<&'a ()>);

impl Udata<'_> {
    /// # Safety
    ///
    /// `ptr` must be null or the udata argument of the operation that is running.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::ib_udata) -> Result<Self> {
        if ptr.is_null() {
            // Objects of kernel users have none; they are not served yet.
            return Err(EOPNOTSUPP());
        }
        // INVARIANT: Checked above.
        Ok(Self(ptr, PhantomData))
    }

    /// The process that calls.
    pub fn context(&self) -> ContextRef<'_> {
        // SAFETY: By the type invariant; the context lives as long as the call.
        unsafe { ContextRef::from_raw(bindings::ferroce_udata_context(self.0)) }
    }

    /// Reads the request: at least all of `T`; a longer one must be zero behind it.
    pub fn request<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        let mut request = T::new_zeroed();
        let len = core::mem::size_of::<T>();
        // SAFETY: By the type invariant; `request` takes any `len` bytes.
        to_result(unsafe {
            bindings::_ib_copy_validate_udata_in(
                self.0,
                (&raw mut request).cast::<c_void>(),
                len,
                len,
            )
        })?;
        Ok(request)
    }

    /// Checks that there is no request, or one of zeros.
    pub fn no_request(&self) -> Result {
        // SAFETY: By the type invariant.
        to_result(unsafe { bindings::ferroce_udata_in_empty(self.0) })
    }

    /// Writes the response.
    pub fn respond<T: IntoBytes + Immutable>(&self, response: &T) -> Result {
        let bytes = response.as_bytes();
        // SAFETY: By the type invariant.
        to_result(unsafe {
            bindings::_ib_respond_udata(self.0, bytes.as_ptr().cast::<c_void>(), bytes.len())
        })
    }
}

/// Neither input nor output: what most commands without a structure of ours must check.
///
/// # Safety
///
/// `ptr` must be null or the udata argument of the operation that is running.
pub(super) unsafe fn none(ptr: *mut bindings::ib_udata) -> Result {
    // SAFETY: By the requirement.
    to_result(unsafe { bindings::ferroce_no_udata_io(ptr) })
}
