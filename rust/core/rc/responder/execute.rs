// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Execution of requests in sequence (IBTA 9.7.4.1, 9.7.5.1, 9.9.3).
//!
//! Every function checks first and acts last: a request without a receive leaves no trace, and can
//! be retransmitted.

use super::dropped;
use super::resource::Resource;
use super::DropReason;
use super::Fatal;
use super::Message;
use super::Outcome;
use super::Responder;
use crate::core::completion::vendor;
use crate::core::completion::Carried;
use crate::core::completion::RecvCompletion;
use crate::core::completion::RecvOp;
use crate::core::completion::Status;
use crate::core::env::check_range;
use crate::core::env::Receive;
use crate::core::env::RemoteAccess;
use crate::core::env::ResponderEnv;
use crate::core::env::TakeReceive;
use crate::core::known::Known;
use crate::core::memory::MemoryKey;
use crate::core::memory::Span;
use crate::core::message::is_cut_so;
use crate::core::message::is_due_to_write;
use crate::core::message::received_with;
use crate::core::message::MAX_MESSAGE;
use crate::core::rc::sequence::Sequence;
use crate::core::segment::IncomingRequest;
use crate::core::spare::Spare;
use crate::core::wire::headers::NakCode;
use crate::core::wire::opcode::OpcodeInfo;
use crate::core::wire::packet::Extension;
use core::ops::DerefMut;

impl<R: DerefMut<Target = [Resource]>, A: Spare> Responder<R, A> {
    /// A SEND packet in sequence.
    #[inline(always)]
    pub(super) fn on_send(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let OpcodeInfo { first, last, .. } = request.opcode.info();
        if !is_cut_so(self.mtu, request.span, first, last, request.payload_len) {
            return self.nak_invalid();
        }
        let (receive, received) = match (self.message, first) {
            (Message::None, true) => match self.take_receive(RecvOp::Send, env) {
                Ok(receive) => (receive, 0),
                Err(outcome) => return outcome,
            },
            (Message::Send { receive, received }, false) => (receive, received),
            _ => return self.nak_invalid(),
        };

        let Some(total) = received_with(received, request.payload_len, receive.capacity) else {
            return self.fail_receive(
                receive.wr_id,
                RecvOp::Send,
                (Status::LocLenErr, vendor::RECEIVE_TOO_SHORT),
                NakCode::InvalidRequest,
                env,
            );
        };
        if request.payload_len != 0 && env.scatter(received, request.payload_len).is_err() {
            return self.fail_receive(
                receive.wr_id,
                RecvOp::Send,
                (Status::LocProtErr, vendor::RECEIVE_MEMORY),
                NakCode::RemoteOperational,
                env,
            );
        }

        if last {
            let carried = match request.extension {
                Extension::Imm(imm) => Carried::Imm(imm),
                Extension::Ieth(key) => {
                    if env.invalidate(MemoryKey::new(key)).is_err() {
                        // The receive is taken, and nothing will complete it otherwise.
                        self.message = Message::None;
                        env.complete(RecvCompletion::flushed(receive.wr_id, RecvOp::Send));
                        return self.nak_access();
                    }
                    Carried::Invalidated(key)
                }
                _ => Carried::Nothing,
            };
            env.complete(RecvCompletion {
                wr_id: receive.wr_id,
                status: Status::Success,
                op: RecvOp::Send,
                byte_len: total,
                carried,
                solicited: request.solicited,
                vendor_err: 0,
            });
            self.end_message();
        } else {
            self.message = Message::Send {
                receive,
                received: total,
            };
        }
        self.accept(request)
    }

    /// An RDMA WRITE packet in sequence.
    #[inline(always)]
    pub(super) fn on_write(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let OpcodeInfo { first, last, .. } = request.opcode.info();
        if !is_cut_so(self.mtu, request.span, first, last, request.payload_len) {
            return self.nak_invalid();
        }
        let (reth, received) = match (self.message, first, request.extension.reth()) {
            (Message::None, true, Some(reth)) => (reth, 0),
            (Message::Write { reth, received }, false, _) => (reth, received),
            _ => return self.nak_invalid(),
        };
        let length = reth.length();
        if !self.rights.write || !is_due_to_write(length, received, request.payload_len, last) {
            return self.nak_invalid();
        }
        // A message takes one, with its last packet: an earlier request for it takes none.
        let imm = request.extension.imm().filter(|_| last);
        if first && check_range(RemoteAccess::Write, &reth, env).is_err() {
            return match imm {
                Some(_) if request.span == 1 => {
                    self.nak_write_with_receive(env.take_receive(), env)
                }
                // Of several packets the first one has none, and this is about that.
                _ => self.nak_access(),
            };
        }

        // The receive is taken first: without one, the data would be written twice.
        let receive = if imm.is_some() {
            match self.take_receive(RecvOp::WriteImm, env) {
                Ok(receive) => Some(receive),
                Err(outcome) => return outcome,
            }
        } else {
            None
        };

        let span = Span::part(&reth, received, request.payload_len);
        if request.payload_len != 0 && env.write_remote(span).is_err() {
            return match receive {
                Some(Receive { wr_id, capacity }) => {
                    self.nak_write_with_receive(TakeReceive::Taken { wr_id, capacity }, env)
                }
                None => self.nak_access(),
            };
        }

        if last {
            if let Some(receive) = receive {
                env.complete(RecvCompletion {
                    wr_id: receive.wr_id,
                    status: Status::Success,
                    op: RecvOp::WriteImm,
                    byte_len: length,
                    carried: imm.into(),
                    solicited: request.solicited,
                    vendor_err: 0,
                });
            }
            self.end_message();
        } else {
            self.message = Message::Write {
                reth,
                received: received.saturating_add(request.payload_len),
            };
        }
        self.accept(request)
    }

    /// A READ request in sequence.
    #[inline(always)]
    pub(super) fn on_read(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (Message::None, Some(reth)) = (self.message, request.extension.reth()) else {
            return self.nak_invalid();
        };
        if !self.rights.read
            || request.payload_len != 0
            || reth.length() > MAX_MESSAGE
            || !self.may_keep_one_more()
        {
            return self.nak_invalid();
        }
        if check_range(RemoteAccess::Read, &reth, env).is_err() {
            return self.nak_access();
        }
        self.end_message();
        self.keep(Resource::new(
            self.expected,
            &reth,
            self.mtu,
            self.msn,
            request.keeps,
        ))
    }

    /// Whether the peer may have one more such request outstanding.
    #[inline]
    pub(super) fn may_keep_one_more(&self) -> bool {
        let outstanding = self.resources.outstanding();
        outstanding < u32::from(self.most_outstanding) && self.resources.has_room()
    }

    /// Accepts the expected request with this resource.
    #[inline(always)]
    pub(super) fn keep(&mut self, resource: Resource) -> Outcome {
        if !self.resources.push(resource) {
            return self.nak_invalid();
        }
        self.newest_read = self.expected;
        self.expected = resource.behind(self.mtu);
        Outcome::default()
    }

    /// A READ request that was accepted before, or a part of one. The memory is checked again,
    /// because it may have changed.
    pub(super) fn on_read_again(
        &mut self,
        start: Sequence,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (depth, mtu) = (u32::from(self.most_outstanding), self.mtu);
        let found = match request.extension.reth() {
            Some(reth) if self.rights.read && request.payload_len == 0 => {
                let found = self.resources.find(start, &reth, depth, mtu);
                found.map(|found| (reth, found))
            }
            _ => None,
        };
        let Some((reth, (index, part))) = found else {
            return dropped(DropReason::UnknownRead);
        };
        if check_range(RemoteAccess::Read, &reth, env).is_ok() {
            if !request.keeps || !self.resources.repeat_alone(index, part) {
                self.resources.repeat(index, part, mtu);
            }
        } else if self.due.nak.is_none() {
            // If the peer still waits for it, this ends the connection there. If it is an old
            // packet that the network duplicated, the peer ignores the response, and there is no
            // reason to end it here.
            self.set_nak(start, NakCode::RemoteAccess);
        }
        dropped(DropReason::Duplicate)
    }

    /// The request was executed.
    #[inline]
    fn accept(&mut self, request: &IncomingRequest) -> Outcome {
        let span = u64::from(request.span);
        self.expected = self.expected.wrapping_add(span);
        if request.ack_req {
            self.due.ack = Known::new(self.expected.wrapping_sub(1));
        }
        Outcome::default()
    }

    /// A message is complete (a READ: accepted): counts it in the MSN.
    #[inline]
    pub(super) fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
    }

    /// The next receive, or the outcome without one.
    #[inline(always)]
    fn take_receive(
        &mut self,
        op: RecvOp,
        env: &mut impl ResponderEnv,
    ) -> Result<Receive, Outcome> {
        match env.take_receive() {
            TakeReceive::Taken { wr_id, capacity } => Ok(Receive { wr_id, capacity }),
            TakeReceive::Empty => {
                self.set_rnr_nak();
                Err(dropped(DropReason::NoReceive))
            }
            TakeReceive::Malformed { wr_id, status } => Err(self.fail_receive(
                wr_id,
                op,
                (status, vendor::RECEIVE_MALFORMED),
                NakCode::RemoteOperational,
                env,
            )),
        }
    }

    /// A receive ends in error, and with it the connection.
    fn fail_receive(
        &mut self,
        wr_id: u64,
        op: RecvOp,
        (status, vendor_err): (Status, u32),
        code: NakCode,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        env.complete(RecvCompletion {
            wr_id,
            status,
            op,
            byte_len: 0,
            carried: Carried::Nothing,
            solicited: false,
            vendor_err,
        });
        // A receive taken by a SEND is the one that ended; one that failed for a WRITE is not the
        // message's.
        self.message = Message::None;
        self.stop(code, Fatal::LocalError)
    }

    /// The peer lacks the right to write. The receive that the immediate data would have taken
    /// reports it, as with adapters and in IBTA 11.6.2. An event is raised only without a receive
    /// (C9-222.1); to wait for one would be pointless.
    #[cold]
    fn nak_write_with_receive(
        &mut self,
        receive: TakeReceive,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (wr_id, error) = match receive {
            TakeReceive::Empty => return self.nak_access(),
            TakeReceive::Taken { wr_id, .. } => {
                (wr_id, (Status::LocAccessErr, vendor::RECEIVE_ACCESS))
            }
            TakeReceive::Malformed { wr_id, status } => {
                (wr_id, (status, vendor::RECEIVE_MALFORMED))
            }
        };
        self.fail_receive(wr_id, RecvOp::WriteImm, error, NakCode::RemoteAccess, env)
    }

    /// The peer violated the protocol.
    pub(super) fn nak_invalid(&mut self) -> Outcome {
        self.stop(NakCode::InvalidRequest, Fatal::InvalidRequest)
    }

    /// The peer lacks a right.
    pub(super) fn nak_access(&mut self) -> Outcome {
        self.stop(NakCode::RemoteAccess, Fatal::AccessError)
    }
}
