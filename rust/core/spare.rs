// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Spare memory, which most connections never need: it is allocated when a packet is lost.
//!
//! Who needs it can do without: there may be none, and then the connection does what it does with
//! a peer that keeps nothing behind a gap.

use core::ops::Deref;
use core::ops::DerefMut;

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

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_spare))]
mod tests {
    use super::*;

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
}
