// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Objects that libibverbs holds by pointer, errno, and lists of the application.

use crate::refusal::reject;
use core::{ffi::c_void, ptr, slice};
use ferroce_core::uabi::wqe::Sge;
use libc::c_int;
use std::alloc::{alloc_zeroed, dealloc, Layout};

/// The errno of the last failed call of the C library.
pub fn errno() -> c_int {
    // SAFETY: The C library returns a valid pointer, good for this thread.
    unsafe { *libc::__errno_location() }
}

/// Sets errno, and returns the null that a verb which makes an object returns on failure.
pub fn fail<T>(error: c_int) -> *mut T {
    // SAFETY: As above.
    unsafe { *libc::__errno_location() = error };
    ptr::null_mut()
}

/// The time of a clock, in nanoseconds.
pub fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The time is written to a place of ours. The clocks that are asked for always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sleeps for so many microseconds, at most a second. By its number, since `nanosleep()` is a
/// cancellation point, which the verbs are not: a thread that is cancelled while it waits for a
/// queue would leave that as it is.
pub fn nap(microseconds: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(microseconds.min(999_999)) * 1_000,
    };
    // SAFETY: The time is readable; what is left of it nobody asks for.
    unsafe {
        libc::syscall(
            libc::SYS_nanosleep,
            &raw const time,
            ptr::null_mut::<c_void>(),
        )
    };
}

/// An object of C shape that is not yet, or no more, in the hands of libibverbs.
///
/// # Invariants
///
/// `0` is a live allocation with the layout of `T` whose every byte has been written.
pub struct Object<T>(*mut T);

impl<T> Object<T> {
    /// Allocates an object of zeros; ENOMEM if there is no memory.
    ///
    /// # Safety
    ///
    /// All zeros must be a valid `T`, and `T` must not be of size 0.
    pub unsafe fn zeroed() -> Result<Self, c_int> {
        const { assert!(size_of::<T>() != 0) };
        // SAFETY: The layout is not of size 0, as just checked.
        let address = unsafe { alloc_zeroed(Layout::new::<T>()) };
        if address.is_null() {
            return Err(libc::ENOMEM);
        }
        Ok(Self(address.cast()))
    }

    /// Takes an object back from libibverbs.
    ///
    /// # Safety
    ///
    /// `address` must be from [`Object::leak`], taken back once, and no longer used.
    pub unsafe fn reclaim(address: *mut T) -> Self {
        Self(address)
    }

    /// The address, for calls into libibverbs.
    pub fn as_ptr(&self) -> *mut T {
        self.0
    }

    /// Hands the object to libibverbs.
    pub fn leak(self) -> *mut T {
        let address = self.0;
        core::mem::forget(self);
        address
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariant it is a valid `T`, dropped once, in an allocation of ours.
        unsafe {
            ptr::drop_in_place(self.0);
            dealloc(self.0.cast(), Layout::new::<T>());
        }
    }
}

/// The scatter/gather list of a work request; EINVAL if the request is malformed.
///
/// # Safety
///
/// Unless `count` is below 1 or `list` null, `list` must point to `count` entries that nobody
/// changes for `'a`.
#[inline]
pub unsafe fn sg_list<'a>(list: *const Sge, count: c_int) -> Result<&'a [Sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !list.is_null() => {
            // SAFETY: The caller's promise.
            Ok(unsafe { slice::from_raw_parts(list, count) })
        }
        _ => Err(reject(
            libc::EINVAL,
            format_args!("num_sge is {count}, with sg_list at {list:?}"),
        )),
    }
}
