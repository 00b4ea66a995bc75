// SPDX-License-Identifier: GPL-2.0

//! The sending half of a QP: requests taken from the process's ring, and what they did.

use super::connection::Connection;
use super::deferred::Deferred;
use super::offload::Offload;
use super::payload::{
    Payload,
    Regions,
    SgList, //
};
use super::qp::Qp;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::ib::event::QpEvent;
use crate::sys::ring::Ring;
use crate::transport::completion::{
    SendCompletion,
    SendOp,
    Status, //
};
use crate::transport::config::MAX_MESSAGE;
use crate::transport::counters::RequesterCounters;
use crate::transport::requester::{
    PushError,
    Requester,
    SendRequest,
    SendSlot, //
};
use crate::uabi::cqe::Cqe;
use crate::uabi::wqe::{
    SendWqe,
    Sge,
    SEND_ALL,
    SEND_FENCE,
    SEND_INLINE,
    SEND_SIGNALED,
    SEND_SOLICITED, //
};
use kernel::prelude::*;
use kernel::sync::ArcBorrow;
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

/// Requests that one turn takes from the ring.
const TAKEN_PER_TURN: u32 = 256;
/// Requests that one turn flushes.
const FLUSHED_PER_TURN: u32 = 512;

/// What the lock of the sending half guards.
pub struct SendHalf {
    /// The protocol.
    pub requester: Requester<KVVec<SendSlot>>,
    /// The private copies of the requests.
    pub wqes: SendWqes,
    /// The way to the peer, from RTR on.
    pub connection: Option<Connection>,
    /// A worker is in charge and will look at the ring: no doorbell is needed.
    pub worker: bool,
    /// Whether that worker is on another CPU.
    pub offload: Offload,
    /// The messages that are under way take the local path. It is chosen anew when none is.
    pub local: bool,
    /// What the requester had counted when its counters were added to those of the port.
    pub counted: RequesterCounters,
    /// The user wants to know when the queue is drained.
    pub notify_drained: bool,
}

/// Copies of the WQEs in the process's ring, slot by slot, which the process cannot change.
pub struct SendWqes {
    words: KVVec<u64>,
    /// Words of a slot.
    stride: usize,
    max_sge: usize,
    max_inline: usize,
    signal_all: bool,
}

/// Words of a [`SendWqe`].
const HEADER_WORDS: usize = core::mem::size_of::<SendWqe>() / 8;

impl SendWqes {
    /// Copies of `entries` slots of `stride` bytes.
    pub fn new(
        entries: u32,
        stride: u32,
        max_sge: u32,
        max_inline: u32,
        signal_all: bool,
    ) -> Result<Self> {
        let stride = stride as usize / 8;
        let mut words = KVVec::new();
        let len = (entries as usize).checked_mul(stride).ok_or(EINVAL)?;
        words.resize(len, 0, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            words,
            stride,
            max_sge: max_sge as usize,
            max_inline: max_inline as usize,
            signal_all,
        })
    }

    fn slot(&self, slot: u32) -> &[u64] {
        let start = (slot as usize).wrapping_mul(self.stride);
        self.words
            .get(start..start.wrapping_add(self.stride))
            .unwrap_or(&[])
    }

    fn slot_mut(&mut self, slot: u32) -> &mut [u64] {
        let start = (slot as usize).wrapping_mul(self.stride);
        self.words
            .get_mut(start..start.wrapping_add(self.stride))
            .unwrap_or(&mut [])
    }

    /// Copies a slot of the ring: the header, then what it says stands behind it.
    fn copy(&mut self, ring: &Ring, index: u32, slot: u32) {
        let (max_sge, max_inline) = (self.max_sge, self.max_inline);
        let Some((header, rest)) = self.slot_mut(slot).split_at_mut_checked(HEADER_WORDS) else {
            return;
        };
        ring.read_slot(index, 0, header);
        let Ok(wqe) = SendWqe::read_from_bytes(header.as_bytes()) else {
            return;
        };
        let bytes = if wqe.flags & SEND_INLINE != 0 {
            (wqe.inline_len as usize).min(max_inline)
        } else {
            usize::from(wqe.num_sge)
                .min(max_sge)
                .wrapping_mul(core::mem::size_of::<Sge>())
        };
        let words = bytes.div_ceil(8).min(rest.len());
        if let Some(rest) = rest.get_mut(..words) {
            ring.read_slot(index, HEADER_WORDS, rest);
        }
    }

    /// Checks the copy of a slot. An error is the status that the request completes with.
    fn parse(&self, slot: u32) -> Result<SendRequest, (u64, Status)> {
        let words = self.slot(slot);
        let Ok((wqe, _)) = SendWqe::read_from_prefix(words.as_bytes()) else {
            return Err((0, Status::LocQpOpErr));
        };
        let bad = |status| Err((wqe.wr_id, status));
        let Some(op) = SendOp::from_wqe(wqe.opcode) else {
            return bad(Status::LocQpOpErr);
        };
        if wqe.flags & !SEND_ALL != 0 || usize::from(wqe.num_sge) > self.max_sge {
            return bad(Status::LocQpOpErr);
        }
        let length = if wqe.flags & SEND_INLINE != 0 {
            if op.is_read() || wqe.num_sge != 0 || wqe.inline_len as usize > self.max_inline {
                return bad(Status::LocQpOpErr);
            }
            u64::from(wqe.inline_len)
        } else {
            let Some(sges) = sges_of(words, usize::from(wqe.num_sge)) else {
                return bad(Status::LocQpOpErr);
            };
            sges.iter().map(|sge| u64::from(sge.length)).sum()
        };
        let Some(length) = u32::try_from(length).ok().filter(|len| *len <= MAX_MESSAGE) else {
            return bad(Status::LocLenErr);
        };
        Ok(SendRequest {
            wr_id: wqe.wr_id,
            remote_addr: wqe.remote_addr,
            length,
            rkey: wqe.rkey,
            // The field is big-endian already.
            imm: wqe.imm.to_ne_bytes(),
            op,
            signaled: self.signal_all || wqe.flags & SEND_SIGNALED != 0,
            fence: wqe.flags & SEND_FENCE != 0,
            solicited: wqe.flags & SEND_SOLICITED != 0,
        })
    }

    /// Local memory of a request that was checked: where its message comes from, or goes to.
    pub fn payload<'a>(&'a self, slot: u32, offset: u32, regions: Regions<'a>) -> Payload<'a> {
        let words = self.slot(slot);
        let Ok((wqe, _)) = SendWqe::read_from_prefix(words.as_bytes()) else {
            return Payload::Bytes(&[]);
        };
        if wqe.flags & SEND_INLINE != 0 {
            let bytes = words.get(HEADER_WORDS..).unwrap_or(&[]).as_bytes();
            return Payload::Bytes(bytes.get(offset as usize..).unwrap_or(&[]));
        }
        Payload::Local(self.sg_list(slot, regions), offset)
    }

    /// The scatter/gather list of a request that was checked.
    pub fn sg_list<'a>(&'a self, slot: u32, regions: Regions<'a>) -> SgList<'a> {
        let words = self.slot(slot);
        let num_sge = SendWqe::read_from_prefix(words.as_bytes())
            .map_or(0, |(wqe, _)| usize::from(wqe.num_sge));
        SgList {
            sges: sges_of(words, num_sge).unwrap_or(&[]),
            regions,
        }
    }
}

/// The first `num_sge` entries behind the header of a slot.
fn sges_of(words: &[u64], num_sge: usize) -> Option<&[Sge]> {
    let bytes = words.get(HEADER_WORDS..)?.as_bytes();
    let (sges, _) = <[Sge]>::ref_from_prefix_with_elems(bytes, num_sge).ok()?;
    Some(sges)
}

impl SendHalf {
    /// Takes what the process has posted, each request copied once and then checked, up to
    /// [`TAKEN_PER_TURN`]; tells whether there is more.
    pub fn take_posted(&mut self, qp: ArcBorrow<'_, Qp>, deferred: &mut Deferred) -> bool {
        let producer = qp.sq.load_producer();
        let entries = qp.sq.entries();
        let taken = self
            .requester
            .pushed()
            .wrapping_sub(self.requester.retired());
        let posted = producer.wrapping_sub(self.requester.pushed());
        if posted > entries.wrapping_sub(taken) {
            // Not what a provider of ours does: the ring was scribbled over. Slots of requests
            // that are under way must not be copied again.
            deferred.event(qp, QpEvent::Fatal);
            deferred.fail(qp);
            return false;
        }
        for _ in 0..posted.min(TAKEN_PER_TURN) {
            let index = self.requester.pushed();
            let slot = index & entries.wrapping_sub(1);
            self.wqes.copy(&qp.sq, index, slot);
            let pushed = match self.wqes.parse(slot) {
                Ok(request) => match self.requester.push(request) {
                    Ok(_) => Ok(()),
                    Err(PushError::Full) => return false,
                    Err(PushError::TooLong) => Err((request.wr_id, Status::LocLenErr)),
                    Err(PushError::NoReads) => Err((request.wr_id, Status::LocQpOpErr)),
                },
                Err(bad) => Err(bad),
            };
            if let Err((wr_id, status)) = pushed {
                let result = self
                    .requester
                    .push_failed(wr_id, status, &mut |done| qp.complete_send(done, deferred));
                match result {
                    Ok(progress) if progress.fatal => deferred.fail(qp),
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        }
        posted > TAKEN_PER_TURN
    }

    /// Completes requests with a flush error, also what is still in the ring, up to
    /// [`FLUSHED_PER_TURN`]; tells whether there may be more.
    pub fn flush(&mut self, qp: ArcBorrow<'_, Qp>, deferred: &mut Deferred) -> bool {
        let mut left = FLUSHED_PER_TURN;
        left = left.wrapping_sub(
            self.requester
                .flush_some(left, &mut |done| qp.complete_send(done, deferred)),
        );
        let posted = qp.sq.load_producer().wrapping_sub(self.requester.pushed());
        if left != 0 && posted <= qp.sq.entries() {
            for _ in 0..posted.min(left) {
                let mut wr_id = [0];
                qp.sq.read_slot(self.requester.pushed(), 0, &mut wr_id);
                let [wr_id] = wr_id;
                let sink = &mut |done| qp.complete_send(done, deferred);
                if self
                    .requester
                    .push_failed(wr_id, Status::WrFlushErr, sink)
                    .is_err()
                {
                    break;
                }
                self.requester
                    .flush(&mut |done| qp.complete_send(done, deferred));
            }
            left = left.saturating_sub(posted);
        }
        self.publish(qp);
        left == 0
    }

    /// Gives the slots of requests back to the process that completed without telling it.
    pub fn publish(&self, qp: ArcBorrow<'_, Qp>) {
        qp.sq.store_consumer(self.requester.retired());
    }

    /// Adds what the requester counted to the counters of the port.
    pub fn count(&mut self, counters: &Counters) {
        let now = *self.requester.counters();
        let add = |counter, now: u64, before: u64| {
            if now != before {
                counters.add(counter, now.wrapping_sub(before));
            }
        };
        let before = self.counted;
        add(
            Counter::Retransmitted,
            now.retransmitted,
            before.retransmitted,
        );
        add(Counter::AckTimeout, now.timeouts, before.timeouts);
        add(Counter::RnrNakReceived, now.rnr_naks, before.rnr_naks);
        add(Counter::SequenceNakReceived, now.seq_naks, before.seq_naks);
        add(Counter::FatalNakReceived, now.fatal_naks, before.fatal_naks);
        add(Counter::StaleResponse, now.stale, before.stale);
        add(Counter::StaleResponse, now.ghosts, before.ghosts);
        add(
            Counter::OutOfSequenceResponse,
            now.out_of_sequence,
            before.out_of_sequence,
        );
        add(
            Counter::BadResponse,
            now.bad_responses,
            before.bad_responses,
        );
        self.counted = now;
    }
}

impl Qp {
    /// Tells the process of the end of a send request.
    pub fn complete_send(self: ArcBorrow<'_, Self>, done: SendCompletion, deferred: &mut Deferred) {
        let cqe = Cqe {
            wr_id: done.wr_id,
            status: done.status.as_u32(),
            opcode: done.op.wc_opcode(),
            byte_len: done.byte_len,
            qp_num: self.number,
            vendor_err: done.vendor_err,
            ..Cqe::default()
        };
        // The slot first: who sees the completion may fill the slot at once.
        self.sq.store_consumer(done.retired);
        let pushed = self.send_cq.push(&cqe, !done.status.is_success());
        deferred.pushed(self, &self.send_cq, pushed);
    }
}
