// SPDX-License-Identifier: GPL-2.0

//! A value that is read often, briefly, and changed rarely, while it is not read.
//!
//! The kernel's `rwlock_t` does not serve: it lets readers with bottom halves disabled pass a
//! waiting writer, which then spins until by chance no CPU reads. Here a change waits for current
//! readers only, not for later ones ([`Gate::change`]).

use super::bindings;
use super::gate_word::{
    Awake,
    Counted, //
};
use super::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::core::gate::{
    FairLock,
    Gate, //
};
use core::cell::UnsafeCell;
use core::ops::Deref;
use kernel::prelude::*;
use kernel::types::NotThreadSafe;

impl FairLock for SpinLockBh<()> {
    fn with_lock<R>(&self, what: impl FnOnce() -> R) -> R {
        let _alone = self.lock();
        what()
    }
}

/// A value that changes rarely. Readers and changes run with bottom halves disabled, and spin.
///
/// # Invariants
///
/// Only changes kill `gate`, serialised by `changes`. `value` is only read by holders of the gate,
/// and only written by a change.
#[pin_data]
pub struct Changeable<T> {
    gate: Gate<Counted<Awake>>,
    /// Taken after the locks of readers and changers, and before none.
    #[pin]
    changes: SpinLockBh<()>,
    value: UnsafeCell<T>,
}

// SAFETY: The value moves with the whole.
unsafe impl<T: Send> Send for Changeable<T> {}
// SAFETY: Many may read the value at the same time, and any thread may change it alone.
unsafe impl<T: Send + Sync> Sync for Changeable<T> {}

/// Bottom halves are disabled while it lives.
struct BhDisabled(NotThreadSafe);

impl BhDisabled {
    #[inline]
    fn new() -> Self {
        // SAFETY: No requirements; this nests by a counter.
        unsafe { bindings::ferroce_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: They were disabled on this CPU, by this thread.
        unsafe { bindings::ferroce_bh_enable() };
    }
}

/// A read access to a [`Changeable`]; a change spins until it is dropped. Its holder must not read
/// or change the same value again, nor wait for code that may.
///
/// # Invariants
///
/// The holder has a reference of the gate.
pub struct Reading<'a, T> {
    of: &'a Changeable<T>,
    /// Enabled after the gate is put: a change waits for the reader only briefly.
    _bh: BhDisabled,
}

impl<T> Changeable<T> {
    /// A value that may be read and changed.
    pub fn new(value: T) -> impl PinInit<Self> {
        // INVARIANT: The gate is live.
        pin_init!(Self {
            gate: Gate::new(Counted::new()),
            changes <- new_spinlock_bh!((), "ferroce_changes"),
            value: UnsafeCell::new(value),
        })
    }

    /// The value after the changes in progress. Fails only after guards were leaked.
    pub fn read(&self) -> Option<Reading<'_, T>> {
        let bh = BhDisabled::new();
        // INVARIANT: The reference was just taken.
        self.gate
            .tryget_queued(&self.changes)
            .then_some(Reading { of: self, _bh: bh })
    }

    /// Changes the value exclusively. Waits for changes in progress, then for readers.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        self.gate.change(&self.changes, || {
            // SAFETY: By the type invariant nothing else reads or writes: no reference is left,
            // none is granted, and this is the only change.
            what(unsafe { &mut *self.value.get() })
        })
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants it is not written while `self` lives.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.of.gate.put();
    }
}
