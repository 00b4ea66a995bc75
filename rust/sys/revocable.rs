// SPDX-License-Identifier: GPL-2.0

//! A value that can be taken away from those who use it.
//!
//! Users count themselves in one atomic word, so that the owner waits for those who use the value
//! now and for nobody else: no grace period, and nothing to free later.

use super::gate::Gate;
use super::gate_word::{
    Asleep,
    Counted, //
};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;

/// A value that can be revoked.
///
/// # Invariants
///
/// `value` is initialised until the gate is taken for good. It is only read, and only by who is
/// inside the gate, until then; afterwards it belongs to who took it. Who borrows it is alone with
/// it until he gives it back, initialised.
pub struct Revocable<T> {
    gate: Gate<Counted<Asleep>>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: The value may be moved to another thread by `revoke`, so `T` must be `Send`.
unsafe impl<T: Send> Send for Revocable<T> {}
// SAFETY: References to the value are given to many threads at once, and one of them may be given
// the value itself.
unsafe impl<T: Send + Sync> Sync for Revocable<T> {}

/// The right to use the value of a [`Revocable`]; revoking waits until it is dropped.
///
/// # Invariants
///
/// The holder is inside the gate.
pub struct Access<'a, T>(&'a Revocable<T>);

impl<T> Revocable<T> {
    /// A value that everybody may use.
    pub const fn new(value: T) -> Self {
        Self {
            gate: Gate::new(Counted::new()),
            value: UnsafeCell::new(MaybeUninit::new(value)),
        }
    }

    /// The value, unless it was revoked or denied. Two atomic operations with the drop of the
    /// result; in any context.
    #[inline]
    pub fn access(&self) -> Option<Access<'_, T>> {
        // INVARIANT: Just entered.
        self.gate.enter().then(|| Access(self))
    }

    /// A value that nobody may use until [`Self::allow`] says so.
    pub fn denied(value: T) -> Self {
        let denied = Self::new(value);
        denied.deny();
        denied
    }

    /// Changes a value that was denied, unless somebody uses it still, or changes it. In any
    /// context.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.borrowed(|value| (what(value), false))
    }

    /// Changes a value that was denied, as [`Self::change`], and lets everybody use it if `what`
    /// says that it is good.
    pub fn allow(&self, what: impl FnOnce(&mut T) -> bool) -> bool {
        let allowed = |value: &mut T| {
            let allowed = what(value);
            (allowed, allowed)
        };
        self.borrowed(allowed).unwrap_or(false)
    }

    fn borrowed<R>(&self, what: impl FnOnce(&mut T) -> (R, bool)) -> Option<R> {
        if !self.gate.borrow() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. Who has borrowed is alone with it
        // until he gives it back: nobody was inside, nobody is let in, and nobody else takes it.
        let (result, open) = what(unsafe { (*self.value.get()).assume_init_mut() });
        self.gate.give_back(open);
        Some(result)
    }

    /// Lets nobody use the value from now on; who does, goes on. In any context.
    pub fn deny(&self) {
        self.gate.shut();
    }

    /// Lets nobody use the value from now on, waits for those who do, and hands it to the first
    /// caller. May sleep; must not be called with an [`Access`] to the same value in hand, for
    /// which it would wait for ever.
    pub fn revoke(&self) -> Option<T> {
        if !self.gate.take() {
            return None;
        }
        // SAFETY: By the type invariant the value is initialised. Who took the gate is alone with
        // it: all who were let in have left, and what they did before happens before this.
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

impl<T> Deref for Access<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: By the invariants the value is initialised and nobody writes to it or takes it
        // while `self` lives.
        unsafe { (*self.0.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for Access<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}
