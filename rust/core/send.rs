// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The send loop: all that a requester may send now, within the budget of an invocation.
//!
//! The loop is the same for all types of QPs and for all that transmits. A requester is a
//! [`SendSource`]; the wire, the local path, the network of the tests each are a [`Transmit`]. Both
//! are type parameters: each pair is compiled to a loop of its own. A [`SendRequest`] is a WQE as
//! every requester takes it.

use crate::core::completion::{
    SendCompletion,
    Status, //
};
use crate::core::message::Mtu;
use crate::core::operation::Operation;
use crate::core::segment::RequestSegment;
use crate::core::storage::Slot;
use core::ops::ControlFlow;

/// Most segments of an invocation.
pub const SEGMENTS_PER_RUN: u32 = 64;

/// What a requester does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This segment leaves. [`SendSource::sent`] follows.
    Segment(RequestSegment),
    /// The local operation in this slot is executed. [`SendSource::local_op_done`] follows.
    LocalOp(Slot),
    /// Nothing can be sent.
    Idle,
}

/// Why a segment did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// For a reason of its WQE, which ends with this status.
    Local(Status),
    /// The local stack refused the packets from this segment on, which may be an earlier one.
    Refused(RequestSegment),
}

/// What follows for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSend {
    /// More may be sent.
    Continue,
    /// The queue has failed.
    Failed,
    /// Nothing is sent until the requester's timer is due: then it tries again.
    Pause,
}

impl From<Progress> for AfterSend {
    #[inline(always)]
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Continue => Self::Continue,
            Progress::Failed => Self::Failed,
        }
    }
}

/// A requester, as the loop drives it.
pub trait SendSource {
    /// What to do now. `max_span` is 1 for the wire.
    fn next(&mut self, now: u64, max_span: u32) -> Next;

    /// The segment that [`Self::next`] returned has left, or did not.
    fn sent(
        &mut self,
        segment: &RequestSegment,
        result: Result<(), SendError>,
        now: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> AfterSend;

    /// The local stack refused the packets from `first` on, after [`Self::sent`] was told that they
    /// had left.
    fn refused(&mut self, first: &RequestSegment, now: u64) -> AfterSend;

    /// The local operation that [`Self::next`] returned has been executed.
    fn local_op_done(&mut self, status: Status, sink: &mut impl FnMut(SendCompletion))
        -> AfterSend;

    /// The next segment is the last one for now: it requests an ACK, where there are ACKs.
    fn request_ack(&mut self);

    /// The path MTU.
    fn mtu(&self) -> Mtu;
}

/// The QP that sends, for all that transmits.
pub trait SendEnv {
    /// The time.
    fn now(&self) -> u64;
    /// Whether the budget permits more.
    fn may_move(&self) -> bool;
    /// Whether it would after this many bytes.
    fn may_move_beyond(&self, bytes: u32) -> bool;
    /// A WQE completes.
    fn complete(&mut self, done: SendCompletion);
    /// The queue has failed.
    fn fail(&mut self);
    /// Packets that the local stack refused will be sent again.
    fn will_retry(&mut self);
    /// Executes the local operation in this slot.
    fn execute_local_op(&mut self, slot: Slot) -> Status;
}

/// What transmits the segments of the requester `S`.
pub trait Transmit<S> {
    /// The QP that sends.
    type Env: SendEnv;
    /// Whether the last segment of an invocation requests an ACK: the queue may have to wait for it
    /// before it moves to another CPU.
    const REQUESTS_ACK: bool;

    /// The QP that sends.
    fn env(&mut self) -> &mut Self::Env;

    /// Most packets of the next segment.
    fn max_span(&mut self) -> u32;

    /// Takes the responses that are there already, before the next segment. A break ends the
    /// invocation, and says whether there is more.
    #[inline(always)]
    fn take_responses(&mut self, _: &mut S) -> ControlFlow<bool> {
        ControlFlow::Continue(())
    }

    /// Transmits a segment, or adds it to a batch.
    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError>;

    /// Transmits the batch. The error is the first segment that the local stack refused.
    #[inline(always)]
    fn flush(&mut self) -> Result<(), RequestSegment> {
        Ok(())
    }
}

/// Sends at most this many segments. Returns whether there are more.
#[inline(always)]
pub fn send<S: SendSource, T: Transmit<S>>(source: &mut S, tx: &mut T, most: u32) -> bool {
    let mut more = true;
    for left in (0..=most).rev() {
        if let ControlFlow::Break(more) = tx.take_responses(source) {
            return more;
        }
        // Only now: no response is left behind without need.
        if left == 0 || !tx.env().may_move() {
            break;
        }
        if T::REQUESTS_ACK && (left == 1 || !tx.env().may_move_beyond(source.mtu().bytes())) {
            source.request_ack();
        }
        let span = tx.max_span();
        let now = tx.env().now();
        let after = match source.next(now, span) {
            Next::Segment(segment) => {
                let result = tx.send(&segment);
                source.sent(&segment, result, now, &mut |done| tx.env().complete(done))
            }
            Next::LocalOp(slot) => {
                let status = tx.env().execute_local_op(slot);
                source.local_op_done(status, &mut |done| tx.env().complete(done))
            }
            Next::Idle => {
                more = false;
                break;
            }
        };
        if !goes_on(after, tx.env()) {
            return false;
        }
    }
    if let Err(first) = tx.flush() {
        let now = tx.env().now();
        if !goes_on(source.refused(&first, now), tx.env()) {
            return false;
        }
    }
    more
}

/// Tells the QP what follows. Returns whether the invocation goes on: a queue that has failed says
/// itself that it has nothing to send.
#[inline(always)]
fn goes_on(after: AfterSend, env: &mut impl SendEnv) -> bool {
    match after {
        AfterSend::Continue => true,
        AfterSend::Failed => {
            env.fail();
            true
        }
        AfterSend::Pause => {
            env.will_retry();
            false
        }
    }
}

/// A work request for the send queue: what the protocol needs of it. Where the data is, and what
/// the extended headers are filled from, is the owner's to keep, by slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendRequest {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Bytes of the message, at most [`crate::core::message::MAX_MESSAGE`].
    pub length: u32,
    /// What to do.
    pub op: Operation,
    /// Report a success too.
    pub signaled: bool,
    /// Do not begin before all earlier requests that are answered by a response are complete; a
    /// local operation, before all earlier requests are.
    pub fence: bool,
    /// Raise a solicited event at the responder.
    pub solicited: bool,
}

/// What an event leaves a requester in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// There may be something to send.
    #[default]
    Continue,
    /// A work request ended in error: the QP leaves its state (for ERR, or on an unreliable service
    /// for SQE), and the caller flushes the requester.
    Failed,
}

impl Progress {
    /// Whether a work request ended in error.
    #[inline(always)]
    pub const fn has_failed(self) -> bool {
        matches!(self, Self::Failed)
    }
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// All slots are in use.
    Full,
    /// The message is longer than the service carries: 2 GiB, or a packet of datagrams.
    TooLong,
    /// A request for a response, and the connection permits none (`max_rd_atomic` is 0).
    NoReads,
}
