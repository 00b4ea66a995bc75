// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The responder of a reliable connection: requests are executed in the order of their PSNs, each
//! once, and answered (IBTA volume 1, 9.7.4, 9.7.5 and 9.9.3).
//!
//! # The life of a request
//!
//! [`Responder::on_request`] compares its PSN with the expected one:
//!
//! | PSN | action |
//! |---|---|
//! | expected | checked, and executed by the [`ResponderEnv`]; the expected PSN advances |
//! | after | a packet is missing: dropped, with a NAK each time the peer goes back; or kept |
//! | before | executed before: acknowledged again, or, for a READ or atomic, answered again |
//! | far from it | not from the peer: dropped without a response |
//!
//! Responses wait in three places until [`Responder::next_response`] fetches them:
//!
//! ```text
//!   resources  READs, atomics, FLUSHes, by PSN        -> their responses     first
//!   nak        one refusal, at the PSN it is about    -> NAK, RNR NAK        then
//!   ack        the newest PSN whose sender asked      -> one ACK for all     last
//! ```
//!
//! A peer that says that it keeps packets behind a gap is served in the same way: its packets are
//! kept ([`ResponderEnv::keep`]) and executed when their turn comes ([`Responder::next_kept`]), as
//! if the network had been late, and in place of a NAK it gets a report of all that is missing.
//!
//! So neither ACK nor NAK overtakes the response to an earlier READ, and an ACK older than a READ
//! is never sent: the READ's responses imply it (IBTA 9.7.5.1.2, ACK coalescing). The same holds
//! for atomic operations, ATOMIC WRITEs and FLUSHes, which are executed on arrival; their resource
//! keeps the response.
//!
//! After a fatal NAK no request is accepted. Pending responses are still sent, the NAK last; then
//! the owner of the QP calls [`Responder::abort`].

mod execute;
mod resource;
mod resources;

pub use resource::Resource;

use crate::core::completion::{
    RecvCompletion,
    RecvOp, //
};
use crate::core::env::{
    Keep,
    Receive,
    ResponderEnv, //
};
use crate::core::message::Mtu;
use crate::core::rc::sequence::{
    reaches,
    Ahead,
    Numbering,
    Sequence, //
};
use crate::core::rc::{
    RemoteRights,
    ResponderConfig,
    MAX_RD_ATOMIC, //
};
use crate::core::segment::{
    IncomingRequest,
    Response, //
};
use crate::core::storage::{
    InPlace,
    Known,
    Spare, //
};
use crate::core::wire::headers::{
    AethSyndrome,
    NakCode,
    Reth, //
};
use crate::core::wire::opcode::Kind;
use crate::core::wire::psn::Psn;
use core::ops::DerefMut;
use resource::Ready;
use resources::Resources;

/// How far ahead of the expected packet the peer may be: the largest window. A forged packet with a
/// random PSN, or one left over from another connection, gets a response, if at all, once in 4096.
/// The price: a peer whose request for a READ of more packets is lost gets no NAK for what is
/// behind it, and waits for its own timeout (IBTA 9.7.5.2.1 would have one). A ferroce asks for at
/// most 512 packets at once.
const MOST_AHEAD: u64 = 4096;

/// How far behind it an executed packet may be that is acknowledged again. READ responses take PSNs
/// too, so this is more.
const MOST_BEHIND: u64 = 1 << 16;

/// The reason of a fatal NAK, which names the asynchronous event (IBTA 9.9.3.1.4, 11.6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// The peer violated the protocol: `IBV_EVENT_QP_REQ_ERR`.
    InvalidRequest,
    /// The peer lacks a right: `IBV_EVENT_QP_ACCESS_ERR`.
    AccessError,
    /// A receive completed in error, which is report enough: no event.
    LocalError,
}

/// Why a request had no effect. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Duplicate: acknowledged again, or (a READ) answered again.
    Duplicate,
    /// Behind a gap.
    OutOfSequence,
    /// Behind a gap, and kept.
    Kept,
    /// No receive was posted.
    NoReceive,
    /// Not from the peer: too far ahead, or older than the connection or any window.
    OutsideWindow,
    /// A READ or atomic operation that was not accepted before, or so long ago that its resource is
    /// gone.
    UnknownRead,
    /// The responder is not connected, or stopped.
    NotReady,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The QP goes to ERR. First send the pending responses of [`Responder::next_response`]: those
    /// to earlier READs, then the NAK.
    pub fatal: Option<Fatal>,
    /// The request was not executed.
    pub dropped: Option<DropReason>,
}

/// The state of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponderState {
    /// Not connected.
    Reset,
    /// Executes and responds.
    Ready,
    /// Sent a fatal NAK: responds, but executes no more.
    FatalNak,
    /// Does nothing.
    Dead,
}

/// The message in progress, between its packets.
#[derive(Clone, Copy, Debug, Default)]
enum Message {
    /// None: the next request begins one.
    #[default]
    None,
    /// A SEND, which goes to a receive.
    Send {
        receive: Receive,
        /// Bytes received so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// What its first packet said.
        reth: Reth,
        /// Bytes received so far.
        received: u32,
    },
}

/// A NAK to be sent.
#[derive(Clone, Copy, Debug)]
struct Nak {
    /// PSN of its packet.
    sequence: Sequence,
    syndrome: AethSyndrome,
}

/// How many resources a responder needs whose peer may have `max` RDMA READs and atomic operations
/// outstanding: at most [`MAX_RD_ATOMIC`], and a power of two, for mlx5, mlx4 and hns send so many
/// when both sides have agreed on less.
pub const fn resources_for(max: u8) -> u8 {
    match max {
        0 => 0,
        MAX_RD_ATOMIC.. => MAX_RD_ATOMIC,
        max => max.next_power_of_two(),
    }
}

/// Whether a report of the packets that are missing is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum MissingReport {
    #[default]
    None,
    /// It has news. If the gap closes first, there is nothing to say.
    News,
    /// The peer has asked. If the gap closes first, an ACK is the answer.
    Asked,
}

/// What is to be sent besides the responses of resources, behind them and in this order.
#[derive(Clone, Copy, Debug, Default)]
struct Acks {
    nak: Option<Nak>,
    report: MissingReport,
    /// The newest packet with an ACK request.
    ack: Option<Known>,
}

/// The responder of a QP. What losses need is in memory of `A`.
pub struct Responder<R, A: Spare = InPlace> {
    state: ResponderState,
    rights: RemoteRights,
    /// RDMA READs and atomic operations that the peer may have outstanding.
    most_outstanding: u8,
    min_rnr_timer: u8,
    mtu: Mtu,
    numbering: Numbering,
    /// Completed messages, modulo 2^24.
    msn: u32,
    /// Sequence of the expected packet.
    expected: Sequence,
    message: Message,
    /// The newest packet out of sequence since the last NAK.
    newest_ahead: Option<Known>,
    due: Acks,
    /// What was due and [`Self::next_response`] has returned in this run, by itself or implied by
    /// another response.
    taken: Acks,
    /// The packets that are kept.
    ahead: Ahead<A>,
    /// The packet that had an RNR NAK: what is behind it is not kept.
    rnr_nak_at: Option<Known>,
    /// The response with a resource that was returned last, and whether it was of a part.
    last_read: (Sequence, bool),
    /// Sequence of the newest request that is answered by a response.
    newest_read: Sequence,
    resources: Resources<R, A>,
}

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// [`Self::with_spare`], with all memory in place.
    pub fn new(resources: R) -> Self {
        Self::with_spare(resources)
    }
}

impl<R: DerefMut<Target = [Resource]>, A: Spare> Responder<R, A> {
    /// A responder in RESET with this many resources: a power of two, at most [`MAX_RD_ATOMIC`];
    /// else the next smaller one. [`Self::grow`] gives it more.
    pub fn with_spare(resources: R) -> Self {
        Self {
            state: ResponderState::Reset,
            rights: RemoteRights::default(),
            most_outstanding: 0,
            min_rnr_timer: 0,
            mtu: Mtu::MIN,
            numbering: Numbering::default(),
            msn: 0,
            expected: 0,
            message: Message::None,
            newest_ahead: None,
            due: Acks::default(),
            taken: Acks::default(),
            ahead: Ahead::new(),
            rnr_nak_at: None,
            last_read: (0, false),
            newest_read: 0,
            resources: Resources::new(resources),
        }
    }

    /// Resets everything: the transition to RESET. Nothing completes.
    pub fn reset(&mut self) {
        self.state = ResponderState::Reset;
        self.forget();
    }

    /// Begins a connection: the transition to RTR.
    pub fn connect(&mut self, config: ResponderConfig) {
        self.forget();
        self.state = ResponderState::Ready;
        self.mtu = config.mtu;
        self.numbering = Numbering::new(config.rq_psn);
        self.expected = 0;
        self.newest_read = 0;
        self.msn = 0;
        self.set_min_rnr_timer(config.min_rnr_timer);
        self.set_rights(config.rights);
        self.set_max_dest_rd_atomic(config.max_dest_rd_atomic);
    }

    /// Changes the RNR timer code.
    pub fn set_min_rnr_timer(&mut self, timer: u8) {
        self.min_rnr_timer = timer & 0x1f;
    }

    /// Changes the rights of the peer.
    pub fn set_rights(&mut self, rights: RemoteRights) {
        self.rights = rights;
    }

    /// Changes the number of RDMA READs and atomic operations that the peer may have outstanding,
    /// as [`resources_for`] has it. There must be as many resources: see [`Self::grow`].
    pub fn set_max_dest_rd_atomic(&mut self, max: u8) {
        self.most_outstanding = resources_for(max);
    }

    /// Exchanges the resources for `slots`, if these are more. Those in use stay what they are.
    pub fn grow(&mut self, slots: &mut R) {
        self.resources.grow(slots);
    }

    /// PSN of the expected packet (`rq_psn` of `ibv_query_qp`).
    pub fn expected_psn(&self) -> Psn {
        self.numbering.psn(self.expected)
    }

    /// Handles a request. Its payload is with the `env`.
    #[inline]
    pub fn on_request(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        if self.state != ResponderState::Ready {
            return dropped(DropReason::NotReady);
        }
        let Some(sequence) = self.numbering.sequence(request.psn, self.expected) else {
            return dropped(DropReason::OutsideWindow);
        };
        if sequence > self.expected {
            return self.on_gap(sequence, request, env);
        }
        if sequence < self.expected {
            return self.on_duplicate(sequence, request, env);
        }

        // The packet that the NAK requested.
        if self.due.nak.is_some_and(|nak| nak.sequence == sequence) {
            self.due.nak = None;
        }
        let outcome = match request.opcode.info().kind {
            Kind::Send => self.on_send(request, env),
            Kind::Write => self.on_write(request, env),
            Kind::ReadRequest => self.on_read(request, env),
            Kind::Atomic(kind) => self.on_atomic(kind, request, env),
            Kind::AtomicWrite => self.on_atomic_write(request, env),
            Kind::Flush => self.on_flush(request, env),
            Kind::Unsupported
            | Kind::ReadResponse
            | Kind::AtomicAcknowledge
            | Kind::Acknowledge
            | Kind::Missing
            | Kind::Notification => self.nak_invalid(),
        };
        if self.expected != sequence {
            self.newest_ahead = None;
            if !self.ahead.is_empty() {
                self.on_gap_filled(sequence);
            }
        }
        outcome
    }

    /// The request was the first one missing before others that are kept, or is one of them.
    #[cold]
    fn on_gap_filled(&mut self, sequence: Sequence) {
        self.ahead.advance(self.expected);
        if !self.ahead.is_empty() {
            self.due.report = self.due.report.max(MissingReport::News);
            return;
        }
        let was_asked = core::mem::take(&mut self.due.report) == MissingReport::Asked;
        // One with a resource is answered by that.
        if was_asked && !self.resources.has_newest(sequence) {
            self.due.ack = Known::new(self.expected.wrapping_sub(1));
        }
    }

    /// A packet behind a missing one (IBTA 9.7.5.2.1).
    ///
    /// One NAK is enough for the packets of one flight. A packet that is not newer than earlier
    /// ones shows that the peer has gone back, and the missing packet was lost again: it gets
    /// another NAK, instead of an ACK timeout. That also repairs the effect of a forged packet.
    #[cold]
    fn on_gap(
        &mut self,
        sequence: Sequence,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        if sequence.wrapping_sub(self.expected) > MOST_AHEAD {
            return dropped(DropReason::OutsideWindow);
        }
        if request.keeps && self.keep_ahead(sequence, request, env) {
            return dropped(DropReason::Kept);
        }
        let is_newer = self
            .newest_ahead
            .is_some_and(|newest| sequence > newest.get());
        self.newest_ahead = Known::new(sequence);
        let is_asked_for = self
            .due
            .nak
            .is_some_and(|nak| nak.sequence == self.expected);
        if !is_newer && !is_asked_for {
            self.set_nak(self.expected, NakCode::PsnSequence);
        }
        dropped(DropReason::OutOfSequence)
    }

    /// Keeps a packet behind a gap, if there is room. A report is due when a gap is new, when the
    /// peer asks, and when it sends again what is kept.
    fn keep_ahead(
        &mut self,
        sequence: Sequence,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> bool {
        let span = match (request.opcode.info().kind, request.extension.reth()) {
            (Kind::ReadRequest, Some(reth)) => u64::from(self.mtu.packets(reth.length())),
            _ => u64::from(request.span),
        };
        if self.rnr_nak_at == Known::new(self.expected)
            || !reaches(self.expected, sequence, span)
            || !self.ahead.provide()
        {
            return false;
        }
        let is_next = !self.ahead.is_empty() && sequence == self.ahead.end();
        let keep = env.keep(sequence);
        match keep {
            // One that is kept already may have lost its bit to a conflict about another one.
            Keep::Kept | Keep::Again => self.ahead.add(self.expected, sequence, span),
            Keep::Conflict => self.ahead.remove(sequence, span),
            Keep::NoRoom => return false,
        }
        let report = match keep {
            _ if request.ack_req => MissingReport::Asked,
            Keep::Kept if is_next => MissingReport::None,
            _ => MissingReport::News,
        };
        self.due.report = self.due.report.max(report);
        true
    }

    /// Whether nothing is kept: the owner frees what it may still have.
    #[inline]
    pub fn keeps_nothing(&self) -> bool {
        self.ahead.is_empty()
    }

    /// The number of the kept packet whose turn has come. The owner takes it and calls
    /// [`Self::on_request`] with it, or [`Self::kept_is_gone`].
    #[inline]
    pub fn next_kept(&self) -> Option<u64> {
        let is_due = !self.ahead.is_empty()
            && self.state == ResponderState::Ready
            && self.ahead.has(self.expected);
        is_due.then_some(self.expected)
    }

    /// The owner has no packet with the number that [`Self::next_kept`] returned. The peer is
    /// asked for it.
    pub fn kept_is_gone(&mut self) {
        self.ahead.remove(self.expected, 1);
        self.due.report = self.due.report.max(MissingReport::News);
    }

    /// The bitmap of [`Response::Missing`]: the words from the expected packet on.
    pub fn kept_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.ahead.words()
    }

    /// Whether a report of what is missing is due.
    #[inline]
    fn reports_missing(&self) -> bool {
        self.due.report != MissingReport::None && !self.ahead.is_empty()
    }

    /// A packet that was executed before (IBTA 9.7.5.1.4).
    fn on_duplicate(
        &mut self,
        sequence: Sequence,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        match request.opcode.info().kind {
            Kind::ReadRequest => return self.on_read_again(sequence, request, env),
            kind @ (Kind::Atomic(_) | Kind::AtomicWrite | Kind::Flush) => {
                return self.on_executed_again(sequence, kind, request);
            }
            _ => {}
        }
        if self.expected.wrapping_sub(sequence) > MOST_BEHIND {
            return dropped(DropReason::OutsideWindow);
        }
        let last = sequence.saturating_add(u64::from(request.span.saturating_sub(1)));
        let last = last.min(self.expected.wrapping_sub(1));
        self.due.ack = self.due.ack.max(Known::new(last));
        dropped(DropReason::Duplicate)
    }

    /// The next response. `max_span` is 1 for the wire.
    ///
    /// A response that cannot leave counts as lost. If the memory of a READ response is no longer
    /// accessible, the caller calls [`Self::read_failed`].
    #[inline]
    pub fn next_response(&mut self, max_span: u32) -> Option<Response> {
        let mtu = self.mtu;
        if self.resources.has_parts() {
            if let Some(response) = self.next_of_parts(max_span) {
                return Some(response);
            }
        }
        if let Some(ready) = self.resources.next(max_span, mtu) {
            return Some(self.respond(ready));
        }
        if let Some(nak) = self.due.nak.take() {
            self.taken.nak = Some(nak);
            self.imply_ack(nak.sequence);
            return Some(Response::Acknowledge {
                psn: self.numbering.psn(nak.sequence),
                syndrome: nak.syndrome,
                msn: self.msn,
            });
        }
        if self.reports_missing() && self.next_kept().is_none() {
            self.taken.report = core::mem::take(&mut self.due.report);
            self.imply_ack(self.expected);
            let words = self.ahead.words().count() as u32;
            return Some(Response::Missing {
                psn: self.numbering.psn(self.expected),
                msn: self.msn,
                len: words.saturating_mul(8),
            });
        }
        let asked = self.due.ack.take()?;
        self.taken.ack = Some(asked);
        let asked = asked.get();
        // Acknowledges everything that arrived, not only the requested PSN. But if a peer that went
        // back still has to repeat a READ, an ACK behind it would imply that its response was lost.
        let acknowledged = if asked < self.newest_read {
            asked
        } else {
            self.expected.wrapping_sub(1)
        };
        Some(Response::Acknowledge {
            psn: self.numbering.psn(acknowledged),
            syndrome: AethSyndrome::Ack {
                credits: AethSyndrome::CREDITS_INVALID,
            },
            msn: self.msn,
        })
    }

    /// The next response of a part that is answered again.
    #[cold]
    #[inline(never)]
    fn next_of_parts(&mut self, max_span: u32) -> Option<Response> {
        let ready = self.resources.next_of_parts(max_span, self.mtu)?;
        Some(self.respond(ready))
    }

    /// The response to a request that has a resource.
    #[inline(always)]
    fn respond(&mut self, ready: Ready) -> Response {
        let Ready {
            sequence,
            mut segment,
            source,
            msn,
            original,
            again,
        } = ready;
        self.imply_ack(sequence);
        self.last_read = (sequence, again);
        segment.psn = self.numbering.psn(sequence);
        if let Some(original) = original {
            return Response::Atomic {
                psn: segment.psn,
                original,
                msn,
            };
        }
        Response::ReadResponse {
            segment,
            source,
            msn,
            again,
        }
    }

    /// A response with this sequence acknowledges all earlier packets, too.
    #[inline(always)]
    fn imply_ack(&mut self, sequence: Sequence) {
        if self.due.ack.is_some_and(|ack| ack.get() < sequence) {
            self.taken.ack = self.taken.ack.max(self.due.ack.take());
        }
    }

    /// A run of [`Self::next_response`] begins, which may end with [`Self::unsend`].
    pub fn begin_run(&mut self) {
        self.taken = Acks::default();
    }

    /// The local stack refused the responses from this one on, which [`Self::next_response`]
    /// returned in this run: they will be returned again. The caller backs off first.
    ///
    /// None of them is behind one that ends a part ([`Response::ends_part`]).
    pub fn unsend(&mut self, first: &Response) {
        if !self.responds() {
            return;
        }
        let Some(sequence) = self.numbering.sequence(first.psn(), self.expected) else {
            return;
        };
        let Acks { nak, report, ack } = self.taken;
        let is_ack = |syndrome: &AethSyndrome| matches!(syndrome, AethSyndrome::Ack { .. });
        let (nak, report) = match first {
            Response::ReadResponse { again: true, .. } => {
                self.resources.rewind_part(sequence);
                (nak, report)
            }
            Response::ReadResponse { .. } | Response::Atomic { .. } => {
                self.resources.rewind(sequence, self.mtu);
                (nak, report)
            }
            Response::Acknowledge { syndrome, .. } if is_ack(syndrome) => {
                (None, MissingReport::None)
            }
            Response::Acknowledge { .. } => (nak, report),
            Response::Missing { .. } => (None, report),
        };
        // One that is due since then says more.
        self.due.nak = self.due.nak.or(nak);
        self.due.report = self.due.report.max(report);
        self.due.ack = self.due.ack.max(ack);
    }

    /// Whether what is pending is still sent.
    fn responds(&self) -> bool {
        matches!(self.state, ResponderState::Ready | ResponderState::FatalNak)
    }

    /// Whether a response is pending.
    #[inline(always)]
    pub fn has_response(&self) -> bool {
        !self.resources.is_idle()
            || self.due.nak.is_some()
            || self.due.ack.is_some()
            || self.reports_missing()
    }

    /// Whether there was a fatal NAK.
    #[inline]
    pub fn has_fatal_nak(&self) -> bool {
        self.state == ResponderState::FatalNak
    }

    /// Whether there was a fatal NAK and all responses, the NAK last, have been sent: the time for
    /// the QP to go to ERR. Earlier, [`Self::abort`] would discard the NAK.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.state == ResponderState::FatalNak && !self.has_response()
    }

    /// The memory of the last READ response is no longer accessible: a NAK takes its place, and the
    /// connection ends, unless the response was sent before. Then the peer may have it, and have
    /// said so: see [`Self::refuse_again`].
    pub fn read_failed(&mut self) -> Outcome {
        if !self.responds() {
            return Outcome::default();
        }
        let (sequence, is_part) = self.last_read;
        if self.resources.give_up_again(sequence, is_part) {
            self.refuse_again(sequence);
            return Outcome::default();
        }
        self.resources.clear();
        self.forget_kept();
        self.state = ResponderState::FatalNak;
        self.set_nak(sequence, NakCode::RemoteAccess);
        Outcome {
            fatal: Some(Fatal::AccessError),
            dropped: None,
        }
    }

    /// The QP goes to ERR: nothing more is executed or answered. Returns the completion of the
    /// receive in progress.
    #[must_use]
    pub fn abort(&mut self) -> Option<RecvCompletion> {
        let in_progress = match self.message {
            Message::Send { receive, .. } => {
                Some(RecvCompletion::flushed(receive.wr_id, RecvOp::Send))
            }
            _ => None,
        };
        self.forget();
        self.state = ResponderState::Dead;
        in_progress
    }

    /// Sends a fatal NAK for the expected request.
    fn stop(&mut self, code: NakCode, fatal: Fatal) -> Outcome {
        self.state = ResponderState::FatalNak;
        self.forget_kept();
        self.set_nak(self.expected, code);
        Outcome {
            fatal: Some(fatal),
            dropped: None,
        }
    }

    fn set_nak(&mut self, sequence: Sequence, code: NakCode) {
        self.due.nak = Some(Nak {
            sequence,
            syndrome: AethSyndrome::Nak(code),
        });
    }

    /// The memory of a READ that is asked for again is not accessible any more.
    ///
    /// If the peer still waits for it, the NAK ends the connection there. If it is an old packet
    /// that the network duplicated, or a probe that crossed the responses, the peer ignores the
    /// NAK, and there is no reason to end it here.
    fn refuse_again(&mut self, sequence: Sequence) {
        if self.due.nak.is_none() {
            self.set_nak(sequence, NakCode::RemoteAccess);
        }
    }

    fn set_rnr_nak(&mut self) {
        // Later packets are out of sequence, which the peer knows.
        self.newest_ahead = Known::new(self.expected);
        // And comes again behind this one.
        self.rnr_nak_at = Known::new(self.expected);
        self.forget_kept();
        self.due.nak = Some(Nak {
            sequence: self.expected,
            syndrome: AethSyndrome::RnrNak {
                timer: self.min_rnr_timer,
            },
        });
    }

    fn forget_kept(&mut self) {
        self.ahead.clear();
        self.due.report = MissingReport::None;
    }

    fn forget(&mut self) {
        self.message = Message::None;
        self.newest_ahead = None;
        self.due = Acks::default();
        self.ahead.free();
        self.rnr_nak_at = None;
        self.resources.clear();
    }
}

/// A request without effect.
fn dropped(reason: DropReason) -> Outcome {
    Outcome {
        fatal: None,
        dropped: Some(reason),
    }
}

#[cfg(test)]
mod tests;
