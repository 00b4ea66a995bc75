// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Parts of READs that are to be answered again alone, in the order in which the peer asked.
//!
//! The part that ended last stays known for as long as the list is not full: the local stack may
//! refuse its responses.

use crate::core::spare::Spare;
use crate::core::spare::SpareArray;

/// Most parts that wait.
const MOST: usize = 16;

/// A part of a READ.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadPart {
    /// Index of its resource.
    pub(super) index: u32,
    /// Its first response, and the next to be sent.
    pub(super) from: u32,
    pub(super) next: u32,
    /// Its end, in bytes of the READ.
    pub(super) until: u32,
}

/// The parts.
///
/// # Invariants
///
/// There is memory for the list if `waiting` is not 0.
pub(super) struct ReadParts<A: Spare> {
    /// Those that wait, free places, and last of all the part that ended last.
    list: SpareArray<ReadPart, MOST, A>,
    /// How many wait.
    waiting: usize,
}

impl<A: Spare> ReadParts<A> {
    pub(super) fn new() -> Self {
        Self {
            list: SpareArray::new(),
            waiting: 0,
        }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Forgets them, and gives their memory back.
    pub(super) fn free(&mut self) {
        self.list.free();
        self.waiting = 0;
    }

    /// The first one, which is in progress.
    pub(super) fn first(&mut self) -> Option<&mut ReadPart> {
        self.list.first_mut().filter(|_| self.waiting != 0)
    }

    /// The first one is done with.
    pub(super) fn end_first(&mut self) {
        let by = 1.min(self.list.len());
        self.list.rotate_left(by);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// The one that ended last is the first again. `false` if it is forgotten.
    pub(super) fn bring_back(&mut self) -> bool {
        if self.waiting >= self.list.len() {
            return false;
        }
        self.list.rotate_right(1);
        self.waiting = self.waiting.saturating_add(1);
        true
    }

    /// Adds one, unless its responses wait already. Returns whether there is room, and memory.
    pub(super) fn add(&mut self, part: ReadPart) -> bool {
        if !self.list.provide() {
            return false;
        }
        let ReadPart {
            index, from, until, ..
        } = part;
        let holds =
            |other: &ReadPart| other.index == index && other.next <= from && until <= other.until;
        if self.list.iter().take(self.waiting).any(holds) {
            return true;
        }
        let Some(free) = self.list.get_mut(self.waiting) else {
            return false;
        };
        *free = part;
        self.waiting = self.waiting.saturating_add(1);
        true
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_responder_parts)
)]
mod tests {
    use super::*;
    use crate::core::spare::InPlace;

    type ReadParts = super::ReadParts<InPlace>;

    fn part(index: u32, from: u32) -> ReadPart {
        ReadPart {
            index,
            from,
            next: from,
            until: 1000,
        }
    }

    fn first(parts: &mut ReadParts) -> Option<u32> {
        parts.first().map(|part| part.index)
    }

    #[test]
    fn each_waits_once_and_in_its_turn() {
        let mut parts = ReadParts::new();
        assert_eq!(first(&mut parts), None);
        assert!(parts.add(part(1, 0)) && parts.add(part(2, 0)));
        // A part of the first, until that is sent.
        assert!(parts.add(part(1, 3)) && parts.waiting == 2);
        if let Some(part) = parts.first() {
            part.next = 4;
        }
        assert!(parts.add(part(1, 3)) && parts.waiting == 3);
        for index in [1, 2, 1] {
            assert_eq!(first(&mut parts), Some(index));
            parts.end_first();
        }
        assert!(parts.is_empty());
    }

    #[test]
    fn the_last_that_ended_comes_back_but_not_into_a_full_list() {
        let mut parts = ReadParts::new();
        for index in 0..MOST as u32 {
            assert!(parts.add(part(index, 0)));
        }
        assert!(!parts.add(part(99, 0)));
        assert!(!parts.bring_back());
        parts.end_first();
        assert_eq!(first(&mut parts), Some(1));
        assert!(parts.bring_back());
        assert_eq!(first(&mut parts), Some(0));
    }
}
