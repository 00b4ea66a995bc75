// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Packets counted from the beginning of a connection, in 64 bits that never wrap.
//!
//! A PSN has 24 bits and no order. Inside the transport a packet therefore has a *sequence*: how
//! many packets of the connection were before it. This file is the only place where one becomes
//! the other. [`Ahead`] notes which sequences behind a gap are there already.

use crate::core::storage::{
    Spare,
    SpareArray, //
};
use crate::core::wire::psn::Psn;

/// How many packets of a connection came before a packet.
pub(super) type Sequence = u64;

/// The relation between sequences and PSNs of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// The PSN of sequence 0.
    base: Psn,
}

impl Numbering {
    #[inline]
    pub(super) const fn new(base: Psn) -> Self {
        Self { base }
    }

    /// The PSN of a packet.
    #[inline]
    pub(super) const fn psn(self, sequence: Sequence) -> Psn {
        // The cast keeps the sequence modulo 2^32, a multiple of 2^24.
        self.base.add(sequence as u32)
    }

    /// The sequence of the packet with this PSN that is nearest to `near`.
    ///
    /// `None` if that packet would be before the first one of the connection.
    #[inline]
    pub(super) const fn sequence(self, psn: Psn, near: Sequence) -> Option<Sequence> {
        let distance = psn.distance_from(self.psn(near));
        near.checked_add_signed(distance as i64)
    }
}

// Which packets are kept ahead of the expected one: one bit for each sequence. A responder keeps
// requests, a requester has placed responses.

/// How far ahead of the expected packet others may be kept, and how many packets a requester may
/// have sent beyond the oldest that is not acknowledged.
pub(super) const REACH: u64 = 2048;

/// Bits of a word.
const BITS: u64 = u64::BITS as u64;

/// Words of the ring of bits; those of a report are no more.
pub(super) const WORDS: usize = (REACH / BITS) as usize;

/// The packets that are kept.
///
/// # Invariants
///
/// No bit is set for a sequence outside of `base..end`, which is no longer than [`REACH`]; without
/// packets both are the same. Without memory for the bits there are no packets.
pub(super) struct Ahead<A: Spare> {
    bits: SpareArray<u64, WORDS, A>,
    base: Sequence,
    end: Sequence,
}

/// The word and the bit of a sequence.
#[inline]
const fn place(sequence: Sequence) -> (usize, u64) {
    let at = sequence % REACH;
    ((at / BITS) as usize, 1 << (at % BITS))
}

/// Whether `span` packets from `first` on may be kept while `expected` is expected.
pub(super) fn reaches(expected: Sequence, first: Sequence, span: u64) -> bool {
    first > expected && first.wrapping_sub(expected).saturating_add(span) <= REACH
}

impl<A: Spare> Ahead<A> {
    pub(super) const fn new() -> Self {
        Self {
            bits: SpareArray::new(),
            base: 0,
            end: 0,
        }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.base == self.end
    }

    /// The sequence behind the last kept packet.
    #[inline]
    pub(super) const fn end(&self) -> Sequence {
        self.end
    }

    #[cold]
    pub(super) fn clear(&mut self) {
        self.bits.fill(0);
        (self.base, self.end) = (0, 0);
    }

    /// The same, and gives the memory back.
    pub(super) fn free(&mut self) {
        self.bits.free();
        (self.base, self.end) = (0, 0);
    }

    /// Whether there is memory to note packets.
    #[cold]
    pub(super) fn provide(&mut self) -> bool {
        self.bits.provide()
    }

    /// Whether the packet is kept.
    pub(super) fn has(&self, sequence: Sequence) -> bool {
        let (word, bit) = place(sequence);
        (self.base..self.end).contains(&sequence)
            && self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Notes that packets are kept, to which it [`reaches`], if there is memory.
    pub(super) fn add(&mut self, expected: Sequence, first: Sequence, span: u64) {
        if !self.provide() {
            return;
        }
        if self.is_empty() {
            (self.base, self.end) = (expected, expected);
        }
        let end = first.saturating_add(span);
        for sequence in first..end {
            let (word, bit) = place(sequence);
            if let Some(bits) = self.bits.get_mut(word) {
                *bits |= bit;
            }
        }
        self.end = self.end.max(end);
    }

    /// Notes that packets are kept no more.
    pub(super) fn remove(&mut self, first: Sequence, span: u64) {
        for sequence in first..first.saturating_add(span) {
            let (word, bit) = place(sequence);
            if let Some(bits) = self.bits.get_mut(word) {
                *bits &= !bit;
            }
        }
    }

    /// Nothing from `sequence` on is kept any more.
    pub(super) fn cut(&mut self, sequence: Sequence) {
        if sequence <= self.base {
            self.clear();
        } else if sequence < self.end {
            self.remove(sequence, self.end.wrapping_sub(sequence));
            self.end = sequence;
        }
    }

    /// `expected` is expected now.
    pub(super) fn advance(&mut self, expected: Sequence) {
        if expected >= self.end {
            self.clear();
        } else if expected > self.base {
            self.remove(self.base, expected.wrapping_sub(self.base));
            self.base = expected;
        }
    }

    /// The first packet from `sequence` on that is kept.
    #[cold]
    pub(super) fn next(&self, sequence: Sequence) -> Option<Sequence> {
        (sequence..self.end).find(|sequence| self.has(*sequence))
    }

    /// How many packets from `sequence` on are kept, at most this many.
    pub(super) fn run(&self, sequence: Sequence, most: u32) -> u32 {
        let kept = (0..most).take_while(|n| self.has(sequence.wrapping_add(u64::from(*n))));
        kept.count() as u32
    }

    /// Word `n` of those that say what is kept from the expected packet on.
    fn word(&self, n: u64) -> u64 {
        let (word, _) = place(self.base.wrapping_add(n.wrapping_mul(BITS)));
        let shift = (self.base % BITS) as u32;
        let low = self.bits.get(word).copied().unwrap_or(0);
        let next = word.wrapping_add(1) % WORDS;
        let high = self.bits.get(next).copied().unwrap_or(0);
        let high = high.checked_shl(u64::BITS.wrapping_sub(shift)).unwrap_or(0);
        low.checked_shr(shift).unwrap_or(0) | high
    }

    /// The words that say what is kept from the expected packet on.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let count = self.end.wrapping_sub(self.base).div_ceil(BITS);
        (0..count.min(WORDS as u64)).map(|n| self.word(n))
    }

    /// The same, and `map` of what is kept from `at` packets behind the expected one on.
    pub(super) fn words_with<'a>(
        &'a self,
        at: u64,
        map: impl Fn(u64) -> u64 + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        let (skip, shift) = (at / BITS, (at % BITS) as u32);
        let own = self.end.wrapping_sub(self.base).div_ceil(BITS);
        (0..WORDS as u64).map(move |n| {
            let word = |n: Option<u64>| n.map_or(0, &map);
            let low = word(n.checked_sub(skip)).checked_shl(shift).unwrap_or(0);
            let high = word(n.checked_sub(skip.saturating_add(1)));
            let high = high.checked_shr(u64::BITS.wrapping_sub(shift)).unwrap_or(0);
            low | high | if n < own { self.word(n) } else { 0 }
        })
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_sequence)
)]
mod tests {
    use super::*;
    use crate::core::storage::InPlace;

    #[test]
    fn round_trip_across_the_wrap() {
        let numbering = Numbering::new(Psn::new(0xff_fff0));
        for near in [0u64, 0x10, 0x100_0000, 0x1_0000_0008, u64::from(u32::MAX)] {
            for step in [0u64, 1, 15, 16, 17, (1 << 23) - 1] {
                let sequence = near + step;
                let psn = numbering.psn(sequence);
                assert_eq!(numbering.sequence(psn, near), Some(sequence));
                assert_eq!(
                    numbering.sequence(numbering.psn(near), sequence),
                    Some(near)
                );
            }
        }
    }

    #[test]
    fn nothing_is_before_the_beginning() {
        let numbering = Numbering::new(Psn::new(5));
        assert_eq!(numbering.sequence(Psn::new(4), 0), None);
        assert_eq!(numbering.sequence(Psn::new(4), 1), None);
        assert_eq!(numbering.sequence(Psn::new(5), 1), Some(0));
    }

    fn nothing() -> Ahead<InPlace> {
        Ahead::new()
    }

    /// Whether the words say what is kept.
    fn agrees(ahead: &Ahead<InPlace>, expected: Sequence) -> bool {
        let mut sequence = expected;
        for word in ahead.words() {
            for bit in 0..BITS {
                if (word >> bit) & 1 != u64::from(ahead.has(sequence)) {
                    return false;
                }
                sequence += 1;
            }
        }
        sequence >= ahead.end()
    }

    #[test]
    fn says_what_is_kept_wherever_the_ring_begins() {
        for expected in [0, 1, 63, 64, 2047, 2048, 5000] {
            let mut ahead = nothing();
            for (first, span) in [(1, 1), (3, 70), (200, 1), (REACH - 2, 2)] {
                assert!(reaches(expected, expected + first, span));
                ahead.add(expected, expected + first, span);
            }
            assert!(agrees(&ahead, expected));
            assert!(!ahead.has(expected) && ahead.has(expected + 72));
            assert_eq!(ahead.end(), expected + REACH);
            ahead.advance(expected + 71);
            assert!(agrees(&ahead, expected + 71) && ahead.has(expected + 71));
            ahead.remove(expected + 72, 1);
            assert!(agrees(&ahead, expected + 71) && !ahead.has(expected + 72));
            ahead.advance(expected + REACH);
            assert!(ahead.is_empty() && ahead.words().next().is_none());
        }
    }

    #[test]
    fn finds_what_comes_next_and_how_much_of_it() {
        let mut ahead = nothing();
        ahead.add(100, 110, 70);
        assert_eq!((ahead.next(100), ahead.next(150)), (Some(110), Some(150)));
        assert_eq!((ahead.next(180), ahead.run(109, 9)), (None, 0));
        assert_eq!((ahead.run(110, 5), ahead.run(110, 500)), (5, 70));
        ahead.cut(120);
        assert_eq!((ahead.run(110, 500), ahead.end()), (10, 120));
        ahead.cut(100);
        assert!(ahead.is_empty());
    }

    /// What is placed, and behind it what the peer keeps, wherever it begins.
    #[test]
    fn two_maps_are_one() {
        for at in [0, 1, 63, 64, 65, 1000] {
            let mut ahead = nothing();
            ahead.add(100, 103, 2);
            let map = |n: u64| [1 << 3, u64::MAX].get(n as usize).copied().unwrap_or(0);
            let has = |bit: u64| {
                let word = ahead.words_with(at, map).nth((bit / BITS) as usize);
                word.is_some_and(|word| (word >> (bit % BITS)) & 1 != 0)
            };
            for bit in 0..REACH {
                let own = (3..5).contains(&bit);
                let peer = bit
                    .checked_sub(at)
                    .is_some_and(|bit| bit == 3 || (64..128).contains(&bit));
                assert_eq!(has(bit), own || peer);
            }
        }
    }

    #[test]
    fn reaches_no_further_than_its_ring() {
        assert!(!reaches(7, 7, 1));
        assert!(reaches(7, 8, REACH - 1));
        assert!(!reaches(7, 8, REACH));
        assert!(!reaches(7, u64::MAX, 5));
    }
}
