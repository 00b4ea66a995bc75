// SPDX-License-Identifier: GPL-2.0

//! Access to the state of the module from callbacks of the network stack.

use super::bindings;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// A static slot for an `Arc` while the module is set up.
///
/// # Invariants
///
/// The pointer is null or from `Arc::into_raw`, with one reference that the place owns.
pub struct Global<T: Send + Sync + 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Global<T> {
    /// An empty slot.
    pub const fn empty() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Fills the slot. A previous value is leaked: it may be in use.
    pub fn set(&self, value: Arc<T>) {
        self.0
            .swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
    }

    /// The value, while `_rcu` lives.
    pub fn get<'g>(&'g self, _rcu: &'g rcu::Guard) -> Option<&'g T> {
        // SAFETY: By the type invariant the value lives while the place holds it, and `clear`
        // waits for the read section that `_rcu` stands for.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// A counted reference to the value. The module must not wait for the slot to be the last owner
    /// while it is held.
    pub fn get_arc(&self, _rcu: &rcu::Guard) -> Option<Arc<T>> {
        let ptr = self.0.load(Ordering::Acquire);
        if ptr.is_null() {
            return None;
        }
        // SAFETY: As in `get`; the borrow ends when the reference is taken.
        Some(unsafe { ArcBorrow::from_raw(ptr.cast_const()) }.into())
    }

    /// Empties the slot and waits until the value is unused. May sleep; in atomic context, such as
    /// a read section, the value is leaked with a warning.
    pub fn clear(&self) -> Option<Arc<T>> {
        let old = self.0.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: No requirements.
        if !unsafe { bindings::ferroce_synchronize_rcu() } {
            return None;
        }
        // SAFETY: By the type invariant the reference was the slot's, and it is ours now.
        Some(unsafe { Arc::from_raw(old.cast_const()) })
    }
}
