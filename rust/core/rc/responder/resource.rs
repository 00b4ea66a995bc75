// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A resource of a responder: what it keeps of a request that is answered by a response (IBTA
//! 9.7.4.1.1, 11.2.5.2 "responder resources"). [`super::resources`] is the list.
//!
//! A resource is created when the request is accepted and outlives its response: after a loss the
//! peer may request the response again, or a part of it, until newer requests need the slot. A
//! duplicate is valid only through its resource: an old PSN opens no address that was not requested
//! in its time.
//!
//! An atomic operation, an ATOMIC WRITE and a FLUSH are not executed again: the resource keeps the
//! response.

use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::message::{
    cut,
    Mtu,
    Piece, //
};
use crate::core::operation::{
    Brings,
    ATOMIC_SIZE, //
};
use crate::core::rc::sequence::Sequence;
use crate::core::segment::ReadSegment;
use crate::core::storage::{
    Spare,
    SpareArray, //
};
use crate::core::wire::headers::Reth;
use crate::core::wire::opcode::Kind;

/// Source of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Source {
    /// Memory: an RDMA READ.
    #[default]
    Memory,
    /// The resource: the request was executed and, for an atomic operation, found this value. In
    /// bytes, for the size of the enum.
    Executed(Kind, [u8; ATOMIC_SIZE as usize]),
}

/// Identity of a request that is executed on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    kind: Kind,
    /// Its key and address.
    key: MemoryKey,
    va: u64,
}

impl Executed {
    pub(super) const fn new(kind: Kind, span: Span) -> Self {
        Self {
            kind,
            key: span.key,
            va: span.va,
        }
    }
}

/// A request that is answered by a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    /// Of its first response.
    start: Sequence,
    /// Requested bytes.
    va: u64,
    key: MemoryKey,
    length: u32,
    /// Its MSN.
    msn: u32,
    /// First response of the current transmission.
    from: u32,
    /// Next response to be sent.
    next: u32,
    /// End of the current transmission, in bytes of `length`.
    until: u32,
    /// Number of responses up to that end: unless `next` is below, nothing is pending.
    end: u32,
    /// The peer keeps responses behind a gap.
    peer_keeps: bool,
    /// The peer asked for it again when all of it had been sent.
    is_repeated: bool,
    source: Source,
}

/// A response to be sent, without its payload.
pub(super) struct Ready {
    pub(super) sequence: Sequence,
    pub(super) segment: ReadSegment,
    /// Where its bytes are.
    pub(super) source: Span,
    /// Of its request.
    pub(super) msn: u32,
    /// What an atomic operation found.
    pub(super) original: Option<u64>,
    /// It is of a part that is answered again alone.
    pub(super) again: bool,
}

impl Resource {
    #[inline]
    pub(super) fn new(start: Sequence, reth: &Reth, mtu: Mtu, msn: u32, peer_keeps: bool) -> Self {
        Self {
            start,
            va: reth.va(),
            key: MemoryKey::new(reth.rkey()),
            length: reth.length(),
            msn,
            from: 0,
            next: 0,
            until: reth.length(),
            end: mtu.packets(reth.length()),
            peer_keeps,
            is_repeated: false,
            source: Source::Memory,
        }
    }

    /// Resource of an executed request; an atomic operation found `original`.
    pub(super) fn executed(
        start: Sequence,
        executed: Executed,
        msn: u32,
        original: Option<u64>,
    ) -> Self {
        let length = if original.is_some() { ATOMIC_SIZE } else { 0 };
        Self {
            start,
            va: executed.va,
            key: executed.key,
            length,
            msn,
            from: 0,
            next: 0,
            until: length,
            end: 1,
            peer_keeps: false,
            is_repeated: false,
            source: Source::Executed(executed.kind, original.unwrap_or(0).to_ne_bytes()),
        }
    }

    /// Original value of an atomic operation.
    #[inline]
    const fn original(&self) -> Option<u64> {
        match self.source {
            Source::Executed(Kind::Atomic(_), original) => Some(u64::from_ne_bytes(original)),
            Source::Executed(..) | Source::Memory => None,
        }
    }

    /// Sequence behind its last response.
    #[inline]
    pub(super) const fn behind(&self, mtu: Mtu) -> Sequence {
        self.start.wrapping_add(mtu.packets(self.length) as u64)
    }

    /// Sequence of its next response.
    #[inline]
    const fn position(&self) -> Sequence {
        self.start.wrapping_add(self.next as u64)
    }

    #[inline]
    pub(super) const fn is_pending(&self) -> bool {
        self.next < self.end
    }

    /// The next responses, at most `max_span` packets, without their PSN.
    #[inline(always)]
    pub(super) fn advance(&mut self, max_span: u32, mtu: Mtu, again: bool) -> Ready {
        let sequence = self.position();
        let left = self.end.saturating_sub(self.next);
        let span = left.min(max_span.max(1));
        let Piece { offset, len, .. } = cut(mtu, self.until, self.next, span);
        let segment = ReadSegment {
            // Not sent for an atomic operation.
            brings: Brings::Data,
            psn: Default::default(),
            span,
            first: self.next == self.from,
            last: span == left,
            keeps: self.peer_keeps,
            len,
        };
        self.next = self.next.saturating_add(span);
        Ready {
            sequence,
            segment,
            source: Span {
                key: self.key,
                va: self.va.wrapping_add(u64::from(offset)),
                len: u64::from(len),
            },
            msn: self.msn,
            original: self.original(),
            again,
        }
    }

    /// Its next response.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Whether the peer asked for it again when all of it had been sent.
    pub(super) const fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Whether its first response has this sequence.
    pub(super) const fn begins_at(&self, sequence: Sequence) -> bool {
        self.start == sequence
    }

    /// Whether its first response is behind this sequence.
    pub(super) const fn is_after(&self, sequence: Sequence) -> bool {
        sequence < self.start
    }

    /// The number of the response with this sequence, or `None` if it is before the first one.
    pub(super) fn packet_at(&self, sequence: Sequence) -> Option<u32> {
        u32::try_from(sequence.checked_sub(self.start)?).ok()
    }

    /// Whether it still sends these responses: from the one to the byte `until`.
    pub(super) const fn will_send(&self, from: u32, until: u32) -> bool {
        self.is_pending() && self.next <= from && until <= self.until
    }

    /// Nothing of it is pending any more.
    pub(super) fn give_up(&mut self) {
        self.next = self.end;
    }

    /// The current transmission begins again.
    pub(super) fn restart(&mut self) {
        self.next = self.from;
    }

    /// It continues at this response, which is one of its own, if that was sent already.
    pub(super) fn rewind(&mut self, sequence: Sequence) {
        // Within the message, whose packets are below 2^24.
        let packet = sequence.wrapping_sub(self.start) as u32;
        self.next = self.next.min(packet.max(self.from));
    }

    /// The same resource, with what is pending of a part of it.
    pub(super) fn only(self, part: &ReadPart, mtu: Mtu) -> Self {
        Self {
            from: part.from,
            next: part.next,
            until: part.until,
            end: mtu.packets(part.until),
            ..self
        }
    }

    /// The responses requested by a duplicate whose first one has the sequence `start`: the first,
    /// and the bytes of the request up to their end. `None` if they were not requested before.
    pub(super) fn part(&self, start: Sequence, reth: &Reth, mtu: Mtu) -> Option<(u32, u32)> {
        if start < self.start || start >= self.behind(mtu) || self.source != Source::Memory {
            return None;
        }
        // Within the message, whose packets are below 2^24.
        let packet = start.wrapping_sub(self.start) as u32;
        let offset = cut(mtu, self.length, packet, 1).offset;
        let until = offset.checked_add(reth.length())?;
        let is_part = MemoryKey::new(reth.rkey()) == self.key
            && reth.va() == self.va.wrapping_add(u64::from(offset))
            && until <= self.length
            && (reth.length() != 0 || self.length == 0);
        is_part.then_some((packet, until))
    }

    /// The whole response, if it belongs to this request.
    pub(super) fn whole(&self, start: Sequence, executed: Executed) -> Option<(u32, u32)> {
        let Executed { kind, key, va } = executed;
        let is_kind = matches!(self.source, Source::Executed(own, _) if own == kind);
        let is_same = is_kind && (self.start, self.va, self.key) == (start, va, key);
        is_same.then_some((0, self.length))
    }

    /// A part of it has sent the responses from `before` on, and stands at `part`: what is pending
    /// of these is pending no more. The peer may have the whole READ by its parts alone, and may
    /// then have another request outstanding in place of it.
    pub(super) fn covered(&mut self, before: u32, part: &Self, mtu: Mtu) {
        // The last packet of a part may be shorter than that of the READ. Path MTUs are powers of
        // two.
        let in_last = part.until & mtu.bytes().wrapping_sub(1);
        let is_cut = part.until < self.until && in_last != 0;
        let behind = part.next.min(part.end.saturating_sub(u32::from(is_cut)));
        if (before..behind).contains(&self.next) {
            self.next = behind.min(self.end);
        }
    }

    /// Sends again from response `from` to the byte `until`. Pending responses stay pending.
    pub(super) fn repeat(&mut self, (from, until): (u32, u32), mtu: Mtu) {
        if !self.is_pending() {
            self.is_repeated = true;
            self.until = until;
            self.from = from;
            self.next = from;
        } else {
            self.until = self.until.max(until);
            if from <= self.next {
                self.from = from;
                self.next = from;
            }
        }
        self.end = mtu.packets(self.until);
    }
}

// Parts of READs that are to be answered again alone, in the order in which the peer asked.
//
// The part that ended last stays known for as long as the list is not full: the local stack may
// refuse its responses.

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
    kernel::prelude::kunit_tests(ferroce_core_responder_resource)
)]
mod tests {
    use super::*;
    use crate::core::storage::InPlace;

    const MTU: Mtu = Mtu::MIN;

    #[test]
    fn resources_are_small() {
        assert!(size_of::<Resource>() <= 56);
    }

    #[test]
    fn pieces_of_an_answer() {
        let mut read = Resource::new(5, &Reth::new(1000, 1, 600), MTU, 9, false);
        let Ready {
            segment, source, ..
        } = read.advance(1, MTU, false);
        assert_eq!(
            (segment.first, segment.last, segment.len),
            (true, false, 256)
        );
        assert_eq!((source.va, read.position()), (1000, 6));
        let Ready {
            segment, source, ..
        } = read.advance(10, MTU, false);
        assert_eq!(
            (segment.first, segment.last, segment.len),
            (false, true, 344)
        );
        assert_eq!((segment.span, source.va, source.len), (2, 1256, 344));
        assert!(!read.is_pending());
    }

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
