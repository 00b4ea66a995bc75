// SPDX-License-Identifier: GPL-2.0

//! The C objects of ib_core, and what is ours behind them.

use crate::sys::bindings;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use kernel::types::Opaque;

/// A C object that ib_core allocates, followed by what belongs to us.
///
/// ib_core frees the memory without asking when creation fails, and right after our destroy
/// function has returned 0. So `private` is initialised as the last step of a successful creation,
/// and dropped in place by the destroy function: no destructor runs by itself.
#[repr(C)]
pub(super) struct Object<C, P> {
    pub(super) core: Opaque<C>,
    pub(super) private: MaybeUninit<P>,
}

impl<C, P> Object<C, P> {
    /// What `size_ib_*` must say.
    pub(super) const SIZE: usize = core::mem::size_of::<Self>();

    /// Completes the creation.
    ///
    /// # Safety
    ///
    /// `core` must be a C object of [`Self::SIZE`] bytes whose private part is not initialised.
    pub(super) unsafe fn init(core: *mut C, private: P) {
        // SAFETY: By the requirement.
        unsafe { (*core.cast::<Self>()).private.write(private) };
    }

    /// Our part.
    ///
    /// # Safety
    ///
    /// `core` must be an object whose creation is complete and which outlives `'a`.
    pub(super) unsafe fn private<'a>(core: *const C) -> &'a P {
        // SAFETY: By the requirement.
        unsafe { (*core.cast::<Self>()).private.assume_init_ref() }
    }

    /// Moves our part out, as the first step of the destruction.
    ///
    /// # Safety
    ///
    /// As for [`Self::private`], and nobody may use the private part afterwards.
    pub(super) unsafe fn take(core: *mut C) -> P {
        // SAFETY: By the requirement.
        unsafe { (*core.cast::<Self>()).private.assume_init_read() }
    }
}

macro_rules! c_reference {
    ($(#[$doc:meta])* $name:ident, $c:ident) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// The pointer is valid for `'a`.
        #[derive(Clone, Copy)]
        pub struct $name<'a>(*mut bindings::$c, PhantomData<&'a bindings::$c>);

        impl $name<'_> {
            /// # Safety
            ///
            /// `ptr` must be valid for the lifetime of the result.
            pub(in crate::sys) unsafe fn from_raw(ptr: *mut bindings::$c) -> Self {
                // INVARIANT: By the requirement.
                Self(ptr, PhantomData)
            }

            pub(in crate::sys) fn as_raw(self) -> *mut bindings::$c {
                self.0
            }
        }
    };
}

c_reference!(
    /// An open device file of a user process.
    ContextRef,
    ib_ucontext
);
c_reference!(
    /// A protection domain.
    PdRef,
    ib_pd
);
c_reference!(
    /// A completion queue that is being created.
    CqRef,
    ib_cq
);
c_reference!(
    /// A queue pair that is being created.
    QpRef,
    ib_qp
);

impl PdRef<'_> {
    pub(in crate::sys) fn device(self) -> *mut bindings::ib_device {
        // SAFETY: By the type invariant.
        unsafe { (*self.as_raw()).device }
    }
}
