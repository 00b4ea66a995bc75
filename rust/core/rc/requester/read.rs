// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Responses to RDMA READs and atomic operations: where their payload goes, and when the WQE is
//! complete (IBTA 9.7.5.1.6, 9.9.2.2).

use super::send::read_piece_end;
use super::{
    Requester,
    RequesterState,
    SendCursor,
    SendSlot,
    READ_PIECE, //
};
use crate::core::completion::{
    vendor,
    SendCompletion,
    Status, //
};
use crate::core::message::Mtu;
use crate::core::operation::{
    Operation,
    Reply, //
};
use crate::core::rc::sequence::{
    reaches,
    Sequence, //
};
use crate::core::segment::ReadSegment;
use crate::core::send::Progress;
use crate::core::storage::{
    Slot,
    Spare, //
};
use core::ops::DerefMut;

/// Where the payload of an accepted READ response goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlacement {
    /// Slot of the work request.
    pub slot: Slot,
    /// Offset in its message, in bytes.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Of its first packet.
    pub(super) sequence: Sequence,
    /// How many packets it stands for.
    pub(super) span: u32,
    /// Of the connection.
    pub(super) epoch: u32,
}

/// Why a READ response is not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// This part is placed already, or it is older than what is outstanding.
    Duplicate,
    /// It answers no request that was sent.
    Unexpected,
    /// An earlier response is missing; it will be requested again.
    Gap,
    /// It breaks the rules of its message: the WQE ended with `BadRespErr`.
    Bad,
    /// The QP is not connected.
    NotReady,
}

/// A READ response that is not placed, and what it changed nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIgnored {
    /// Why.
    pub reason: Ignored,
    /// What it changed.
    pub progress: Progress,
}

impl From<Ignored> for ReadIgnored {
    fn from(reason: Ignored) -> Self {
        Self {
            reason,
            progress: Progress::default(),
        }
    }
}

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> Requester<S, A> {
    /// Accepts a response and returns where its payload goes.
    ///
    /// It is not final before [`Self::read_response_placed`], and may be accepted again until then.
    /// If the memory of the WQE is not accessible, the caller calls [`Self::fail`] instead.
    #[inline]
    pub fn accept_read_response(
        &mut self,
        response: &ReadSegment,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Result<ReadPlacement, ReadIgnored> {
        if self.state != RequesterState::Ready {
            return Err(Ignored::NotReady.into());
        }
        let sequence = self.locate(response.psn)?;
        // A responder that answers a READ has received everything before it.
        self.acknowledged_up_to(sequence, now, sink);
        if self.una != sequence {
            return self.on_early_response(sequence, response, now, sink);
        }

        let mtu = self.mtu;
        let verdict = match self.head() {
            Some(slot) if !slot.status.is_success() => Err(None),
            Some(slot) if slot.begun && slot.request.op.reply() == Reply::Response => {
                // The sequence is within the message, whose packets are below 2^24.
                let packet = sequence.wrapping_sub(slot.first) as u32;
                check(slot, packet, response, mtu).map_err(Some)
            }
            _ => Err(Some(vendor::RESPONSE_TO_NO_READ)),
        };
        match verdict {
            Ok(offset) => Ok(ReadPlacement {
                slot: self.ring.slot(self.retired),
                offset,
                len: response.len,
                sequence,
                span: response.span,
                epoch: self.epoch,
            }),
            Err(Some(vendor_err)) => {
                self.count(1, |counters| &mut counters.bad_responses);
                self.end_head(Status::BadRespErr, vendor_err, sink);
                Err(self.ignored(Ignored::Bad, sink))
            }
            // The WQE failed locally and ends now.
            Err(None) => Err(self.ignored(Ignored::NotReady, sink)),
        }
    }

    /// A response behind a gap. From a peer that answers a part of a READ again alone it is placed
    /// now; from any other it will be requested again with what is missing.
    #[cold]
    fn on_early_response(
        &mut self,
        sequence: Sequence,
        response: &ReadSegment,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Result<ReadPlacement, ReadIgnored> {
        let placed = match response.keeps && self.recovery.can_place_early() {
            true => self.place_early(sequence, response),
            false => None,
        };
        match placed {
            Some(Ok(place)) => return Ok(place),
            Some(Err(Ignored::Duplicate)) => {
                self.count_duplicate();
                return Err(self.ignored(Ignored::Duplicate, sink));
            }
            Some(Err(_)) => self.count(1, |counters| &mut counters.out_of_sequence),
            None => self.not_placed_early(sequence, now, sink),
        }
        Err(self.ignored(Ignored::Gap, sink))
    }

    /// A response came before an earlier one and is not placed: both will be requested again.
    #[cold]
    fn not_placed_early(
        &mut self,
        sequence: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        self.count(1, |counters| &mut counters.out_of_sequence);
        // The peer is at work.
        self.recovery.tail.defer(now);
        self.implied_loss(sequence, now, sink);
    }

    /// The READs before that of this response, if it came early: what is still to come of them is
    /// placed later. If that goes to the same memory, the owner does not place this one now, but
    /// calls [`Self::read_response_declined`]: READs write in their order (IBTA 10.8.3.3).
    #[inline]
    pub fn earlier_reads(&self, placement: &ReadPlacement) -> impl Iterator<Item = Slot> + '_ {
        let retired = self.retired;
        let index = self.ring.index_of(placement.slot, retired);
        (0..index.wrapping_sub(retired)).map(move |n| self.ring.slot(retired.wrapping_add(n)))
    }

    /// The payload has not been placed.
    #[cold]
    pub fn read_response_declined(
        &mut self,
        placement: &ReadPlacement,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        self.not_placed_early(placement.sequence, now, sink);
        self.settle(sink)
    }

    /// Where the payload of a response goes that came before an earlier one, from a peer that
    /// answers a part of a READ again alone. `None` if it cannot be placed now.
    #[cold]
    fn place_early(
        &self,
        sequence: Sequence,
        response: &ReadSegment,
    ) -> Option<Result<ReadPlacement, Ignored>> {
        let span = u64::from(response.span);
        if sequence.saturating_add(span) > self.cursor.sequence
            || !reaches(self.una, sequence, span)
            || !self.are_reads_up_to(sequence)
        {
            return None;
        }
        if self.recovery.placed.run(sequence, response.span) == response.span {
            return Some(Err(Ignored::Duplicate));
        }
        let SendCursor { index, packet, .. } = self.cursor_at(sequence)?;
        let slot = self.ring.get(index)?;
        // What is wrong ends the connection when its turn comes.
        let place = check(slot, packet, response, self.mtu)
            .ok()
            .map(|offset| ReadPlacement {
                slot: self.ring.slot(index),
                offset,
                len: response.len,
                sequence,
                span: response.span,
                epoch: self.epoch,
            });
        Some(place.ok_or(Ignored::Gap))
    }

    /// Whether all that is outstanding up to this packet are READs: no other response or ACK is
    /// needed, and none was missed.
    pub(super) fn are_reads_up_to(&self, sequence: Sequence) -> bool {
        let mut index = self.retired;
        while index != self.pushed {
            let Some(slot) = self.ring.get(index) else {
                return false;
            };
            let is_read = slot.request.op == Operation::Read;
            if !slot.begun || !is_read || !slot.status.is_success() {
                return false;
            }
            if sequence < slot.end() {
                return true;
            }
            index = index.wrapping_add(1);
        }
        false
    }

    /// The payload of a response has been placed that came before an earlier one.
    #[cold]
    fn placed_early(
        &mut self,
        placement: &ReadPlacement,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        let (sequence, span) = (placement.sequence, placement.span);
        if !reaches(self.una, sequence, u64::from(span)) {
            return;
        }
        let oldest = self
            .recovery
            .placed_early(self.flight(), sequence, span, now);
        self.missing(oldest, |counters| &mut counters.implied_naks, sink);
    }

    /// The payload has been placed as `placement` says.
    #[inline]
    pub fn read_response_placed(
        &mut self,
        placement: &ReadPlacement,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        if self.state != RequesterState::Ready || placement.epoch != self.epoch {
            return Progress::default();
        }
        if placement.sequence != self.una {
            self.placed_early(placement, now, sink);
            return self.settle(sink);
        }
        let Some(slot) = self.head() else {
            return Progress::default();
        };
        if !slot.status.is_success() {
            return self.settle(sink);
        }
        let before = self.una;
        self.responses_done(placement.span, sink);
        if !self.recovery.placed.is_empty() {
            self.placed_done(sink);
        }
        self.progressed(before, now);
        self.settle(sink)
    }

    /// The next `span` responses to the oldest WQE have been placed; all are of one piece.
    #[inline(always)]
    fn responses_done(&mut self, span: u32, sink: &mut impl FnMut(SendCompletion)) {
        let Some(slot) = self.head() else {
            return;
        };
        let message_end = slot.end();
        let packet = self.una.wrapping_sub(slot.first) as u32;
        let piece_end = read_piece_end(slot.packets, packet);
        self.una = self.una.wrapping_add(u64::from(span));
        if packet.wrapping_add(span) == piece_end {
            self.messages_done = self.messages_done.wrapping_add(1);
            // After a loss the count is 0 until the piece is requested again, which may come later
            // than the response to the first request.
            self.reads = self.reads.saturating_sub(1);
        }
        if self.una == message_end {
            self.retire(Status::Success, 0, sink);
            self.retire_local_ops(sink);
        }
    }

    /// The oldest missing response has come: so have those behind it that were placed before.
    #[cold]
    fn placed_done(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        while let Some(slot) = self.head() {
            let packet = self.una.saturating_sub(slot.first) as u32;
            let piece_end = read_piece_end(slot.packets, packet);
            let most = piece_end.saturating_sub(packet);
            let span = self.recovery.placed.run(self.una, most);
            if span == 0 {
                break;
            }
            self.responses_done(span, sink);
        }
        self.recovery.placed.advance(self.una);
    }

    /// The end of a response that is not placed.
    fn ignored(&mut self, reason: Ignored, sink: &mut impl FnMut(SendCompletion)) -> ReadIgnored {
        ReadIgnored {
            reason,
            progress: self.settle(sink),
        }
    }
}

/// Whether the response is what packet number `packet` of the READ should be, and its offset.
#[inline]
fn check(slot: &SendSlot, packet: u32, response: &ReadSegment, mtu: Mtu) -> Result<u32, u32> {
    let piece_end = read_piece_end(slot.packets, packet);
    let end = packet.saturating_add(response.span);
    let begins = packet % READ_PIECE == 0;
    if response.brings != slot.request.op.brings() {
        return Err(vendor::RESPONSE_TO_NO_READ);
    }
    if response.span == 0
        || end > piece_end
        || (!response.last && end == piece_end)
        || (response.last && end != piece_end && !slot.repeated)
        || (begins && !response.first)
        || (response.first && !begins && !slot.repeated)
    {
        return Err(vendor::RESPONSE_PLACE);
    }
    let offset = mtu.span_bytes(packet);
    let rest = u64::from(slot.request.length).saturating_sub(offset);
    if u64::from(response.len) != mtu.span_bytes(response.span).min(rest) {
        return Err(vendor::RESPONSE_LENGTH);
    }
    // Below the length of the message.
    Ok(offset as u32)
}
