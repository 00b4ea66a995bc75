// SPDX-License-Identifier: GPL-2.0

//! Details of an object that the driver adds to what ib_core says of it (`rdma resource show -dd`).
//!
//! Everybody on the machine may ask: what the driver adds must be no secret, such as a key or an
//! address.

use super::call::Argument;
use crate::sys::bindings;
use crate::sys::errno::EMSGSIZE;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::str::CStrExt;

/// The message that is being written.
///
/// # Invariants
///
/// The pointer is a message of ib_core that only the operation uses.
pub(super) struct NlMessage<'a>(NonNull<bindings::sk_buff>, PhantomData<&'a mut ()>);

impl Argument for NlMessage<'_> {
    type Raw = *mut bindings::sk_buff;

    unsafe fn from_raw(raw: *mut bindings::sk_buff) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
    }
}

impl NlMessage<'_> {
    /// Adds what `write` writes, or nothing if there is no room for it.
    pub(super) fn details(self, write: impl FnOnce(&mut Details<'_>) -> Result) -> Result {
        let message = self.0.as_ptr();
        // SAFETY: By the type invariant.
        let begin = unsafe { bindings::ferroce_details_begin(message) };
        if begin.is_null() {
            return Err(EMSGSIZE());
        }
        let written = write(&mut Details(&self));
        // SAFETY: `begin` is in the message; nothing behind it but what was written.
        unsafe {
            match written {
                Ok(()) => bindings::ferroce_details_end(message, begin),
                Err(_) => bindings::ferroce_details_cancel(message, begin),
            }
        }
        written
    }
}

/// Output of details. The error is lack of room.
pub struct Details<'a>(&'a NlMessage<'a>);

impl Details<'_> {
    /// A number.
    pub fn number(&mut self, name: &CStr, value: impl Into<u64>) -> Result {
        // SAFETY: By the type invariant; the name is copied.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u64(self.message(), name.as_char_ptr(), value.into())
        })
    }

    /// A set of flags.
    pub fn flags(&mut self, name: &CStr, value: u32) -> Result {
        // SAFETY: As above.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_u32_hex(self.message(), name.as_char_ptr(), value)
        })
    }

    /// A word.
    pub fn word(&mut self, name: &CStr, value: &CStr) -> Result {
        // SAFETY: As above, and so is the word.
        to_result(unsafe {
            bindings::rdma_nl_put_driver_string(
                self.message(),
                name.as_char_ptr(),
                value.as_char_ptr(),
            )
        })
    }

    fn message(&self) -> *mut bindings::sk_buff {
        self.0 .0.as_ptr()
    }
}
