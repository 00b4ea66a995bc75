// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Responses to RDMA READs and atomic operations: where their payload goes, and when the WQE is
//! complete (IBTA 9.7.5.1.6, 9.9.2.2).

use super::ack::Unlocated;
use super::send::read_piece_end;
use super::Ignored;
use super::ReadPlacement;
use super::ReadRefused;
use super::Requester;
use super::RequesterState;
use super::SendSlot;
use super::READ_PIECE;
use crate::core::completion::vendor;
use crate::core::completion::SendCompletion;
use crate::core::completion::Status;
use crate::core::message::Mtu;
use crate::core::operation::Reply;
use crate::core::segment::ReadSegment;
use crate::core::send::Progress;
use core::ops::DerefMut;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
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
    ) -> Result<ReadPlacement, ReadRefused> {
        if self.state != RequesterState::Ready {
            return Err(ReadRefused {
                reason: Ignored::NotReady,
                progress: Progress::default(),
            });
        }
        let sequence = match self.locate(response.psn) {
            Ok(sequence) => sequence,
            Err(unlocated) => {
                return Err(ReadRefused {
                    reason: match unlocated {
                        Unlocated::Duplicate => Ignored::Duplicate,
                        Unlocated::Unexpected => Ignored::Unexpected,
                    },
                    progress: Progress::default(),
                })
            }
        };
        // A responder that answers a READ has received everything before it.
        self.acknowledged_up_to(sequence, now, sink);
        if self.una != sequence {
            self.count(1, |counters| &mut counters.out_of_sequence);
            if self.tail.was_probed(sequence) {
                // The last response to the request: what is missing before it was lost again, if it
                // was lost before.
                self.implied_at = None;
            }
            self.tail.defer(now);
            self.implied_loss(sink);
            return Err(self.refused(Ignored::Gap, sink));
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
                Err(self.refused(Ignored::Bad, sink))
            }
            // The WQE failed locally and ends now.
            Err(None) => Err(self.refused(Ignored::NotReady, sink)),
        }
    }

    /// The payload has been placed as `placement` says.
    #[inline]
    pub fn read_response_placed(
        &mut self,
        placement: &ReadPlacement,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        if self.state != RequesterState::Ready
            || placement.epoch != self.epoch
            || placement.sequence != self.una
        {
            return Progress::default();
        }
        let Some(slot) = self.head() else {
            return Progress::default();
        };
        if !slot.status.is_success() {
            return self.settle(sink);
        }
        let message_end = slot.end();
        let packet = self.una.wrapping_sub(slot.first) as u32;
        let piece_end = read_piece_end(slot.packets, packet);

        let before = self.una;
        self.una = before.wrapping_add(u64::from(placement.span));
        if packet.wrapping_add(placement.span) == piece_end {
            self.messages_done = self.messages_done.wrapping_add(1);
            // After a loss the count is 0 until the piece is requested again, which may come later
            // than the response to the first request.
            self.reads = self.reads.saturating_sub(1);
        }
        if self.una == message_end {
            self.retire(Status::Success, 0, sink);
            self.retire_local_ops(sink);
        }
        self.progressed(before, now);
        self.settle(sink)
    }

    /// The end of a response that is not placed.
    fn refused(&mut self, reason: Ignored, sink: &mut impl FnMut(SendCompletion)) -> ReadRefused {
        ReadRefused {
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
        || response.last != (end == piece_end)
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
