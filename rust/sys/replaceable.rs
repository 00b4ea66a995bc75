// SPDX-License-Identifier: GPL-2.0

//! An object in use that can be replaced.

use super::reclaim::Node;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;

/// A slot for an `Arc` that is read under RCU without reference counting.
///
/// # Invariants
///
/// The pointer is from `Arc::into_raw`, with one reference that the place owns.
pub struct Replaceable<T: Send + Sync + 'static>(AtomicPtr<T>);

/// A prepared successor: everything that can fail is done.
pub struct Successor<T> {
    value: Arc<T>,
    node: KBox<Node>,
}

impl<T> Successor<T> {
    /// May sleep.
    pub fn new(value: Arc<T>) -> Result<Self> {
        let node = Node::new(GFP_KERNEL_ACCOUNT)?;
        Ok(Self { value, node })
    }
}

impl<T> Deref for Successor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send + Sync> Replaceable<T> {
    /// A slot with `value`.
    pub fn new(value: Arc<T>) -> Self {
        // INVARIANT: The reference is the place's now.
        Self(AtomicPtr::new(Arc::into_raw(value).cast_mut()))
    }

    /// The current value, while `_rcu` lives.
    #[inline]
    pub fn get<'a>(&'a self, _rcu: &'a rcu::Guard) -> &'a T {
        // SAFETY: By the type invariant the value lives while the place holds it, and what
        // `replace` takes away lives until the read section that `_rcu` stands for has ended.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Replaces the value by `successor`. Any context. The old value is freed after a grace period.
    pub fn replace(&self, successor: Successor<T>) {
        let Successor { value, node } = successor;
        // INVARIANT: The reference of the successor is the place's now.
        let old = self
            .0
            .swap(Arc::into_raw(value).cast_mut(), Ordering::AcqRel);
        // SAFETY: By the type invariant; the reference was the slot's, and is ours now.
        let old = unsafe { Arc::from_raw(old.cast_const()) };
        // The place was the only one where readers find it.
        node.release(old);
    }
}

impl<T: Send + Sync + 'static> Drop for Replaceable<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the slot is dropped after its last reader.
        drop(unsafe { Arc::from_raw(self.0.get_mut().cast_const()) });
    }
}
