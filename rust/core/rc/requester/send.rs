// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The send cursor: messages become packets (IBTA 9.7.2 to 9.7.4), packets request ACKs, and local
//! operations are executed between them.

use super::{
    Requester,
    RequesterState,
    SendCursor,
    SendSlot,
    READ_PIECE, //
};
use crate::core::completion::{
    SendCompletion,
    Status, //
};
use crate::core::message::{
    cut,
    Mtu,
    Piece, //
};
use crate::core::operation::{
    Operation,
    Reply,
    ATOMIC_SIZE, //
};
use crate::core::rc::sequence::Sequence;
use crate::core::segment::RequestSegment;
use crate::core::send::{
    AfterSend,
    Next,
    SendError,
    SendSource, //
};
use crate::core::storage::{
    Slot,
    Spare, //
};
use crate::core::wire::opcode::Opcode;
use crate::core::wire::psn::Psn;
use core::ops::DerefMut;

/// Most packets that leave without requesting an ACK.
const ACK_INTERVAL: u64 = 64;

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> SendSource for Requester<S, A> {
    /// The next segment or local operation. A segment counts as sent: if it cannot leave, call
    /// [`Requester::unsend`], or let it count as lost.
    #[inline(always)]
    fn next(&mut self, now: u64, max_span: u32) -> Next {
        loop {
            if let Some(segment) = self.next_segment(now, max_span) {
                return Next::Segment(segment);
            }
            if self.cursor.index == self.pushed {
                return Next::Idle;
            }
            if let Some(next) = self.without_segment(now) {
                return next;
            }
        }
    }

    #[inline(always)]
    fn sent(
        &mut self,
        segment: &RequestSegment,
        result: Result<(), SendError>,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> AfterSend {
        match result {
            Ok(()) => AfterSend::Continue,
            Err(SendError::Local(status)) => self.fail(segment.slot, status, sink).into(),
            Err(SendError::Refused(first)) => self.refused(&first, now),
        }
    }

    /// Nobody else will report these packets lost, so they are sent soon, after a back-off, without
    /// spending a retry.
    #[cold]
    fn refused(&mut self, first: &RequestSegment, now: u64) -> AfterSend {
        self.unsend(first, now);
        AfterSend::Pause
    }

    #[inline]
    fn local_op_done(
        &mut self,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> AfterSend {
        self.local_op_done(status, sink).into()
    }

    /// The next packet requests an ACK: the caller stops behind it, and packets in flight must not
    /// wait for the next one.
    #[inline(always)]
    fn request_ack(&mut self) {
        self.ack_next = true;
    }

    #[inline(always)]
    fn mtu(&self) -> Mtu {
        self.mtu()
    }
}

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> Requester<S, A> {
    /// The next segment, or `None` if nothing can be sent (nothing pushed, window full, fence,
    /// back-off, too many READs outstanding, draining, a failed WQE, not connected).
    ///
    /// `max_span` is 1 for the wire. The segment counts as sent: if it cannot leave, call
    /// [`Self::unsend`], or let it count as lost. [`Self::next`] has the local operations too.
    #[inline]
    pub fn next_segment(&mut self, now: u64, max_span: u32) -> Option<RequestSegment> {
        if self.state != RequesterState::Ready || self.recovery.retry.is_waiting(now) {
            return None;
        }
        if let Some(segment) = self.segment_to_repair(now) {
            return Some(segment);
        }
        if self.cursor.index == self.pushed {
            return None;
        }
        let room = self.recovery.room(self.flight());
        if room == 0 {
            return None;
        }
        if self.at_standstill() || self.response_waits_for(room) {
            self.step_back_for_ack()?;
        }
        self.segment_at_cursor(now, room.min(max_span.max(1)))
    }

    /// What is at the cursor, when [`Self::next_segment`] has nothing. `None` after a step over a
    /// local operation that was executed before: the cursor had gone back after a loss.
    #[cold]
    fn without_segment(&mut self, now: u64) -> Option<Next> {
        if self.state != RequesterState::Ready
            || self.cursor.packet != 0
            || self.recovery.retry.is_waiting(now)
        {
            return Some(Next::Idle);
        }
        match self.ring.get(self.cursor.index) {
            Some(slot) if slot.request.op.reply() == Reply::Local => {
                if slot.begun {
                    self.cursor.index = self.cursor.index.wrapping_add(1);
                    return None;
                }
                // Until all before it is complete (IBTA 10.6.5.1), not READs alone.
                let waits = slot.request.fence && self.cursor.index != self.retired;
                if waits || self.draining || !slot.status.is_success() {
                    return Some(Next::Idle);
                }
                Some(Next::LocalOp(self.ring.slot(self.cursor.index)))
            }
            _ => Some(Next::Idle),
        }
    }

    /// A packet that was sent before and is to be sent again ahead of the cursor.
    #[inline(always)]
    fn segment_to_repair(&mut self, now: u64) -> Option<RequestSegment> {
        // What closes a hole requests an ACK as well as a probe does.
        if !self.recovery.holes.is_empty() {
            if let Some(segment) = self.missing_segment(now) {
                return Some(segment);
            }
        }
        if self.recovery.tail.is_due() {
            return self.probe(now);
        }
        None
    }

    /// The next packets at the cursor, at most so many, or the READ request there; `None` if a
    /// fence or the number of READs holds it back.
    #[inline(always)]
    fn segment_at_cursor(&mut self, now: u64, most: u32) -> Option<RequestSegment> {
        let (mtu, cursor, may_read) = (self.mtu, self.cursor, self.may_read());
        let is_new = cursor.sequence >= self.sent;
        let number = self.ring.slot(cursor.index);
        let slot = self.ring.get_mut(cursor.index)?;
        if cursor.packet == 0 {
            if slot.request.fence && self.reads != 0 {
                return None;
            }
            slot.first = cursor.sequence;
            slot.packets = mtu.packets(slot.request.length);
        }
        let is_read = slot.request.op.reply() == Reply::Response;
        if is_read && !may_read {
            return None;
        }
        slot.begun = true;
        slot.repeated |= !is_new;
        if is_read {
            let end = read_piece_end(slot.packets, cursor.packet);
            let mut segment = response_request(slot, cursor.packet, end, mtu);
            segment.slot = number;
            segment.psn = self.numbering.psn(cursor.sequence);
            self.step_over_read(end.wrapping_sub(cursor.packet), is_new, now);
            return Some(segment);
        }
        let left = slot.packets.wrapping_sub(cursor.packet);
        let span = left.min(most);
        let mut segment = data_segment(slot, cursor.packet, span, mtu);
        segment.slot = number;
        segment.psn = self.numbering.psn(cursor.sequence);
        let (signaled, last) = (slot.request.signaled, span == left);
        segment.ack_req = self.wants_ack(span, last, signaled);
        self.step(span, span, now);
        if is_new && cursor.packet == 0 {
            self.messages_sent = self.messages_sent.wrapping_add(1);
        }
        if segment.ack_req {
            self.note_ack_request();
            if is_new {
                self.recovery.tail.time(self.cursor.sequence, now);
            }
        }
        Some(segment)
    }

    /// A READ request leaves, for so many responses.
    #[inline(always)]
    fn step_over_read(&mut self, responses: u32, is_new: bool, now: u64) {
        let begin = self.cursor.sequence;
        self.reads = self.reads.wrapping_add(1);
        self.step(responses, 1, now);
        // The response is the acknowledgement.
        self.note_ack_request();
        if is_new {
            self.messages_sent = self.messages_sent.wrapping_add(1);
            self.recovery.tail.time(begin.wrapping_add(1), now);
        }
    }

    /// The packets that the cursor has passed request an ACK, or a response that is one.
    #[inline]
    fn note_ack_request(&mut self) {
        self.ack_requested_before = self.ack_requested;
        self.ack_requested = self.cursor.sequence;
        self.ack_next = false;
    }

    /// Whether the last packet in flight requests a response, so that one comes for all of them if
    /// none is lost.
    #[inline]
    pub fn is_answer_due(&self) -> bool {
        self.ack_requested >= self.cursor.sequence
    }

    /// Retransmits one packet, with an ACK request. Nothing else changes. It is the last one in
    /// flight, or the oldest ([`super::recovery::LossRecovery::probes_oldest`]). If the last one is
    /// answered by responses, it is the oldest, too: those may be many, and say nothing before the
    /// peer has what is missing of the others. So it is if the probe before this one got no answer:
    /// a peer that reports a gap once drops the last one in silence, if that report was lost.
    ///
    /// Of a READ, everything missing of the piece is requested again, as after a loss: a responder
    /// may forget an earlier part (rdma_rxe does). A busy peer that has several of them to do would
    /// do much twice, so then there is no probe, unless something was lost already, or all that is
    /// missing is one response.
    fn probe(&mut self, now: u64) -> Option<RequestSegment> {
        if self.in_flight() == 0 {
            return None;
        }
        let oldest = self.oldest();
        let last = self.cursor_at(self.cursor.sequence.wrapping_sub(1))?;
        let end = self.end_again(oldest)?;
        let was_lost = self.recovery.probes_oldest();
        let is_much = !was_lost && self.reads > 1 && end.wrapping_sub(oldest.packet) > 1;
        let is_unheard = self.recovery.tail.is_unanswered() && !is_much;
        let is_last_answered = self.ring.get(last.index)?.request.op.reply() == Reply::Response;
        let (at, end) = match was_lost || is_unheard || is_last_answered {
            true if is_much => {
                self.recovery.tail.spared(now);
                return None;
            }
            true => (oldest, end),
            false => (last, last.packet.wrapping_add(1)),
        };
        let behind = at
            .sequence
            .wrapping_add(u64::from(end.wrapping_sub(at.packet)));
        self.recovery
            .probed(at.sequence, behind, self.flight(), now);
        self.count(1, |counters| &mut counters.tail_probes);
        self.segment_again(at, end)
    }

    /// The packet behind those that are asked about with this one, which is in flight: it alone, or
    /// all responses of its piece up to one that was placed.
    pub(super) fn end_again(&self, at: SendCursor) -> Option<u32> {
        let slot = self.ring.get(at.index)?;
        let next = at.packet.saturating_add(1);
        if slot.request.op.reply() != Reply::Response {
            return Some(next);
        }
        let end = read_piece_end(slot.packets, at.packet);
        let placed = self.recovery.placed.next(at.sequence);
        let placed = placed.and_then(|placed| placed.checked_sub(slot.first));
        let placed = placed.and_then(|placed| u32::try_from(placed).ok());
        Some(placed.map_or(end, |placed| placed.clamp(next, end)))
    }

    /// The first packet that the peer misses and that is due to be sent again, or the READ request
    /// for responses that are missing.
    #[cold]
    fn missing_segment(&mut self, now: u64) -> Option<RequestSegment> {
        let (sequence, behind) = self.recovery.holes.next(now)?;
        let at = self.cursor_at(sequence)?;
        let slot = self.ring.get(at.index)?;
        if !slot.begun || at.packet >= slot.packets || !slot.status.is_success() {
            self.recovery.holes.clear();
            return None;
        }
        let end = if slot.request.op.reply() == Reply::Response {
            // A hole of responses, or of whole pieces.
            let end = read_piece_end(slot.packets, at.packet);
            let behind = u32::try_from(behind.saturating_sub(slot.first));
            behind.map_or(end, |behind| behind.min(end))
        } else {
            at.packet.wrapping_add(1)
        };
        let behind = slot.first.wrapping_add(u64::from(end));
        self.recovery
            .hole_sent(sequence, behind, self.flight(), now);
        self.count(1, |counters| &mut counters.retransmitted);
        self.segment_again(at, end)
    }

    /// Sends a packet again, with an ACK request; or of a READ the request for its responses from
    /// this one to `end`.
    fn segment_again(&mut self, at: SendCursor, end: u32) -> Option<RequestSegment> {
        let number = self.ring.slot(at.index);
        let slot = self.ring.get_mut(at.index)?;
        slot.repeated = true;
        let mut segment = if slot.request.op.reply() == Reply::Response {
            response_request(slot, at.packet, end, self.mtu)
        } else {
            let mut segment = data_segment(slot, at.packet, 1, self.mtu);
            segment.ack_req = true;
            segment
        };
        segment.slot = number;
        segment.psn = self.numbering.psn(at.sequence);
        self.counters.packets = self.counters.packets.wrapping_add(1);
        Some(segment)
    }

    /// The WQE that a sent packet belongs to.
    fn index_at(&self, sequence: Sequence) -> Option<u32> {
        let sent = self.cursor.index.wrapping_sub(self.retired);
        let (mut low, mut high) = (0, sent.wrapping_add(u32::from(self.cursor.packet != 0)));
        // The first that begins behind it is in `low..=high`.
        while low < high {
            let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
            let slot = self.ring.get(self.retired.wrapping_add(middle))?;
            if slot.first <= sequence {
                low = middle.wrapping_add(1);
            } else {
                high = middle;
            }
        }
        Some(self.retired.wrapping_add(low.checked_sub(1)?))
    }

    /// The local stack refused a segment that [`Self::next_segment`] returned: sending goes back to
    /// it and continues after a back-off ([`Self::deadline`]).
    ///
    /// That spends no retry, but the ACK timeout runs as if the segment had left: a device that
    /// never takes it ends the connection. Later segments count as lost with it: of several that
    /// were lost together the first is enough. If it was to close a hole, what is between the hole
    /// and the segments behind it stays sent.
    pub fn unsend(&mut self, segment: &RequestSegment, now: u64) {
        if self.state != RequesterState::Ready {
            return;
        }
        let Some(sequence) = self.numbering.sequence(segment.psn, self.una) else {
            return;
        };
        let index = self.ring.index_of(segment.slot, self.retired);
        let ahead = index.wrapping_sub(self.retired);
        let Some(slot) = self.ring.get(index) else {
            return;
        };
        if self.recovery.tail.was_probed(sequence) {
            // A probe is tried once; what it was to close is still a hole.
            let _ = self.recovery.holes.unsend(sequence, now);
            return;
        }
        if sequence < self.una
            || sequence >= self.cursor.sequence
            || ahead >= self.pushed.wrapping_sub(self.retired)
            || !slot.begun
            || !(slot.first..slot.end()).contains(&sequence)
        {
            return;
        }
        // Within the message, whose packets are below 2^24.
        let packet = sequence.wrapping_sub(slot.first) as u32;
        let of_hole = self.recovery.unsent(sequence, self.una, now);
        let to = match of_hole {
            None => Some(SendCursor {
                index,
                packet,
                sequence,
            }),
            Some(next) if next < self.cursor.sequence => self.cursor_at(next.max(self.una)),
            Some(_) => None,
        };
        if let Some(to) = to {
            self.rewind(to);
        }
        self.ack_next |= segment.ack_req;
        self.recovery.retry.pause(now);
    }

    /// The cursor before a packet that was sent.
    pub(super) fn cursor_at(&self, sequence: Sequence) -> Option<SendCursor> {
        let index = self.index_at(sequence)?;
        let slot = self.ring.get(index)?;
        Some(SendCursor {
            index,
            // Within the message, whose packets are below 2^24.
            packet: sequence.saturating_sub(slot.first) as u32,
            sequence,
        })
    }

    /// Whether the cursor is at a WQE that must not begin, now or ever, or is a local operation.
    #[inline]
    fn at_standstill(&self) -> bool {
        if self.cursor.packet != 0 {
            return false;
        }
        (self.draining && self.cursor.sequence == self.sent) || self.is_silent(self.cursor.index)
    }

    /// Whether no packet leaves for the WQE: it failed locally, or is a local operation.
    #[inline]
    fn is_silent(&self, index: u32) -> bool {
        index != self.pushed
            && self.ring.get(index).is_some_and(|slot| {
                !slot.status.is_success() || slot.request.op.reply() == Reply::Local
            })
    }

    /// Whether the cursor is at a WQE whose responses have no room in the window, while packets in
    /// flight will make room.
    #[inline(always)]
    fn response_waits_for(&self, room: u32) -> bool {
        let cursor = self.cursor;
        let waits = |slot: &SendSlot| {
            let packets = self.mtu.packets(slot.request.length);
            let end = read_piece_end(packets, cursor.packet);
            end.saturating_sub(cursor.packet) > room
        };
        match self.ring.get(cursor.index) {
            Some(slot) if slot.request.op.reply() == Reply::Response => {
                self.in_flight() != 0 && waits(slot)
            }
            _ => false,
        }
    }

    /// At a standstill: if no ACK was requested for the earlier packets, moves the cursor to the
    /// last of them, to retransmit it with an ACK request. `None` if there is nothing to do.
    ///
    /// The earlier message left without a request because it was not the last one then. Without
    /// this its end would only be known by a timeout, or never.
    fn step_back_for_ack(&mut self) -> Option<()> {
        let cursor = self.cursor;
        if cursor.packet != 0 || self.in_flight() == 0 || self.ack_requested >= cursor.sequence {
            return None;
        }
        let last = self.cursor_at(cursor.sequence.wrapping_sub(1))?;
        if self.ring.get(last.index)?.request.op.reply() == Reply::Response {
            // Its responses are the acknowledgement.
            return None;
        }
        self.cursor = last;
        self.ack_next = true;
        Some(())
    }

    /// Whether the next `span` packets request an ACK.
    #[inline(always)]
    fn wants_ack(&self, span: u32, last: bool, signaled: bool) -> bool {
        if self.ack_next {
            return true;
        }
        let end = self.cursor.sequence.wrapping_add(u64::from(span));
        if last {
            let next = self.cursor.index.wrapping_add(1);
            if signaled || next == self.pushed || self.draining || self.stops_at(next) {
                return true;
            }
        }
        // The last packet of a retransmission.
        if self.cursor.sequence < self.sent && end >= self.sent {
            return true;
        }
        // Often enough that the window opens before it is full, and that the timeout, which runs
        // from ACK to ACK, does not depend on how long a large window takes on a slow link.
        let size = u64::from(self.recovery.window.size());
        let silent = end.wrapping_sub(self.ack_requested.max(self.una));
        let out = end.wrapping_sub(self.una);
        silent >= (size / 2).min(ACK_INTERVAL) || self.recovery.is_full(self.una, out)
    }

    /// Whether one more WQE that is answered by responses may be outstanding.
    #[inline]
    fn may_read(&self) -> bool {
        self.reads < u32::from(self.max_rd_atomic.max(1))
    }

    /// Whether the cursor may have to stop at this WQE until earlier packets are acknowledged, or
    /// sends nothing for it.
    #[inline]
    fn stops_at(&self, index: u32) -> bool {
        self.ring.get(index).is_some_and(|slot| {
            let request = &slot.request;
            let waits = match request.op.reply() {
                // The window may not have room for its responses.
                Reply::Response => request.length > self.mtu.bytes() || !self.may_read(),
                Reply::Local => true,
                Reply::Ack => false,
            };
            waits || (request.fence && self.reads != 0) || !slot.status.is_success()
        })
    }

    /// Moves the cursor over `psns` sequence numbers of its message, which left as `packets`
    /// packets.
    #[inline(always)]
    fn step(&mut self, psns: u32, packets: u32, now: u64) {
        self.recovery.sent(self.flight(), now);
        self.counters.packets = self.counters.packets.wrapping_add(packets);
        if self.cursor.sequence < self.sent {
            self.count(packets, |counters| &mut counters.retransmitted);
        }
        self.cursor.sequence = self.cursor.sequence.wrapping_add(u64::from(psns));
        self.cursor.packet = self.cursor.packet.wrapping_add(psns);
        self.sent = self.sent.max(self.cursor.sequence);
        let end = self.ring.get(self.cursor.index).map(|slot| slot.packets);
        if end.is_none_or(|end| self.cursor.packet >= end) {
            self.cursor.index = self.cursor.index.wrapping_add(1);
            self.cursor.packet = 0;
        }
    }
}

/// The packets `packet..packet + span` of a message with payload. Slot number and PSN are not set.
#[inline(always)]
fn data_segment(slot: &SendSlot, packet: u32, span: u32, mtu: Mtu) -> RequestSegment {
    let request = &slot.request;
    let Piece {
        first,
        last,
        offset,
        len,
    } = cut(mtu, request.length, packet, span);
    let imm = request.op.has_imm();
    RequestSegment {
        slot: Slot::default(),
        opcode: match request.op {
            Operation::Send | Operation::SendImm => Opcode::for_send(first, last, imm),
            Operation::SendInv => Opcode::for_send_invalidate(first, last),
            // The other operations carry no payload and do not come here.
            _ => Opcode::for_write(first, last, imm),
        },
        psn: Psn::default(),
        span,
        offset,
        len,
        message_len: request.length,
        ack_req: false,
        solicited: last && request.solicited && request.op.may_solicit(),
    }
}

/// The request for the responses `packet..end` of a message; a READ may have many. Slot number and
/// PSN are not set.
#[inline(always)]
fn response_request(slot: &SendSlot, packet: u32, end: u32, mtu: Mtu) -> RequestSegment {
    let piece = cut(mtu, slot.request.length, packet, end.wrapping_sub(packet));
    let carried = match slot.request.op {
        Operation::AtomicWrite => ATOMIC_SIZE,
        _ => 0,
    };
    RequestSegment {
        slot: Slot::default(),
        opcode: match slot.request.op {
            Operation::CompareSwap => Opcode::RcCompareSwap,
            Operation::FetchAdd => Opcode::RcFetchAdd,
            Operation::AtomicWrite => Opcode::RcAtomicWrite,
            Operation::Flush => Opcode::RcFlush,
            // The other operations have no responses and do not come here.
            _ => Opcode::RcReadRequest,
        },
        psn: Psn::default(),
        span: 1,
        offset: piece.offset,
        len: carried,
        message_len: piece.len.max(carried),
        ack_req: false,
        solicited: false,
    }
}

/// The packet behind the READ request that contains packet number `packet` of a message of
/// `packets` packets. No request, first or later, asks for responses beyond it.
#[inline]
pub(super) const fn read_piece_end(packets: u32, packet: u32) -> u32 {
    let begin = packet.wrapping_sub(packet % READ_PIECE);
    let end = begin.saturating_add(READ_PIECE);
    if end < packets {
        end
    } else {
        packets
    }
}
