// SPDX-License-Identifier: GPL-2.0

//! The local path: loopback within a device. Segments between QPs of one device are handed over in
//! memory.
//!
//! Protocol and checks are those of the wire; only the segments are larger: one copy from region to
//! region, no packet, no ICRC, no IP. The sender holds its send lock and the peer's receive lock
//! for one invocation, delivers segments and takes the responses.

use crate::core::completion::Status;
use crate::core::env::AccessError;
use crate::core::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment,
    Response, //
};
use crate::core::send::{
    self,
    SendError,
    Transmit,
    SEGMENTS_PER_RUN, //
};
use crate::core::wire::headers::Aeth;
use crate::datapath::ctx::Ctx;
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    acknowledged,
    AnyRequester,
    AnyResponder,
    ReliableRequester,
    UnreliableRequester, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Answering,
    RecvQueue,
    SendQueue, //
};
use crate::datapath::tx::{
    moved,
    Sender, //
};
use crate::datapath::{
    deliver,
    traced, //
};
use crate::observe::Counter;
use crate::sys::trace;
use core::ops::ControlFlow;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Packets' worth of data in one segment.
const SPAN: u32 = 16;

/// Whether the local path is on and the peer is a QP of the same device.
pub(super) fn serves(send: &SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) -> bool {
    let Some(peer) = &send.peer else {
        return false;
    };
    qp.port.local_path.is_on()
        && peer.path.is_to_own_device()
        && ctx
            .directory
            .get(peer.number, ctx.rcu)
            .is_none_or(|peer| Arc::ptr_eq(&peer.port, &qp.port))
}

/// Hands over segments and takes responses, up to the budget. Returns whether there is more.
pub(super) fn exchange(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let SendQueue {
        requester,
        wqes,
        peer: Some(there),
        ..
    } = send
    else {
        return false;
    };
    let sender = Sender { qp, wqes, ctx };
    let Some(peer) = sender.ctx.directory.get(there.number, sender.ctx.rcu) else {
        return lose(requester, sender, there.number, Counter::DropUnknownQp);
    };
    let mut recv = peer.recv.lock();
    let connected = recv
        .peer
        .as_ref()
        .is_some_and(|back| back.number == qp.number && back.path.is_reverse_of(&there.path));
    // Also of this device: the QP number may have been reused since the path was chosen.
    let reachable = connected && Arc::ptr_eq(&peer.port, &qp.port);
    if !reachable || !peer.serves() || peer.opcodes != qp.opcodes {
        drop(recv);
        return lose(requester, sender, there.number, Counter::DropState);
    }
    let recv = &mut *recv;
    let more = match requester {
        AnyRequester::Reliable(requester) => send::send(
            requester,
            &mut Local { sender, recv, peer },
            SEGMENTS_PER_RUN,
        ),
        AnyRequester::Unreliable(requester) => send::send(
            requester,
            &mut Local { sender, recv, peer },
            SEGMENTS_PER_RUN,
        ),
        // Sent by [`super::tx`].
        AnyRequester::Datagram(_) => return false,
    };
    let is_refusing = match &recv.responder {
        AnyResponder::Reliable(responder) => responder.has_fatal_nak() && responder.has_response(),
        AnyResponder::Unreliable(_) | AnyResponder::Datagram(_) => false,
    };
    if is_refusing && recv.answering == Answering::Inline {
        // A fatal NAK waits behind responses that exceed the budget, and this QP may never return
        // for it. A worker sends it as a packet and then moves the peer to ERR.
        ctx.leave_to_answerer(recv, peer);
    }
    more
}

/// The peer of a connection within the device, whose receive queue is locked.
struct Local<'q, 'p, 't, 'a> {
    sender: Sender<'q, 't, 'a>,
    recv: &'t mut RecvQueue,
    peer: ArcBorrow<'p, Qp>,
}

impl Local<'_, '_, '_, '_> {
    /// Delivers one segment to the peer.
    #[inline(always)]
    fn give(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        let Sender { qp, wqes, ctx } = &mut self.sender;
        moved(qp, segment.len, ctx);
        let (opcode, psn, size) = (segment.opcode, segment.psn, [segment.span, segment.len]);
        let (from, to) = (*qp, self.peer);
        trace::handed(move || traced::handed([from.number, to.number], opcode, psn, size));
        let regions = qp.regions(ctx.rcu);
        let payload = Payload::of(wqes.data(segment.slot), segment.offset, regions);
        // The wire path reads local memory before the peer sees the message; so does this one.
        let mut pieces = None;
        let payload = payload
            .resolve(segment.len, &mut pieces)
            .map_err(|AccessError| SendError::Local(Status::LocProtErr))?;
        let extension = segment.extension(|| wqes.arguments(segment.slot));
        let request = IncomingRequest::local(segment, extension);
        deliver::request(self.recv, self.peer, &request, (None, payload), ctx);
        Ok(())
    }
}

impl<'q, 't, 'a> Transmit<ReliableRequester> for Local<'q, '_, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    // The responses come in this invocation.
    const REQUESTS_ACK: bool = false;

    #[inline(always)]
    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    #[inline(always)]
    fn max_span(&mut self) -> u32 {
        SPAN
    }

    /// Takes the responses of the peer.
    #[inline(always)]
    fn take_responses(&mut self, requester: &mut ReliableRequester) -> ControlFlow<bool> {
        let (peer, Sender { qp, wqes, ctx }) = (self.peer, &mut self.sender);
        let (qp, wqes) = (*qp, *wqes);
        let AnyResponder::Reliable(responder) = &mut self.recv.responder else {
            return ControlFlow::Break(false);
        };
        while let Some(response) = responder.next_response(SPAN) {
            deliver::end_if_answered(responder, peer, ctx);
            trace::handed(move || {
                let (opcode, psn) = (response.opcode(), response.psn());
                let size = [response.span(), response.len()];
                traced::handed([peer.number, qp.number], opcode, psn, size)
            });
            let progress = match response {
                Response::Acknowledge { psn, syndrome, msn } => {
                    let (now, aeth) = (ctx.now, Aeth::new(syndrome, msn));
                    let before = &*requester;
                    trace::ack(move || acknowledged(before, qp.number, psn, aeth));
                    requester
                        .on_acknowledge(psn, aeth, now, &mut |done| ctx.complete_send(qp, done))
                }
                Response::ReadResponse {
                    segment, source, ..
                } => {
                    moved(&peer, segment.len, ctx);
                    match deliver::read_source(&peer, source, ctx) {
                        Ok(from) => {
                            deliver::read_response(requester, wqes, qp, &segment, &from, ctx)
                        }
                        Err(AccessError) => {
                            deliver::read_failed(responder, peer, ctx);
                            continue;
                        }
                    }
                }
                // Cannot happen: no request of this path says that it may be kept.
                Response::Missing { .. } => continue,
                Response::Atomic { psn, original, .. } => {
                    let segment = ReadSegment::original(psn);
                    let bytes = original.to_ne_bytes();
                    let from = Payload::Bytes(&bytes);
                    moved(&peer, segment.len, ctx);
                    deliver::read_response(requester, wqes, qp, &segment, &from, ctx)
                }
            };
            if progress.has_failed() {
                ctx.fail(qp);
                return ControlFlow::Break(false);
            }
            if !ctx.may_move() {
                return ControlFlow::Break(true);
            }
        }
        ControlFlow::Continue(())
    }

    #[inline(always)]
    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        self.give(segment)
    }
}

impl<'q, 't, 'a> Transmit<UnreliableRequester> for Local<'q, '_, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    const REQUESTS_ACK: bool = false;

    #[inline(always)]
    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    #[inline(always)]
    fn max_span(&mut self) -> u32 {
        SPAN
    }

    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        self.give(segment)
    }
}

/// The QP `to` takes nothing: segments are lost for the `reason`, as on any network. On a reliable
/// service the retransmission timer decides what comes next.
#[cold]
fn lose(
    requester: &mut AnyRequester,
    sender: Sender<'_, '_, '_>,
    to: u32,
    reason: Counter,
) -> bool {
    let mut tx = Unreachable { sender, to, reason };
    match requester {
        AnyRequester::Reliable(requester) => send::send(requester, &mut tx, SEGMENTS_PER_RUN),
        AnyRequester::Unreliable(requester) => send::send(requester, &mut tx, SEGMENTS_PER_RUN),
        AnyRequester::Datagram(_) => false,
    }
}

/// No peer.
struct Unreachable<'q, 't, 'a> {
    sender: Sender<'q, 't, 'a>,
    to: u32,
    reason: Counter,
}

impl<'q, 't, 'a, S> Transmit<S> for Unreachable<'q, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    const REQUESTS_ACK: bool = false;

    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    fn max_span(&mut self) -> u32 {
        SPAN
    }

    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        let (to, psn, opcode, reason) = (self.to, segment.psn, segment.opcode, self.reason);
        trace::drop(move || traced::lost(to, psn, opcode, reason));
        let Sender { qp, ctx, .. } = &self.sender;
        ctx.counters(qp).inc(reason);
        Ok(())
    }
}
