// SPDX-License-Identifier: GPL-2.0

//! A deadline: a high-resolution timer that calls its owner from the timer softirq.
//!
//! It is lazy: moving the deadline into the future does nothing until the timer fires early, when
//! the owner says when it wants to be called next. A data path that moves its deadline with every
//! packet thus programs the timer once in a while only.

use super::bindings;
use core::marker::PhantomPinned;
use core::sync::atomic::{
    AtomicPtr,
    AtomicU64,
    Ordering, //
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

/// What a [`Deadline`] calls.
pub trait Expires: Send + Sync + Sized + 'static {
    /// The time asked for has come; the timer is idle. Runs in the timer softirq.
    fn expired(this: ArcBorrow<'_, Self>);

    /// The deadline embedded in `self`.
    fn deadline(&self) -> &Deadline<Self>;
}

/// No time is programmed.
const IDLE: u64 = u64::MAX;

/// A timer of `T`, which embeds it.
///
/// # Invariants
///
/// `owner` is null or the raw pointer of an `Arc<T>` that embeds this deadline; while it is not
/// null, the reference count is at least one until [`Deadline::stop`] has returned.
#[pin_data(PinnedDrop)]
pub struct Deadline<T: Expires> {
    #[pin]
    timer: Opaque<bindings::ferroce_timer>,
    owner: AtomicPtr<T>,
    /// When the timer will fire; [`IDLE`] if it will not.
    programmed: AtomicU64,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The timer is only touched through the C functions, which lock; the rest is atomic.
unsafe impl<T: Expires> Send for Deadline<T> {}
// SAFETY: As above.
unsafe impl<T: Expires> Sync for Deadline<T> {}

impl<T: Expires> Deadline<T> {
    /// A deadline that is not armed, and cannot be until [`Deadline::start`].
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes and stays where it is; `fire` has the right type.
            timer <- unsafe {
                pin_init::pin_init_from_closure(|slot: *mut Opaque<bindings::ferroce_timer>| {
                    bindings::ferroce_timer_setup(Opaque::cast_into(slot), Some(Self::fire));
                    Ok::<(), core::convert::Infallible>(())
                })
            },
            owner: AtomicPtr::new(core::ptr::null_mut()),
            programmed: AtomicU64::new(IDLE),
            _pin: PhantomPinned,
        })
    }

    /// Lets `owner` be called from here on. To be undone with [`Deadline::stop`] while a
    /// reference to the owner is still held.
    pub fn start(owner: &Arc<T>) {
        owner
            .deadline()
            .owner
            .store(Arc::as_ptr(owner).cast_mut(), Ordering::Release);
    }

    /// Asks for a call at `at` or before. Callers serialise among themselves: the data path arms
    /// under the lock that guards what the deadline is computed from.
    pub fn arm(&self, at: u64) {
        if self.owner.load(Ordering::Acquire).is_null() {
            return;
        }
        if at < self.programmed.load(Ordering::Relaxed) {
            self.programmed.store(at, Ordering::Relaxed);
            // SAFETY: The timer is set up. Starting races with `stop` only if the owner is being
            // destroyed, whose callers have excluded users like this one before.
            unsafe { bindings::ferroce_timer_start(self.timer.get(), at) };
        }
    }

    /// Ends it: when this returns no call is running and none will come. May sleep.
    pub fn stop(&self) {
        self.owner.store(core::ptr::null_mut(), Ordering::Release);
        // SAFETY: The timer is set up, and this is not called from its own callback.
        unsafe { bindings::ferroce_timer_cancel(self.timer.get()) };
        self.programmed.store(IDLE, Ordering::Relaxed);
    }

    /// # Safety
    ///
    /// Only for the timer core, with the timer of a `Deadline<T>`.
    unsafe extern "C" fn fire(timer: *mut bindings::ferroce_timer) {
        // SAFETY: By the requirement `timer` is the field of a live deadline: `stop`, which every
        // owner calls before it goes, waits for this function.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(timer), Self, timer) };
        this.programmed.store(IDLE, Ordering::Relaxed);
        let owner = this.owner.load(Ordering::Acquire);
        if !owner.is_null() {
            // SAFETY: By the type invariant the owner lives until `stop` returns.
            let owner = unsafe { ArcBorrow::from_raw(owner.cast_const()) };
            T::expired(owner);
        }
    }
}

#[pinned_drop]
impl<T: Expires> PinnedDrop for Deadline<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The timer is set up; a timer that was never armed is cancelled at no cost.
        unsafe { bindings::ferroce_timer_cancel(self.timer.get()) };
    }
}
