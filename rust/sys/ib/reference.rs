// SPDX-License-Identifier: GPL-2.0

//! References to the C objects of ib_core, for operations and for the other files of `sys`.

use crate::sys::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A C object for as long as an operation runs.
///
/// # Invariants
///
/// The pointer is valid for `'a`.
pub struct Reference<'a, C>(NonNull<C>, PhantomData<&'a C>);

impl<C> Clone for Reference<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Reference<'_, C> {}

impl<C> Reference<'_, C> {
    /// # Safety
    ///
    /// `core` must be valid for the lifetime of the result.
    pub(super) unsafe fn from_raw(core: NonNull<C>) -> Self {
        // INVARIANT: By the requirement.
        Self(core, PhantomData)
    }

    /// The C object, for the other files of `sys`.
    pub(in crate::sys) fn as_raw(self) -> *mut C {
        self.0.as_ptr()
    }

    /// Like [`Self::as_raw`], not null.
    pub(super) fn core(self) -> NonNull<C> {
        self.0
    }
}

/// An open device file of a user process.
pub type ContextRef<'a> = Reference<'a, bindings::ib_ucontext>;
/// A protection domain.
pub type PdRef<'a> = Reference<'a, bindings::ib_pd>;

impl PdRef<'_> {
    pub(in crate::sys) fn device(self) -> *mut bindings::ib_device {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_raw()).device }
    }
}
