// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The requester of a reliable connection: WQEs become segments, responses become completions (IBTA
//! volume 1, 9.7.2 to 9.7.6 and 9.9.2).
//!
//! # The life of a message
//!
//! A WQE is pushed into a slot and waits. When the send cursor reaches it, the message gets its
//! sequence numbers, and [`Requester::next`] returns it piece by piece, as far as the window,
//! fences, the number of READs and RNR back-off allow. Its last packet requests an ACK if a
//! consumer waits for the completion. An ACK moves `una` over it; if it was the oldest it retires,
//! and completes if it is signaled. READs retire when their last response is placed.
//!
//! Work requests are counted by free-running indices, packets by 64-bit sequences:
//!
//! ```text
//!             retired                  cursor.index                 pushed
//!                |                          |                          |
//!  work   -------+--------+--------+--------+--------+--------+--------+-----
//!  requests      | oldest |  sent  |  sent  | being  | waits  | waits  | free
//!         -------+--------+--------+--------+-- sent +--------+--------+-----
//!                    |                          |         |
//!  packets          una              cursor.sequence     sent
//!
//!                    retired <= una <= cursor <= pushed
//! ```
//!
//! `una` is the oldest packet that is not acknowledged; it belongs to the message `retired`. `sent`
//! is how far the cursor ever came. After a loss the cursor goes back to `una` and passes the same
//! packets again (go-back-N); responses for anything up to `sent` stay valid meanwhile.
//!
//! # Who ends a connection
//!
//! An error ends the oldest WQE, never an earlier or later one: earlier ones are complete by then,
//! and later ones are flushed. A local error ([`Requester::fail`], [`Requester::push_failed`])
//! therefore waits in its slot until it is the oldest.
//!
//! # Long READs
//!
//! A READ is asked for in pieces of [`READ_PIECE`] packets, each a READ request of its own on the
//! wire. A piece is asked for when the window has room for its responses, or nothing is in flight.
//!
//! # Local operations
//!
//! They take no PSN. One is executed when the cursor reaches it ([`Requester::next`]), in the order
//! of the queue, and retires when the earlier WQEs have. Going back over it does nothing.
//!
//! # Losses
//!
//! What is lost, who notices, and what it costs is the table of [`recovery`].

mod ack;
mod read;
mod recovery;
mod send;

pub use read::{
    Ignored,
    ReadIgnored,
    ReadPlacement, //
};

use crate::core::completion::{
    vendor,
    SendCompletion,
    Status, //
};
use crate::core::message::{
    Mtu,
    MAX_MESSAGE, //
};
use crate::core::operation::Reply;
use crate::core::rc::sequence::{
    Numbering,
    Sequence, //
};
use crate::core::rc::{
    RequesterConfig,
    RequesterCounters,
    MAX_RD_ATOMIC, //
};
use crate::core::send::{
    Progress,
    PushError,
    SendRequest, //
};
use crate::core::storage::{
    InPlace,
    Slot,
    SlotRing,
    Spare, //
};
use crate::core::wire::psn::Psn;
use core::ops::DerefMut;
use recovery::{
    Flight,
    LossRecovery, //
};

/// Most response packets that one READ request asks for.
pub const READ_PIECE: u32 = 512;

/// The state of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequesterState {
    /// Not connected.
    Reset,
    /// Sends and completes.
    Ready,
    /// A WQE ended in error; only a flush follows.
    Fatal,
}

/// A slot of the send queue, for its requester. The content is the requester's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    request: SendRequest,
    /// Sequence of the message's first packet; only meaningful once it has `begun`.
    first: Sequence,
    /// How many PSNs the message takes; only meaningful once it has `begun`.
    packets: u32,
    /// Not success: the WQE failed locally, and completes with this status in its order.
    status: Status,
    /// Its first packet was sent at least once.
    begun: bool,
    /// Some packet of it was retransmitted.
    repeated: bool,
}

impl SendSlot {
    /// Sequence of the packet behind the message's last one.
    #[inline]
    const fn end(&self) -> Sequence {
        self.first.wrapping_add(self.packets as u64)
    }
}

// A send queue of 16384 requests has as many of them.
const _: () = assert!(size_of::<SendSlot>() == 32);

/// The send cursor: what to send next.
#[derive(Clone, Copy, Debug, Default)]
struct SendCursor {
    /// The WQE.
    index: u32,
    /// How many packets of its message the cursor has passed.
    packet: u32,
    /// Sequence of the next packet.
    sequence: Sequence,
}

/// The requester of a QP. Times are nanoseconds of any monotonic clock. What losses need is in
/// memory of `A`.
///
/// # Invariants
///
/// `una <= cursor.sequence <= sent`. The slots `retired..pushed` hold WQEs, and the cursor is at
/// one of them or behind the last; `una` is in the message of the first of them if that has
/// `begun`, and equals `sent` otherwise.
pub struct Requester<S, A: Spare = InPlace> {
    ring: SlotRing<S>,
    state: RequesterState,
    draining: bool,
    /// The next packet requests an ACK, whatever it is.
    ack_next: bool,
    max_rd_atomic: u8,
    mtu: Mtu,
    numbering: Numbering,
    pushed: u32,
    retired: u32,
    /// WQEs that the cursor has passed and whose responses are not complete.
    reads: u32,
    /// Upper bound of the messages that the responder has counted: those sent, each READ request
    /// being one. Modulo 2^24 it is the largest possible MSN.
    messages_sent: u32,
    /// How many of them are acknowledged: the smallest possible MSN.
    messages_done: u32,
    /// Consecutive acknowledgements with the right count, at most [`ack::MSN_TRUSTED`].
    msn_agreed: u8,
    /// Changes with each connection: placements of an earlier one are void.
    epoch: u32,
    cursor: SendCursor,
    una: Sequence,
    sent: Sequence,
    /// An ACK was requested for all packets before this one.
    ack_requested: Sequence,
    /// Its value before the last request.
    ack_requested_before: Sequence,
    recovery: LossRecovery<A>,
    counters: RequesterCounters,
    /// A counter other than the packet counter has changed.
    counters_changed: bool,
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// [`Self::with_spare`], with all memory in place.
    pub fn new(slots: S) -> Self {
        Self::with_spare(slots)
    }
}

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> Requester<S, A> {
    /// A requester over these slots, in RESET.
    ///
    /// The number of slots should be a power of two; else only the next smaller one is used.
    pub fn with_spare(slots: S) -> Self {
        Self {
            ring: SlotRing::new(slots),
            state: RequesterState::Reset,
            draining: false,
            ack_next: false,
            max_rd_atomic: 0,
            mtu: Mtu::MIN,
            numbering: Numbering::default(),
            pushed: 0,
            retired: 0,
            reads: 0,
            messages_sent: 0,
            messages_done: 0,
            msn_agreed: 0,
            epoch: 0,
            cursor: SendCursor::default(),
            una: 0,
            sent: 0,
            ack_requested: 0,
            ack_requested_before: 0,
            recovery: LossRecovery::new(),
            counters: RequesterCounters::default(),
            counters_changed: false,
        }
    }

    /// Resets everything but the counters: the transition to RESET. Nothing completes, and the
    /// indices begin at 0 again.
    pub fn reset(&mut self) {
        self.state = RequesterState::Reset;
        self.draining = false;
        self.pushed = 0;
        self.retired = 0;
        self.cursor = SendCursor::default();
        self.una = 0;
        self.sent = 0;
        self.forget_flight();
    }

    /// Begins a connection: the transition to RTS. WQEs pushed before are sent now.
    pub fn connect(&mut self, config: RequesterConfig) {
        self.state = RequesterState::Ready;
        self.draining = false;
        self.max_rd_atomic = config.max_rd_atomic.min(MAX_RD_ATOMIC);
        self.mtu = config.mtu;
        self.numbering = Numbering::new(config.sq_psn);
        self.una = 0;
        self.sent = 0;
        self.cursor = SendCursor {
            index: self.retired,
            packet: 0,
            sequence: 0,
        };
        self.forget_flight();
        self.messages_sent = 0;
        self.messages_done = 0;
        self.msn_agreed = 0;
        self.recovery.connect(&config);
    }

    /// Changes the retry counts (0..=7): a transition within RTS or out of SQD. Retries that the
    /// oldest packet has used stay used.
    pub fn set_retries(&mut self, retry_cnt: u8, rnr_retry: u8) {
        self.recovery.retry.set_counts(retry_cnt, rnr_retry);
    }

    /// Changes the Local ACK Timeout. The deadline may become earlier.
    pub fn set_ack_timeout(&mut self, ack_timeout_ns: Option<u64>) {
        self.recovery.retry.set_ack_timeout(ack_timeout_ns);
    }

    /// Changes the number of RDMA READs that may be outstanding.
    ///
    /// 0 refuses only further READs; those pushed before are still sent, one at a time.
    pub fn set_max_rd_atomic(&mut self, max_rd_atomic: u8) {
        self.max_rd_atomic = max_rd_atomic.min(MAX_RD_ATOMIC);
    }

    /// Packets of this side wait in the network: the peer says so, or READ responses, which leave
    /// as this side asks for them, are marked.
    #[cold]
    pub fn slow_down(&mut self) {
        if self.state == RequesterState::Ready && self.recovery.window.marked(self.una, self.sent) {
            self.count(1, |counters| &mut counters.slowdowns);
        }
    }

    /// Free-running index of the next WQE to be pushed.
    #[inline]
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Free-running index of the oldest WQE that is not complete: the slots of earlier ones are
    /// free.
    #[inline]
    pub fn retired(&self) -> u32 {
        self.retired
    }

    /// The path MTU.
    #[inline]
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// PSN of the next new packet (`sq_psn` of `ibv_query_qp`).
    pub fn next_psn(&self) -> Psn {
        self.numbering.psn(self.sent)
    }

    /// PSN of the oldest packet that is not acknowledged.
    pub fn oldest_psn(&self) -> Psn {
        self.numbering.psn(self.una)
    }

    /// Retries left for that packet, and RNR retries.
    pub fn retries_left(&self) -> (u8, u8) {
        self.recovery.retry.left()
    }

    /// How many packets may be in flight.
    pub fn window_size(&self) -> u32 {
        self.recovery.window.size()
    }

    /// The counters since they were taken last. They are kept over [`Self::reset`].
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// Takes the counters, if one other than the packet counter is not 0: they begin anew.
    #[inline]
    pub fn take_counters(&mut self) -> Option<RequesterCounters> {
        core::mem::take(&mut self.counters_changed).then(|| core::mem::take(&mut self.counters))
    }

    /// Marks a rare counter as changed.
    #[cold]
    fn count(&mut self, by: u32, counter: impl FnOnce(&mut RequesterCounters) -> &mut u32) {
        let counter = counter(&mut self.counters);
        *counter = counter.wrapping_add(by);
        self.counters_changed = true;
    }

    /// Pushes a WQE and returns its slot.
    #[inline]
    pub fn push(&mut self, request: SendRequest) -> Result<Slot, PushError> {
        if request.length > MAX_MESSAGE {
            return Err(PushError::TooLong);
        }
        let answer = request.op.reply();
        if answer == Reply::Response
            && self.max_rd_atomic == 0
            && self.state == RequesterState::Ready
        {
            return Err(PushError::NoReads);
        }
        self.push_slot(request, Status::Success)
    }

    /// Pushes a WQE that cannot be executed: it completes with `status` once the earlier ones are
    /// complete, at once if there are none.
    pub fn push_failed(
        &mut self,
        wr_id: u64,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Result<Progress, PushError> {
        let request = SendRequest {
            wr_id,
            signaled: true,
            ..SendRequest::default()
        };
        self.push_slot(request, status)?;
        if self.state != RequesterState::Ready {
            return Ok(Progress::default());
        }
        Ok(self.settle(sink))
    }

    #[inline]
    fn push_slot(&mut self, request: SendRequest, status: Status) -> Result<Slot, PushError> {
        if self.pushed.wrapping_sub(self.retired) >= self.ring.capacity() {
            return Err(PushError::Full);
        }
        let slot = self.ring.get_mut(self.pushed).ok_or(PushError::Full)?;
        *slot = SendSlot {
            request,
            status,
            ..SendSlot::default()
        };
        let slot = self.ring.slot(self.pushed);
        self.pushed = self.pushed.wrapping_add(1);
        Ok(slot)
    }

    /// The local memory of the WQE in `slot` is not accessible: it completes with `status` once the
    /// earlier ones are complete, and the connection ends then.
    pub fn fail(
        &mut self,
        slot: Slot,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        let index = self.ring.index_of(slot, self.retired);
        let ahead = index.wrapping_sub(self.retired);
        if self.state != RequesterState::Ready || ahead >= self.pushed.wrapping_sub(self.retired) {
            return Progress::default();
        }
        let cursor_ahead = self.cursor.index.wrapping_sub(self.retired);
        let Some(slot) = self.ring.get_mut(index) else {
            return Progress::default();
        };
        if slot.status.is_success() {
            slot.status = status;
        }
        if slot.begun && cursor_ahead >= ahead && slot.first >= self.una {
            let sequence = slot.first;
            self.rewind(SendCursor {
                index,
                packet: 0,
                sequence,
            });
        }
        self.settle(sink)
    }

    /// When to call [`Self::on_deadline`].
    ///
    /// Progress moves it to a later time, which needs no attention: a timer that fires too early is
    /// armed again. It becomes earlier when a packet leaves, when the peer refuses one or misses
    /// some, when READ responses are missing, and with [`Self::unsend`].
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        if self.state != RequesterState::Ready {
            return None;
        }
        self.recovery.deadline(self.flight())
    }

    /// The time is `now`. Calls before the deadline are harmless.
    pub fn on_deadline(&mut self, now: u64, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        if self.deadline().is_none_or(|at| at > now) {
            return Progress::default();
        }
        let timeout = self.recovery.retry.timeout_at(true);
        if timeout.is_some_and(|at| at <= now) && self.is_to_be_sent_again(now) {
            // It has not left because a worker is late, and until it has, nobody can answer.
            self.recovery.retry.postpone(now);
        }
        if self.recovery.on_deadline(self.flight(), now) {
            self.count(1, |counters| &mut counters.timeouts);
            self.timed_out(now, sink);
        }
        self.settle(sink)
    }

    /// Whether the oldest packet was given up, and neither left again nor was refused since.
    fn is_to_be_sent_again(&self, now: u64) -> bool {
        let missing = self.recovery.holes.next(now);
        let is_missing = missing.is_some_and(|(oldest, _)| oldest == self.una);
        (self.in_flight() == 0 || is_missing) && !self.recovery.retry.has_wait()
    }

    /// Completes all WQEs in order: failed ones with their own status, the others with
    /// `WrFlushErr`. Call it in ERR, again for each WQE pushed there.
    pub fn flush(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        self.flush_some(u32::MAX, sink);
    }

    /// Like [`Self::flush`], but at most this many; returns the number. Nothing is sent any more
    /// even if some are left.
    pub fn flush_some(&mut self, most: u32, sink: &mut impl FnMut(SendCompletion)) -> u32 {
        if self.state == RequesterState::Ready {
            self.state = RequesterState::Fatal;
        }
        let begin = self.retired;
        while self.retired.wrapping_sub(begin) < most {
            let Some(slot) = self.head() else {
                break;
            };
            let (status, vendor_err) = slot.status.when_flushed();
            self.retire(status, vendor_err, sink);
        }
        self.una = self.sent;
        self.cursor = self.oldest();
        self.forget_flight();
        self.retired.wrapping_sub(begin)
    }

    /// SQD: with `on`, messages in progress finish and no new one begins.
    pub fn drain(&mut self, on: bool) {
        self.draining = on;
    }

    /// Whether all messages in progress are complete.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.state != RequesterState::Ready || (self.una == self.sent && self.cursor.packet == 0)
    }

    /// Whether something is to be sent: now, or when the window, a back-off or a fence permits.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.state == RequesterState::Ready
            && (self.cursor.index != self.pushed || self.recovery.has_due())
    }

    /// Whether packets are in flight: sent, not acknowledged, and not given up.
    #[inline]
    pub fn has_in_flight(&self) -> bool {
        self.in_flight() != 0
    }

    /// The packets in flight.
    #[inline(always)]
    const fn flight(&self) -> Flight {
        Flight {
            una: self.una,
            next: self.cursor.sequence,
            sent: self.sent,
        }
    }

    /// How many there are: sent, and not acknowledged.
    #[inline]
    const fn in_flight(&self) -> u64 {
        self.flight().len()
    }

    /// The oldest WQE.
    #[inline]
    fn head(&self) -> Option<&SendSlot> {
        if self.retired == self.pushed {
            return None;
        }
        self.ring.get(self.retired)
    }

    /// The cursor of the oldest unacknowledged packet.
    #[inline]
    fn oldest(&self) -> SendCursor {
        let packet = match self.head() {
            // The difference is below the packets of a message.
            Some(slot) if slot.begun => self.una.saturating_sub(slot.first) as u32,
            _ => 0,
        };
        SendCursor {
            index: self.retired,
            packet,
            sequence: self.una,
        }
    }

    /// Retires the oldest WQE.
    #[inline]
    fn retire(&mut self, status: Status, vendor_err: u32, sink: &mut impl FnMut(SendCompletion)) {
        let Some(slot) = self.head() else {
            return;
        };
        let retired = self.retired.wrapping_add(1);
        if slot.request.signaled || !status.is_success() {
            sink(SendCompletion {
                retired,
                wr_id: slot.request.wr_id,
                status,
                op: slot.request.op,
                byte_len: slot.request.length,
                vendor_err,
            });
        }
        self.retired = retired;
    }

    /// The oldest WQE ends in error, and with it the connection.
    fn end_head(&mut self, status: Status, vendor_err: u32, sink: &mut impl FnMut(SendCompletion)) {
        self.retire(status, vendor_err, sink);
        self.state = RequesterState::Fatal;
    }

    /// The end of an event: completes the oldest WQE if it has failed.
    #[inline]
    fn settle(&mut self, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        if self.state == RequesterState::Ready {
            let failed = self.head().map_or(Status::Success, |slot| slot.status);
            if !failed.is_success() {
                self.end_head(failed, vendor::LOCAL, sink);
            }
        }
        match self.state {
            RequesterState::Fatal => Progress::Failed,
            RequesterState::Reset | RequesterState::Ready => Progress::Continue,
        }
    }

    /// Moves the cursor back to the oldest unacknowledged packet: all later ones count as lost.
    fn go_back(&mut self) {
        self.rewind(self.oldest());
        // The first packet requests an ACK, so earlier requests do not matter.
        self.ack_next = true;
    }

    /// Moves the cursor back: later packets may never have left, and with them the ACK requests for
    /// earlier ones.
    fn rewind(&mut self, to: SendCursor) {
        if self.ack_requested > to.sequence {
            self.ack_requested = if self.ack_requested_before <= to.sequence {
                self.ack_requested_before.max(self.una)
            } else {
                self.una
            };
        }
        self.cursor = to;
        self.recovery.rewind(to.sequence, self.una);
        self.reads = self.count_reads();
    }

    /// WQEs between `una` and the cursor that are answered by a response: no more than packets in
    /// flight.
    fn count_reads(&self) -> u32 {
        let mut reads = 0u32;
        let mut index = self.retired;
        while self.una != self.cursor.sequence && index != self.pushed {
            let Some(slot) = self.ring.get(index) else {
                break;
            };
            if !slot.begun || slot.first >= self.cursor.sequence {
                break;
            }
            if slot.request.op.reply() == Reply::Response {
                // Both are within the message, whose packets are below 2^24.
                let from = self.una.saturating_sub(slot.first) as u32;
                let to = self.cursor.sequence.min(slot.end());
                let to = to.saturating_sub(slot.first) as u32;
                if from < to {
                    let pieces = to.div_ceil(READ_PIECE).wrapping_sub(from / READ_PIECE);
                    reads = reads.wrapping_add(pieces);
                }
            }
            index = index.wrapping_add(1);
        }
        reads
    }

    /// Forgets everything about packets in flight.
    fn forget_flight(&mut self) {
        self.ack_requested = self.una;
        self.ack_next = false;
        self.reads = 0;
        self.epoch = self.epoch.wrapping_add(1);
        self.recovery.forget_flight();
    }
}

#[cfg(test)]
mod tests;
