// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Atomic operations, ATOMIC WRITE and FLUSH: executed once, on arrival; duplicates get the
//! original value, or the acknowledgement, again (IBTA 9.4.5, 9.7.4.1.1, 9.7.5.1.4, annex A19).

use super::dropped;
use super::resource::Executed;
use super::resource::Resource;
use super::DropReason;
use super::Message;
use super::Outcome;
use super::Responder;
use crate::core::env::AtomicOp;
use crate::core::env::FlushPlacement;
use crate::core::env::FlushRange;
use crate::core::env::ResponderEnv;
use crate::core::memory::Span;
use crate::core::operation::ATOMIC_SIZE;
use crate::core::rc::sequence::Sequence;
use crate::core::segment::IncomingRequest;
use crate::core::spare::Spare;
use crate::core::wire::headers::AtomicEth;
use crate::core::wire::headers::Feth;
use crate::core::wire::opcode::AtomicKind;
use crate::core::wire::opcode::Kind;
use crate::core::wire::packet::Extension;
use core::ops::DerefMut;

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
