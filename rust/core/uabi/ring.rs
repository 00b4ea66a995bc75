// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Rings shared by mmap: a control block, then slots.
//!
//! A mapping is [`CONTROL_SIZE`] bytes of [`Control`], then `entries` slots of `stride` bytes.
//! `entries` is a power of two. The indices are free-running `u32`: the slot of index `i` is
//! `i & (entries - 1)`, the ring is empty when the indices are equal and full when they differ by
//! `entries`; no slot is wasted. Each index has one writer, which publishes it with a release
//! store after it has written (or read) the slots; the other side reads it with an acquire load.
//!
//! | ring | producer | consumer |
//! |---|---|---|
//! | send queue | provider | module: a WQE leaves when it is complete |
//! | receive queue, shared or not | provider | module: a WQE leaves when a message takes it |
//! | completion queue | module | provider |
//!
//! The module trusts nothing in here: it keeps its own copy of the index it owns, bounds the
//! other one, and copies a slot once before it looks at it.
//!
//! # Who sleeps, and who wakes whom
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
//! The steps are here once, over the few accesses that a side has; the host tests run them in every
//! order that the memory model permits.

/// Size of the control block: the offset of the first slot.
pub const CONTROL_SIZE: usize = 256;

/// Alignment of a slot, and the granule of its size.
pub const SLOT_ALIGN: usize = 64;

/// The control block at the start of a mapping. Each word that is written at run time has a cache
/// line of its own.
///
/// It is never referenced as a whole: both sides access its words as 32-bit atomics at the
/// `OFFSET_*` below.
#[repr(C)]
pub struct Control {
    /// Index of the next slot to be filled.
    pub producer: u32,
    _pad0: [u32; 15],
    /// Index of the next slot to be consumed.
    pub consumer: u32,
    _pad1: [u32; 15],
    /// Send and receive queue: `FLAG_*`, written by the module.
    pub flags: u32,
    _pad2: [u32; 3],
    /// Shared receive queue: the ring that has taken the place of this one, a
    /// [`super::udata::RingMap`]. Written by the module at the end of a `modify_srq` that resizes,
    /// which has no response.
    pub successor: [u64; 3],
    _pad3: [u32; 6],
    /// Completion queue: `ARM_*`, raised by the provider and cleared by the module.
    pub arm: u32,
    _pad4: [u32; 15],
}

/// Byte offset of [`Control::producer`].
pub const OFFSET_PRODUCER: usize = core::mem::offset_of!(Control, producer);
/// Byte offset of [`Control::consumer`].
pub const OFFSET_CONSUMER: usize = core::mem::offset_of!(Control, consumer);
/// Byte offset of [`Control::flags`].
pub const OFFSET_FLAGS: usize = core::mem::offset_of!(Control, flags);
/// Byte offset of [`Control::successor`].
pub const OFFSET_SUCCESSOR: usize = core::mem::offset_of!(Control, successor);
/// Byte offset of [`Control::arm`].
pub const OFFSET_ARM: usize = core::mem::offset_of!(Control, arm);

/// The module does not look at this queue by itself: after publishing its index (and a full
/// barrier) the provider rings the doorbell.
///
/// A send queue has it except while a worker of the module drains the ring; a receive queue only
/// in the error state, where a doorbell makes the module flush what was posted.
pub const FLAG_NEED_DOORBELL: u32 = 1 << 0;

/// Not armed.
pub const ARM_NONE: u32 = 0;
/// The next solicited completion, or one in error, raises an event.
pub const ARM_SOLICITED: u32 = 1;
/// The next completion raises an event. A greater value wins: arming is an atomic maximum.
pub const ARM_NEXT: u32 = 2;

/// Bytes of a mapping of `entries` slots of `stride` bytes, before rounding up to pages.
pub const fn mapping_len(entries: u32, stride: u32) -> u64 {
    CONTROL_SIZE as u64 + entries as u64 * stride as u64
}

const _: () = {
    assert!(core::mem::size_of::<Control>() == CONTROL_SIZE);
    assert!(OFFSET_PRODUCER == 0 && OFFSET_CONSUMER == 64);
    assert!(OFFSET_FLAGS == 128 && OFFSET_SUCCESSOR == 144 && OFFSET_ARM == 192);
    assert!(core::mem::size_of::<super::udata::RingMap>() == 24);
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
    /// Load, relaxed.
    fn load(&self, word: Word) -> u32;
    /// Load-acquire.
    fn load_acquire(&self, word: Word) -> u32;
    /// Store, relaxed.
    fn store(&self, word: Word, value: u32);
    /// Store-release.
    fn store_release(&self, word: Word, value: u32);
    /// A full barrier, `smp_mb()`.
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

/// What only the module does.
pub trait Module: Words {
    /// Exchanges a word, relaxed, and returns its old value.
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

/// What only the provider does.
pub trait Provider: Words {
    /// Raises a word to `value`, relaxed, unless it is greater already.
    fn raise(&self, word: Word, value: u32);

    /// Asks for an event, [`ARM_SOLICITED`] or [`ARM_NEXT`]. The application polls once more after
    /// arming: either that poll sees a completion, or the module, which writes it first and then
    /// looks at the arm word, raises the event.
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

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_uabi_ring))]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_the_control_block_and_the_slots() {
        assert_eq!(mapping_len(0, 64), 256);
        assert_eq!(mapping_len(1, 64), 320);
        assert_eq!(mapping_len(128, 576), 256 + 73_728);
        // The longest that two words can ask for does not wrap.
        assert_eq!(mapping_len(u32::MAX, u32::MAX), 0xffff_fffe_0000_0101);
    }

    /// Two writers never share a cache line, and no word of the control block crosses one.
    #[test]
    fn words_have_cache_lines_of_their_own() {
        let words = [OFFSET_PRODUCER, OFFSET_CONSUMER, OFFSET_FLAGS, OFFSET_ARM];
        for (line, offset) in words.iter().enumerate() {
            assert_eq!(*offset, line * SLOT_ALIGN);
        }
        assert_eq!(CONTROL_SIZE, words.len() * SLOT_ALIGN);
    }
}
