// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The answers to RDMA READs and atomic operations: where what they bring goes, and when the
//! request is complete (IBTA 9.7.5.1.6, 9.9.2.2).

use super::ack::Unlocated;
use super::send::read_piece_end;
use super::Ignored;
use super::Placement;
use super::Refused;
use super::Requester;
use super::SendSlot;
use super::State;
use super::READ_PIECE;
use crate::transport::completion::vendor;
use crate::transport::completion::SendCompletion;
use crate::transport::completion::Status;
use crate::transport::message::Mtu;
use crate::transport::operation::Answer;
use crate::transport::request::Progress;
use crate::transport::segment::ReadSegment;
use core::ops::DerefMut;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// A response came: where what it brings goes.
    ///
    /// It is not final before [`Self::read_response_placed`], and may be accepted again until then;
    /// if the memory of the work request is not accessible, the caller says [`Self::fail`] instead.
    #[inline]
    pub fn accept_read_response(
        &mut self,
        response: &ReadSegment,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Result<Placement, Refused> {
        if self.state != State::Ready {
            return Err(Refused {
                reason: Ignored::NotReady,
                progress: Progress::default(),
            });
        }
        let sequence = match self.locate(response.psn) {
            Ok(sequence) => sequence,
            Err(unlocated) => {
                return Err(Refused {
                    reason: match unlocated {
                        Unlocated::Duplicate => Ignored::Duplicate,
                        Unlocated::Unexpected => Ignored::Unexpected,
                    },
                    progress: Progress::default(),
                })
            }
        };
        // Whoever answers a READ has received all before it.
        self.acknowledged_up_to(sequence, now, sink);
        if self.una != sequence {
            self.count(1, |counters| &mut counters.out_of_sequence);
            if self.tail.was_probed(sequence) {
                // The last answer that there is to what was asked: what is missing before it was
                // lost again, if it was lost before.
                self.implied_at = None;
            }
            self.tail.defer(now);
            self.implied_loss(sink);
            return Err(self.refused(Ignored::Gap, sink));
        }

        let mtu = self.mtu;
        let verdict = match self.head() {
            Some(slot) if !slot.status.is_success() => Err(None),
            Some(slot) if slot.begun && slot.request.op.answer() == Answer::Response => {
                // The sequence is within the message, whose packets are below 2^24.
                let packet = sequence.wrapping_sub(slot.first) as u32;
                check(slot, packet, response, mtu).map_err(Some)
            }
            _ => Err(Some(vendor::RESPONSE_TO_NO_READ)),
        };
        match verdict {
            Ok(offset) => Ok(Placement {
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
            // The work request failed on this side, which ends it now.
            Err(None) => Err(self.refused(Ignored::NotReady, sink)),
        }
    }

    /// The payload is where `placement` says.
    #[inline]
    pub fn read_response_placed(
        &mut self,
        placement: &Placement,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        if self.state != State::Ready
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
            // After a loss the count is 0 until the piece is asked for again, which may come later
            // than the answer to the first request.
            self.reads = self.reads.saturating_sub(1);
        }
        if self.una == message_end {
            self.retire(Status::Success, 0, sink);
            self.retire_done_here(sink);
        }
        self.progressed(before, now);
        self.settle(sink)
    }

    /// The end of a response that is not placed.
    fn refused(&mut self, reason: Ignored, sink: &mut impl FnMut(SendCompletion)) -> Refused {
        Refused {
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
