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
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work,
    WorkItem, //
};

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

/// What frees deferred objects, while a [`Reclaimer`] exists.
static RECLAIM: Global<Reclaim> = Global::empty();

/// Nodes deferred and not freed yet.
static PENDING: Atomic<i32> = Atomic::new(0);

/// Frees deferred objects. The module keeps one from init to exit, longer than any object; an
/// object deferred without one is leaked.
pub struct Reclaimer(());

impl Reclaimer {
    /// Starts it. Only one is needed.
    pub fn new() -> Result<Self> {
        let reclaim = Reclaim {
            queue: OwnedQueue::normal(c_str!("ferroce_reclaim"))?,
            passed: Passed::new()?,
        };
        RECLAIM.set(Arc::new(reclaim, GFP_KERNEL)?);
        Ok(Self(()))
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // A freed object may defer another one.
        while PENDING.load(Acquire) != 0 {
            flush();
        }
        // Nothing is deferred from here on: this waits for callers that have seen it.
        let reclaim = RECLAIM.clear();
        // Waits for the tail of the last callback.
        // SAFETY: May sleep, and nothing that it waits for is held. (Linux 7.2 has no safe one.)
        unsafe { bindings::rcu_barrier() };
        // And for that of the last work.
        drop(reclaim);
    }
}

/// Waits until everything deferred before is freed. May sleep, for a grace period if anything is
/// left.
pub(super) fn flush() {
    if PENDING.load(Acquire) == 0 {
        return;
    }
    // A statement of its own: the guard must be gone before anything sleeps.
    let reclaim = RECLAIM.get_arc(&rcu::read_lock());
    if let Some(reclaim) = reclaim {
        // SAFETY: As in the drop of `Reclaimer`.
        unsafe { bindings::rcu_barrier() };
        reclaim.queue.flush();
    }
}

/// The workqueue that frees, and what it is to free.
struct Reclaim {
    /// First: its drop waits for the work.
    queue: OwnedQueue,
    passed: Arc<Passed>,
}

/// The nodes whose grace period has passed.
///
/// One list and one work for all: a node needs no work of its own, and stays small.
///
/// # Invariants
///
/// `first` is null or the head of a node that was given to RCU and has come back from it, and so is
/// the `next` of each in turn. Who takes them out owns them.
#[pin_data]
struct Passed {
    #[pin]
    work: Work<Passed>,
    first: AtomicPtr<bindings::callback_head>,
}

impl_has_work! {
    impl HasWork<Self> for Passed { self.work }
}

impl Passed {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("ferroce_passed"),
                // INVARIANT: None yet.
                first: AtomicPtr::new(core::ptr::null_mut()),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a node. Any context.
    ///
    /// # Safety
    ///
    /// `head` must be that of a node which RCU has given back, and which passes to the list.
    unsafe fn push(&self, head: *mut bindings::callback_head) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: By the requirement the node is live, and nobody else knows it.
            unsafe { (*head).next = first };
            // INVARIANT: By the requirement; the rest of the list is behind it.
            match (self.first).compare_exchange_weak(
                first,
                head,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

impl WorkItem for Passed {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut head = this.first.swap(core::ptr::null_mut(), Ordering::Acquire);
        while !head.is_null() {
            // SAFETY: By the type invariant `head` is in a node, which was taken out, so it is
            // ours.
            let node = unsafe {
                let node = kernel::container_of!(Opaque::cast_from(head), Node, head);
                KBox::from_raw(node.cast_mut())
            };
            // SAFETY: Nobody else knows the node any more.
            head = unsafe { (*node.head.get()).next };
            if let Some((free, what)) = node.call {
                // SAFETY: By the requirement of `call`; this is process context, after a grace
                // period.
                unsafe { free(what) };
            }
            drop(node);
            PENDING.fetch_sub(1, Release);
            // SAFETY: This is process context, and no lock is held.
            unsafe { bindings::ferroce_cond_resched() };
        }
    }
}

/// What frees a thing.
pub(super) type Free = unsafe fn(*mut c_void);

/// The means to defer one object; allocated together with the object, so that removal needs no
/// memory. Each object has one or more, so they are small.
pub(super) struct Node {
    head: Opaque<bindings::callback_head>,
    /// What to call, and with what.
    call: Option<(Free, *mut c_void)>,
}

const _: () = assert!(core::mem::size_of::<Node>() == 32);

// SAFETY: An owner can only give it up; until then it has no pointer, and the head is in no
// list. What it is called with says itself on which threads that may be.
unsafe impl Send for Node {}
// SAFETY: There is nothing that a reference to it could do.
unsafe impl Sync for Node {}

impl Node {
    /// An unused node.
    pub(super) fn new(flags: Flags) -> Result<KBox<Node>> {
        Ok(KBox::new(
            Node {
                head: Opaque::zeroed(),
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
        if RECLAIM.get(&rcu).is_none() {
            // The module is being unloaded: nobody could wait for the callback.
            return;
        }
        PENDING.add(1, Relaxed);
        // SAFETY: The node stays where it is until the work, because only that frees it. The module
        // waits for the callback: the end of the `Reclaimer` waits for this read section first.
        unsafe { bindings::ferroce_call_rcu(node.head.get(), Some(Self::passed)) };
    }

    /// # Safety
    ///
    /// Only for RCU, with the head of a node that was given to it by [`Self::call`].
    unsafe extern "C" fn passed(head: *mut bindings::callback_head) {
        let rcu = rcu::read_lock();
        // There is one as long as anything is pending; else the object is leaked.
        let Some(reclaim) = RECLAIM.get(&rcu) else {
            return;
        };
        // SAFETY: By the requirement RCU has just given it back.
        unsafe { reclaim.passed.push(head) };
        // If it is queued already, it has not looked yet.
        let _ = reclaim
            .queue
            .enqueue::<Arc<Passed>, 0>(reclaim.passed.clone());
    }
}
