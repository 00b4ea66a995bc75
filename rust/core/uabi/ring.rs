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
