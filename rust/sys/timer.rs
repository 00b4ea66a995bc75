// SPDX-License-Identifier: GPL-2.0

//! A deadline: a high-resolution timer that calls its owner in the timer softirq.
//!
//! It is lazy: moving the deadline later does nothing until the timer fires early, when the owner
//! arms it again. A data path that moves its deadline with every packet programs the timer only
//! rarely.

use super::bindings;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{
        Acquire,
        Relaxed,
        Release, //
    },
};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::sync::ArcBorrow;
use kernel::types::Opaque;

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

    /// Asks for a call at `at` or before. If two callers race, one may be served late, or only by a
    /// call that is already running: so the owner asks again, in each call, for everything that it
    /// waits for.
    pub fn arm(&self, at: u64) {
        if self.owner.load(Acquire).is_null() {
            return;
        }
        if at < self.programmed.load(Relaxed) {
            self.programmed.store(at, Relaxed);
            // SAFETY: The timer is set up. If this races with the end of `Running` it may fire once
            // more and find no owner; it is cancelled when the deadline is dropped.
            unsafe { bindings::ferroce_timer_start(self.timer.get(), at) };
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
