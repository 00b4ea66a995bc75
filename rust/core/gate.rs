// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A gate: a reference count that can be killed, like `percpu_ref`, and then drains; for good, or
//! until the guarded value was changed.
//!
//! `sys::sync` builds revocable and changeable values on it. The word and the waiting are a
//! trait, so host tests run its steps in every order that the memory model permits.

/// Set once the gate is killed.
const KILLED: u32 = 1 << 31;
/// Set while a caller has taken or claimed the guarded value.
const TAKEN: u32 = 1 << 30;
/// From here on `tryget` fails: the gate is killed or, after leaked guards, about to overflow. The
/// room up to the next bit is for failing `tryget`s, which count briefly.
const LIMIT: u32 = 1 << 29;
/// The number of references.
const USERS: u32 = TAKEN - 1;

/// The word of a gate, and how to wait for it.
pub trait GateWord {
    /// Adds 1 and returns the word before. An acquire operation.
    fn add_one(&self) -> u32;
    /// Subtracts 1 and returns the word before. A release operation.
    fn sub_one(&self) -> u32;
    /// Reads the word. An acquire operation.
    fn read(&self) -> u32;
    /// Replaces `old` by `new`; returns whether it did. Fully ordered.
    fn replace(&self, old: u32, new: u32) -> bool;
    /// Waits until no bit of `mask` is set, or one of `unless` is: sleeping or spinning.
    fn wait_until_clear(&self, mask: u32, unless: u32);
    /// Wakes waiters. Never sleeps.
    fn wake(&self);
}

/// A fair lock: granted in the order of arrival.
pub trait FairLock {
    /// Runs `what` with the lock held.
    fn with_lock<R>(&self, what: impl FnOnce() -> R) -> R;
}

/// A gate. The guarded value may be used between a successful [`Self::tryget`] and its
/// [`Self::put`].
pub struct Gate<W>(W);

impl<W: GateWord> Gate<W> {
    /// A live gate with `word`, which is 0: no references.
    pub const fn new(word: W) -> Self {
        Self(word)
    }

    /// Takes a reference if the gate is live. Never sleeps.
    #[inline]
    pub fn tryget(&self) -> bool {
        if self.0.add_one() < LIMIT {
            return true;
        }
        self.put();
        false
    }

    /// Drops a reference. Never sleeps.
    #[inline]
    pub fn put(&self) {
        let before = self.0.sub_one();
        if before & KILLED != 0 && before & USERS == 1 {
            self.0.wake();
        }
    }

    fn set(&self, bit: u32) -> bool {
        loop {
            let word = self.0.read();
            if word & bit != 0 {
                return false;
            }
            if self.0.replace(word, word | bit) {
                return true;
            }
        }
    }

    /// Kills the gate: `tryget` fails from now on. Never sleeps.
    pub fn kill(&self) {
        self.set(KILLED);
    }

    /// Kills the gate and waits until no reference is left, or a caller has taken the value.
    /// Failing `tryget`s may still count briefly; they touch nothing.
    fn drain(&self) {
        self.kill();
        self.0.wait_until_clear(USERS, TAKEN);
    }

    /// Kills the gate, waits until no reference is left, and returns whether the caller is the
    /// first: then it owns the guarded value. While another one claims the value it is not, and the
    /// gate may be reopened: callers see to it that no claim is in progress that does so.
    pub fn take(&self) -> bool {
        self.drain();
        self.set(TAKEN)
    }

    /// Claims the value of a killed gate without references, without waiting, until
    /// [`Self::unclaim`]. May also fail because of failing `tryget`s.
    pub fn try_claim(&self) -> bool {
        self.0.replace(KILLED, KILLED | TAKEN)
    }

    /// Ends a [`Self::try_claim`]; reopens the gate if `open`. Never sleeps.
    pub fn unclaim(&self, open: bool) {
        let ended = if open { KILLED | TAKEN } else { TAKEN };
        loop {
            // Failing `tryget`s may count meanwhile.
            let word = self.0.read();
            if self.0.replace(word, word & !ended) {
                return;
            }
        }
    }

    /// Whether a caller has taken or claimed the value.
    pub fn is_taken(&self) -> bool {
        self.0.read() & TAKEN != 0
    }

    /// Takes a reference, after changes in progress ([`Self::change`]). Fails only after guards
    /// were leaked.
    #[inline]
    pub fn tryget_queued(&self, queue: &impl FairLock) -> bool {
        self.tryget() || self.tryget_slow(queue)
    }

    /// Under the lock no change is in progress, so the gate is live.
    #[cold]
    fn tryget_slow(&self, queue: &impl FairLock) -> bool {
        queue.with_lock(|| self.tryget())
    }

    /// Kills the gate, waits until no reference is left, runs `what`, which changes the guarded
    /// value, and reopens the gate. For a gate that is never killed otherwise, with one lock.
    ///
    /// A change waits for current references only, not for later ones: a `tryget` that finds the
    /// gate killed queues for the lock, so it counts only once before the gate is reopened, and the
    /// number of references falls, however many come. It waits there for earlier changes, and a
    /// change waits for earlier changes and for one use by each reference. So nobody starves. But a
    /// holder of a reference must not wait for this gate, nor for code that may.
    pub fn change<R>(&self, queue: &impl FairLock, what: impl FnOnce() -> R) -> R {
        queue.with_lock(|| {
            self.drain();
            let result = what();
            self.unclaim(true);
            result
        })
    }
}
