// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Loads and stores of the words of a control block, and their order.
//!
//! Both sides sleep: the module until a doorbell, the process until a completion event. Each says
//! in a word that it is about to, and then looks at the ring once more; the other side publishes
//! its index and then looks at that word. With a full barrier between the two steps, on both sides,
//! at least one of them sees what the other wrote, and no published entry is missed.
//!
//! | queue | who publishes | and then looks at | who sleeps | says so by | and then looks at |
//! |---|---|---|---|---|---|
//! | send | provider | [`Word::Flags`] | module | [`Word::Flags`] | [`Word::Producer`] |
//! | completion | module | [`Word::Arm`] | provider | [`Word::Arm`] | [`Word::Producer`] |
//!
//! The steps stand here once, over the few accesses that a side has; the host tests run these same
//! steps in every order that the memory model permits.

use super::ring::{
    ARM_NONE, ARM_SOLICITED, FLAG_NEED_DOORBELL, OFFSET_ARM, OFFSET_CONSUMER, OFFSET_FLAGS,
    OFFSET_PRODUCER,
};

/// A word of the control block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Index of the next slot to be filled.
    Producer,
    /// Index of the next slot to be consumed.
    Consumer,
    /// `FLAG_*`.
    Flags,
    /// `ARM_*`.
    Arm,
}

impl Word {
    /// Offset in the control block, in bytes.
    #[inline]
    pub const fn offset(self) -> usize {
        match self {
            Word::Producer => OFFSET_PRODUCER,
            Word::Consumer => OFFSET_CONSUMER,
            Word::Flags => OFFSET_FLAGS,
            Word::Arm => OFFSET_ARM,
        }
    }
}

/// The control block of a ring, as single atomics.
pub trait Words {
    /// Relaxed load.
    fn load(&self, word: Word) -> u32;
    /// Reads a word, before all that follows.
    fn load_acquire(&self, word: Word) -> u32;
    /// Writes a word, in no order.
    fn store(&self, word: Word, value: u32);
    /// Store-release.
    fn store_release(&self, word: Word, value: u32);
    /// Orders all accesses before it against all after it, on every CPU.
    fn full_barrier(&self);

    /// The producer's index, with all that it wrote before.
    #[inline]
    fn load_producer(&self) -> u32 {
        self.load_acquire(Word::Producer)
    }

    /// The consumer's index, with all that it read before.
    #[inline]
    fn load_consumer(&self) -> u32 {
        self.load_acquire(Word::Consumer)
    }

    /// Publishes the producer's index after the slots before it were written.
    #[inline]
    fn store_producer(&self, index: u32) {
        self.store_release(Word::Producer, index);
    }

    /// Publishes the consumer's index after the slots before it were read.
    #[inline]
    fn store_consumer(&self, index: u32) {
        self.store_release(Word::Consumer, index);
    }
}

/// The side of the module.
pub trait Module: Words {
    /// Replaces a word and returns what it was, in no order.
    fn swap(&self, word: Word, value: u32) -> u32;

    /// Publishes the flags; a full barrier follows, so that an index read next is not older.
    #[inline]
    fn store_flags(&self, flags: u32) {
        self.store(Word::Flags, flags);
        self.full_barrier();
    }

    /// Asks for doorbells, and returns the producer's index: a request posted in between either
    /// finds the flag, or is before this index.
    #[inline]
    fn ask_for_doorbells(&self) -> u32 {
        self.store_flags(FLAG_NEED_DOORBELL);
        self.load_producer()
    }

    /// Takes the arm word if a completion of this kind satisfies it. A full barrier comes first,
    /// so a consumer that arms and then looks at the ring misses nothing.
    #[inline]
    fn take_arm(&self, solicited: bool) -> bool {
        self.full_barrier();
        let wanted = match self.load(Word::Arm) {
            ARM_NONE => false,
            ARM_SOLICITED => solicited,
            _ => true,
        };
        // The process may have changed it again: an arm is taken once.
        wanted && self.swap(Word::Arm, ARM_NONE) != ARM_NONE
    }

    /// Empties the ring: both indices 0, no arm, and these flags.
    fn reset(&self, flags: u32) {
        self.store_producer(0);
        self.store_consumer(0);
        self.store(Word::Arm, ARM_NONE);
        self.store_flags(flags);
    }
}

/// The side of the provider.
pub trait Provider: Words {
    /// Replaces a word by the greater of it and `value`, in no order.
    fn raise(&self, word: Word, value: u32);

    /// Asks for an event, [`ARM_SOLICITED`] or [`super::ring::ARM_NEXT`]. The application polls
    /// once more after arming: either that poll sees a completion, or the module, which writes it
    /// first and then looks at the arm word, raises the event.
    #[inline]
    fn arm(&self, level: u32) {
        self.raise(Word::Arm, level);
        self.full_barrier();
    }

    /// Whether the module wants a doorbell for what was published. It sets the flag and then looks
    /// at the index once more: either it sees the index published before this barrier, or the flag
    /// is seen behind it.
    #[inline]
    fn needs_doorbell(&self) -> bool {
        self.full_barrier();
        self.load(Word::Flags) & FLAG_NEED_DOORBELL != 0
    }
}

/// A ring of the module: the words, and slots that it copies.
pub trait RingOps: Module {
    /// Number of slots, a power of two.
    fn entries(&self) -> u32;
    /// Copies 64-bit words of a slot, from word `first` on, as many as `out` and the slot have. A
    /// caller copies no word twice, so that it never sees two versions of one.
    fn read_slot(&self, index: u32, first: usize, out: &mut [u64]);
    /// Writes the first `words.len() * 8` bytes, at most the stride, of a slot.
    fn write_slot(&self, index: u32, words: &[u64]);
}
