// SPDX-License-Identifier: GPL-2.0

//! The word of a gate, which is waited for in the kernel's ways.

use super::bindings;
use super::gate::Word;
use core::marker::PhantomData;
// Those of the kernel crate are calls of C functions, and this is done for every copy.
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};

/// How a word is waited for.
pub(super) trait Wait {
    /// Waits until no bit of `mask` is set in `word`, or one of `unless` is.
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32);
    /// Wakes those who wait for `word`.
    fn wake(word: &AtomicU32);
}

/// By sleeping: for as long as it takes.
pub(super) enum Asleep {}

impl Wait for Asleep {
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

/// By spinning: for those who are inside with bottom halves disabled, and do not sleep.
pub(super) enum Awake {}

impl Wait for Awake {
    #[cold]
    fn until_clear(word: &AtomicU32, mask: u32, unless: u32) {
        // SAFETY: The word is valid for the whole call.
        unsafe { bindings::ferroce_spin_until_clear(word.as_ptr(), mask, unless) };
    }

    #[inline]
    fn wake(_: &AtomicU32) {}
}

/// A word that is waited for in the way of `H`.
pub(super) struct Counted<H>(AtomicU32, PhantomData<H>);

impl<H> Counted<H> {
    /// 0.
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(0), PhantomData)
    }
}

impl<H: Wait> Word for Counted<H> {
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
