// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Acknowledgements: what is complete, what was refused, and what must be sent again (IBTA 9.7.5,
//! 9.9.2).

use super::Requester;
use super::SendSlot;
use super::State;
use crate::transport::completion::vendor;
use crate::transport::completion::SendCompletion;
use crate::transport::completion::Status;
use crate::transport::operation::Answer;
use crate::transport::reliable::sequence::Sequence;
use crate::transport::request::Progress;
use crate::wire::headers::rnr_delay_ns;
use crate::wire::headers::Aeth;
use crate::wire::headers::AethSyndrome;
use crate::wire::headers::NakCode;
use crate::wire::psn::Psn;
use core::ops::DerefMut;

/// A round-trip time that is not known is taken for this, in nanoseconds.
const UNKNOWN_ROUND_TRIP: u64 = 1_000_000;

/// After so many acknowledgements of messages with the right MSN, one with a wrong MSN is not the
/// responder's.
pub(super) const MSN_TRUSTED: u8 = 4;

/// A response whose PSN is not outstanding.
pub(super) enum Unlocated {
    /// Older than what is outstanding.
    Duplicate,
    /// Never sent.
    Unexpected,
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// An acknowledge packet came: ACK, RNR NAK or NAK.
    ///
    /// PSN and MSN have to be such that a responder could say them of what was sent: who guesses
    /// has to guess both. The MSN has to be so once the responder was seen to count as we do
    /// ([`MSN_TRUSTED`]): few requesters look at it without credits, so one that counts otherwise,
    /// or not at all, may have gone unnoticed. A wrong one is counted in any case.
    #[inline]
    pub fn on_acknowledge(
        &mut self,
        psn: Psn,
        aeth: Aeth,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        if self.state != State::Ready {
            return Progress::default();
        }
        let Ok(sequence) = self.locate(psn) else {
            return Progress::default();
        };
        if !self.can_be(aeth.msn()) {
            self.count_unexpected();
            if self.msn_agreed == MSN_TRUSTED {
                return Progress::default();
            }
            self.msn_agreed = 0;
        }
        let done_before = self.messages_done;
        if self.repeated_at.is_none() {
            let sample = now.saturating_sub(self.retry.since());
            self.tail.round_trip.estimate(sample, now);
        }
        match aeth.syndrome() {
            AethSyndrome::Ack { .. } => {
                let end = sequence.wrapping_add(1);
                self.acknowledged_up_to(end, now, sink);
                if self.una < end {
                    self.implied_loss(sink);
                }
            }
            AethSyndrome::RnrNak { timer } => self.on_rnr_nak(sequence, timer, now, sink),
            AethSyndrome::Nak(NakCode::PsnSequence) => self.on_sequence_nak(sequence, now, sink),
            AethSyndrome::Nak(code) => self.on_fatal_nak(sequence, code, now, sink),
            AethSyndrome::Reserved(_) => self.count_unexpected(),
        }
        if self.messages_done != done_before {
            self.compare_msn(aeth.msn());
        }
        self.settle(sink)
    }

    /// Messages are complete: whether the responder has counted as many.
    #[inline]
    fn compare_msn(&mut self, msn: u32) {
        if msn == self.messages_done & 0xff_ffff {
            self.msn_agreed = self.msn_agreed.saturating_add(1).min(MSN_TRUSTED);
        }
    }

    /// Whether a responder that answers something outstanding may have counted so many messages: at
    /// least those that are acknowledged, and not more than were sent (IBTA 9.7.7.1). Since a READ
    /// counts when it is accepted, there is no telling by the PSN more exactly.
    #[inline]
    fn can_be(&self, msn: u32) -> bool {
        let counted = msn.wrapping_sub(self.messages_done) & 0xff_ffff;
        counted <= self.messages_sent.wrapping_sub(self.messages_done)
    }

    fn count_unexpected(&mut self) {
        self.count(1, |counters| &mut counters.unexpected_responses);
    }

    fn count_duplicate(&mut self) {
        self.count(1, |counters| &mut counters.duplicate_responses);
    }

    /// The sequence of a PSN that is outstanding. Counts those that are not.
    #[inline]
    pub(super) fn locate(&mut self, psn: Psn) -> Result<Sequence, Unlocated> {
        match self.numbering.sequence(psn, self.una) {
            Some(sequence) if sequence >= self.sent => {
                self.count_unexpected();
                Err(Unlocated::Unexpected)
            }
            Some(sequence) if sequence >= self.una => Ok(sequence),
            _ => {
                self.count_duplicate();
                Err(Unlocated::Duplicate)
            }
        }
    }

    /// All packets before `end` arrived: completes what that completes, in order.
    ///
    /// It goes no further than an RDMA READ, which only its responses complete, and a failed work
    /// request.
    #[inline]
    pub(super) fn acknowledged_up_to(
        &mut self,
        end: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        let before = self.una;
        while let Some(slot) = self.head() {
            let counts = match slot.request.op.answer() {
                Answer::Ack | Answer::None => 1,
                // Done when its turn came; nobody else counts it.
                Answer::Here => 0,
                Answer::Response => break,
            };
            if !slot.begun || !slot.status.is_success() {
                break;
            }
            let message_end = slot.end();
            if message_end > end {
                self.una = self.una.max(end);
                break;
            }
            self.una = message_end;
            self.messages_done = self.messages_done.wrapping_add(counts);
            self.retire(Status::Success, 0, sink);
        }
        if self.una != before {
            self.progressed(before, now);
        }
    }

    /// The oldest unacknowledged packet was `before` and is another one now.
    #[inline]
    pub(super) fn progressed(&mut self, before: Sequence, now: u64) {
        self.window.grow(self.una.wrapping_sub(before));
        self.retry.progress(now);
        self.tail.progress(self.una, now);
        self.repeated_at = None;
        self.forget_losses();
        if self.cursor.sequence <= self.una {
            // What was to be sent again had arrived after all. With nothing left to be sent again
            // the cursor may still be at a request without packets that has just retired.
            self.cursor = self.oldest();
        }
    }

    /// An ACK or a response for something behind a READ says that responses of the READ were lost
    /// (IBTA 9.9.2.2, "implied NAK"). Once is enough until it has made progress: what is on its way
    /// will say so again.
    pub(super) fn implied_loss(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        let is_read = self
            .head()
            .is_some_and(|slot| slot.begun && slot.request.op.answer() == Answer::Response);
        if !is_read || self.implied_at == Some(self.una) || self.in_flight() == 0 {
            return;
        }
        self.implied_at = Some(self.una);
        self.count(1, |counters| &mut counters.implied_naks);
        self.lost(sink);
    }

    /// The oldest packet was lost: goes back to it, unless that was done too often.
    pub(super) fn lost(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        if !self.retry.take() {
            self.end_head(Status::RetryExcErr, vendor::RETRY, sink);
            return;
        }
        self.window.shrink();
        self.go_back();
    }

    /// A NAK or RNR NAK says that all before a packet arrived. Whether that is the oldest packet,
    /// and it was not refused since it was sent last.
    fn is_about_oldest(
        &mut self,
        sequence: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> bool {
        self.acknowledged_up_to(sequence, now, sink);
        if self.una < sequence {
            self.implied_loss(sink);
            return false;
        }
        if self.retry.was_refused() {
            // The RNR NAK again, or one about a copy of the packet; or a NAK for what was sent
            // behind it, which does not matter.
            self.count_duplicate();
            return false;
        }
        true
    }

    /// A packet did not arrive; all before it did (IBTA 9.7.5.2.2).
    ///
    /// The same NAK again is one that the network doubled, and to obey it would spend a retry
    /// although nothing was lost; unless the packet was sent again since, and so long ago that the
    /// responder can have missed it once more. Sooner, it is about an earlier sending.
    fn on_sequence_nak(
        &mut self,
        sequence: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        if !self.is_about_oldest(sequence, now, sink) {
            return;
        }
        let least = self.tail.round_trip.least();
        let half = least.unwrap_or(UNKNOWN_ROUND_TRIP) / 2;
        let is_fresh = |at: u64| now.saturating_sub(at) <= half;
        if self.reported_at == Some(sequence)
            || self.repeated_at.is_some_and(is_fresh)
            || !self.retry.obeys_report()
        {
            self.count_duplicate();
            return;
        }
        self.reported_at = Some(sequence);
        self.count(1, |counters| &mut counters.seq_naks);
        if self.in_flight() != 0 {
            self.lost(sink);
        }
    }

    /// The responder had no receive for a packet; all before it arrived (IBTA 9.7.5.2.8).
    fn on_rnr_nak(
        &mut self,
        sequence: Sequence,
        timer: u8,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        if !self.is_about_oldest(sequence, now, sink) {
            return;
        }
        self.count(1, |counters| &mut counters.rnr_naks);
        if !self.retry.take_rnr() {
            self.end_head(Status::RnrRetryExcErr, vendor::RNR, sink);
            return;
        }
        self.window.begin_anew();
        self.go_back();
        self.retry.wait_for_receiver(now, rnr_delay_ns(timer));
    }

    /// The responder refused a packet for good; all before it arrived.
    fn on_fatal_nak(
        &mut self,
        sequence: Sequence,
        code: NakCode,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        self.acknowledged_up_to(sequence, now, sink);
        let is_head = self
            .head()
            .is_some_and(|slot| slot.begun && sequence < slot.end());
        if !is_head {
            self.implied_loss(sink);
            return;
        }
        let status = match code {
            NakCode::RemoteAccess => Status::RemAccessErr,
            NakCode::RemoteOperational => Status::RemOpErr,
            // The last two do not exist on a reliable connection.
            NakCode::InvalidRequest | NakCode::InvalidRdRequest | NakCode::PsnSequence => {
                Status::RemInvReqErr
            }
        };
        self.count(1, |counters| &mut counters.fatal_naks);
        self.end_head(status, vendor::refused(code), sink);
    }
}
