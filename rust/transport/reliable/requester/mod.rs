// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The sending side of a reliable connection: work requests become segments, responses become
//! completions (IBTA volume 1, 9.7.2 to 9.7.6 and 9.9.2).
//!
//! # The life of a message
//!
//! A work request is pushed into a slot and waits. When the send cursor reaches it, the message
//! gets its sequence numbers, and [`Requester::next_segment`] returns it piece by piece, as far as
//! the window, fences, the number of READs and RNR waits allow. Its last packet asks for an
//! acknowledgement if somebody waits for it. An ACK moves `una` over it; if it was
//! the oldest it retires, and completes if it is signaled. READs retire when their last response
//! is placed.
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
//! `una` is the oldest packet that is not acknowledged; it belongs to the message `retired`.
//! `sent` is how far the cursor ever came. After a loss the cursor goes back to `una` and runs over
//! the same packets again; responses for anything up to `sent` stay valid meanwhile.
//!
//! # Who ends a connection
//!
//! An error ends the oldest work request, never one before or behind it: the ones before are
//! complete by then, and those behind are flushed. What goes wrong on this side
//! ([`Requester::fail`], [`Requester::push_failed`]) therefore waits in its slot until it is the
//! oldest.
//!
//! # Long READs
//!
//! A READ is asked for in pieces of [`READ_PIECE`] packets, each a READ request of its own on the
//! wire. A piece is asked for when the window has room for its responses, or nothing is in flight.
//!
//! # Requests that ask no peer
//!
//! They take no PSN. One is done when the cursor reaches it ([`Requester::next_here`]), in the
//! order of the others, and retires when those before it have. Going back over it does nothing.
//!
//! # Losses
//!
//! | what is lost | who notices | what it costs |
//! |---|---|---|
//! | a packet in the middle | the responder, by NAK, and again | one of half the retries |
//! | a READ response in the middle | this side, by a later response or ACK | one retry |
//! | the end of a flight | the probe of [`tail`], or the ACK timeout | none, or one retry |
//! | a packet that did not leave this host | the owner: [`Requester::unsend`] | nothing |
//! | nothing, but there is no receive | the responder, by RNR NAK | one RNR retry, and a wait |
//!
//! Behind a refused packet nothing is sent until it is accepted ([`window`]).

mod ack;
mod here;
mod outcome;
mod read;
mod retry;
mod rtt;
mod send;
mod slot;
mod tail;
mod window;

pub use outcome::Here;
pub use outcome::Ignored;
pub use outcome::Placement;
pub use outcome::Refused;
pub use slot::SendSlot;

use crate::transport::completion::vendor;
use crate::transport::completion::SendCompletion;
use crate::transport::completion::Status;
use crate::transport::message::Mtu;
use crate::transport::message::MAX_MESSAGE;
use crate::transport::operation::Answer;
use crate::transport::reliable::config::RequesterConfig;
use crate::transport::reliable::config::MAX_RD_ATOMIC;
use crate::transport::reliable::counters::RequesterCounters;
use crate::transport::reliable::sequence::Numbering;
use crate::transport::reliable::sequence::Sequence;
use crate::transport::request::Progress;
use crate::transport::request::PushError;
use crate::transport::request::SendRequest;
use crate::wire::psn::Psn;
use core::ops::DerefMut;
use retry::Retry;
use slot::Ring;
use tail::Tail;
use window::Window;

/// How many packets of responses one READ request asks for at most.
pub const READ_PIECE: u32 = 512;

/// Where a requester is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not connected.
    Reset,
    /// Sends and completes.
    Ready,
    /// A work request ended in error; nothing but a flush follows.
    Fatal,
}

/// What to send next.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// The work request.
    index: u32,
    /// How many packets of its message are behind the cursor.
    packet: u32,
    /// Of the next packet.
    sequence: Sequence,
}

/// The sending side of a QP. Times are nanoseconds of any clock that does not go back.
///
/// # Invariants
///
/// `una <= cursor.sequence <= sent`. The slots `retired..pushed` hold work requests, and the cursor
/// is at one of them or behind the last; `una` is in the message of the first of them if that has
/// `begun`, and equals `sent` otherwise.
pub struct Requester<S> {
    ring: Ring<S>,
    state: State,
    draining: bool,
    /// The next packet shall ask for an acknowledgement, whatever it is.
    ask: bool,
    max_rd_atomic: u8,
    mtu: Mtu,
    numbering: Numbering,
    pushed: u32,
    retired: u32,
    /// Requests behind the cursor that are answered by a response, and are not completely.
    reads: u32,
    /// How many messages the responder has begun to count at most: those sent, a READ request
    /// being one. Modulo 2^24 it is the largest MSN that can be.
    messages_sent: u32,
    /// How many of them are acknowledged: the smallest MSN that can be.
    messages_done: u32,
    /// How often in a row the responder has counted so, at most [`ack::MSN_TRUSTED`].
    msn_agreed: u8,
    /// Changes with each connection, so that placements of an earlier one are void.
    epoch: u32,
    cursor: Cursor,
    una: Sequence,
    sent: Sequence,
    /// The packets before were asked to be acknowledged.
    asked: Sequence,
    /// As it was before the last question.
    asked_before: Sequence,
    /// The `una` for which an implied NAK was obeyed.
    implied_at: Option<Sequence>,
    /// The `una` for which a NAK for a sequence error was obeyed, until it is sent again.
    reported_at: Option<Sequence>,
    /// When `una` was sent again last.
    repeated_at: Option<u64>,
    window: Window,
    retry: Retry,
    tail: Tail,
    counters: RequesterCounters,
    /// A counter of what is rare has changed.
    has_news: bool,
}

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// A requester over these slots, in the state RESET.
    ///
    /// The number of slots should be a power of two; else only the next smaller one is used.
    pub fn new(slots: S) -> Self {
        Self {
            ring: Ring::new(slots),
            state: State::Reset,
            draining: false,
            ask: false,
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
            cursor: Cursor::default(),
            una: 0,
            sent: 0,
            asked: 0,
            asked_before: 0,
            implied_at: None,
            reported_at: None,
            repeated_at: None,
            window: Window::new(),
            retry: Retry::new(),
            tail: Tail::new(),
            counters: RequesterCounters::default(),
            has_news: false,
        }
    }

    /// Forgets everything but the counters: the transition to RESET. Nothing completes, and the
    /// indices begin at 0 again.
    pub fn reset(&mut self) {
        self.state = State::Reset;
        self.draining = false;
        self.pushed = 0;
        self.retired = 0;
        self.cursor = Cursor::default();
        self.una = 0;
        self.sent = 0;
        self.forget_flight();
    }

    /// Begins a connection: the transition to RTS. What was pushed before is sent now.
    pub fn connect(&mut self, config: RequesterConfig) {
        self.state = State::Ready;
        self.draining = false;
        self.max_rd_atomic = config.max_rd_atomic.min(MAX_RD_ATOMIC);
        self.mtu = config.mtu;
        self.numbering = Numbering::new(config.sq_psn);
        self.una = 0;
        self.sent = 0;
        self.cursor = Cursor {
            index: self.retired,
            packet: 0,
            sequence: 0,
        };
        self.forget_flight();
        self.window = Window::new();
        self.messages_sent = 0;
        self.messages_done = 0;
        self.msn_agreed = 0;
        self.retry = Retry::new();
        self.retry.set_counts(config.retry_cnt, config.rnr_retry);
        self.retry.set_ack_timeout(config.ack_timeout_ns);
        self.tail = Tail::new();
    }

    /// Changes the retry counts (0..=7): a transition that stays in RTS, or leaves SQD. The retries
    /// that the oldest packet has used up stay used up.
    pub fn set_retries(&mut self, retry_cnt: u8, rnr_retry: u8) {
        self.retry.set_counts(retry_cnt, rnr_retry);
    }

    /// Changes the Local ACK Timeout. The deadline may become an earlier one.
    pub fn set_ack_timeout(&mut self, ack_timeout_ns: Option<u64>) {
        self.retry.set_ack_timeout(ack_timeout_ns);
    }

    /// Changes how many RDMA READs may be outstanding.
    ///
    /// 0 refuses further READs only; those pushed before still go out, one at a time.
    pub fn set_max_rd_atomic(&mut self, max_rd_atomic: u8) {
        self.max_rd_atomic = max_rd_atomic.min(MAX_RD_ATOMIC);
    }

    /// Free-running index of the next work request to be pushed.
    #[inline]
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Free-running index of the oldest work request that is not complete: those before it gave
    /// their slots back.
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

    /// The counters. They are kept over [`Self::reset`].
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// The counters, if another one than that of packets has changed since they were asked for so.
    #[inline]
    pub fn take_news(&mut self) -> Option<RequesterCounters> {
        core::mem::take(&mut self.has_news).then_some(self.counters)
    }

    /// Counts what is rare.
    #[cold]
    fn count(&mut self, by: u32, counter: impl FnOnce(&mut RequesterCounters) -> &mut u64) {
        let counter = counter(&mut self.counters);
        *counter = counter.wrapping_add(u64::from(by));
        self.has_news = true;
    }

    /// Takes a work request and returns its slot.
    #[inline]
    pub fn push(&mut self, request: SendRequest) -> Result<u32, PushError> {
        if request.length > MAX_MESSAGE {
            return Err(PushError::TooLong);
        }
        let answer = request.op.answer();
        if answer == Answer::Response && self.max_rd_atomic == 0 && self.state == State::Ready {
            return Err(PushError::NoReads);
        }
        self.push_slot(request, Status::Success)
    }

    /// Takes a work request that cannot be done: it completes with `status` when the ones before
    /// it are complete, at once if there are none.
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
        if self.state != State::Ready {
            return Ok(Progress::default());
        }
        Ok(self.settle(sink))
    }

    #[inline]
    fn push_slot(&mut self, request: SendRequest, status: Status) -> Result<u32, PushError> {
        if self.pushed.wrapping_sub(self.retired) >= self.ring.capacity() {
            return Err(PushError::Full);
        }
        let slot = self.ring.get_mut(self.pushed).ok_or(PushError::Full)?;
        *slot = SendSlot {
            request,
            status,
            ..SendSlot::default()
        };
        let number = self.ring.slot(self.pushed);
        self.pushed = self.pushed.wrapping_add(1);
        Ok(number)
    }

    /// The local memory of the work request in `slot` is not accessible: it completes with
    /// `status` as soon as those before it are complete, and the QP becomes fatal then.
    pub fn fail(
        &mut self,
        slot: u32,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        let index = self.index_of(slot);
        let ahead = index.wrapping_sub(self.retired);
        if self.state != State::Ready || ahead >= self.pushed.wrapping_sub(self.retired) {
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
            self.rewind(Cursor {
                index,
                packet: 0,
                sequence,
            });
        }
        self.settle(sink)
    }

    /// When to call [`Self::on_deadline`].
    ///
    /// It moves to a later time with every progress, which needs no attention: a timer that fires
    /// too early is set again. To an earlier one it moves when a packet leaves, with an RNR NAK,
    /// and with [`Self::unsend`].
    #[inline]
    pub fn deadline(&self) -> Option<u64> {
        if self.state != State::Ready {
            return None;
        }
        let deadline = self.retry.deadline(self.una != self.sent);
        if self.in_flight() == 0 || self.retry.has_wait() {
            return deadline;
        }
        let timeout = self.retry.ack_timeout_ns()?;
        self.tail.deadline(self.retry.since(), timeout).or(deadline)
    }

    /// The time is `now`. Calls before the deadline are harmless.
    pub fn on_deadline(&mut self, now: u64, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        let Some(deadline) = self.deadline().filter(|at| *at <= now) else {
            return Progress::default();
        };
        let timeout = self.retry.timeout_at(self.una != self.sent);
        if timeout.is_some_and(|at| at <= now) {
            self.count(1, |counters| &mut counters.timeouts);
            self.forget_losses();
            self.retry.cancel_wait();
            self.retry.restart(now);
            self.lost(sink);
        } else if self.retry.has_wait() {
            // The end of a wait is no timeout.
            self.retry.end_wait(now);
        } else if let Some(timeout) = self.retry.ack_timeout_ns() {
            self.tail.expired(deadline, now, timeout);
        }
        self.settle(sink)
    }

    /// Completes all work requests in order: those that failed with their own status, the others
    /// with `WrFlushErr`. To be called in ERR, again for each work request pushed then.
    pub fn flush(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        self.flush_some(u32::MAX, sink);
    }

    /// As [`Self::flush`], but at most so many; the return value is how many it were. Nothing
    /// is sent any more even if some are left.
    pub fn flush_some(&mut self, most: u32, sink: &mut impl FnMut(SendCompletion)) -> u32 {
        if self.state == State::Ready {
            self.state = State::Fatal;
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

    /// SQD: with `on`, messages begun are finished and no new one begins.
    pub fn drain(&mut self, on: bool) {
        self.draining = on;
    }

    /// Whether all messages begun are complete.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.state != State::Ready || (self.una == self.sent && self.cursor.packet == 0)
    }

    /// Whether something is to be sent: now, or when the window, a wait or a fence permits.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.state == State::Ready && (self.cursor.index != self.pushed || self.tail.is_due())
    }

    /// Whether packets are on their way: sent, not acknowledged, and not given up.
    #[inline]
    pub fn has_in_flight(&self) -> bool {
        self.in_flight() != 0
    }

    /// The oldest work request.
    #[inline]
    fn head(&self) -> Option<&SendSlot> {
        if self.retired == self.pushed {
            return None;
        }
        self.ring.get(self.retired)
    }

    /// The index, from `retired` on, that has this slot number.
    #[inline]
    fn index_of(&self, slot: u32) -> u32 {
        self.retired
            .wrapping_add(self.ring.slot(slot.wrapping_sub(self.retired)))
    }

    /// The cursor of the oldest unacknowledged packet.
    #[inline]
    fn oldest(&self) -> Cursor {
        let packet = match self.head() {
            // The difference is below the packets of a message.
            Some(slot) if slot.begun => self.una.saturating_sub(slot.first) as u32,
            _ => 0,
        };
        Cursor {
            index: self.retired,
            packet,
            sequence: self.una,
        }
    }

    /// The oldest work request is over.
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

    /// The oldest work request ends in error, and with it the connection.
    fn end_head(&mut self, status: Status, vendor_err: u32, sink: &mut impl FnMut(SendCompletion)) {
        self.retire(status, vendor_err, sink);
        self.state = State::Fatal;
    }

    /// The end of an event: if the oldest work request is one that failed, its turn has come.
    #[inline]
    fn settle(&mut self, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        if self.state == State::Ready {
            let failed = self.head().map_or(Status::Success, |slot| slot.status);
            if !failed.is_success() {
                self.end_head(failed, vendor::LOCAL, sink);
            }
        }
        Progress {
            fatal: self.state == State::Fatal,
        }
    }

    /// Moves the cursor back to the oldest unacknowledged packet: all behind it counts as lost.
    fn go_back(&mut self) {
        self.rewind(self.oldest());
        // The first packet asks, so the earlier questions do not matter.
        self.ask = true;
    }

    /// Moves the cursor back: what is behind it may never have left, and with it the questions for
    /// an ACK of what is before.
    fn rewind(&mut self, to: Cursor) {
        if self.asked > to.sequence {
            self.asked = if self.asked_before <= to.sequence {
                self.asked_before.max(self.una)
            } else {
                self.una
            };
        }
        self.cursor = to;
        self.reads = self.count_reads();
        self.tail.restart();
    }

    /// Requests between `una` and the cursor that are answered by a response: there are no more of
    /// them than packets in flight.
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
            if slot.request.op.answer() == Answer::Response {
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

    /// What was said about losses so far does not matter any more: what is said next is news.
    #[inline]
    fn forget_losses(&mut self) {
        self.implied_at = None;
        self.reported_at = None;
    }

    /// Forgets what is about packets in flight.
    fn forget_flight(&mut self) {
        self.asked = self.una;
        self.ask = false;
        self.reads = 0;
        self.forget_losses();
        self.epoch = self.epoch.wrapping_add(1);
        self.retry.cancel_wait();
        self.repeated_at = None;
        self.tail.restart();
    }
}

#[cfg(test)]
mod tests;
