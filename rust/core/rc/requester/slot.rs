// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The requester's private copy of the send queue: one slot per WQE.

use crate::core::completion::Status;
use crate::core::rc::sequence::Sequence;
use crate::core::send::SendRequest;
use core::ops::DerefMut;

/// A slot of the requester's copy of the send queue. Its content is the requester's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    pub(super) request: SendRequest,
    /// Sequence of the message's first packet; only meaningful once it has `begun`.
    pub(super) first: Sequence,
    /// How many PSNs the message takes; only meaningful once it has `begun`.
    pub(super) packets: u32,
    /// Not success: the WQE failed locally, and completes with this status in its order.
    pub(super) status: Status,
    /// Its first packet was sent at least once.
    pub(super) begun: bool,
    /// Some packet of it was retransmitted.
    pub(super) repeated: bool,
}

impl SendSlot {
    /// Sequence of the packet behind the message's last one.
    #[inline]
    pub(super) const fn end(&self) -> Sequence {
        self.first.wrapping_add(self.packets as u64)
    }
}

/// The slots, addressed by free-running indices.
pub(super) struct SlotRing<S> {
    slots: S,
    /// Slots in use: a power of two, or 0.
    capacity: u32,
}

impl<S: DerefMut<Target = [SendSlot]>> SlotRing<S> {
    pub(super) fn new(slots: S) -> Self {
        let len = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let capacity = match len.checked_ilog2() {
            Some(log) => 1u32.wrapping_shl(log),
            None => 0,
        };
        Self { slots, capacity }
    }

    #[inline]
    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The slot number of an index.
    #[inline]
    pub(super) const fn slot(&self, index: u32) -> u32 {
        index & self.capacity.wrapping_sub(1)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&SendSlot> {
        self.slots.get(self.slot(index) as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut SendSlot> {
        let slot = self.slot(index);
        self.slots.get_mut(slot as usize)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_slot)
)]
mod tests {
    use super::*;

    #[test]
    fn only_a_power_of_two_is_used() {
        let mut slots = [SendSlot::default(); 7];
        for (len, capacity) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4)] {
            let ring = SlotRing::new(slots.get_mut(..len).unwrap());
            assert_eq!(ring.capacity(), capacity);
            assert_eq!(ring.get(0).is_some(), len != 0);
        }
    }

    /// A send queue of 16384 requests has as many of them.
    #[test]
    fn slots_are_small() {
        assert_eq!(size_of::<SendSlot>(), 32);
    }

    /// Indices run freely: behind the last number comes the first, without a jump in the slots.
    #[test]
    fn indices_wrap_with_the_numbers() {
        let mut slots = [SendSlot::default(); 4];
        let mut ring = SlotRing::new(slots.as_mut_slice());
        let mut index = u32::MAX - 5;
        for turn in 0..12u32 {
            assert_eq!(ring.slot(index.wrapping_add(1)), (ring.slot(index) + 1) % 4);
            ring.get_mut(index).unwrap().packets = turn;
            if turn >= 3 {
                assert_eq!(ring.get(index.wrapping_sub(3)).unwrap().packets, turn - 3);
            }
            index = index.wrapping_add(1);
        }
    }
}
