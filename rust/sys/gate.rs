// SPDX-License-Identifier: GPL-2.0

//! A gate: counts who is inside, can be shut, and then empties; for ever, or until what is behind
//! it was changed.
//!
//! This is the part of [`Revocable`](super::revocable) and [`Changeable`](super::changeable) that
//! needs no kernel, so that the host's tests can run it in every order of its steps.

/// Set once the gate is shut.
const SHUT: u32 = 1 << 31;
/// Set once somebody has taken what is behind the gate.
const TAKEN: u32 = 1 << 30;
/// From here on nobody is let in: the gate is shut or, because guards were leaked, about to
/// overflow. The room up to the next bit is for those who count themselves and are sent away.
const LIMIT: u32 = 1 << 29;
/// The number of those inside.
const INSIDE: u32 = TAKEN - 1;

/// The one word of a gate, and a way to wait for it to change.
pub trait Word {
    /// Adds 1 and returns the word before. An acquire operation.
    fn add_one(&self) -> u32;
    /// Subtracts 1 and returns the word before. A release operation.
    fn sub_one(&self) -> u32;
    /// Reads the word. An acquire operation.
    fn read(&self) -> u32;
    /// Replaces `old` by `new` and tells whether it did. Fully ordered.
    fn replace(&self, old: u32, new: u32) -> bool;
    /// Waits until no bit of `mask` is set, or one of `unless` is: asleep or awake, as the word is
    /// made for.
    fn wait_until_clear(&self, mask: u32, unless: u32);
    /// Wakes those who wait. Never sleeps.
    fn wake(&self);
}

/// A lock that is given to those who wait for it in the order in which they came.
pub trait Queue {
    /// Runs `what` with the lock held.
    fn alone<R>(&self, what: impl FnOnce() -> R) -> R;
}

/// A gate. What is behind it may be used between an [`Self::enter`] that succeeds and its
/// [`Self::leave`].
pub struct Gate<W>(W);

impl<W: Word> Gate<W> {
    /// A gate with `word`, which is 0: open, and nobody is inside.
    pub const fn new(word: W) -> Self {
        Self(word)
    }

    /// Goes in, if the gate is open. Never sleeps.
    #[inline]
    pub fn enter(&self) -> bool {
        if self.0.add_one() < LIMIT {
            return true;
        }
        self.leave();
        false
    }

    /// Goes out. Never sleeps.
    #[inline]
    pub fn leave(&self) {
        let before = self.0.sub_one();
        if before & SHUT != 0 && before & INSIDE == 1 {
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

    /// Shuts the gate: nobody goes in any more. Never sleeps.
    pub fn shut(&self) {
        self.set(SHUT);
    }

    /// Shuts the gate and waits until nobody is inside, or somebody has taken what is behind it.
    /// Others may still count themselves before they see that the gate is shut; they touch nothing.
    fn clear(&self) {
        self.shut();
        self.0.wait_until_clear(INSIDE, TAKEN);
    }

    /// Shuts the gate, waits until nobody is inside, and tells whether the caller is the first
    /// who did: then what is behind the gate is his.
    pub fn take(&self) -> bool {
        self.clear();
        self.set(TAKEN)
    }

    /// Takes what is behind the gate if that is shut and nobody is inside, without waiting, to give
    /// it back by [`Self::give_back`]. It may fail too while others are being sent away.
    pub fn borrow(&self) -> bool {
        self.0.replace(SHUT, SHUT | TAKEN)
    }

    /// Ends a [`Self::borrow`], and opens the gate or leaves it shut. Never sleeps.
    pub fn give_back(&self, open: bool) {
        let ended = if open { SHUT | TAKEN } else { TAKEN };
        loop {
            // Others may be counted that are being sent away.
            let word = self.0.read();
            if self.0.replace(word, word & !ended) {
                return;
            }
        }
    }

    /// Whether somebody has taken what is behind the gate.
    pub fn is_taken(&self) -> bool {
        self.0.read() & TAKEN != 0
    }

    /// Goes in, after the changes that are under way ([`Self::change`]). It fails only where guards
    /// were leaked.
    #[inline]
    pub fn enter_in_turn(&self, queue: &impl Queue) -> bool {
        self.enter() || self.enter_from(queue)
    }

    /// While the queue is ours nobody changes anything, so the gate is open.
    #[cold]
    fn enter_from(&self, queue: &impl Queue) -> bool {
        queue.alone(|| self.enter())
    }

    /// Shuts the gate, runs `what`, which changes what is behind it, when nobody is inside, and
    /// opens it again. For a gate that is never shut otherwise, with one queue.
    ///
    /// A change waits for those who are inside, and for nobody who comes later: who finds the gate
    /// shut waits in the queue, so he counts himself once before it is open again, and the count
    /// of those inside falls however many come. He waits there for the changes before him, and a
    /// change waits for the changes before it and for one stay of each who is inside. So nobody
    /// starves; but nobody who is inside may wait for this gate, or for anybody who may.
    pub fn change<R>(&self, queue: &impl Queue, what: impl FnOnce() -> R) -> R {
        queue.alone(|| {
            self.clear();
            let result = what();
            self.give_back(true);
            result
        })
    }
}
