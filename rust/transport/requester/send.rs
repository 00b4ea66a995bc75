// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The send cursor: messages become packets (IBTA 9.7.2 to 9.7.4), and packets ask for ACKs.

use super::Cursor;
use super::Requester;
use super::State;
use super::READ_PIECE;
use crate::transport::completion::SendOp;
use crate::transport::config::Mtu;
use crate::transport::requester::slot::SendSlot;
use crate::transport::segment::Kind;
use crate::transport::segment::RequestSegment;
use crate::transport::segment::Reth;
use core::ops::DerefMut;

/// The most packets that leave without asking for an acknowledgement.
const ACK_INTERVAL: u64 = 64;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// What to send now, or `None` if nothing can be sent (nothing there, window full, fence,
    /// RNR wait, too many READs outstanding, draining, a failed work request, not connected).
    ///
    /// `max_span` is 1 for the wire. The segment counts as sent: if it cannot leave, say
    /// [`Self::unsend`], or let it count as lost.
    #[inline]
    pub fn next_segment(&mut self, now: u64, max_span: u32) -> Option<RequestSegment> {
        if self.state != State::Ready || self.retry.is_waiting(now) {
            return None;
        }
        if self.cursor.index == self.pushed {
            return None;
        }
        let room = self.window.room(self.in_flight());
        if room == 0 {
            return None;
        }
        if self.at_standstill() {
            self.step_back_for_ack()?;
        }

        let mtu = self.mtu;
        let cursor = self.cursor;
        let slot_number = self.ring.slot(cursor.index);
        let slot = self.ring.get_mut(cursor.index)?;
        if cursor.packet == 0 {
            if slot.request.fence && self.reads != 0 {
                return None;
            }
            slot.first = cursor.sequence;
            slot.packets = mtu.packets(slot.request.length);
        }
        let segment = if slot.request.op.is_read() {
            if self.reads >= u32::from(self.max_rd_atomic.max(1)) {
                return None;
            }
            let end = read_piece_end(slot, cursor.packet);
            let reth = read_reth(slot, cursor.packet, end, mtu);
            slot.begun = true;
            // A responder begins its answer with a "first" response wherever it was asked to.
            slot.asked_again |= cursor.packet % READ_PIECE != 0;
            self.reads = self.reads.wrapping_add(1);
            let segment = RequestSegment {
                slot: slot_number,
                kind: Kind::ReadRequest,
                first: true,
                last: true,
                psn: self.numbering.psn(cursor.sequence),
                span: 1,
                // Offsets are below the message's length, at most 2^31.
                offset: mtu.span_bytes(cursor.packet) as u32,
                len: 0,
                ack_req: false,
                solicited: false,
                imm: None,
                reth: Some(reth),
            };
            self.step(end.wrapping_sub(cursor.packet), 1, now);
            // The responses are the acknowledgement.
            self.asked = self.cursor.sequence;
            self.ask = false;
            segment
        } else {
            slot.begun = true;
            let left = slot.packets.wrapping_sub(cursor.packet);
            let span = left.min(room).min(max_span.max(1));
            let mut segment = cut(slot, cursor.packet, span, mtu);
            segment.slot = slot_number;
            segment.psn = self.numbering.psn(cursor.sequence);
            let signaled = slot.request.signaled;
            segment.ack_req = self.wants_ack(span, segment.last, signaled);
            self.step(span, span, now);
            if segment.ack_req {
                self.asked = self.cursor.sequence;
                self.ask = false;
            }
            segment
        };
        Some(segment)
    }

    /// The segment that [`Self::next_segment`] returned last could not leave: it will be returned
    /// again. The ACK timeout runs for it as if it had left.
    pub fn unsend(&mut self, segment: &RequestSegment) {
        if self.state != State::Ready {
            return;
        }
        let Some(sequence) = self.numbering.sequence(segment.psn, self.cursor.sequence) else {
            return;
        };
        let index = self.index_of(segment.slot);
        let behind = self.cursor.index.wrapping_sub(index);
        if sequence < self.una || sequence >= self.cursor.sequence || behind > 1 {
            return;
        }
        if segment.kind == Kind::ReadRequest {
            self.reads = self.reads.saturating_sub(1);
        }
        if sequence == self.una {
            self.retry.unsent();
        }
        self.cursor = Cursor {
            index,
            packet: segment
                .offset
                .wrapping_shr(self.mtu.bytes().trailing_zeros()),
            sequence,
        };
        self.forget_questions_from(sequence);
        self.ask |= segment.ack_req;
    }

    /// Packets sent and not acknowledged.
    #[inline]
    pub(super) const fn in_flight(&self) -> u64 {
        self.cursor.sequence.wrapping_sub(self.una)
    }

    /// Whether the cursor stands before a message that must not be begun, now or ever.
    #[inline]
    fn at_standstill(&self) -> bool {
        if self.cursor.packet != 0 {
            return false;
        }
        (self.draining && self.cursor.sequence == self.sent) || self.is_failed(self.cursor.index)
    }

    /// Whether the work request failed on this side.
    #[inline]
    fn is_failed(&self, index: u32) -> bool {
        index != self.pushed
            && self
                .ring
                .get(index)
                .is_some_and(|slot| !slot.status.is_success())
    }

    /// At a standstill: if nobody asked for the acknowledgement of the packets before, moves the
    /// cursor to the last one of them, to send it again and ask. `None` if there is nothing to do.
    ///
    /// The message before left without asking because it was not the last one then. Without this
    /// its end would only be known by a timeout, or never.
    fn step_back_for_ack(&mut self) -> Option<()> {
        if self.in_flight() == 0 || self.asked >= self.cursor.sequence {
            return None;
        }
        let index = self.cursor.index.wrapping_sub(1);
        let before = self.ring.get(index)?;
        if before.request.op.is_read() {
            // Its responses are the acknowledgement. To ask for one of them again would end the
            // answer that is on its way.
            return None;
        }
        let packets = before.packets;
        self.cursor = Cursor {
            index,
            packet: packets.checked_sub(1)?,
            sequence: self.cursor.sequence.checked_sub(1)?,
        };
        self.ask = true;
        Some(())
    }

    /// Whether the next `span` packets shall ask for an acknowledgement.
    #[inline]
    fn wants_ack(&self, span: u32, last: bool, signaled: bool) -> bool {
        if self.ask {
            return true;
        }
        let end = self.cursor.sequence.wrapping_add(u64::from(span));
        if last {
            let next = self.cursor.index.wrapping_add(1);
            if signaled || next == self.pushed || self.draining || self.is_failed(next) {
                return true;
            }
        }
        // The last packet of what is sent again.
        if self.cursor.sequence < self.sent && end >= self.sent {
            return true;
        }
        // Often enough that the window opens before it is full, and that the timeout, which runs
        // from ACK to ACK, does not depend on how long a large window takes on a slow wire.
        let size = u64::from(self.window.size());
        let silent = end.wrapping_sub(self.asked.max(self.una));
        silent >= (size / 2).min(ACK_INTERVAL) || end.wrapping_sub(self.una) >= size
    }

    /// Moves the cursor over `psns` sequence numbers of its message, which left as `packets` packets.
    #[inline]
    fn step(&mut self, psns: u32, packets: u32, now: u64) {
        if self.cursor.sequence == self.una {
            self.retry.sent(now);
        }
        self.counters.packets = self.counters.packets.wrapping_add(u64::from(packets));
        if self.cursor.sequence < self.sent {
            self.counters.retransmitted =
                self.counters.retransmitted.wrapping_add(u64::from(packets));
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

/// The packets `packet..packet + span` of a SEND or WRITE message. Slot number and PSN are not set.
#[inline]
fn cut(slot: &SendSlot, packet: u32, span: u32, mtu: Mtu) -> RequestSegment {
    let request = &slot.request;
    let first = packet == 0;
    let last = packet.wrapping_add(span) == slot.packets;
    let kind = match request.op {
        SendOp::Send | SendOp::SendImm => Kind::Send,
        SendOp::Write | SendOp::WriteImm | SendOp::Read => Kind::Write,
    };
    // The packet is one of the message's, so its offset is not beyond the length, at most 2^31.
    let offset = mtu.span_bytes(packet) as u32;
    let rest = request.length.saturating_sub(offset);
    let len = mtu.span_bytes(span).min(u64::from(rest)) as u32;
    RequestSegment {
        slot: 0,
        kind,
        first,
        last,
        psn: Default::default(),
        span,
        offset,
        len,
        ack_req: false,
        solicited: last && request.solicited,
        imm: if last && request.op.has_imm() {
            Some(request.imm)
        } else {
            None
        },
        reth: if first && kind == Kind::Write {
            Some(Reth {
                va: request.remote_addr,
                rkey: request.rkey,
                length: request.length,
            })
        } else {
            None
        },
    }
}

/// The packet behind the READ request that packet number `packet` of the message belongs to.
///
/// The bounds do not depend on what was lost and asked again, so that every response that is on
/// its way, of the first request or of a later one, ends where it should.
#[inline]
pub(super) fn read_piece_end(slot: &SendSlot, packet: u32) -> u32 {
    let request = &slot.request;
    // A range that wraps must be refused as a whole by the responder.
    if request
        .remote_addr
        .checked_add(u64::from(request.length))
        .is_none()
    {
        return slot.packets;
    }
    let begin = packet.wrapping_sub(packet % READ_PIECE);
    begin.saturating_add(READ_PIECE).min(slot.packets)
}

/// The RETH of the READ request for the packets `packet..end`.
#[inline]
fn read_reth(slot: &SendSlot, packet: u32, end: u32, mtu: Mtu) -> Reth {
    let request = &slot.request;
    let offset = mtu.span_bytes(packet);
    let rest = u64::from(request.length).saturating_sub(offset);
    let span = mtu.span_bytes(end.wrapping_sub(packet));
    Reth {
        va: request.remote_addr.wrapping_add(offset),
        rkey: request.rkey,
        // The rest of a message, at most 2^31.
        length: span.min(rest) as u32,
    }
}
