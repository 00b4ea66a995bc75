// SPDX-License-Identifier: GPL-2.0

//! What runs later: work on a workqueue of the module, so that unloading can wait for everything
//! queued, and timers; with that CPUs, as places where work may run, and clocks.
//!
//! A [`Deadline`] is a high-resolution timer that calls its owner in the timer softirq. It is lazy:
//! moving the deadline later does nothing until the timer fires early, when the owner arms it
//! again. A data path that moves its deadline with every packet programs the timer only rarely.

use crate::sys::bindings;
use core::ffi::c_int;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{
    Acquire,
    Relaxed,
    Release,
    SeqCst, //
};
use core::sync::atomic::{
    fence,
    AtomicPtr,
    AtomicU64, //
};
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::types::Opaque;
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
    /// offline, or if it is still running there. But work of a queue that was made by [`Self::bh`]
    /// waits for a CPU that is offline: the caller sees to it that it is not ([`Cpu::online`]).
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

    /// Queues work on another CPU ([`Cpu::another`]), or on this one if there is none, if it is not
    /// queued already.
    pub fn enqueue_elsewhere<W, const ID: u64>(&self, seed: u32, work: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        let queue = self.0.as_ptr();
        // SAFETY: As in `Self::enqueue_on`; the CPU is online while the function queues the work.
        unsafe { work.__enqueue(move |work| bindings::ferroce_queue_elsewhere(seed, queue, work)) }
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

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::ktime_get() as u64 }
}

/// Nanoseconds of CLOCK_MONOTONIC_RAW, which is never adjusted.
pub fn raw_now() -> u64 {
    // SAFETY: No requirements.
    unsafe { bindings::ktime_get_raw() as u64 }
}

/// The owner of a [`Deadline`]. An owner of several tells them apart by their `ID`.
pub trait Expires<const ID: u64 = 0>: Send + Sync + Sized + 'static {
    /// The timer has expired and is idle. Runs in the timer softirq of the CPU where it was armed,
    /// as long as that is online.
    fn expired(this: ArcBorrow<'_, Self>);

    /// The deadline embedded in `self`.
    fn deadline(&self) -> &Deadline<Self, ID>;
}

/// The timer is idle.
const IDLE: u64 = u64::MAX;

/// A timer of `T`, which embeds it.
///
/// # Invariants
///
/// `owner` is null, or what the `Arc` of a [`Running`] points to whose drop has not ended.
#[pin_data(PinnedDrop)]
pub struct Deadline<T: Expires<ID>, const ID: u64 = 0> {
    #[pin]
    timer: Opaque<bindings::hrtimer>,
    owner: AtomicPtr<T>,
    /// When the timer fires; [`IDLE`] if it does not.
    programmed: AtomicU64,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The timer is only touched through the C functions, which lock; the rest is atomic.
unsafe impl<T: Expires<ID>, const ID: u64> Send for Deadline<T, ID> {}
// SAFETY: As above.
unsafe impl<T: Expires<ID>, const ID: u64> Sync for Deadline<T, ID> {}

impl<T: Expires<ID>, const ID: u64> Deadline<T, ID> {
    /// A deadline that is not armed, and cannot be until [`Deadline::start`].
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes and stays where it is; `fire` has the right type.
            timer <- unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::hrtimer>| {
                    bindings::ferroce_timer_setup(Opaque::cast_into(slot), Some(Self::fire));
                    Ok::<(), core::convert::Infallible>(())
                })
            },
            owner: AtomicPtr::new(core::ptr::null_mut()),
            programmed: AtomicU64::new(IDLE),
            _pin: PhantomPinned,
        })
    }

    /// Starts calls to `owner`, until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EINVAL` if [`Expires::deadline`] is not embedded in the owner.
    pub fn start(owner: &Arc<T>) -> Result<Running<T, ID>> {
        // Asked only once: another call might return another deadline.
        let deadline = NonNull::from(owner.deadline());
        let within = (deadline.as_ptr() as usize).wrapping_sub(Arc::as_ptr(owner) as usize);
        if within >= core::mem::size_of::<T>() {
            return Err(EINVAL);
        }
        // INVARIANT: The deadline is where the owner is, hence a part of it.
        let running = Running {
            _owner: owner.clone(),
            deadline,
        };
        // SAFETY: By the type invariant.
        let this = unsafe { running.deadline.as_ref() };
        // INVARIANT: `running` has it.
        this.owner.store(Arc::as_ptr(owner).cast_mut(), Release);
        Ok(running)
    }

    /// Asks for a call at `at` or before; or, if one is running, the owner asks again in it for
    /// everything that it waits for.
    pub fn arm(&self, at: u64) {
        if self.owner.load(Acquire).is_null() || at >= self.programmed.load(Relaxed) {
            return;
        }
        let mut at = at;
        if at >= self.programmed.fetch_min(at, Relaxed) {
            return;
        }
        loop {
            // SAFETY: The timer is set up. If this races with the end of `Running` it may fire once
            // more and find no owner; it is cancelled when the deadline is dropped.
            unsafe { bindings::ferroce_timer_start(self.timer.get(), at) };
            // Two callers may start it the other way round than they came by. The later start sees
            // what the earlier one was for, for both take the lock of the timer.
            let earlier = self.programmed.load(Relaxed);
            if earlier >= at {
                return;
            }
            at = earlier;
        }
    }

    /// # Safety
    ///
    /// Only for the timer core, with the timer of a `Deadline<T, ID>`.
    unsafe extern "C" fn fire(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: By the requirement `timer` is the field of a deadline, which is live, for its
        // drop waits for this function.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(timer), Self, timer) };
        this.programmed.store(IDLE, Relaxed);
        let owner = this.owner.load(Acquire);
        if !owner.is_null() {
            // SAFETY: By the type invariant the owner has a reference until the drop of `Running`
            // ends, and that waits for this function.
            let owner = unsafe { ArcBorrow::from_raw(owner.cast_const()) };
            T::expired(owner);
        }
        // SAFETY: A constant.
        unsafe { bindings::ferroce_timer_done }
    }
}

/// A deadline with an owner. Dropping it stops the timer and waits for a running call. May sleep,
/// and must not happen in a call.
///
/// # Invariants
///
/// `deadline` is a part of what `_owner` points to.
#[must_use = "the deadline ends when this is dropped"]
pub struct Running<T: Expires<ID>, const ID: u64 = 0> {
    _owner: Arc<T>,
    deadline: NonNull<Deadline<T, ID>>,
}

// SAFETY: It is an `Arc`, and a pointer to a part of what that points to.
unsafe impl<T: Expires<ID>, const ID: u64> Send for Running<T, ID> {}
// SAFETY: As above.
unsafe impl<T: Expires<ID>, const ID: u64> Sync for Running<T, ID> {}

impl<T: Expires<ID>, const ID: u64> Drop for Running<T, ID> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; `_owner` is dropped after this.
        let deadline = unsafe { self.deadline.as_ref() };
        deadline.owner.store(core::ptr::null_mut(), Release);
        // Whether the timer is active is looked at without its lock, and one that is started behind
        // that must find no owner. An exchange would not do: on aarch64 a load may overtake it.
        fence(SeqCst);
        // SAFETY: The timer is set up.
        unsafe { bindings::hrtimer_cancel(deadline.timer.get()) };
        deadline.programmed.store(IDLE, Relaxed);
    }
}

#[pinned_drop]
impl<T: Expires<ID>, const ID: u64> PinnedDrop for Deadline<T, ID> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The timer is set up; one that was never armed is cancelled at no cost.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }
}
