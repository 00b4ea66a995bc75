// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Slots addressed by free-running indices: what a requester keeps of each WQE, and a responder of
//! each READ.

use core::ops::DerefMut;

/// The number of a slot, which is not an index: the owner of a queue keeps by it what belongs to
/// a WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The slot of a free-running index among `slots`, a power of two.
    #[inline(always)]
    pub const fn of(index: u32, slots: u32) -> Self {
        Self(index & slots.wrapping_sub(1))
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The slots. The owner says which indices are in use.
pub(super) struct SlotRing<S> {
    slots: S,
    /// Slots in use: a power of two, or 0.
    capacity: u32,
}

impl<T: Copy, S: DerefMut<Target = [T]>> SlotRing<S> {
    /// All of these slots, or as many of them as the next smaller power of two.
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

    /// The slot of an index.
    #[inline]
    pub(super) const fn slot(&self, index: u32) -> Slot {
        Slot::of(index, self.capacity)
    }

    /// The first index from `from` on that has this slot.
    #[inline]
    pub(super) const fn index_of(&self, slot: Slot, from: u32) -> u32 {
        let distance = self.slot(slot.0.wrapping_sub(from));
        from.wrapping_add(distance.0)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(self.slot(index).0 as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let slot = self.slot(index);
        self.slots.get_mut(slot.0 as usize)
    }

    /// Exchanges the slots for `more`, if these are more. What is at `indices` moves there.
    pub(super) fn grow(&mut self, more: &mut S, indices: impl Iterator<Item = u32>) {
        let mut grown = SlotRing::new(&mut **more);
        let capacity = grown.capacity;
        if capacity <= self.capacity {
            return;
        }
        for index in indices {
            if let (Some(from), Some(to)) = (self.get(index), grown.get_mut(index)) {
                *to = *from;
            }
        }
        core::mem::swap(&mut self.slots, more);
        self.capacity = capacity;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_slots))]
mod tests {
    use super::*;

    #[test]
    fn only_a_power_of_two_is_used() {
        let mut slots = [0; 7];
        for (len, capacity) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4)] {
            let ring = SlotRing::new(slots.get_mut(..len).unwrap());
            assert_eq!(ring.capacity(), capacity);
            assert_eq!(ring.get(0).is_some(), len != 0);
        }
    }

    /// Indices run freely: behind the last number comes the first, without a jump in the slots.
    #[test]
    fn indices_wrap_with_the_numbers() {
        let mut slots = [0; 4];
        let mut ring = SlotRing::new(slots.as_mut_slice());
        let mut index = u32::MAX - 5;
        for value in 0..12u32 {
            let slot = ring.slot(index);
            assert_eq!(ring.slot(index.wrapping_add(1)).0, (slot.0 + 1) % 4);
            assert_eq!(ring.index_of(slot, index), index);
            assert_eq!(ring.index_of(slot, index.wrapping_sub(3)), index);
            assert_eq!(
                ring.index_of(slot, index.wrapping_add(1)),
                index.wrapping_add(4)
            );
            *ring.get_mut(index).unwrap() = value;
            if value >= 3 {
                assert_eq!(*ring.get(index.wrapping_sub(3)).unwrap(), value - 3);
            }
            index = index.wrapping_add(1);
        }
    }

    #[test]
    fn what_is_in_use_moves_to_more_slots() {
        let (mut few, mut more, mut one) = ([5, 6], [0; 4], [0; 1]);
        let mut ring = SlotRing::new(few.as_mut_slice());
        let mut slots = more.as_mut_slice();
        ring.grow(&mut slots, u32::MAX - 2..u32::MAX);
        assert_eq!((ring.capacity(), slots.len()), (4, 2));
        assert_eq!(
            [u32::MAX - 2, u32::MAX - 1].map(|index| ring.get(index).copied()),
            [Some(6), Some(5)]
        );
        let mut slots = one.as_mut_slice();
        ring.grow(&mut slots, 0..0);
        assert_eq!((ring.capacity(), slots.len()), (4, 1));
    }
}
