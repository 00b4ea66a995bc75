// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Numbers that may be unknown, in as many bytes as known ones: a queue pair keeps a dozen of them.

use core::cmp::Ordering;
use core::num::NonZero;

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
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_known))]
mod tests {
    use super::*;

    #[test]
    fn are_what_they_were_and_in_their_order() {
        for number in [0, 1, 7, u64::MAX - 1] {
            assert_eq!(Known::new(number).map(Known::get), Some(number));
        }
        assert_eq!(Known::new(u64::MAX), None);
        assert!(Known::new(7) > Known::new(1) && Known::new(0) > None);
    }
}
