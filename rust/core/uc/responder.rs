// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The responder of an unreliable connection: messages whose packets all come, in order (IBTA
//! 9.8.2.2, 9.9.3).
//!
//! | PSN | what happens |
//! |---|---|
//! | expected | the packet is executed; the expected PSN moves on |
//! | a little before | an old packet that the network has brought late, or twice: dropped |
//! | any other | packets are missing: the message is dropped, and this one may begin the next |
//!
//! Nothing is answered. A message with a fault (no receive, too short a receive, no right to write
//! there) is dropped, and the connection goes on (class D of IBTA 9.9.3.1). Each of its packets is
//! counted under the reason. A receive that a dropped message had taken serves the next one.
//!
//! Only a receive whose own memory or WQE is at fault completes in error, and ends the QP (class
//! A).

use crate::core::completion::{
    RecvCompletion,
    RecvOp,
    Status, //
};
use crate::core::env::{
    check_range,
    Receive,
    RemoteAccess,
    WriteEnv, //
};
use crate::core::memory::Span;
use crate::core::message::{
    is_cut_so,
    is_due_to_write,
    received_with,
    Mtu, //
};
use crate::core::segment::IncomingRequest;
use crate::core::uc::{
    fail_receive,
    take_receive,
    UnreliableDrop,
    UnreliableOutcome, //
};
use crate::core::wire::headers::Reth;
use crate::core::wire::opcode::{
    Kind,
    OpcodeInfo, //
};
use crate::core::wire::psn::Psn;

/// How far before the expected packet an old one may be. One that is farther away is of a sender
/// that has begun anew, or comes after so many losses that it looks like that.
const MOST_BEHIND: i32 = 4096;

/// The message in progress.
#[derive(Clone, Copy, Debug)]
enum UnreliableMessage {
    /// None: the next packet begins one.
    None,
    /// A SEND, of which so many bytes were received.
    Send { received: u32 },
    /// An RDMA WRITE, of which so many bytes were received.
    Write { reth: Reth, received: u32 },
    /// One that is dropped.
    Lost(UnreliableDrop),
}

/// The responder of a QP.
pub struct UnreliableResponder {
    ready: bool,
    allow_write: bool,
    mtu: Mtu,
    /// Of the next packet in order.
    expected: Psn,
    message: UnreliableMessage,
    receive: Option<Receive>,
}

impl Default for UnreliableResponder {
    fn default() -> Self {
        Self {
            ready: false,
            allow_write: false,
            mtu: Mtu::MIN,
            expected: Psn::default(),
            message: UnreliableMessage::None,
            receive: None,
        }
    }
}

impl UnreliableResponder {
    /// Resets everything: the transition to RESET. Nothing completes.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Begins a connection: the transition to RTR.
    pub fn connect(&mut self, mtu: Mtu, rq_psn: Psn, allow_write: bool) {
        *self = Self {
            ready: true,
            allow_write,
            mtu,
            expected: rq_psn,
            ..Self::default()
        };
    }

    /// Changes what the peer may do.
    pub fn set_access(&mut self, allow_write: bool) {
        self.allow_write = allow_write;
    }

    /// PSN of the next packet in order (`rq_psn` of `ibv_query_qp`).
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Handles a packet. Its payload is with the `env`.
    pub fn on_request(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl WriteEnv,
    ) -> UnreliableOutcome {
        if !self.ready {
            return UnreliableOutcome::Dropped(UnreliableDrop::NotReady);
        }
        let ahead = request.psn.distance_from(self.expected);
        if (-MOST_BEHIND..0).contains(&ahead) {
            return UnreliableOutcome::Dropped(UnreliableDrop::Old);
        }
        if ahead != 0 {
            self.message = UnreliableMessage::Lost(UnreliableDrop::Gap);
        }
        self.expected = request.psn.add(request.span);
        let info = request.opcode.info();
        if info.first {
            // An earlier message without an end is lost silently.
            self.message = UnreliableMessage::None;
        }
        let outcome = match (self.message, info.kind) {
            (UnreliableMessage::Lost(reason), _) => UnreliableOutcome::Dropped(reason),
            _ if !is_cut_so(
                self.mtu,
                request.span,
                info.first,
                info.last,
                request.payload_len,
            ) =>
            {
                UnreliableOutcome::Dropped(UnreliableDrop::Invalid)
            }
            (_, Kind::Send) => self.on_send(request, &info, env),
            (_, Kind::Write) => self.on_write(request, &info, env),
            _ => UnreliableOutcome::Dropped(UnreliableDrop::Invalid),
        };
        match outcome {
            UnreliableOutcome::Executed if info.last => self.message = UnreliableMessage::None,
            UnreliableOutcome::Executed => {}
            UnreliableOutcome::Dropped(reason) => self.message = UnreliableMessage::Lost(reason),
            UnreliableOutcome::Failed => {
                self.ready = false;
                self.receive = None;
            }
        }
        outcome
    }

    fn on_send(
        &mut self,
        request: &IncomingRequest,
        info: &OpcodeInfo,
        env: &mut impl WriteEnv,
    ) -> UnreliableOutcome {
        let received = match (self.message, info.first) {
            (UnreliableMessage::None, true) => 0,
            (UnreliableMessage::Send { received }, false) => received,
            _ => return UnreliableOutcome::Dropped(UnreliableDrop::Invalid),
        };
        let receive = match take_receive(&mut self.receive, RecvOp::Send, env) {
            Ok(receive) => receive,
            Err(outcome) => return outcome,
        };
        let Some(total) = received_with(received, request.payload_len, receive.capacity) else {
            return UnreliableOutcome::Dropped(UnreliableDrop::TooLong);
        };
        if request.payload_len != 0 && env.scatter(received, request.payload_len).is_err() {
            return fail_receive(receive, env);
        }
        self.message = UnreliableMessage::Send { received: total };
        if info.last {
            self.receive = None;
            env.complete(RecvCompletion {
                wr_id: receive.wr_id,
                status: Status::Success,
                op: RecvOp::Send,
                byte_len: total,
                carried: request.extension.imm().into(),
                solicited: request.solicited,
                vendor_err: 0,
            });
        }
        UnreliableOutcome::Executed
    }

    fn on_write(
        &mut self,
        request: &IncomingRequest,
        info: &OpcodeInfo,
        env: &mut impl WriteEnv,
    ) -> UnreliableOutcome {
        let (reth, received) = match (self.message, info.first, request.extension.reth()) {
            (UnreliableMessage::None, true, Some(reth)) => (reth, 0),
            (UnreliableMessage::Write { reth, received }, false, _) => (reth, received),
            _ => return UnreliableOutcome::Dropped(UnreliableDrop::Invalid),
        };
        let length = reth.length();
        if !is_due_to_write(length, received, request.payload_len, info.last) {
            return UnreliableOutcome::Dropped(UnreliableDrop::Invalid);
        }
        if !self.allow_write
            || (info.first && check_range(RemoteAccess::Write, &reth, env).is_err())
        {
            return UnreliableOutcome::Dropped(UnreliableDrop::Denied);
        }
        // A message takes one, with its last packet: an earlier request for it takes none.
        let imm = request.extension.imm().filter(|_| info.last);
        let receive = match imm {
            Some(_) => match take_receive(&mut self.receive, RecvOp::WriteImm, env) {
                Ok(receive) => Some(receive),
                Err(outcome) => return outcome,
            },
            None => None,
        };
        let span = Span::part(&reth, received, request.payload_len);
        if request.payload_len != 0 && env.write_remote(span).is_err() {
            return UnreliableOutcome::Dropped(UnreliableDrop::Denied);
        }
        self.message = UnreliableMessage::Write {
            reth,
            received: received.saturating_add(request.payload_len),
        };
        if let Some(receive) = receive {
            self.receive = None;
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
        UnreliableOutcome::Executed
    }

    /// The QP goes to ERR: nothing more is executed. Returns the completion of the receive in use.
    #[must_use]
    pub fn abort(&mut self) -> Option<RecvCompletion> {
        let receive = self.receive.take();
        self.reset();
        receive.map(|receive| RecvCompletion::flushed(receive.wr_id, RecvOp::Send))
    }
}
