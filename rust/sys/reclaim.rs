// SPDX-License-Identifier: GPL-2.0

//! Freeing after an RCU grace period: at once in a context that may sleep ([`Global`]), or deferred
//! to one.
//!
//! Deferring returns at once. Unloading the module waits for everything deferred.

use super::bindings;
use super::work::OwnedQueue;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::sync::atomic::{
    AtomicPtr,
    Ordering, //
};
use kernel::alloc::Flags;
use kernel::c_str;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};
use kernel::types::Opaque;

/// A static slot for an `Arc` while the module is set up.
///
/// # Invariants
///
/// The pointer is null or from `Arc::into_raw`, with one reference that the slot owns.
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
        // SAFETY: By the type invariant the value lives while the slot holds it, and `clear`
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

/// The workqueue that frees, while a [`Reclaimer`] exists.
static QUEUE: Global<OwnedQueue> = Global::empty();

/// Nodes queued and not freed yet.
static PENDING: Atomic<i32> = Atomic::new(0);

/// Frees deferred objects. The module keeps one from init to exit, longer than any object; an
/// object deferred without one is leaked.
pub struct Reclaimer(());

impl Reclaimer {
    /// Starts it. Only one is needed.
    pub fn new() -> Result<Self> {
        let queue = OwnedQueue::normal(c_str!("ferroce_reclaim"))?;
        QUEUE.set(Arc::new(queue, GFP_KERNEL)?);
        Ok(Self(()))
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // A freed object may defer another one.
        while PENDING.load(Acquire) != 0 {
            flush();
        }
        // Waits for the tail of the last work.
        drop(QUEUE.clear());
    }
}

/// Waits until everything deferred before is freed. May sleep, for a grace period if anything is
/// left.
pub(super) fn flush() {
    if PENDING.load(Acquire) == 0 {
        return;
    }
    // A statement of its own: the guard must be gone before anything sleeps.
    let queue = QUEUE.get_arc(&rcu::read_lock());
    if let Some(queue) = queue {
        // SAFETY: May sleep, and nothing that it waits for is held. (Linux 7.2 has no safe one.)
        unsafe { bindings::rcu_barrier() };
        queue.flush();
    }
}

/// What frees a thing.
pub(super) type Free = unsafe fn(*mut c_void);

/// The means to defer one object; allocated together with the object, so that removal needs no
/// memory.
pub(super) struct Node {
    work: Opaque<bindings::rcu_work>,
    /// What to call, and with what.
    call: Option<(Free, *mut c_void)>,
}

// SAFETY: An owner can only give it up; until then it has no pointer, and the work is in no
// queue. What it is called with says itself on which threads that may be.
unsafe impl Send for Node {}
// SAFETY: There is nothing that a reference to it could do.
unsafe impl Sync for Node {}

impl Node {
    /// An unused node.
    pub(super) fn new(flags: Flags) -> Result<KBox<Node>> {
        Ok(KBox::new(
            Node {
                work: Opaque::zeroed(),
                call: None,
            },
            flags,
        )?)
    }

    /// Drops `object` in process context after a grace period. Any context.
    ///
    /// RCU readers must not find it any more: a read section that begins after this call may
    /// outlast the object.
    pub(super) fn release<T: Send + Sync + 'static>(self: KBox<Self>, object: Arc<T>) {
        /// # Safety
        ///
        /// `object` must be from `Arc::into_raw`, with a reference that it owns.
        unsafe fn free<T>(object: *mut c_void) {
            // SAFETY: By the requirement.
            drop(unsafe { Arc::from_raw(object.cast::<T>().cast_const()) });
        }
        let object = Arc::into_raw(object).cast_mut();
        // SAFETY: The reference is the callee's, and a `T` may be dropped on any thread.
        unsafe { self.call(object.cast::<c_void>(), free::<T>) };
    }

    /// Calls `free` with `what` in process context after a grace period. Any context.
    ///
    /// # Safety
    ///
    /// It must be sound to call `free(what)` then, on any thread.
    pub(super) unsafe fn call(self: KBox<Self>, what: *mut c_void, free: Free) {
        let mut node = ManuallyDrop::new(self);
        node.call = Some((free, what));
        let rcu = rcu::read_lock();
        let Some(queue) = QUEUE.get(&rcu) else {
            // The module is being unloaded: nobody could wait for the work.
            return;
        };
        PENDING.add(1, Relaxed);
        let work = node.work.get();
        // SAFETY: The node stays where it is until `run`, because only that frees it. The queue is
        // live: its destruction waits for this read section, and then for the work.
        unsafe {
            bindings::ferroce_rcu_work_init(work, Some(Self::run));
            bindings::queue_rcu_work(queue.as_ptr(), work);
        }
    }

    /// # Safety
    ///
    /// Only for the workqueue, with the work of a node that was queued by [`Self::call`].
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: By the requirement `work` is in an `rcu_work`, and that in a node whose ownership
        // passes to us.
        let node = unsafe {
            let work = kernel::container_of!(work, bindings::rcu_work, work);
            let node = kernel::container_of!(Opaque::cast_from(work), Node, work);
            KBox::from_raw(node.cast_mut())
        };
        if let Some((free, what)) = node.call {
            // SAFETY: By the requirement of `call`; this is process context, after a grace period.
            unsafe { free(what) };
        }
        drop(node);
        PENDING.fetch_sub(1, Release);
    }
}
