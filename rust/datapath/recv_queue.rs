// SPDX-License-Identifier: GPL-2.0

//! The receiving half of a QP: receives taken from the process's ring, and requests of the peer.

use super::connection::Connection;
use super::deferred::Deferred;
use super::payload::{
    Payload,
    Regions,
    SgList, //
};
use super::qp::Qp;
use super::Turn;
use crate::observe::counters::Counter;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::{
    Access,
    State, //
};
use crate::sys::ring::Ring;
use crate::transport::completion::{
    vendor,
    RecvCompletion,
    RecvOp,
    Status, //
};
use crate::transport::responder::{
    AccessError,
    DropReason,
    Fatal,
    RemoteAccess,
    Responder,
    ResponderEnv,
    TakeReceive, //
};
use crate::transport::segment::IncomingRequest;
use crate::uabi::cqe::{
    Cqe,
    WC_WITH_IMM, //
};
use crate::uabi::wqe::{
    RecvWqe,
    Sge, //
};
use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

/// Receives that one turn flushes.
const FLUSHED_PER_TURN: u32 = 512;

/// What the lock of the receiving half guards.
pub struct RecvHalf {
    /// The protocol.
    pub responder: Responder,
    /// The receives.
    pub receives: Receives,
    /// The way to the peer, from RTR on.
    pub connection: Option<Connection>,
    /// A worker is queued or running and will send the responses that are left.
    pub worker: bool,
    /// A request in order came since RTR.
    pub established: bool,
}

/// The process's receive ring, and a private copy of the receive that is being filled.
pub struct Receives {
    /// Index of the next receive to be taken.
    consumer: u32,
    /// Copy of the slot taken last.
    current: KVec<u64>,
    max_sge: usize,
}

/// Words of a [`RecvWqe`].
const HEADER_WORDS: usize = core::mem::size_of::<RecvWqe>() / 8;

impl Receives {
    /// Nothing taken yet, of slots of `stride` bytes.
    pub fn new(stride: u32, max_sge: u32) -> Result<Self> {
        let mut current = KVec::new();
        current.resize(stride as usize / 8, 0, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            consumer: 0,
            current,
            max_sge: max_sge as usize,
        })
    }

    /// Starts again with an empty ring.
    pub fn reset(&mut self) {
        self.consumer = 0;
    }

    fn sges(&self, num_sge: usize) -> Option<&[Sge]> {
        let bytes = self.current.get(HEADER_WORDS..)?.as_bytes();
        let (sges, _) = <[Sge]>::ref_from_prefix_with_elems(bytes, num_sge).ok()?;
        Some(sges)
    }

    fn header(&self) -> RecvWqe {
        RecvWqe::read_from_prefix(self.current.as_bytes())
            .map_or(RecvWqe::default(), |(wqe, _)| wqe)
    }

    /// Copies the next slot of the ring: the header, then the entries that it says stand behind it.
    fn copy(&mut self, ring: &Ring) {
        let Some((header, rest)) = self.current.split_at_mut_checked(HEADER_WORDS) else {
            return;
        };
        ring.read_slot(self.consumer, 0, header);
        let num_sge = RecvWqe::read_from_bytes(header.as_bytes()).map_or(0, |wqe| wqe.num_sge);
        let words = (num_sge as usize)
            .min(self.max_sge)
            .wrapping_mul(core::mem::size_of::<Sge>() / 8);
        let words = words.min(rest.len());
        if let Some(rest) = rest.get_mut(..words) {
            ring.read_slot(self.consumer, HEADER_WORDS, rest);
        }
    }

    /// Takes the next receive: copied once, then checked.
    fn take(&mut self, qp: &Qp) -> TakeReceive {
        let posted = qp.rq.load_producer().wrapping_sub(self.consumer);
        // More than the ring holds is not what a provider of ours posts: there is nothing to trust.
        if posted == 0 || posted > qp.rq.entries() {
            return TakeReceive::Empty;
        }
        self.copy(&qp.rq);
        self.consumer = self.consumer.wrapping_add(1);
        qp.rq.store_consumer(self.consumer);
        let wqe = self.header();
        let num_sge = wqe.num_sge as usize;
        match self.sges(num_sge) {
            Some(sges) if num_sge <= self.max_sge => TakeReceive::Taken {
                wr_id: wqe.wr_id,
                capacity: sges.iter().map(|sge| u64::from(sge.length)).sum(),
            },
            _ => TakeReceive::Malformed {
                wr_id: wqe.wr_id,
                status: Status::LocQpOpErr,
            },
        }
    }

    /// Where the receive taken last puts its data.
    fn sg_list<'a>(&'a self, regions: Regions<'a>) -> SgList<'a> {
        SgList {
            sges: self.sges(self.header().num_sge as usize).unwrap_or(&[]),
            regions,
        }
    }
}

/// What the responder works on: one request for one QP.
struct Env<'a, 't> {
    qp: ArcBorrow<'a, Qp>,
    receives: &'a mut Receives,
    payload: Payload<'a>,
    turn: &'a mut Turn<'t>,
}

impl<'t> Env<'_, 't> {
    fn regions(&self) -> Regions<'_> {
        self.qp.regions(self.turn.rcu)
    }
}

fn rights(access: RemoteAccess) -> u32 {
    match access {
        RemoteAccess::Read => Access::REMOTE_READ,
        RemoteAccess::Write => Access::REMOTE_WRITE,
    }
}

impl ResponderEnv for Env<'_, '_> {
    fn take_receive(&mut self) -> TakeReceive {
        self.receives.take(&self.qp)
    }

    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.regions()
            .check(rkey, rights(access), va, len)
            .map(|_| ())
    }

    fn write_remote(&mut self, rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        let to = self.regions().check(rkey, Access::REMOTE_WRITE, va, len)?;
        self.payload.copy_to(0, to, len)
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        self.receives
            .sg_list(self.qp.regions(self.turn.rcu))
            .scatter(offset, len, &self.payload)
    }

    fn complete(&mut self, done: RecvCompletion) {
        self.qp.complete_receive(done, &mut self.turn.deferred);
    }
}

impl RecvHalf {
    /// Whether requests are served in the state of the QP.
    pub fn serves(qp: &Qp) -> bool {
        matches!(
            qp.state(),
            State::Rtr | State::Rts | State::Sqd | State::Sqe
        )
    }

    /// Executes one request of the peer. What is to be answered waits in the responder.
    pub fn execute(
        &mut self,
        qp: ArcBorrow<'_, Qp>,
        request: &IncomingRequest,
        payload: Payload<'_>,
        turn: &mut Turn<'_>,
    ) {
        let outcome = self.responder.on_request(
            request,
            &mut Env {
                qp,
                receives: &mut self.receives,
                payload,
                turn,
            },
        );
        // Only what is in order says that the peer is there: any old or forged packet may carry its
        // address.
        if outcome.dropped.is_none() && !self.established {
            self.established = true;
            if qp.state() == State::Rtr {
                turn.deferred.event(qp, QpEvent::CommEstablished);
            }
        }
        let counter = match outcome.dropped {
            None => None,
            Some(DropReason::Duplicate) => Some(Counter::Duplicate),
            Some(DropReason::OutOfSequence) => Some(Counter::OutOfSequence),
            Some(DropReason::NoReceive) => Some(Counter::RnrNakSent),
            Some(DropReason::Stale | DropReason::NotReady) => Some(Counter::IgnoredRequest),
        };
        if let Some(counter) = counter {
            qp.port.counters.inc(counter);
        }
        if let Some(fatal) = outcome.fatal {
            Self::refused(qp, fatal, turn);
        }
    }

    /// The responder refused a request for good. The QP goes to ERR when that was told: see
    /// [`Self::end_if_told`].
    pub fn refused(qp: ArcBorrow<'_, Qp>, fatal: Fatal, turn: &mut Turn<'_>) {
        qp.port.counters.inc(Counter::RefusedRequest);
        match fatal {
            Fatal::InvalidRequest => turn.deferred.event(qp, QpEvent::RequestError),
            Fatal::AccessError => turn.deferred.event(qp, QpEvent::AccessError),
            Fatal::LocalError => {}
        }
    }

    /// After a response was taken: moves the QP to ERR if it was the refusal, behind which there
    /// is nothing. Sooner, the peer would not learn why.
    pub fn end_if_told(&self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) {
        if self.responder.has_ended() {
            turn.deferred.fail(qp);
        }
    }

    /// Flushes the receive in progress and what is in the ring, up to [`FLUSHED_PER_TURN`]; tells
    /// whether there may be more.
    pub fn flush(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
        self.responder.abort(&mut Env {
            qp,
            receives: &mut self.receives,
            payload: Payload::Bytes(&[]),
            turn,
        });
        for _ in 0..FLUSHED_PER_TURN {
            let wr_id = match self.receives.take(&qp) {
                TakeReceive::Taken { wr_id, .. } | TakeReceive::Malformed { wr_id, .. } => wr_id,
                TakeReceive::Empty => return false,
            };
            qp.complete_receive(
                RecvCompletion {
                    wr_id,
                    status: Status::WrFlushErr,
                    op: RecvOp::Send,
                    byte_len: 0,
                    imm: None,
                    solicited: false,
                    vendor_err: vendor::FLUSHED,
                },
                &mut turn.deferred,
            );
        }
        true
    }
}

impl Qp {
    /// Tells the process of the end of a receive.
    pub fn complete_receive(
        self: ArcBorrow<'_, Self>,
        done: RecvCompletion,
        deferred: &mut Deferred,
    ) {
        let cqe = Cqe {
            wr_id: done.wr_id,
            status: done.status.as_u32(),
            opcode: done.op.wc_opcode(),
            byte_len: done.byte_len,
            // Both are big-endian.
            imm: done.imm.map_or(0, u32::from_ne_bytes),
            flags: if done.imm.is_some() { WC_WITH_IMM } else { 0 },
            qp_num: self.number,
            vendor_err: done.vendor_err,
            ..Cqe::default()
        };
        let solicited = done.solicited || !done.status.is_success();
        let pushed = self.recv_cq.push(&cqe, solicited);
        deferred.pushed(self, &self.recv_cq, pushed);
    }
}
