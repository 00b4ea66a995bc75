// SPDX-License-Identifier: GPL-2.0

//! A workqueue of the module, so that unloading can wait for everything queued; and CPUs, as places
//! where work may run.

use crate::sys::bindings;
use core::ffi::c_int;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::workqueue::{
    Queue,
    RawWorkItem, //
};

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
    fn new(name: &'static CStr, kind: bindings::ferroce_queue) -> Result<Self> {
        // SAFETY: `name` is a C string; the shim passes it as an argument, not as a format.
        let wq = unsafe { bindings::ferroce_alloc_workqueue(name.as_char_ptr(), kind) };
        NonNull::new(wq).map(Self).ok_or(ENOMEM)
    }

    /// Work runs in the softirq of the CPU that queued it, or that it was queued for: soon, and
    /// without sleeping.
    pub fn bh(name: &'static CStr) -> Result<Self> {
        Self::new(name, bindings::ferroce_queue_FERROCE_QUEUE_BH)
    }

    /// Work runs at high priority on the CPU that queued it, or that it was queued for.
    pub fn urgent(name: &'static CStr) -> Result<Self> {
        Self::new(name, bindings::ferroce_queue_FERROCE_QUEUE_URGENT)
    }

    /// Work runs at normal priority on the CPU that queued it, or that it was queued for.
    pub fn normal(name: &'static CStr) -> Result<Self> {
        Self::new(name, bindings::ferroce_queue_FERROCE_QUEUE_NORMAL)
    }

    /// Waits for all work queued before. May sleep.
    pub fn flush(&self) {
        // SAFETY: By the type invariant the queue is live.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) }
    }

    /// Queues work on `cpu`, if it is not queued already. It runs elsewhere if that CPU has gone
    /// offline, or if it is still running there.
    pub fn enqueue_on<W, const ID: u64>(&self, cpu: Cpu, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let queue = self.0.as_ptr();
        // SAFETY: `queue_work_on` returns `false` only if the work is queued already; `W` is `Send`
        // and static. `__enqueue` keeps the work valid during the call and, if it was queued, until
        // it runs. The queue is live by the type invariant, and `cpu` was online once.
        unsafe { work.__enqueue(move |work| bindings::queue_work_on(cpu.as_raw(), queue, work)) }
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

/// Whether the running work is on an [`OwnedQueue::urgent`].
pub fn is_urgent() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_is_urgent() }
}

/// A CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu(c_int);

impl Cpu {
    /// The current CPU; it does not change while softirqs are disabled.
    pub fn current() -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::ferroce_this_cpu() })
    }

    /// Another CPU of this node on which the calling process may run and which is not isolated, if
    /// there is one. Different `seed`s give different CPUs.
    ///
    /// Only meaningful in a system call, where the caller is known, or in a kernel thread, which
    /// may call for anybody: there every CPU is allowed.
    pub fn another(seed: u32) -> Option<Self> {
        // SAFETY: No requirements.
        let cpu = unsafe { bindings::ferroce_another_cpu(seed) };
        (cpu >= 0).then_some(Self(cpu))
    }

    /// The CPU of this number, if it is online; it stays so while softirqs are disabled.
    pub fn online(number: u32) -> Option<Self> {
        // SAFETY: No requirements.
        unsafe { bindings::ferroce_cpu_is_online(number) }.then_some(Self(number as c_int))
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its number, for hashing.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn as_raw(self) -> c_int {
        self.0
    }
}

/// Whether no other thread is ready to run on this CPU.
pub fn is_alone() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_is_alone() }
}
