// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The lock of a queue.
//!
//! It is held for a few hundred nanoseconds, so a waiter spins first; but the holder may have lost
//! its processor, so the waiter then yields, and at last sleeps, which lets even a holder of lower
//! real-time priority go on. It can be taken and released in different calls, as the extended
//! polling interface wants.

use crate::ffi::memory::nap;
use core::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

/// Attempts of a waiter that spins, before it yields.
const SPINS: u32 = 128;
/// Attempts after which it sleeps instead.
const YIELDS: u32 = SPINS + 256;
/// How long a waiter sleeps, in microseconds.
const NAP: u32 = 50;

/// A mutual exclusion lock.
#[derive(Debug, Default)]
pub struct Lock {
    taken: AtomicBool,
    /// The application promises that there is no other thread: a thread domain, or a CQ for a
    /// single thread.
    single: bool,
}

impl Lock {
    /// A lock of an object that is used by one thread at a time, if it is `single`.
    pub fn new(single: bool) -> Self {
        Self {
            single,
            ..Self::default()
        }
    }

    /// Takes the lock.
    #[inline]
    pub fn acquire(&self) {
        if self.single || self.try_acquire() {
            return;
        }
        self.wait();
    }

    /// Gives the lock back.
    #[inline]
    pub fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Runs `f` with the lock held.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        self.acquire();
        let result = f();
        self.release();
        result
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut attempts = 0u32;
        loop {
            if !self.taken.load(Ordering::Relaxed) && self.try_acquire() {
                return;
            }
            match attempts {
                0..SPINS => hint::spin_loop(),
                SPINS..YIELDS => thread::yield_now(),
                _ => nap(NAP),
            }
            attempts = attempts.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn threads_exclude_each_other() {
        let lock = Lock::default();
        let count = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        // A load and a store apart lose counts unless the lock excludes.
                        lock.with(|| {
                            let seen = count.load(Ordering::Relaxed);
                            hint::spin_loop();
                            count.store(seen + 1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 20_000);
    }

    #[test]
    fn one_thread_alone_never_waits() {
        let lock = Lock::new(true);
        lock.acquire();
        lock.with(|| ());
        lock.acquire();
        let shared = Lock::new(false);
        shared.acquire();
        assert!(!shared.try_acquire());
    }

    #[test]
    fn a_waiter_outlasts_a_holder_that_sleeps() {
        let lock = Lock::default();
        lock.acquire();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.with(|| ()));
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiter.is_finished());
            lock.release();
        });
    }
}
