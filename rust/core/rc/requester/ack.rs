// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Acknowledgements: which WQEs are complete, which were NAKed, and what must be retransmitted
//! (IBTA 9.7.5, 9.9.2).

use super::recovery::Oldest;
use super::{
    Ignored,
    Requester,
    RequesterState,
    SendSlot, //
};
use crate::core::completion::{
    vendor,
    SendCompletion,
    Status, //
};
use crate::core::operation::Reply;
use crate::core::rc::sequence::Sequence;
use crate::core::rc::RequesterCounters;
use crate::core::send::Progress;
use crate::core::storage::Spare;
use crate::core::wire::headers::{
    rnr_delay_ns,
    Aeth,
    AethSyndrome,
    NakCode, //
};
use crate::core::wire::psn::Psn;
use core::ops::DerefMut;

/// Once this many acknowledgements carried the right MSN, one with a wrong MSN is not the
/// responder's.
pub(super) const MSN_TRUSTED: u8 = 4;

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> Requester<S, A> {
    /// Handles an acknowledge packet: ACK, RNR NAK or NAK.
    ///
    /// PSN and MSN must be values that a responder could send for what was sent: a forger has to
    /// guess both. The MSN is checked once the responder was seen to count as this side does
    /// ([`MSN_TRUSTED`]): few requesters look at it without credits, so a responder that counts
    /// differently, or not at all, may have gone unnoticed. A wrong MSN is counted in any case.
    #[inline]
    pub fn on_acknowledge(
        &mut self,
        psn: Psn,
        aeth: Aeth,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        self.on_answer(psn, aeth, None, now, sink)
    }

    /// Handles a report of the packets that the peer misses. `map` has its bitmap: little-endian
    /// words with a bit for each packet from `psn` on, which is set if the packet is kept.
    #[cold]
    pub fn on_missing(
        &mut self,
        psn: Psn,
        aeth: Aeth,
        map: &[u8],
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        self.on_answer(psn, aeth, Some(map), now, sink)
    }

    #[inline(always)]
    fn on_answer(
        &mut self,
        psn: Psn,
        aeth: Aeth,
        missing: Option<&[u8]>,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        if self.state != RequesterState::Ready {
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
        self.recovery.answered(now);
        match aeth.syndrome() {
            AethSyndrome::Nak(NakCode::PsnSequence) if missing.is_some() => {
                self.on_report(sequence, missing, now, sink);
            }
            AethSyndrome::Ack { .. } => {
                let end = sequence.wrapping_add(1);
                self.acknowledged_up_to(end, now, sink);
                if self.una < end {
                    self.implied_loss(sequence, now, sink);
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

    /// Messages are complete: checks whether the responder has counted as many.
    #[inline]
    fn compare_msn(&mut self, msn: u32) {
        if msn == self.messages_done & 0xff_ffff {
            self.msn_agreed = self.msn_agreed.saturating_add(1).min(MSN_TRUSTED);
        }
    }

    /// Whether a responder that acknowledges something outstanding may have counted this many
    /// messages: at least those that are acknowledged, and at most those sent (IBTA 9.7.7.1). A
    /// READ counts when it is accepted, so the PSN says nothing more precise.
    #[inline]
    fn can_be(&self, msn: u32) -> bool {
        let counted = msn.wrapping_sub(self.messages_done) & 0xff_ffff;
        counted <= self.messages_sent.wrapping_sub(self.messages_done)
    }

    fn count_unexpected(&mut self) {
        self.count(1, |counters| &mut counters.unexpected_responses);
    }

    pub(super) fn count_duplicate(&mut self) {
        self.count(1, |counters| &mut counters.duplicate_responses);
    }

    /// The sequence of a PSN that is outstanding. Counts those that are not.
    #[inline]
    pub(super) fn locate(&mut self, psn: Psn) -> Result<Sequence, Ignored> {
        match self.numbering.sequence(psn, self.una) {
            Some(sequence) if sequence >= self.sent => {
                self.count_unexpected();
                Err(Ignored::Unexpected)
            }
            Some(sequence) if sequence >= self.una => Ok(sequence),
            _ => {
                self.count_duplicate();
                Err(Ignored::Duplicate)
            }
        }
    }

    /// All packets before `end` arrived: completes their WQEs, in order.
    ///
    /// It stops at an RDMA READ, which only its responses complete, and at a failed WQE.
    #[inline]
    pub(super) fn acknowledged_up_to(
        &mut self,
        end: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        let before = self.una;
        while let Some(slot) = self.head() {
            let counts = match slot.request.op.reply() {
                Reply::Ack => 1,
                // Completed in its order; nobody else counts it.
                Reply::Local => 0,
                Reply::Response => break,
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

    /// The operation that [`Self::next`] returned has been executed. A failure completes when all
    /// earlier requests have completed.
    pub fn local_op_done(
        &mut self,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        let (index, first) = (self.cursor.index, self.cursor.sequence);
        if let Some(slot) = self.ring.get_mut(index) {
            slot.status = status;
            if status.is_success() {
                (slot.begun, slot.first, slot.packets) = (true, first, 0);
                self.cursor.index = index.wrapping_add(1);
            }
        }
        self.retire_local_ops(sink);
        self.settle(sink)
    }

    /// Retires executed local operations that are the oldest WQEs.
    #[inline]
    pub(super) fn retire_local_ops(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        let is_local = |slot: &SendSlot| slot.request.op.reply() == Reply::Local;
        if self.head().is_some_and(is_local) {
            self.retire_all_local_ops(sink);
        }
    }

    #[cold]
    fn retire_all_local_ops(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        while let Some(slot) = self.head() {
            if !slot.begun || slot.request.op.reply() != Reply::Local {
                break;
            }
            self.retire(Status::Success, 0, sink);
        }
    }

    /// The oldest unacknowledged packet was `before` and is now another one.
    #[inline]
    pub(super) fn progressed(&mut self, before: Sequence, now: u64) {
        self.recovery.progressed(before, self.una, now);
        if self.cursor.sequence <= self.una {
            // Packets to be retransmitted have arrived after all. With nothing left to retransmit
            // the cursor may still be at a request without packets that has just retired.
            self.cursor = self.oldest();
        }
    }

    /// An ACK or a response for a packet behind a READ implies that responses of the READ were lost
    /// (IBTA 9.9.2.2, "implied NAK"). `by` is that packet.
    pub(super) fn implied_loss(
        &mut self,
        by: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        let is_read = self
            .head()
            .is_some_and(|slot| slot.begun && slot.request.op.reply() == Reply::Response);
        if !is_read || self.in_flight() == 0 || !self.recovery.honours_implied(by, now) {
            return;
        }
        self.count(1, |counters| &mut counters.implied_naks);
        self.lost(sink);
    }

    /// The oldest packet was lost: goes back to it (go-back-N), unless its retries are exhausted.
    pub(super) fn lost(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        if self.recovery.lost() {
            self.go_back();
        } else {
            self.end_head(Status::RetryExcErr, vendor::RETRY, sink);
        }
    }

    /// Nothing was heard of the oldest packet for the ACK timeout: goes back to it. But if the peer
    /// is known to keep what is behind it, it alone is sent again, of a READ the request for all
    /// that is missing of the piece: what else is missing follows when it has arrived.
    ///
    /// The peer may have answered with a count that was taken for a forger's, so the next answers
    /// are heard whatever they count.
    pub(super) fn timed_out(&mut self, now: u64, sink: &mut impl FnMut(SendCompletion)) {
        self.msn_agreed = 0;
        if !self.recovery.lost() {
            self.end_head(Status::RetryExcErr, vendor::RETRY, sink);
            return;
        }
        let oldest = self.oldest();
        let packets = self
            .end_again(oldest)
            .map_or(1, |end| end.wrapping_sub(oldest.packet));
        let behind = self.una.wrapping_add(u64::from(packets));
        if !self.recovery.holes.repeat_oldest(self.una, behind, now) {
            self.go_back();
        }
    }

    /// A NAK or RNR NAK implies that all packets before its PSN arrived. Returns whether the PSN is
    /// the oldest packet and was not refused since its last transmission.
    fn is_about_oldest(
        &mut self,
        sequence: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> bool {
        self.acknowledged_up_to(sequence, now, sink);
        if self.una < sequence {
            self.implied_loss(sequence, now, sink);
            return false;
        }
        if self.recovery.retry.has_rnr_nak() {
            // A repeated RNR NAK, or one about a copy of the packet; or a NAK for packets behind
            // it, which does not matter.
            self.count_duplicate();
            return false;
        }
        true
    }

    /// A packet did not arrive; all before it did (IBTA 9.7.5.2.2).
    ///
    /// A second NAK for the same packet may be a duplicate of the network; to honour it would spend
    /// a retry although nothing was lost. It is honoured if the packet was retransmitted since, so
    /// long ago that the responder can have missed it again. Any sooner it is about an earlier
    /// transmission.
    fn on_sequence_nak(
        &mut self,
        sequence: Sequence,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        if !self.is_about_oldest(sequence, now, sink) {
            return;
        }
        if !self.recovery.honours_nak(sequence, now) {
            self.count_duplicate();
            return;
        }
        self.count(1, |counters| &mut counters.seq_naks);
        if self.in_flight() != 0 {
            self.lost(sink);
        }
    }

    /// The peer misses packets from this one on, and keeps others behind them. They are sent again
    /// alone. The oldest costs a retry each time, as with a NAK; which it is if there is no memory.
    fn on_report(
        &mut self,
        sequence: Sequence,
        map: Option<&[u8]>,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        self.recovery.tail.defer(now);
        self.acknowledged_up_to(sequence, now, sink);
        // Behind READs: the responses that are missing were lost, for the peer has sent them all.
        let is_behind_reads = self.una < sequence && self.are_reads_up_to(sequence.wrapping_sub(1));
        if !(is_behind_reads || self.is_about_oldest(sequence, now, sink)) {
            return;
        }
        if self.recovery.has_crossed(now) {
            self.count_duplicate();
            return;
        }
        // Without memory for holes all is sent again, as with a peer that keeps nothing.
        if !self.recovery.holes.provide() {
            self.on_sequence_nak(sequence, now, sink);
            return;
        }
        self.count(1, |counters| &mut counters.missing_reports);
        let map = map.unwrap_or_default();
        let word = |n: u64| {
            let bytes = (n as usize)
                .checked_mul(8)
                .and_then(|at| map.get(at..)?.first_chunk());
            bytes.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let oldest = self.recovery.reported(self.flight(), sequence, word, now);
        self.missing(oldest, |counters| &mut counters.seq_naks, sink);
    }

    /// Packets are missing at the peer, or responses here. The oldest of all is counted.
    pub(super) fn missing(
        &mut self,
        oldest: Oldest,
        counter: impl FnOnce(&mut RequesterCounters) -> &mut u32,
        sink: &mut impl FnMut(SendCompletion),
    ) {
        if oldest == Oldest::NoNews {
            return;
        }
        self.count(1, counter);
        match oldest {
            Oldest::NoNews | Oldest::SentAgain => {}
            Oldest::LeftToTimeout => self.count_duplicate(),
            Oldest::GivenUp => self.end_head(Status::RetryExcErr, vendor::RETRY, sink),
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
        if !self.recovery.retry.take_rnr() {
            self.end_head(Status::RnrRetryExcErr, vendor::RNR, sink);
            return;
        }
        self.go_back();
        self.recovery.wait_for_receiver(now, rnr_delay_ns(timer));
    }

    /// The responder sent a fatal NAK for a packet; all before it arrived.
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
            self.implied_loss(sequence, now, sink);
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
        self.end_head(status, vendor::nak(code), sink);
    }
}
