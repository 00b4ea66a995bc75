// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What requester and responder keep things in: slots ([`Slot`]), memory that is allocated when a
//! packet is lost ([`Spare`]), numbers that may be unknown ([`Known`]).
//!
//! Slots are addressed by free-running indices: they hold what a requester keeps of each WQE, and a
//! responder of each READ.

use core::cmp::Ordering;
use core::num::NonZero;
use core::ops::{
    Deref,
    DerefMut, //
};

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

// Spare memory, which most connections never need: it is allocated when a packet is lost.
//
// Who needs it can do without: there may be none, and then the connection does what it does with
// a peer that keeps nothing behind a gap.

/// Where such memory comes from.
pub trait Spare {
    /// `N` values.
    type Array<T: Copy + Default, const N: usize>: DerefMut<Target = [T; N]>;

    /// An array of defaults, unless there is no memory. The caller may hold locks, and must not be
    /// made to sleep.
    fn array<T: Copy + Default, const N: usize>() -> Option<Self::Array<T, N>>;
}

/// The memory is a part of the object that needs it: for tests, and where nothing is allocated.
pub struct InPlace;

/// An array of [`InPlace`].
pub struct PlacedArray<T, const N: usize>([T; N]);

impl<T, const N: usize> Deref for PlacedArray<T, N> {
    type Target = [T; N];

    fn deref(&self) -> &[T; N] {
        &self.0
    }
}

impl<T, const N: usize> DerefMut for PlacedArray<T, N> {
    fn deref_mut(&mut self) -> &mut [T; N] {
        &mut self.0
    }
}

impl Spare for InPlace {
    type Array<T: Copy + Default, const N: usize> = PlacedArray<T, N>;

    fn array<T: Copy + Default, const N: usize>() -> Option<PlacedArray<T, N>> {
        Some(PlacedArray([T::default(); N]))
    }
}

/// There is no memory: for tests.
#[cfg(test)]
pub(super) struct NoMemory;

#[cfg(test)]
impl Spare for NoMemory {
    type Array<T: Copy + Default, const N: usize> = PlacedArray<T, N>;

    fn array<T: Copy + Default, const N: usize>() -> Option<PlacedArray<T, N>> {
        None
    }
}

/// `N` values, or none of them while they were not needed.
pub(super) struct SpareArray<T: Copy + Default, const N: usize, A: Spare>(Option<A::Array<T, N>>);

impl<T: Copy + Default, const N: usize, A: Spare> SpareArray<T, N, A> {
    /// No memory yet.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Allocates it, if that was not done. Returns whether there is memory now.
    #[cold]
    pub(super) fn provide(&mut self) -> bool {
        if self.0.is_none() {
            self.0 = A::array();
        }
        self.0.is_some()
    }

    /// Gives it back.
    pub(super) fn free(&mut self) {
        self.0 = None;
    }
}

impl<T: Copy + Default, const N: usize, A: Spare> Deref for SpareArray<T, N, A> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Some(array) => array.as_slice(),
            None => &[],
        }
    }
}

impl<T: Copy + Default, const N: usize, A: Spare> DerefMut for SpareArray<T, N, A> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Some(array) => array.as_mut_slice(),
            None => &mut [],
        }
    }
}

// Numbers that may be unknown, in as many bytes as known ones: a queue pair keeps a dozen of them.

/// A time or a sequence: any number but `u64::MAX`, which neither reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known(NonZero<u64>);

impl Known {
    /// The number; `None` for `u64::MAX`.
    #[inline(always)]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZero::new(!number) {
            Some(inverted) => Some(Self(inverted)),
            None => None,
        }
    }

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        !self.0.get()
    }
}

impl Ord for Known {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.get().cmp(&other.get())
    }
}

impl PartialOrd for Known {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const _: () = assert!(core::mem::size_of::<Option<Known>>() == core::mem::size_of::<u64>());

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_storage))]
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

    #[test]
    fn is_there_from_the_first_need_on() {
        let mut array = SpareArray::<u32, 3, InPlace>::new();
        assert_eq!(array.len(), 0);
        assert!(array.provide());
        assert_eq!(*array, [0; 3]);
        array[1] = 7;
        assert!(array.provide());
        assert_eq!(*array, [0, 7, 0]);
        array.free();
        assert!(array.is_empty() && array.provide());
        assert_eq!(*array, [0; 3]);
    }

    #[test]
    fn are_what_they_were_and_in_their_order() {
        for number in [0, 1, 7, u64::MAX - 1] {
            assert_eq!(Known::new(number).map(Known::get), Some(number));
        }
        assert_eq!(Known::new(u64::MAX), None);
        assert!(Known::new(7) > Known::new(1) && Known::new(0) > None);
    }
}
