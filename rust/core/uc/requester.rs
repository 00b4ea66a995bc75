// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The requester of unreliable services: a WQE is complete when its last packet has left (IBTA
//! 9.8.2.1, 9.8.3).
//!
//! WQEs leave one after the other, so the state besides their slots is one number: how many packets
//! of the oldest one have left.
//!
//! A local failure ends the send queue, not the QP: the WQE completes in error, later ones are
//! flushed, and the QP goes to SQE, in which it still receives (IBTA 10.3.1).
//! [`UnreliableRequester::resume`] leaves SQE.

use crate::core::completion::{
    vendor,
    SendCompletion,
    Status, //
};
use crate::core::message::{
    cut,
    Mtu,
    Piece,
    MAX_MESSAGE, //
};
use crate::core::operation::Operation;
use crate::core::segment::RequestSegment;
use crate::core::send::{
    AfterSend,
    Next,
    Progress,
    PushError,
    SendError,
    SendRequest,
    SendSource, //
};
use crate::core::storage::{
    Slot,
    SlotRing, //
};
use crate::core::wire::opcode::{
    Opcode,
    OpcodeService, //
};
use crate::core::wire::psn::Psn;
use core::ops::DerefMut;

/// A slot of the send queue, for its requester. The content is the requester's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnreliableSlot {
    request: SendRequest,
    /// Not success: the WQE cannot be executed, and completes with this status in its order.
    status: Status,
}

/// The state of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreliableState {
    /// Sends nothing yet.
    Reset,
    /// Sends and completes.
    Ready,
    /// A WQE ended in error; only a flush follows.
    Failed,
}

/// The requester of a QP.
///
/// # Invariants
///
/// The slots `retired..pushed` hold WQEs; `packet` is below the packets of the first of them, and 0
/// if there is none.
pub struct UnreliableRequester<S> {
    ring: SlotRing<S>,
    service: OpcodeService,
    state: UnreliableState,
    draining: bool,
    mtu: Mtu,
    /// Of the next packet.
    psn: Psn,
    pushed: u32,
    retired: u32,
    /// How many packets of the oldest WQE have left.
    packet: u32,
}

impl<S: DerefMut<Target = [UnreliableSlot]>> UnreliableRequester<S> {
    /// A requester of `service` over these slots, in the state RESET.
    ///
    /// The number of slots should be a power of two; else only the next smaller one is used.
    pub fn new(slots: S, service: OpcodeService) -> Self {
        Self {
            ring: SlotRing::new(slots),
            service,
            state: UnreliableState::Reset,
            draining: false,
            mtu: Mtu::MIN,
            psn: Psn::default(),
            pushed: 0,
            retired: 0,
            packet: 0,
        }
    }

    /// Resets everything: the transition to RESET. Nothing completes, and the indices begin at 0
    /// again.
    pub fn reset(&mut self) {
        self.state = UnreliableState::Reset;
        self.draining = false;
        self.mtu = Mtu::MIN;
        self.pushed = 0;
        self.retired = 0;
        self.packet = 0;
    }

    /// The transition to RTS. WQEs pushed before are sent now.
    pub fn connect(&mut self, mtu: Mtu, sq_psn: Psn) {
        self.state = UnreliableState::Ready;
        self.draining = false;
        self.mtu = mtu;
        self.psn = sq_psn;
        self.packet = 0;
    }

    /// The transition from SQE to RTS. The caller has flushed everything: one with an error that is
    /// left here would never complete.
    pub fn resume(&mut self) {
        if self.state == UnreliableState::Failed {
            self.state = UnreliableState::Ready;
        }
    }

    /// Free-running index of the next WQE to be pushed.
    #[inline]
    pub fn pushed(&self) -> u32 {
        self.pushed
    }

    /// Free-running index of the oldest WQE that is not complete.
    #[inline]
    pub fn retired(&self) -> u32 {
        self.retired
    }

    /// PSN of the next packet (`sq_psn` of `ibv_query_qp`).
    pub fn next_psn(&self) -> Psn {
        self.psn
    }

    /// The oldest WQE.
    #[inline]
    fn head(&self) -> Option<&UnreliableSlot> {
        if self.retired == self.pushed {
            return None;
        }
        self.ring.get(self.retired)
    }

    /// Pushes a WQE and returns its slot.
    pub fn push(&mut self, request: SendRequest) -> Result<Slot, PushError> {
        let longest = match self.service {
            // C10-93.1.1 wants neither a packet nor an error for a datagram longer than a packet:
            // the user would never find out. Before RTS the path MTU is the smallest.
            OpcodeService::Ud => self.mtu.bytes(),
            _ => MAX_MESSAGE,
        };
        if request.length > longest {
            return Err(PushError::TooLong);
        }
        self.push_slot(request, Status::Success)
    }

    /// Pushes a WQE that cannot be executed: it completes with `status` once the earlier ones are
    /// complete, at once if there are none.
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
        Ok(self.settle(sink))
    }

    fn push_slot(&mut self, request: SendRequest, status: Status) -> Result<Slot, PushError> {
        if self.pushed.wrapping_sub(self.retired) >= self.ring.capacity() {
            return Err(PushError::Full);
        }
        let slot = self.ring.get_mut(self.pushed).ok_or(PushError::Full)?;
        *slot = UnreliableSlot { request, status };
        let slot = self.ring.slot(self.pushed);
        self.pushed = self.pushed.wrapping_add(1);
        Ok(slot)
    }

    /// The next segment, or `None` if nothing can be sent. `max_span` is 1 for the wire.
    ///
    /// The caller reports [`Self::left`] or [`Self::fail`] before the next call.
    #[inline]
    pub fn next_segment(&self, max_span: u32) -> Option<RequestSegment> {
        if self.state != UnreliableState::Ready || (self.draining && self.packet == 0) {
            return None;
        }
        let UnreliableSlot { request, status } = self.head()?;
        if !status.is_success() {
            return None;
        }
        let left = self.mtu.packets(request.length).wrapping_sub(self.packet);
        let span = left.min(max_span.max(1));
        let Piece {
            first,
            last,
            offset,
            len,
        } = cut(self.mtu, request.length, self.packet, span);
        Some(RequestSegment {
            slot: self.ring.slot(self.retired),
            opcode: opcode(self.service, request.op, first, last)?,
            psn: self.psn,
            span,
            offset,
            len,
            message_len: request.length,
            ack_req: false,
            solicited: last && request.solicited && request.op.may_solicit(),
        })
    }

    /// The segment that [`Self::next_segment`] returned has left, or was lost on the network: both
    /// count the same here.
    #[inline]
    pub fn left(
        &mut self,
        segment: &RequestSegment,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        self.psn = self.psn.add(segment.span);
        self.packet = self.packet.wrapping_add(segment.span);
        let packets = self
            .head()
            .map(|slot| self.mtu.packets(slot.request.length));
        if packets.is_none_or(|packets| self.packet >= packets) {
            self.retire(Status::Success, 0, sink);
        }
        self.settle(sink)
    }

    /// The segment that [`Self::next_segment`] returned cannot leave for a local reason: its WQE
    /// ends in error.
    pub fn fail(&mut self, status: Status, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        if self.state == UnreliableState::Ready {
            self.retire(status, vendor::LOCAL, sink);
            self.state = UnreliableState::Failed;
        }
        Progress::Failed
    }

    /// Like [`Self::flush_some`], for all of them.
    pub fn flush(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        self.flush_some(u32::MAX, sink);
    }

    /// Completes at most this many WQEs in order: failed ones with their own status, the others
    /// with `WrFlushErr`. Returns the number. Call it in ERR and SQE, again for each WQE pushed
    /// there. Nothing is sent any more even if some are left.
    pub fn flush_some(&mut self, most: u32, sink: &mut impl FnMut(SendCompletion)) -> u32 {
        if self.state == UnreliableState::Ready {
            self.state = UnreliableState::Failed;
        }
        let begin = self.retired;
        while self.retired.wrapping_sub(begin) < most {
            let Some(slot) = self.head() else {
                break;
            };
            let (status, vendor_err) = slot.status.when_flushed();
            self.retire(status, vendor_err, sink);
        }
        self.retired.wrapping_sub(begin)
    }

    /// SQD: with `on`, a message in progress finishes and no new one begins.
    pub fn drain(&mut self, on: bool) {
        self.draining = on;
    }

    /// Whether no message is in progress.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.packet == 0
    }

    /// Whether something is to be sent.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.state == UnreliableState::Ready && self.retired != self.pushed
    }

    /// Retires the oldest WQE.
    fn retire(&mut self, status: Status, vendor_err: u32, sink: &mut impl FnMut(SendCompletion)) {
        let Some(UnreliableSlot { request, .. }) = self.head() else {
            return;
        };
        let request = *request;
        self.retired = self.retired.wrapping_add(1);
        self.packet = 0;
        if request.signaled || !status.is_success() {
            sink(SendCompletion {
                retired: self.retired,
                wr_id: request.wr_id,
                status,
                op: request.op,
                byte_len: request.length,
                vendor_err,
            });
        }
    }

    /// Completes the oldest WQE if it cannot be executed.
    #[inline]
    fn settle(&mut self, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        if self.state == UnreliableState::Ready {
            let status = self.head().map_or(Status::Success, |slot| slot.status);
            if !status.is_success() {
                self.retire(status, vendor::LOCAL, sink);
                self.state = UnreliableState::Failed;
            }
        }
        match self.state {
            UnreliableState::Failed => Progress::Failed,
            UnreliableState::Reset | UnreliableState::Ready => Progress::Continue,
        }
    }
}

impl<S: DerefMut<Target = [UnreliableSlot]>> SendSource for UnreliableRequester<S> {
    #[inline(always)]
    fn next(&mut self, _: u64, max_span: u32) -> Next {
        match self.next_segment(max_span) {
            Some(segment) => Next::Segment(segment),
            None => Next::Idle,
        }
    }

    /// A packet that the local stack refuses is lost, as it may be anywhere on the network.
    #[inline(always)]
    fn sent(
        &mut self,
        segment: &RequestSegment,
        result: Result<(), SendError>,
        _: u64,
        sink: &mut impl FnMut(SendCompletion),
    ) -> AfterSend {
        match result {
            Ok(()) | Err(SendError::Refused(_)) => self.left(segment, sink).into(),
            Err(SendError::Local(status)) => self.fail(status, sink).into(),
        }
    }

    #[inline(always)]
    fn refused(&mut self, _: &RequestSegment, _: u64) -> AfterSend {
        AfterSend::Continue
    }

    /// These services have no local operations, so none is ever returned.
    fn local_op_done(&mut self, _: Status, _: &mut impl FnMut(SendCompletion)) -> AfterSend {
        AfterSend::Continue
    }

    /// Nothing is acknowledged.
    #[inline(always)]
    fn request_ack(&mut self) {}

    #[inline(always)]
    fn mtu(&self) -> Mtu {
        self.mtu
    }
}

/// The opcode of a packet; `None` for an operation that the service does not have.
#[inline]
const fn opcode(service: OpcodeService, op: Operation, first: bool, last: bool) -> Option<Opcode> {
    let imm = op.has_imm();
    match (service, op) {
        (OpcodeService::Uc, Operation::Send | Operation::SendImm) => {
            Opcode::for_send(first, last, imm).of_service(service)
        }
        (OpcodeService::Uc, Operation::Write | Operation::WriteImm) => {
            Opcode::for_write(first, last, imm).of_service(service)
        }
        // One packet, always.
        (OpcodeService::Ud, Operation::Send | Operation::SendImm) => {
            Opcode::for_send(true, true, imm).of_service(service)
        }
        _ => None,
    }
}
