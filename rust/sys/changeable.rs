// SPDX-License-Identifier: GPL-2.0

//! A value that many read for a moment, and that somebody changes now and then while nobody does.
//!
//! The kernel's `rwlock_t` does not serve for this: it lets readers that have bottom halves
//! disabled pass a writer that waits, so that one spins until by chance nobody reads on any CPU.
//! Here a change waits for those who read now and for nobody who comes later ([`Gate::change`]).

use super::bindings;
use super::gate::{
    Gate,
    Queue, //
};
use super::gate_word::{
    Awake,
    Counted, //
};
use super::lock::{
    new_spinlock_bh,
    SpinLockBh, //
};
use core::cell::UnsafeCell;
use core::ops::Deref;
use kernel::prelude::*;
use kernel::types::NotThreadSafe;

impl Queue for SpinLockBh<()> {
    fn alone<R>(&self, what: impl FnOnce() -> R) -> R {
        let _alone = self.lock();
        what()
    }
}

/// A value that changes now and then. Readers and changes have bottom halves disabled, and wait
/// spinning.
///
/// # Invariants
///
/// `gate` is only shut by changes, whose queue is `changes`. `value` is only read by who is inside,
/// and only written to by a change.
#[pin_data]
pub struct Changeable<T> {
    gate: Gate<Counted<Awake>>,
    /// Taken after the locks of whoever reads or changes the value, and before none.
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

/// The right to read the value of a [`Changeable`]; who changes it spins until it is dropped. Who
/// has one must not take another of the same value, nor change that, nor wait for anybody who may.
///
/// # Invariants
///
/// The holder is inside the gate.
pub struct Reading<'a, T> {
    of: &'a Changeable<T>,
    /// Enabled again behind the gate: who waits for the reader waits for a moment.
    _bh: BhDisabled,
}

impl<T> Changeable<T> {
    /// A value that may be read and changed.
    pub fn new(value: T) -> impl PinInit<Self> {
        // INVARIANT: The gate is open.
        pin_init!(Self {
            gate: Gate::new(Counted::new()),
            changes <- new_spinlock_bh!((), "ferroce_changes"),
            value: UnsafeCell::new(value),
        })
    }

    /// The value, as the changes under way leave it. It fails only where others were leaked.
    pub fn read(&self) -> Option<Reading<'_, T>> {
        let bh = BhDisabled::new();
        // INVARIANT: Just entered.
        self.gate
            .enter_in_turn(&self.changes)
            .then_some(Reading { of: self, _bh: bh })
    }

    /// Changes the value, alone. Waits for the changes under way, then for those who read.
    pub fn change<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        self.gate.change(&self.changes, || {
            // SAFETY: By the type invariant nobody else reads or writes: nobody is inside, nobody
            // is let in, and this is the only change.
            what(unsafe { &mut *self.value.get() })
        })
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the type invariants nobody writes to it while `self` lives.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        self.of.gate.leave();
    }
}
