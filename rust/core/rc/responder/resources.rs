// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The resources of a responder, in the order of their requests.
//!
//! Responses leave in the order of their PSNs. A duplicate of an older request moves the cursor
//! back; pending responses are still sent. A peer that keeps what arrives behind a gap asks for the
//! missing parts alone: these wait in a list of their own, and nothing else is sent again.

use super::resource::{
    Executed,
    ReadPart,
    ReadParts,
    Ready,
    Resource, //
};
use crate::core::message::Mtu;
use crate::core::rc::sequence::Sequence;
use crate::core::storage::{
    SlotRing,
    Spare, //
};
use crate::core::wire::headers::Reth;
use core::ops::DerefMut;

/// The resources, addressed by free-running indices in the order of their requests.
pub(super) struct Resources<R, A: Spare> {
    ring: SlotRing<R>,
    /// Index of the next resource.
    made: u32,
    /// Number of resources kept before it.
    kept: u32,
    /// Index of the first one that was never answered completely.
    unanswered: u32,
    /// Index of the first one with pending responses, or `made`. Never behind `unanswered`.
    cursor: u32,
    /// Parts to be answered again alone.
    parts: ReadParts<A>,
}

impl<R: DerefMut<Target = [Resource]>, A: Spare> Resources<R, A> {
    /// No resources, with as many slots as given, or the next smaller power of two.
    pub(super) fn new(slots: R) -> Self {
        Self {
            ring: SlotRing::new(slots),
            made: 0,
            kept: 0,
            unanswered: 0,
            cursor: 0,
            parts: ReadParts::new(),
        }
    }

    /// Exchanges the slots for these, if they are more. The resources move.
    pub(super) fn grow(&mut self, slots: &mut R) {
        let kept = (1..=self.kept).map(|age| self.made.wrapping_sub(age));
        self.ring.grow(slots, kept);
    }

    pub(super) fn clear(&mut self) {
        self.kept = 0;
        self.unanswered = self.made;
        self.cursor = self.made;
        self.parts.free();
    }

    #[inline]
    fn get(&mut self, index: u32) -> Option<&mut Resource> {
        self.ring.get_mut(index)
    }

    /// Whether nothing is pending.
    #[inline]
    pub(super) const fn is_idle(&self) -> bool {
        self.cursor == self.made && self.parts.is_empty()
    }

    /// Number of resources that were never answered completely.
    #[inline]
    pub(super) const fn outstanding(&self) -> u32 {
        self.made.wrapping_sub(self.unanswered)
    }

    /// Whether there is a slot for one more.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.outstanding() < self.ring.capacity()
    }

    /// Adds a resource, whose PSNs are behind those of all others. `false` if all slots have
    /// pending responses.
    pub(super) fn push(&mut self, resource: Resource) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(slot) = self.get(self.made) else {
            return false;
        };
        *slot = resource;
        if self.made.wrapping_sub(self.cursor) >= self.ring.capacity() {
            // The previous resource in this slot was being answered again.
            self.cursor = self.cursor.wrapping_add(1);
            self.skip_answered();
        }
        self.made = self.made.wrapping_add(1);
        self.kept = self.kept.saturating_add(1).min(self.ring.capacity());
        true
    }

    /// Whether the newest one is of the request with this sequence.
    pub(super) fn has_newest(&mut self, start: Sequence) -> bool {
        let newest = self.made.wrapping_sub(1);
        self.kept != 0 && self.get(newest).is_some_and(|it| it.begins_at(start))
    }

    /// The resource with pending responses.
    #[inline]
    fn current(&mut self) -> Option<&mut Resource> {
        if self.cursor == self.made {
            return None;
        }
        self.get(self.cursor)
    }

    /// Whether parts wait, whose responses leave before others.
    #[inline]
    pub(super) const fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The next responses, at most `max_span` packets.
    #[inline(always)]
    pub(super) fn next(&mut self, max_span: u32, mtu: Mtu) -> Option<Ready> {
        let ready = self.current()?.advance(max_span, mtu, false);
        self.skip_answered();
        Some(ready)
    }

    /// The same, of the first part.
    #[cold]
    pub(super) fn next_of_parts(&mut self, max_span: u32, mtu: Mtu) -> Option<Ready> {
        loop {
            let part = *self.parts.first()?;
            let is_kept = (1..=self.kept).contains(&self.made.wrapping_sub(part.index));
            let resource = self.get(part.index).copied().filter(|_| is_kept);
            let part_of = |resource: Resource| resource.only(&part, mtu);
            if let Some(mut now) = resource.map(part_of).filter(Resource::is_pending) {
                let ready = now.advance(max_span, mtu, true);
                if let Some(part) = self.parts.first() {
                    part.next = now.next();
                }
                if !now.is_pending() {
                    self.parts.end_first();
                }
                if let Some(resource) = self.get(part.index) {
                    resource.covered(part.next, &now, mtu);
                }
                self.skip_answered();
                return Some(ready);
            }
            self.parts.end_first();
        }
    }

    /// The responses of the part in progress, or of the one that ended last, were refused from
    /// `sequence` on: it is the first again, and continues there.
    #[cold]
    pub(super) fn rewind_part(&mut self, sequence: Sequence) {
        if !self.rewind_first_part(sequence)
            && self.parts.bring_back()
            && !self.rewind_first_part(sequence)
        {
            self.parts.end_first();
        }
    }

    /// Whether the first part has had this response, which is then its next.
    fn rewind_first_part(&mut self, sequence: Sequence) -> bool {
        let Some(part) = self.parts.first().copied() else {
            return false;
        };
        let packet = self
            .get(part.index)
            .and_then(|resource| resource.packet_at(sequence));
        match (packet, self.parts.first()) {
            (Some(packet), Some(first)) if (part.from..part.next).contains(&packet) => {
                first.next = packet;
                true
            }
            _ => false,
        }
    }

    /// Answers a part, as found by [`Self::find`], again, and nothing else: the peer keeps what it
    /// has. Returns whether there is room.
    pub(super) fn repeat_alone(&mut self, index: u32, part: (u32, u32)) -> bool {
        let (from, until) = part;
        self.get(index)
            .is_some_and(|found| found.will_send(from, until))
            || self.parts.add(ReadPart {
                index,
                from,
                next: from,
                until,
            })
    }

    /// After a response of the current one was sent: moves to the next, if that was the last.
    #[inline]
    fn skip_answered(&mut self) {
        while self.cursor != self.made {
            let cursor = self.cursor;
            if self.get(cursor).is_some_and(|found| found.is_pending()) {
                return;
            }
            if cursor == self.unanswered {
                self.unanswered = cursor.wrapping_add(1);
            }
            self.cursor = cursor.wrapping_add(1);
        }
    }

    /// The duplicate of a request, if it requests a part of one of the newest `depth` ones: its
    /// index, and the part.
    pub(super) fn find(
        &mut self,
        start: Sequence,
        reth: &Reth,
        depth: u32,
        mtu: Mtu,
    ) -> Option<(u32, (u32, u32))> {
        self.newest(depth, |resource| resource.part(start, reth, mtu))
    }

    /// The same for a request that was executed on arrival.
    pub(super) fn find_executed(
        &mut self,
        start: Sequence,
        executed: Executed,
        depth: u32,
    ) -> Option<(u32, (u32, u32))> {
        self.newest(depth, |resource| resource.whole(start, executed))
    }

    /// The newest of the last `depth` ones that has such a part.
    fn newest(
        &mut self,
        depth: u32,
        part: impl Fn(&Resource) -> Option<(u32, u32)>,
    ) -> Option<(u32, (u32, u32))> {
        for age in 1..=self.kept.min(depth) {
            let index = self.made.wrapping_sub(age);
            let resource = self.get(index)?;
            if let Some(part) = part(resource) {
                return Some((index, part));
            }
        }
        None
    }

    /// The responses from `sequence` on were refused: they are sent again from there.
    pub(super) fn rewind(&mut self, sequence: Sequence, mtu: Mtu) {
        for age in 1..=self.kept {
            let index = self.made.wrapping_sub(age);
            let sent = self.made.wrapping_sub(self.cursor) <= age;
            let Some(resource) = self.get(index) else {
                return;
            };
            if resource.is_after(sequence) {
                // All that was sent of it is behind the refused one.
                if sent {
                    resource.restart();
                }
                continue;
            }
            if sequence < resource.behind(mtu) && sent {
                resource.rewind(sequence);
                // One that is answered again keeps no new request out.
                let is_first = !resource.is_repeated();
                self.cursor = index;
                if is_first && self.made.wrapping_sub(self.unanswered) < age {
                    self.unanswered = index;
                }
            }
            return;
        }
    }

    /// The response with this sequence, which was returned last, cannot be sent. If it was sent
    /// before, all that is sent again with it is given up; else the result is `false`.
    #[cold]
    pub(super) fn give_up_again(&mut self, sequence: Sequence, is_part: bool) -> bool {
        if is_part {
            if self.rewind_first_part(sequence) {
                self.parts.end_first();
            }
            return true;
        }
        for age in 1..=self.kept {
            let index = self.made.wrapping_sub(age);
            match self.get(index) {
                Some(resource) if resource.is_after(sequence) => {}
                Some(resource) if resource.is_repeated() => {
                    resource.give_up();
                    self.skip_answered();
                    return true;
                }
                _ => return false,
            }
        }
        false
    }

    /// Answers a part, as found by [`Self::find`], again.
    pub(super) fn repeat(&mut self, index: u32, part: (u32, u32), mtu: Mtu) {
        if self.made.wrapping_sub(index) > self.made.wrapping_sub(self.cursor) {
            // The peer does not take responses behind a missing one: a response in progress starts
            // again.
            if let Some(current) = self.current() {
                current.restart();
            }
            self.cursor = index;
        }
        if let Some(resource) = self.get(index) {
            resource.repeat(part, mtu);
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_responder_resources)
)]
mod tests {
    use super::*;
    use crate::core::storage::InPlace;

    type Resources<R> = super::Resources<R, InPlace>;

    const MTU: Mtu = Mtu::MIN;
    const RKEY: u32 = 7;

    fn va(start: Sequence) -> u64 {
        start * 0x1_0000
    }

    fn read(start: Sequence, packets: u32) -> Resource {
        let reth = Reth::new(va(start), RKEY, packets * 256);
        Resource::new(start, &reth, MTU, 1, false)
    }

    /// Asks again for `len` bytes from a response on, alone.
    fn alone(all: &mut Resources<&mut [Resource]>, (start, packet): (Sequence, u32), len: u32) {
        let reth = Reth::new(va(start) + u64::from(packet) * 256, RKEY, len);
        let (index, part) = all
            .find(start + u64::from(packet), &reth, 128, MTU)
            .unwrap();
        assert!(all.repeat_alone(index, part));
    }

    /// Sends the responses of all parts.
    fn drain_parts(all: &mut Resources<&mut [Resource]>) -> u32 {
        let mut sent = 0;
        while let Some(ready) = all.next_of_parts(2, MTU) {
            sent += ready.segment.span;
        }
        sent
    }

    /// The requester has a READ by its parts, while the local stack refused the rest of it.
    #[test]
    fn what_parts_have_sent_is_outstanding_no_more() {
        for (parts, left) in [
            (&[(3, 7 * 256)][..], 0),
            // What was not sent yet is no part: the READ itself sends it.
            (&[(3, 3 * 256), (6, 4 * 256)][..], 4),
            // The rest of the READ, or of a packet, is still to be sent.
            (&[(3, 3 * 256)][..], 4),
            (&[(3, 3 * 256 + 1)][..], 4),
            // They lie behind what is to be sent.
            (&[(0, 3 * 256)][..], 6),
        ] {
            let mut slots = [Resource::default(); 1];
            let mut all = Resources::new(&mut slots[..]);
            assert!(all.push(read(0, 10)));
            for _ in 0..4 {
                assert!(all.next(1, MTU).is_some());
            }
            for &(packet, len) in parts {
                alone(&mut all, (0, packet), len);
            }
            assert!(drain_parts(&mut all) != 0);
            let mut sent = 0;
            while let Some(ready) = all.next(1, MTU) {
                sent += ready.segment.span;
            }
            assert_eq!((sent, all.outstanding()), (left, 0));
        }
    }

    /// Asks again for `len` bytes from a response on.
    fn again(
        all: &mut Resources<&mut [Resource]>,
        (start, packet): (Sequence, u32),
        len: u32,
    ) -> bool {
        let reth = Reth::new(va(start) + u64::from(packet) * 256, RKEY, len);
        match all.find(start + u64::from(packet), &reth, 128, MTU) {
            Some((index, part)) => {
                all.repeat(index, part, MTU);
                true
            }
            None => false,
        }
    }

    /// Sends up to `most` responses: whether they are these.
    fn sends(all: &mut Resources<&mut [Resource]>, expected: &[(Sequence, bool, bool)]) -> bool {
        expected.iter().all(|expected| {
            let part = all.next_of_parts(1, MTU);
            let Some(ready) = part.or_else(|| all.next(1, MTU)) else {
                return false;
            };
            let segment = ready.segment;
            (ready.sequence, segment.first, segment.last) == *expected
        })
    }

    /// Those that the peer may ask for again are found after the slots were exchanged, and so are
    /// responses that are pending.
    #[test]
    fn more_slots_change_nothing() {
        let mut few = [Resource::default(); 2];
        let mut more = [Resource::default(); 8];
        let mut none: [Resource; 0] = [];
        let mut all = Resources::new(none.as_mut_slice());
        assert!(!all.push(read(0, 1)));
        all.grow(&mut few.as_mut_slice());
        assert!(all.push(read(0, 1)));
        assert!(sends(&mut all, &[(0, true, true)]));
        // In the slot of the first one.
        assert!(all.push(read(1, 2)) && all.push(read(3, 1)) && !all.has_room());
        assert!(sends(&mut all, &[(1, true, false)]));
        let mut slots = more.as_mut_slice();
        all.grow(&mut slots);
        assert_eq!((slots.len(), all.outstanding()), (2, 2));
        assert!(sends(&mut all, &[(2, false, true)]));
        assert!(all.push(read(4, 1)) && all.has_room());
        assert!(sends(&mut all, &[(3, true, true), (4, true, true)]));
        // Fewer are not taken.
        let mut one = [Resource::default(); 1];
        let mut slots = one.as_mut_slice();
        all.grow(&mut slots);
        assert_eq!((slots.len(), all.ring.capacity()), (1, 8));
    }

    /// Responses that the local stack refused are sent again as they were, not as a new
    /// transmission.
    #[test]
    fn what_has_not_left_is_retransmitted() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(0, 4)) && all.push(read(4, 2)) && all.push(read(6, 1)));
        assert!(sends(&mut all, &[(0, true, false), (1, false, false)]));
        all.rewind(1, MTU);
        assert!(sends(
            &mut all,
            &[
                (1, false, false),
                (2, false, false),
                (3, false, true),
                (4, true, false)
            ]
        ));
        all.rewind(2, MTU);
        assert_eq!(all.outstanding(), 3);
        assert!(sends(
            &mut all,
            &[
                (2, false, false),
                (3, false, true),
                (4, true, false),
                (5, false, true)
            ]
        ));
        assert!(sends(&mut all, &[(6, true, true)]));
        assert!(all.is_idle() && all.outstanding() == 0);
        // The last one, and what never was there.
        all.rewind(6, MTU);
        assert!(all.outstanding() == 1 && sends(&mut all, &[(6, true, true)]));
        all.rewind(7, MTU);
        assert!(all.is_idle());
    }

    #[test]
    fn the_same_again_while_it_waits_changes_nothing() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(0, 2)) && all.push(read(2, 1)));
        assert!(again(&mut all, (2, 0), 256));
        assert!(again(&mut all, (0, 1), 256));
        assert_eq!(all.outstanding(), 2);
        assert!(sends(
            &mut all,
            &[(0, true, false), (1, false, true), (2, true, true)]
        ));
        assert!(all.is_idle() && all.outstanding() == 0);
    }

    #[test]
    fn an_answered_one_comes_first_again_and_cancels_nothing() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(0, 3)));
        assert!(sends(
            &mut all,
            &[(0, true, false), (1, false, false), (2, false, true)]
        ));
        assert!(all.push(read(3, 2)) && all.push(read(5, 1)));
        assert!(sends(&mut all, &[(3, true, false)]));
        // The last two of three, then what had begun, from its beginning, and what waits.
        assert!(again(&mut all, (0, 1), 512));
        assert_eq!(all.outstanding(), 2);
        assert!(sends(
            &mut all,
            &[
                (1, true, false),
                (2, false, true),
                (3, true, false),
                (4, false, true),
                (5, true, true)
            ]
        ));
        assert!(all.is_idle() && all.outstanding() == 0);
    }

    #[test]
    fn the_rest_of_one_in_progress_begins_again_there() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(0, 4)));
        assert!(sends(&mut all, &[(0, true, false), (1, false, false)]));
        assert!(again(&mut all, (0, 1), 256));
        assert!(sends(
            &mut all,
            &[(1, true, false), (2, false, false), (3, false, true)]
        ));
    }

    /// A peer that keeps the rest gets the parts that it asks for, first and alone, and what is
    /// in progress goes on.
    #[test]
    fn parts_are_answered_alone() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(0, 9)) && all.push(read(9, 3)));
        for _ in 0..10 {
            assert!(all.next(1, MTU).is_some_and(|ready| !ready.again));
        }
        // Two of the first, twice; what is not sent yet; and one that was.
        for (packet, packets) in [(2, 2), (6, 1), (2, 2), (3, 1)] {
            assert!(all.repeat_alone(0, (packet, (packet + packets) * 256)));
        }
        assert!(all.repeat_alone(1, (1, 512)) && all.repeat_alone(1, (0, 256)));
        assert!(sends(
            &mut all,
            &[
                (2, true, false),
                (3, false, true),
                (6, true, true),
                (9, true, true),
                (10, false, false),
                (11, false, true)
            ]
        ));
        assert!(all.is_idle() && all.outstanding() == 0);
        // There is room for some, and none for what makes room for others.
        for n in 0..16 {
            assert!(all.repeat_alone(0, (n % 8, (n % 8 + 1) * 256 + n)));
        }
        assert!(!all.repeat_alone(1, (0, 256)) && !all.is_idle());
        for start in 12..16 {
            assert!(all.push(read(start, 1)));
        }
        assert!(sends(&mut all, &[(12, true, true)]));
    }

    #[test]
    fn only_what_was_asked_for_is_answered_again() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(all.push(read(8, 3)));
        let mut is_found = |start, va, rkey, len| {
            let reth = Reth::new(va, rkey, len);
            all.find(start, &reth, 128, MTU).is_some()
        };
        assert!(is_found(8, va(8), RKEY, 768));
        assert!(is_found(8, va(8), RKEY, 1));
        assert!(is_found(10, va(8) + 512, RKEY, 256));
        // Beyond the end, elsewhere, with another key, at another PSN, and nothing at all.
        assert!(!is_found(8, va(8), RKEY, 769));
        assert!(!is_found(10, va(8) + 512, RKEY, 257));
        assert!(!is_found(9, va(8), RKEY, 256));
        assert!(!is_found(8, va(8) + 1, RKEY, 1));
        assert!(!is_found(8, va(8), RKEY + 1, 1));
        assert!(!is_found(7, va(8), RKEY, 1));
        assert!(!is_found(11, va(8) + 768, RKEY, 1));
        assert!(!is_found(8, va(8), RKEY, 0));
        assert!(!is_found(8, va(8), RKEY, u32::MAX));
    }

    #[test]
    fn the_oldest_makes_room_and_the_pending_do_not() {
        let mut slots = [Resource::default(); 4];
        let mut all = Resources::new(slots.as_mut_slice());
        for start in 0..4 {
            assert!(all.push(read(start, 1)));
        }
        assert!(!all.push(read(4, 1)));
        for start in 0..4 {
            assert!(sends(&mut all, &[(start, true, true)]));
        }
        // One that is being answered again has no claim to its place.
        assert!(again(&mut all, (0, 0), 256) && again(&mut all, (1, 0), 256));
        assert!(all.push(read(4, 1)));
        assert!(!again(&mut all, (0, 0), 256));
        assert!(sends(&mut all, &[(1, true, true), (4, true, true)]));
        assert!(all.is_idle() && all.outstanding() == 0);
        // Nor is one found that is too old for the number that the peer may have.
        let reth = Reth::new(va(3), RKEY, 256);
        assert!(all.find(3, &reth, 2, MTU).is_some());
        assert!(all.find(3, &reth, 1, MTU).is_none());
        all.clear();
        assert!(all.find(3, &reth, 128, MTU).is_none());
    }

    #[test]
    fn without_slots_nothing_is_kept() {
        let mut slots: [Resource; 0] = [];
        let mut all = Resources::new(slots.as_mut_slice());
        assert!(!all.push(read(0, 1)));
        assert!(all.is_idle() && all.next(1, MTU).is_none());
    }
}
