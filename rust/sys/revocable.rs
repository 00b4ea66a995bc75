// SPDX-License-Identifier: GPL-2.0

//! A value whose use can be revoked.
//!
//! Users take references in one atomic word, so the owner waits for current users only: no grace
//! period, and nothing to free later.

use super::gate_word::{
    Asleep,
    Counted, //
};
use crate::core::gate::Gate;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;

/// A value that can be revoked.
///
/// # Invariants
///
/// `value` is initialised until the gate is taken. Until then it is only read, and only by holders
/// of the gate; afterwards it belongs to the caller that took it. A caller that claims the gate has
/// exclusive access until it unclaims it, with the value initialised.
pub struct Revocable<T> {
    gate: Gate<Counted<Asleep>>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: The value may be moved to another thread by `revoke`, so `T` must be `Send`.
unsafe impl<T: Send> Send for Revocable<T> {}
// SAFETY: References to the value are given to many threads at once, and one of them may be given
// the value itself.
unsafe impl<T: Send + Sync> Sync for Revocable<T> {}

/// Access to the value of a [`Revocable`]; revocation waits until it is dropped.
///
/// # Invariants
///
/// The holder has a reference of the gate.
pub struct RevocableGuard<'a, T>(&'a Revocable<T>);

impl<T> Revocable<T> {
    /// A usable value.
    pub const fn new(value: T) -> Self {
        Self {
            gate: Gate::new(Counted::new()),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// The value, unless it was revoked or denied. Two atomic operations including the drop of the
    /// result; any context.
    #[inline]
    pub fn access(&self) -> Option<RevocableGuard<'_, T>> {
        // INVARIANT: The reference was just taken.
        self.gate.tryget().then(|| RevocableGuard(self))
    }

    /// A value that is denied until [`Self::allow`].
    pub fn denied(value: T) -> Self {
        let denied = Self::new(value);
        denied.deny();
        denied
    }

    /// Changes a denied value, unless it is still in use or being changed. Any context.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.claimed(|value| (what(value), false))
    }

    /// Changes a denied value like [`Self::change`], and allows its use if `what` returns true.
    pub fn allow(&self, what: impl FnOnce(&mut T) -> bool) -> bool {
        let allowed = |value: &mut T| {
            let allowed = what(value);
            (allowed, allowed)
        };
        self.claimed(allowed).unwrap_or(false)
    }

    fn claimed<R>(&self, what: impl FnOnce(&mut T) -> (R, bool)) -> Option<R> {
        if !self.gate.try_claim() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. A claim is exclusive
        // until unclaimed: no reference was left, none is granted, and no other caller takes it.
        let (result, open) = what(unsafe { (*self.value.get()).assume_init_mut() });
        self.gate.unclaim(open);
        Some(result)
    }

    /// Denies new accesses; accesses in progress continue. Any context.
    pub fn deny(&self) {
        self.gate.kill();
    }

    /// Revokes the value: refuses new accesses, waits for those in progress, and returns the value
    /// to the first caller. May sleep. Must not be called with a [`RevocableGuard`] of the same
    /// value, for which it would wait for ever.
    pub fn revoke(&self) -> Option<T> {
        if !self.gate.take() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. The taker of the gate has
        // exclusive access to it: all references were put, and their accesses happen before this.
        Some(unsafe { (*self.value.get()).assume_init_read() })
    }
}

impl<T> Drop for Revocable<T> {
    fn drop(&mut self) {
        if !self.gate.is_taken() {
            // SAFETY: By the type invariant the value is initialised, and `self` is exclusive.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T> Deref for RevocableGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the invariants the value is initialised and neither written nor taken
        // while `self` lives.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for RevocableGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.put();
    }
}
