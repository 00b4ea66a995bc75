// SPDX-License-Identifier: GPL-2.0

//! ib_core: the device, its verbs objects and its upcalls as safe types.
//!
//! ib_core allocates the C objects at the size we declare, and frees them right after our destroy
//! function. The driver's part is behind the C object ([`object`]) and usually holds an `Arc` that
//! the data path shares. A driver names its types in [`device::Driver`]; each kind of object has a
//! file with the trait that its type implements, and with the operations of ib_core that call it.
//!
//! Here is what all operations share, the way from ib_core to a method of a driver: the arguments,
//! the result, and the macro that writes the C function and its entry in the table. A [`Reference`]
//! is one to a C object of ib_core, for operations and for other files of `sys`.

pub mod ah;
pub mod cq;
pub mod device;
pub mod event;
pub mod mr;
pub mod object;
pub mod process;
pub mod qp;
pub mod query;
pub mod srq;
pub mod wr;

use crate::sys::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A safe type for one argument of an operation.
pub(super) trait Argument: Sized {
    /// The type that C passes.
    type Raw: Copy;

    /// Converts the argument; an error ends the operation with that error.
    ///
    /// # Safety
    ///
    /// `raw` must be what ib_core passed to the operation that is running, as
    /// [`ib_verbs.h`](srctree/include/rdma/ib_verbs.h) describes it, and the operation must be one
    /// of a device whose objects have the types that `Self` names. The result must not outlive the
    /// operation.
    unsafe fn from_raw(raw: Self::Raw) -> Result<Self>;

    /// The device of the operation, or null if this argument does not name it.
    ///
    /// # Safety
    ///
    /// That of [`Self::from_raw`].
    unsafe fn device(_raw: Self::Raw) -> *const bindings::ib_device {
        core::ptr::null()
    }
}

/// The result of an operation.
pub(super) trait CallOutcome {
    /// The type that C expects.
    type Raw;

    /// Converts the result.
    fn into_raw(self) -> Self::Raw;
}

/// Writes the operations of one kind of object: for each the C function, and all together the
/// function `install`, which enters them into the table.
///
/// An operation is named as its field in `struct ib_device_ops`; the types of its arguments are
/// [`Argument`]s and that of its result is an [`CallOutcome`]. The body is safe code.
macro_rules! operations {
    (
        $install:ident<$life:lifetime, $object:ident: $bound:ident>
        $(
            $(#[$doc:meta])*
            $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block
        )*
    ) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// For ib_core alone, which calls it as `ib_verbs.h` says: with arguments that are
            /// valid while it runs, and objects of a device whose table has the operations of the
            /// same driver for all kinds of objects.
            // Some have no argument that tells the type of the object.
            #[allow(clippy::extra_unused_type_parameters)]
            unsafe extern "C" fn $name<$life, $object: $bound>(
                $($arg: <$type as $crate::sys::ib::Argument>::Raw),*
            ) -> <$ret as $crate::sys::ib::CallOutcome>::Raw {
                let device = move || {
                    // An operation without arguments has no device.
                    #[allow(unused_mut)]
                    let mut device = core::ptr::null::<$crate::sys::bindings::ib_device>();
                    $(
                        if device.is_null() {
                            // SAFETY: By the requirement.
                            device = unsafe {
                                <$type as $crate::sys::ib::Argument>::device($arg)
                            };
                        }
                    )*
                    device
                };
                // SAFETY: The device outlives the operation.
                unsafe { $crate::sys::trace::verb_of(stringify!($name), device) };
                let call = || -> $ret {
                    $(
                        // SAFETY: By the requirement; the body below is the whole operation.
                        let $arg = unsafe {
                            <$type as $crate::sys::ib::Argument>::from_raw($arg)
                        }?;
                    )*
                    $body
                };
                let result = call();
                $crate::sys::trace::verb_returns(stringify!($name), &result);
                if let Err(error) = &result {
                    $crate::sys::refusal::verb(stringify!($name), error);
                }
                $crate::sys::ib::CallOutcome::into_raw(result)
            }
        )*

        /// Enters the operations above into the table.
        pub(super) fn $install<$object: $bound>(ops: &mut $crate::sys::bindings::ib_device_ops) {
            $(ops.$name = Some($name::<$object>);)*
        }
    };
}

pub(super) use operations;

macro_rules! plain_argument {
    ($($type:ty),*) => {
        $(impl Argument for $type {
            type Raw = $type;

            unsafe fn from_raw(raw: $type) -> Result<$type> {
                Ok(raw)
            }
        })*
    };
}
plain_argument!(u16, u32, u64, c_int);

impl<T> Argument for &T {
    type Raw = *const T;

    unsafe fn from_raw(raw: *const T) -> Result<Self> {
        // SAFETY: By the requirement the structure is valid while the operation runs.
        unsafe { raw.as_ref() }.ok_or(EINVAL)
    }
}

impl<T> Argument for &mut T {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Result<Self> {
        // SAFETY: By the requirement the structure is valid while the operation runs, and only the
        // operation uses it meanwhile.
        unsafe { raw.as_mut() }.ok_or(EINVAL)
    }
}

/// An argument that says nothing to the operation.
pub(super) struct IgnoredArgument<T>(PhantomData<T>);

impl<T: Copy> Argument for IgnoredArgument<T> {
    type Raw = T;

    unsafe fn from_raw(_raw: T) -> Result<Self> {
        Ok(Self(PhantomData))
    }
}

/// A pointer that the operation hands on as ib_core passed it.
pub(super) struct RawArgument<T>(*mut T);

impl<T> Argument for RawArgument<T> {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Result<Self> {
        Ok(Self(raw))
    }
}

impl<T> RawArgument<T> {
    pub(super) fn get(self) -> *mut T {
        self.0
    }
}

/// A pointer to something that the driver does not know: it must be null.
pub(super) struct Absent<T>(PhantomData<T>);

impl<T> Argument for Absent<T> {
    type Raw = *mut T;

    unsafe fn from_raw(raw: *mut T) -> Result<Self> {
        if raw.is_null() {
            Ok(Self(PhantomData))
        } else {
            Err(crate::sys::refusal::EOPNOTSUPP())
        }
    }
}

/// 0, or a negative errno.
impl CallOutcome for Result {
    type Raw = c_int;

    fn into_raw(self) -> c_int {
        match self {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }
}

/// A number that is not negative, or a negative errno.
impl CallOutcome for Result<c_int> {
    type Raw = c_int;

    fn into_raw(self) -> c_int {
        self.unwrap_or_else(|e| e.to_errno())
    }
}

/// A value of an enumeration, for operations that cannot fail.
impl CallOutcome for Result<u32> {
    type Raw = u32;

    fn into_raw(self) -> u32 {
        self.unwrap_or_default()
    }
}

/// A pointer, or an errno in its place (`ERR_PTR`).
impl<T> CallOutcome for Result<*mut T> {
    type Raw = *mut T;

    fn into_raw(self) -> *mut T {
        self.unwrap_or_else(|e| e.to_ptr())
    }
}

/// The result of an operation whose caller does not look at one.
pub(super) struct Unseen;

impl CallOutcome for Result<Unseen> {
    type Raw = ();

    fn into_raw(self) {}
}

/// The list of work requests of `post_send` and `post_recv`.
///
/// The requests of processes are in their rings: they ring with an empty list. ULPs have no rings,
/// and post lists.
pub(super) struct WorkRequests<W>(*const W);

impl<W> Argument for WorkRequests<W> {
    type Raw = *const W;

    unsafe fn from_raw(raw: *const W) -> Result<Self> {
        Ok(Self(raw))
    }
}

/// Output argument: the WR that was refused.
pub(super) struct BadWr<W>(*mut *const W);

impl<W> Argument for BadWr<W> {
    type Raw = *mut *const W;

    unsafe fn from_raw(raw: *mut *const W) -> Result<Self> {
        Ok(Self(raw))
    }
}

impl<W> WorkRequests<W> {
    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_null()
    }

    /// Calls `take` with one after the other. One that is refused is the last, and the user learns
    /// which it is.
    pub(super) fn each(
        self,
        refused: BadWr<W>,
        next: impl Fn(&W) -> *mut W,
        mut take: impl FnMut(&W) -> Result,
    ) -> Result {
        let mut at = self.0;
        // SAFETY: The list is valid while the operation runs, and ends with null.
        while let Some(request) = unsafe { at.as_ref() } {
            if let Err(why) = take(request) {
                // SAFETY: `Argument` has both from the same operation, whose caller owns the place.
                unsafe { *refused.0 = at };
                return Err(why);
            }
            at = next(request);
        }
        Ok(())
    }
}

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
