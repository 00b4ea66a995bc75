// SPDX-License-Identifier: GPL-2.0

//! The spinlock of the data path: held with bottom halves disabled.
//!
//! Everything that the receive softirq, the timer softirq and system calls share is under one of
//! these. Disabling bottom halves nests by a counter, so guards may be dropped in any order.

use super::bindings;
use kernel::prelude::*;
use kernel::sync::lock::{
    Backend,
    Lock, //
};

/// Backend of [`SpinLockBh`].
pub struct SpinLockBhBackend;

/// A spinlock whose holder runs with bottom halves disabled.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// Creates the initialiser of a [`SpinLockBh`] with a lockdep class of its own.
macro_rules! new_spinlock_bh {
    ($inner:expr, $name:literal) => {
        $crate::sys::lock::SpinLockBh::new(
            $inner,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_spinlock_bh;

// SAFETY: `spin_lock_bh` ensures mutual exclusion; `relock` uses the same method.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: By the safety requirements `ptr` is valid for writes, `name` and `key` for ever.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: By the safety requirements the lock is initialised.
        unsafe { bindings::ferroce_spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: By the safety requirements the caller owns the lock.
        unsafe { bindings::ferroce_spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: By the safety requirements the lock is initialised.
        (unsafe { bindings::ferroce_spin_trylock_bh(ptr) } != 0).then_some(())
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: By the safety requirements the lock is initialised.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
