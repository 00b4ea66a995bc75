// SPDX-License-Identifier: GPL-2.0

//! A workqueue of our own, so that unloading can wait for all that was queued.

use super::bindings;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::workqueue::Queue;

/// A workqueue; dropping it waits for all its work.
///
/// # Invariants
///
/// The pointer is a live workqueue that this value owns.
pub struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Workqueues may be used from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: As above.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Creates a queue whose work runs on the CPU that queued it.
    pub fn new(name: &'static CStr) -> Result<Self> {
        // SAFETY: `name` is a C string; the shim passes it as an argument, not as a format.
        let wq = unsafe { bindings::ferroce_alloc_workqueue(name.as_char_ptr()) };
        NonNull::new(wq).map(Self).ok_or(ENOMEM)
    }
}

impl core::ops::Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant the queue lives as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is ours and live.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}
