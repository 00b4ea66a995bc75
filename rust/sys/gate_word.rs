// SPDX-License-Identifier: GPL-2.0

//! The word of a gate, with the kernel's ways of waiting.

use super::bindings;
use crate::core::gate::GateWord;
use core::marker::PhantomData;
// The kernel crate's atomics are calls of C functions, and this runs for every copy.
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};

/// How to wait for a word.
pub(super) trait WaitMode {
    /// Waits until no bit of `mask` is set in `word`, or one of `unless` is.
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32);
    /// Wakes the waiters of `word`.
    fn wake(word: &AtomicU32);
}

/// Sleeping, as long as it takes.
pub(super) enum Asleep {}

impl WaitMode for Asleep {
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_wait_until_clear(word.as_ptr(), mask, unless) };
    }

    #[cold]
    fn wake(word: &AtomicU32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_wake(word.as_ptr()) };
    }
}

/// Spinning, for references held with bottom halves disabled, which never sleep.
pub(super) enum Awake {}

impl WaitMode for Awake {
    #[cold]
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_spin_until_clear(word.as_ptr(), mask, unless) };
    }

    #[inline]
    fn wake(_: &AtomicU32) {}
}

/// A word that is waited for as `H` says.
pub(super) struct Counted<H>(AtomicU32, PhantomData<H>);

impl<H> Counted<H> {
    /// 0.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0), PhantomData)
    }
}

impl<H: WaitMode> GateWord for Counted<H> {
    #[inline]
    fn add_one(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Acquire)
    }

    #[inline]
    fn sub_one(&self) -> u32 {
        self.0.fetch_sub(1, Ordering::Release)
    }

    fn read(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn replace(&self, old: u32, new: u32) -> bool {
        self.0
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    fn wait_until_clear(&self, mask: u32, unless: u32) {
        H::until_clear(&self.0, mask, unless);
    }

    #[inline]
    fn wake(&self) {
        H::wake(&self.0);
    }
}
