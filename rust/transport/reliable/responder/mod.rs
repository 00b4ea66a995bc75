// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The receiving side of a reliable connection: requests are executed in the order of their PSNs,
//! each once, and answered (IBTA volume 1, 9.7.4, 9.7.5 and 9.9.3).
//!
//! # The life of a request
//!
//! [`Responder::on_request`] compares its PSN with the expected one:
//!
//! | PSN | what happens |
//! |---|---|
//! | expected | it is checked, and executed by the [`ResponderEnv`]; the expected PSN moves on |
//! | after | a packet is missing: dropped, with a NAK each time that the peer begins again |
//! | before | it was executed: acknowledged again, or, a READ or atomic operation, answered again |
//! | far from it | no peer sends that: dropped without an answer |
//!
//! Answers wait in three places until [`Responder::next_response`] fetches them:
//!
//! ```text
//!   resources  READs, atomics, FLUSHes, by PSN        -> their responses     first
//!   nak        one refusal, at the PSN it is about    -> NAK, RNR NAK        then
//!   ack        the newest PSN whose sender asked      -> one ACK for all     last
//! ```
//!
//! So neither ACK nor NAK overtakes the answer of an earlier READ, and an ACK that is older than
//! a READ is never sent: the READ's responses say the same (IBTA 9.7.5.1.2, coalesced
//! acknowledgement). The same goes for atomic operations, ATOMIC WRITEs and FLUSHes, which are
//! executed when they come; their resource keeps the answer.
//!
//! After a fatal refusal no request is accepted. What waits is still answered, the refusal last;
//! then the owner of the QP calls [`Responder::abort`].

mod atomic;
mod execute;
mod incoming;
mod resource;

pub use resource::Resource;

use crate::transport::completion::RecvOp;
use crate::transport::env::flushed;
use crate::transport::env::ResponderEnv;
use crate::transport::message::Mtu;
use crate::transport::reliable::config::RemoteRights;
use crate::transport::reliable::config::ResponderConfig;
use crate::transport::reliable::config::MAX_RD_ATOMIC;
use crate::transport::reliable::sequence::Numbering;
use crate::transport::reliable::sequence::Sequence;
use crate::transport::segment::IncomingRequest;
use crate::transport::segment::Response;
use crate::wire::headers::AethSyndrome;
use crate::wire::headers::NakCode;
use crate::wire::opcode::Kind;
use crate::wire::psn::Psn;
use core::ops::DerefMut;
use incoming::Message;
use resource::Resources;

/// How far ahead of the expected packet one may be for the peer to have sent it: what a window
/// holds. A forged packet with any PSN is answered, if at all, for one in 4096.
const MOST_AHEAD: u64 = 4096;

/// How far before it a packet may be that was executed and is acknowledged again. READ responses
/// take PSNs too, so this is more.
const MOST_BEHIND: u64 = 1 << 16;

/// What made the responder stop. It names the asynchronous event (IBTA 9.9.3.1.4, 11.6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// The peer broke the rules: `IBV_EVENT_QP_REQ_ERR`.
    InvalidRequest,
    /// The peer lacks a right: `IBV_EVENT_QP_ACCESS_ERR`.
    AccessError,
    /// A receive completed in error, which says enough: no event.
    LocalError,
}

/// Why a request had no effect. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It had been accepted before; it is acknowledged again, or (a READ) answered again.
    Duplicate,
    /// It stands behind a gap.
    OutOfSequence,
    /// There was no receive for it.
    NoReceive,
    /// No peer sends it: it is too far ahead, or older than the connection or any window.
    OutsideWindow,
    /// A READ or atomic operation that was not accepted before, or so long ago that nothing is
    /// known of it.
    UnknownRead,
    /// The responder is not connected, or stopped.
    NotReady,
}

/// What a request led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The QP goes to ERR. Send first what [`Responder::next_response`] still has: the answers to
    /// earlier READs, then the NAK.
    pub fatal: Option<Fatal>,
    /// The request was not executed.
    pub dropped: Option<DropReason>,
}

/// Where a responder is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not connected.
    Reset,
    /// Executes and answers.
    Ready,
    /// Refused a request for good: answers, but executes no more.
    Refused,
    /// Does nothing.
    Dead,
}

/// A refusal to be sent.
#[derive(Clone, Copy, Debug)]
struct Nak {
    /// Of the packet that it is about.
    sequence: Sequence,
    syndrome: AethSyndrome,
}

/// The receiving side of a QP.
pub struct Responder<R> {
    state: State,
    rights: RemoteRights,
    /// RDMA READs and atomic operations that the peer may have outstanding.
    most_outstanding: u8,
    min_rnr_timer: u8,
    mtu: Mtu,
    numbering: Numbering,
    /// How many messages are complete, modulo 2^24.
    msn: u32,
    /// Of the next packet in order.
    expected: Sequence,
    message: Message,
    /// The newest packet that came out of order since the peer was asked, by a NAK, to come back
    /// with the expected one.
    newest_ahead: Option<Sequence>,
    nak: Option<Nak>,
    /// The newest packet whose sender asked for an acknowledgement.
    ack: Option<Sequence>,
    /// Of the READ response returned last.
    last_read: Sequence,
    /// Where the newest request that is answered by a response begins.
    newest_read: Sequence,
    resources: Resources<R>,
}

impl<R: DerefMut<Target = [Resource]>> Responder<R> {
    /// A responder in the state RESET, with so many resources: a power of two, not more than
    /// [`MAX_RD_ATOMIC`], or the next smaller one is used.
    pub fn new(resources: R) -> Self {
        Self {
            state: State::Reset,
            rights: RemoteRights::default(),
            most_outstanding: 0,
            min_rnr_timer: 0,
            mtu: Mtu::MIN,
            numbering: Numbering::default(),
            msn: 0,
            expected: 0,
            message: Message::None,
            newest_ahead: None,
            nak: None,
            ack: None,
            last_read: 0,
            newest_read: 0,
            resources: Resources::new(resources),
        }
    }

    /// Forgets everything: the transition to RESET. Nothing completes.
    pub fn reset(&mut self) {
        self.state = State::Reset;
        self.forget();
    }

    /// Begins a connection: the transition to RTR.
    pub fn connect(&mut self, config: ResponderConfig) {
        self.forget();
        self.state = State::Ready;
        self.mtu = config.mtu;
        self.numbering = Numbering::new(config.rq_psn);
        self.expected = 0;
        self.newest_read = 0;
        self.msn = 0;
        self.set_min_rnr_timer(config.min_rnr_timer);
        self.set_rights(config.rights);
        self.set_max_dest_rd_atomic(config.max_dest_rd_atomic);
    }

    /// Changes the code of the RNR delay.
    pub fn set_min_rnr_timer(&mut self, timer: u8) {
        self.min_rnr_timer = timer & 0x1f;
    }

    /// Changes what the peer may do.
    pub fn set_rights(&mut self, rights: RemoteRights) {
        self.rights = rights;
    }

    /// Changes how many RDMA READs and atomic operations the peer may have outstanding, at most
    /// [`MAX_RD_ATOMIC`]. Of a number that is no power of two it is the next one that is: mlx5,
    /// mlx4 and hns send so many when both sides have agreed on less.
    pub fn set_max_dest_rd_atomic(&mut self, max: u8) {
        self.most_outstanding = match max {
            0 => 0,
            max => max.min(MAX_RD_ATOMIC).next_power_of_two(),
        };
    }

    /// PSN of the next packet in order (`rq_psn` of `ibv_query_qp`).
    pub fn expected_psn(&self) -> Psn {
        self.numbering.psn(self.expected)
    }

    /// A request came. Its payload is with the `env`.
    #[inline]
    pub fn on_request(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        if self.state != State::Ready {
            return dropped(DropReason::NotReady);
        }
        let Some(sequence) = self.numbering.sequence(request.psn, self.expected) else {
            return dropped(DropReason::OutsideWindow);
        };
        if sequence > self.expected {
            return self.on_gap(sequence);
        }
        if sequence < self.expected {
            return self.on_duplicate(sequence, request, env);
        }

        // What the peer was asked for.
        if self.nak.is_some_and(|nak| nak.sequence == sequence) {
            self.nak = None;
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
            | Kind::Acknowledge => self.refuse_invalid(),
        };
        if self.expected != sequence {
            self.newest_ahead = None;
        }
        outcome
    }

    /// A packet behind one that is missing (IBTA 9.7.5.2.1).
    ///
    /// One NAK is enough for what the peer sends in one go. If a packet comes that is not newer
    /// than those before it, the peer has begun again, so that what is missing was lost again: it
    /// gets another NAK, instead of an ACK timeout. That also repairs what a forged packet has
    /// done.
    fn on_gap(&mut self, sequence: Sequence) -> Outcome {
        if sequence.wrapping_sub(self.expected) > MOST_AHEAD {
            return dropped(DropReason::OutsideWindow);
        }
        let is_newer = self.newest_ahead.is_some_and(|newest| sequence > newest);
        self.newest_ahead = Some(sequence);
        let is_asked_for = self.nak.is_some_and(|nak| nak.sequence == self.expected);
        if !is_newer && !is_asked_for {
            self.set_nak(self.expected, NakCode::PsnSequence);
        }
        dropped(DropReason::OutOfSequence)
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
        self.ack = Some(self.ack.map_or(last, |ack| ack.max(last)));
        dropped(DropReason::Duplicate)
    }

    /// What to send now. `max_span` is 1 for the wire.
    ///
    /// A response that cannot leave counts as lost; if the memory of a READ response is not
    /// accessible any more, the caller says [`Self::read_failed`].
    #[inline]
    pub fn next_response(&mut self, max_span: u32) -> Option<Response> {
        let mtu = self.mtu;
        if let Some(resource) = self.resources.current() {
            let position = resource.position();
            let (mut segment, va) = resource.advance(max_span, mtu);
            let (rkey, msn, original) = (resource.rkey(), resource.msn(), resource.original());
            self.resources.skip_answered();
            // The response acknowledges all before it.
            if self.ack.is_some_and(|ack| ack < position) {
                self.ack = None;
            }
            self.last_read = position;
            segment.psn = self.numbering.psn(position);
            if let Some(original) = original {
                return Some(Response::Atomic {
                    psn: segment.psn,
                    original,
                    msn,
                });
            }
            return Some(Response::ReadResponse {
                segment,
                rkey,
                va,
                msn,
            });
        }
        if let Some(nak) = self.nak.take() {
            // A NAK acknowledges all before it too.
            if self.ack.is_some_and(|ack| ack < nak.sequence) {
                self.ack = None;
            }
            return Some(Response::Acknowledge {
                psn: self.numbering.psn(nak.sequence),
                syndrome: nak.syndrome,
                msn: self.msn,
            });
        }
        let asked = self.ack.take()?;
        // All that arrived, not only what was asked about. But if a peer that went back has a READ
        // still to ask for again, an ACK behind it would say that its answer was lost.
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

    /// The responses from this one on, which [`Self::next_response`] returned, could not leave this
    /// host: they will be returned again. The caller waits a moment before it asks for them.
    pub fn unsend(&mut self, first: &Response) {
        if self.state != State::Ready {
            return;
        }
        let Some(sequence) = self.numbering.sequence(first.psn(), self.expected) else {
            return;
        };
        match first {
            Response::ReadResponse { .. } | Response::Atomic { .. } => {
                self.resources.rewind(sequence, self.mtu);
            }
            Response::Acknowledge { syndrome, .. } => match syndrome {
                AethSyndrome::Ack { .. } => {
                    self.ack = Some(self.ack.map_or(sequence, |ack| ack.max(sequence)));
                }
                syndrome => {
                    self.nak.get_or_insert(Nak {
                        sequence,
                        syndrome: *syndrome,
                    });
                }
            },
        }
    }

    /// Whether [`Self::next_response`] has something.
    #[inline]
    pub fn has_response(&self) -> bool {
        !self.resources.is_idle() || self.nak.is_some() || self.ack.is_some()
    }

    /// Whether a request was refused for good.
    #[inline]
    pub fn has_refused(&self) -> bool {
        self.state == State::Refused
    }

    /// Whether a request was refused for good, and all answers left, the refusal last: the time for
    /// the QP to go to ERR. Before it [`Self::abort`] would take the reason from the peer.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.state == State::Refused && !self.has_response()
    }

    /// The memory of the READ response returned last is not accessible any more: a NAK takes
    /// its place, and the connection ends.
    pub fn read_failed(&mut self) -> Outcome {
        if !matches!(self.state, State::Ready | State::Refused) {
            return Outcome::default();
        }
        self.resources.clear();
        self.state = State::Refused;
        self.set_nak(self.last_read, NakCode::RemoteAccess);
        Outcome {
            fatal: Some(Fatal::AccessError),
            dropped: None,
        }
    }

    /// The QP goes to ERR: a receive in progress is flushed, and nothing more is executed or
    /// answered.
    pub fn abort(&mut self, env: &mut impl ResponderEnv) {
        if let Message::Send { wr_id, .. } = self.message {
            env.complete(flushed(wr_id, RecvOp::Send));
        }
        self.forget();
        self.state = State::Dead;
    }

    /// Refuses the expected request for good.
    fn stop(&mut self, code: NakCode, fatal: Fatal) -> Outcome {
        self.state = State::Refused;
        self.set_nak(self.expected, code);
        Outcome {
            fatal: Some(fatal),
            dropped: None,
        }
    }

    fn set_nak(&mut self, sequence: Sequence, code: NakCode) {
        self.nak = Some(Nak {
            sequence,
            syndrome: AethSyndrome::Nak(code),
        });
    }

    fn set_rnr_nak(&mut self) {
        // What was sent behind it is out of sequence, which the peer knows.
        self.newest_ahead = Some(self.expected);
        self.nak = Some(Nak {
            sequence: self.expected,
            syndrome: AethSyndrome::RnrNak {
                timer: self.min_rnr_timer,
            },
        });
    }

    fn forget(&mut self) {
        self.message = Message::None;
        self.newest_ahead = None;
        self.nak = None;
        self.ack = None;
        self.resources.clear();
    }
}

/// A request that has no effect.
fn dropped(reason: DropReason) -> Outcome {
    Outcome {
        fatal: None,
        dropped: Some(reason),
    }
}

#[cfg(test)]
mod tests;
