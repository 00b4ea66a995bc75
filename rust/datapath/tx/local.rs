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
use crate::core::wire::headers::Aeth;
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver;
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    AnyRequester,
    AnyResponder,
    ReliableRequester,
    UnreliableRequester, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Answering,
    RecvQueue,
    SendCopies,
    SendQueue, //
};
use crate::observe::counters::Counter;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Segments of one invocation.
const SEGMENTS_PER_RUN: u32 = 64;
/// Packets' worth of data in one segment.
const SPAN: u32 = 16;

/// Whether the local path is on and the peer is a QP of the same device.
pub(in crate::datapath) fn serves(send: &SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) -> bool {
    let Some(peer) = &send.peer else {
        return false;
    };
    qp.port().local_path()
        && peer.path.is_to_own_device()
        && ctx
            .directory()
            .get(peer.number, ctx.rcu())
            .is_none_or(|peer| Arc::ptr_eq(peer.port(), qp.port()))
}

/// Hands over segments and takes responses, up to the budget. Returns whether there is more.
pub(in crate::datapath) fn exchange(
    send: &mut SendQueue,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let SendQueue {
        requester,
        wqes,
        peer: Some(there),
        ..
    } = send
    else {
        return false;
    };
    let Some(peer) = ctx.directory().get(there.number, ctx.rcu()) else {
        return lose(requester, wqes, qp, ctx);
    };
    let mut recv = peer.recv.lock();
    let connected = recv
        .peer
        .as_ref()
        .is_some_and(|back| back.number == qp.number() && back.path.is_reverse_of(&there.path));
    // Also of this device: the QP number may have been reused since the path was chosen.
    let reachable = connected && Arc::ptr_eq(peer.port(), qp.port());
    if !reachable || !peer.serves() || peer.opcodes() != qp.opcodes() {
        drop(recv);
        ctx.counters(&qp).inc(Counter::DropState);
        return lose(requester, wqes, qp, ctx);
    }
    let requester = match requester {
        AnyRequester::Reliable(requester) => requester,
        AnyRequester::Unreliable(requester) => {
            return hand_over_unreliably(requester, wqes, qp, &mut recv, peer, ctx);
        }
        // Sent by [`super::datagram`].
        AnyRequester::Datagram(_) => return false,
    };
    let more = hand_over(requester, wqes, qp, &mut recv, peer, ctx);
    let has_refused = match &recv.responder {
        AnyResponder::Reliable(responder) => responder.has_refused() && responder.has_response(),
        AnyResponder::Unreliable(_) | AnyResponder::Datagram(_) => false,
    };
    if has_refused && recv.answering == Answering::Inline {
        // A fatal NAK waits behind responses that exceed the budget, and this QP may never return
        // for it. A worker sends it as a packet and then moves the peer to ERR.
        ctx.leave_to_answerer(&mut recv, peer);
    }
    more
}

#[inline(always)]
fn hand_over(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    recv: &mut RecvQueue,
    peer: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    for segments in 0.. {
        let AnyResponder::Reliable(responder) = &mut recv.responder else {
            return false;
        };
        while let Some(response) = responder.next_response(SPAN) {
            deliver::answer_taken(responder, peer, ctx);
            let progress = match response {
                Response::Acknowledge { psn, syndrome, msn } => {
                    let (now, aeth) = (ctx.now(), Aeth::new(syndrome, msn));
                    requester
                        .on_acknowledge(psn, aeth, now, &mut |done| ctx.complete_send(qp, done))
                }
                Response::ReadResponse {
                    segment, rkey, va, ..
                } => {
                    moved(&peer, segment.len, ctx);
                    match deliver::read_source(&peer, rkey, va, segment.len, ctx) {
                        Ok(from) => {
                            deliver::read_response(requester, wqes, qp, &segment, &from, ctx)
                        }
                        Err(AccessError) => {
                            deliver::read_failed(responder, peer, ctx);
                            continue;
                        }
                    }
                }
                Response::Atomic { psn, original, .. } => {
                    let segment = ReadSegment::original(psn);
                    let bytes = original.to_ne_bytes();
                    let from = Payload::Bytes(&bytes);
                    moved(&peer, segment.len, ctx);
                    deliver::read_response(requester, wqes, qp, &segment, &from, ctx)
                }
            };
            if progress.fatal {
                ctx.fail(qp);
                return false;
            }
            if !ctx.may_move() {
                return true;
            }
        }
        // Checked only here, where no response is left: none is left behind without need.
        if segments >= SEGMENTS_PER_RUN || !ctx.may_move() {
            break;
        }
        let Some(segment) = requester.next_segment(ctx.now(), SPAN) else {
            if deliver::execute_local_op(requester, wqes, qp, ctx) {
                continue;
            }
            return false;
        };
        moved(&qp, segment.len, ctx);
        if give(wqes, qp, &segment, recv, peer, ctx).is_err() {
            deliver::local_memory_failed(requester, qp, segment.slot, ctx);
        }
    }
    true
}

/// Like [`hand_over`], for UC.
fn hand_over_unreliably(
    requester: &mut UnreliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    recv: &mut RecvQueue,
    peer: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    for _ in 0..SEGMENTS_PER_RUN {
        if !ctx.may_move() {
            return true;
        }
        let Some(segment) = requester.next_segment(SPAN) else {
            return false;
        };
        moved(&qp, segment.len, ctx);
        let done = give(wqes, qp, &segment, recv, peer, ctx);
        let done = done.map_err(|AccessError| Status::LocProtErr);
        deliver::left(requester, qp, &segment, done, ctx);
    }
    true
}

/// Counts a segment at its source.
#[inline(always)]
pub(super) fn moved(qp: &Qp, bytes: u32, ctx: &mut Ctx<'_>) {
    ctx.moved(bytes);
    let counters = ctx.counters(qp);
    counters.inc(Counter::LocalSegments);
    counters.add(Counter::LocalBytes, u64::from(bytes));
}

/// The peer is unreachable: segments are lost, as on any network. On a reliable service the
/// retransmission timer decides what comes next.
fn lose(
    requester: &mut AnyRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    for _ in 0..SEGMENTS_PER_RUN {
        match requester {
            AnyRequester::Reliable(requester) => {
                if requester.next_segment(ctx.now(), SPAN).is_none()
                    && !deliver::execute_local_op(requester, wqes, qp, ctx)
                {
                    return false;
                }
            }
            AnyRequester::Unreliable(requester) => {
                let Some(segment) = requester.next_segment(SPAN) else {
                    return false;
                };
                deliver::left(requester, qp, &segment, Ok(()), ctx);
            }
            AnyRequester::Datagram(_) => return false,
        }
    }
    true
}

/// Delivers one segment to the peer. The error is one of local memory.
#[inline(always)]
fn give(
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    segment: &RequestSegment,
    recv: &mut RecvQueue,
    peer: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> Result<(), AccessError> {
    let regions = qp.regions(ctx.rcu());
    let payload = Payload::of(wqes.data(segment.slot), segment.offset, regions);
    // The wire path reads local memory before the peer sees the message; so does this one.
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    let extension = segment.extension(|| wqes.arguments(segment.slot));
    let request = IncomingRequest::local(segment, extension);
    deliver::request(recv, peer, &request, payload, ctx);
    Ok(())
}
