// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Execution of requests in sequence (IBTA 9.7.4.1, 9.7.5.1, 9.9.3).
//!
//! Every function checks first and acts last: a request without a receive leaves no trace, and can
//! be retransmitted.

use super::resource::{
    Executed,
    Resource, //
};
use super::{
    dropped,
    DropReason,
    Fatal,
    Message,
    Outcome,
    Responder, //
};
use crate::core::completion::{
    vendor,
    Carried,
    RecvCompletion,
    RecvOp,
    Status, //
};
use crate::core::env::{
    check_range,
    AtomicOp,
    FlushPlacement,
    FlushRange,
    Receive,
    RemoteAccess,
    ResponderEnv,
    TakeReceive, //
};
use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::message::{
    is_cut_so,
    is_due_to_write,
    received_with,
    MAX_MESSAGE, //
};
use crate::core::operation::ATOMIC_SIZE;
use crate::core::rc::sequence::Sequence;
use crate::core::segment::IncomingRequest;
use crate::core::storage::{
    Known,
    Spare, //
};
use crate::core::wire::headers::{
    AtomicEth,
    Feth,
    NakCode, //
};
use crate::core::wire::opcode::{
    AtomicKind,
    Kind,
    OpcodeInfo, //
};
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
        } else {
            self.refuse_again(start);
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

// Atomic operations, ATOMIC WRITE and FLUSH: executed once, on arrival; duplicates get the
// original value, or the acknowledgement, again (IBTA 9.4.5, 9.7.4.1.1, 9.7.5.1.4, annex A19).

/// The operation of a request.
fn change(kind: AtomicKind, atomic: &AtomicEth) -> AtomicOp {
    match kind {
        AtomicKind::CompareSwap => AtomicOp::CompareSwap {
            compare: atomic.compare(),
            swap: atomic.swap_add(),
        },
        AtomicKind::FetchAdd => AtomicOp::FetchAdd(atomic.swap_add()),
    }
}

impl<R: DerefMut<Target = [Resource]>, A: Spare> Responder<R, A> {
    /// An atomic operation in sequence.
    pub(super) fn on_atomic(
        &mut self,
        kind: AtomicKind,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (Message::None, Some(atomic)) = (self.message, request.extension.atomic()) else {
            return self.nak_invalid();
        };
        // Without a resource it must not be executed.
        if !self.rights.atomic
            || request.payload_len != 0
            || atomic.va() & 7 != 0
            || !self.may_keep_one_more()
        {
            return self.nak_invalid();
        }
        let word = Span::new(atomic.rkey(), atomic.va(), ATOMIC_SIZE);
        let Ok(original) = env.change_remote(word, change(kind, &atomic)) else {
            return self.nak_access();
        };
        let executed = Executed::new(Kind::Atomic(kind), word);
        self.keep_executed(executed, Some(original))
    }

    /// An ATOMIC WRITE in sequence.
    pub(super) fn on_atomic_write(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (Message::None, Some(reth)) = (self.message, request.extension.reth()) else {
            return self.nak_invalid();
        };
        if !self.rights.write
            || request.payload_len != ATOMIC_SIZE
            || reth.length() != ATOMIC_SIZE
            || reth.va() & 7 != 0
            || !self.may_keep_one_more()
        {
            return self.nak_invalid();
        }
        let word = Span::from(&reth);
        if env.write_word(word).is_err() {
            return self.nak_access();
        }
        self.keep_executed(Executed::new(Kind::AtomicWrite, word), None)
    }

    /// A FLUSH in sequence. All earlier writes of the peer were executed on arrival.
    pub(super) fn on_flush(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (Message::None, Some((feth, reth))) = (self.message, request.extension.flush()) else {
            return self.nak_invalid();
        };
        let bits = feth.placement();
        let placement = FlushPlacement {
            global: bits & Feth::GLOBAL != 0,
            persistent: bits & Feth::PERSISTENT != 0,
        };
        let span = Span::from(&reth);
        let range = match feth.selectivity() {
            Feth::RANGE => FlushRange::Range(span),
            Feth::REGION => FlushRange::Region(span.key),
            _ => return self.nak_invalid(),
        };
        if bits == 0
            || bits & !(Feth::GLOBAL | Feth::PERSISTENT) != 0
            || (placement.global && !self.rights.flush_global)
            || (placement.persistent && !self.rights.flush_persistent)
            || request.payload_len != 0
            || !self.may_keep_one_more()
        {
            return self.nak_invalid();
        }
        if env.flush(range, placement).is_err() {
            return self.nak_access();
        }
        self.keep_executed(Executed::new(Kind::Flush, span), None)
    }

    fn keep_executed(&mut self, executed: Executed, original: Option<u64>) -> Outcome {
        self.end_message();
        let (start, msn) = (self.expected, self.msn);
        self.keep(Resource::executed(start, executed, msn, original))
    }

    /// A duplicate of one of these: the response is repeated.
    pub(super) fn on_executed_again(
        &mut self,
        start: Sequence,
        kind: Kind,
        request: &IncomingRequest,
    ) -> Outcome {
        let depth = u32::from(self.most_outstanding);
        let named = match request.extension {
            Extension::Atomic(atomic) => Some(Span::new(atomic.rkey(), atomic.va(), ATOMIC_SIZE)),
            Extension::Reth(reth) | Extension::Flush(_, reth) => Some(Span::from(&reth)),
            _ => None,
        };
        let found = named.and_then(|span| {
            let executed = Executed::new(kind, span);
            self.resources.find_executed(start, executed, depth)
        });
        let Some((index, part)) = found else {
            return dropped(DropReason::UnknownRead);
        };
        self.resources.repeat(index, part, self.mtu);
        dropped(DropReason::Duplicate)
    }
}
