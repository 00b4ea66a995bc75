// SPDX-License-Identifier: GPL-2.0

//! Locks of the data path, held with bottom halves disabled.
//!
//! The receive softirq, the timer softirq and system calls share data under these locks. Disabling
//! bottom halves nests by a counter, so guards may be dropped in any order. ULPs, which may call
//! with interrupts disabled, have a lock of their own, [`IrqLock`].

use super::bindings;
use kernel::prelude::*;
use kernel::sync::lock::{
    Backend,
    Lock, //
};
use kernel::types::Opaque;

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

/// A lock for any context, also with interrupts disabled. Interrupts are disabled while it is held
/// and restored afterwards; so it is held only for the time of a closure.
#[pin_data]
pub struct IrqLock {
    #[pin]
    raw: Opaque<bindings::spinlock_t>,
}

// SAFETY: It is a lock.
unsafe impl Send for IrqLock {}
// SAFETY: As above.
unsafe impl Sync for IrqLock {}

impl IrqLock {
    /// An unlocked lock. All share one lockdep class.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes; the shim initialises it.
            raw <- unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::spinlock_t>| {
                    bindings::ferroce_spin_lock_init(Opaque::cast_into(slot));
                    Ok::<(), core::convert::Infallible>(())
                })
            },
        })
    }

    /// Runs `what` with the lock held. It must not take the lock again.
    pub fn with<R>(&self, what: impl FnOnce() -> R) -> R {
        // SAFETY: It is initialised.
        let flags = unsafe { bindings::ferroce_spin_lock_irqsave(self.raw.get()) };
        let result = what();
        // SAFETY: Locked above, and interrupts were then as `flags` says.
        unsafe { bindings::ferroce_spin_unlock_irqrestore(self.raw.get(), flags) };
        result
    }
}
