// SPDX-License-Identifier: GPL-2.0

//! The local path: segments between QPs of one device are handed over in memory.
//!
//! It is the same protocol with the same checks, only the segments are larger: one copy from region
//! to region, no packet, no ICRC, no IP. The sender holds its sending half and the peer's receiving
//! half for a turn, feeds the peer and takes its answers.

use crate::datapath::ctx::Ctx;
use crate::datapath::deliver;
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    ReliableRequester,
    Requester,
    Responder,
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
use crate::transport::completion::Status;
use crate::transport::env::AccessError;
use crate::transport::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment,
    Response, //
};
use crate::wire::headers::Aeth;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Segments that a turn hands over before it gives its locks back.
const SEGMENTS_PER_RUN: u32 = 64;
/// Packets' worth of data in one segment.
const SPAN: u32 = 16;

/// Whether the peer is a QP of the same device, and the local path is on.
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

/// Hands over what may be sent and takes what is answered, up to the budget of the turn; tells
/// whether there is more.
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
    // Also of this device: the number may be another one's since the path was chosen.
    let reachable = connected && Arc::ptr_eq(peer.port(), qp.port());
    if !reachable || !peer.serves() || peer.opcodes() != qp.opcodes() {
        drop(recv);
        ctx.counters(&qp).inc(Counter::DropState);
        return lose(requester, wqes, qp, ctx);
    }
    let requester = match requester {
        Requester::Reliable(requester) => requester,
        Requester::Unreliable(requester) => {
            return hand_over_unreliably(requester, wqes, qp, &mut recv, peer, ctx);
        }
        // They have a way of their own.
        Requester::Datagram(_) => return false,
    };
    let more = hand_over(requester, wqes, qp, &mut recv, peer, ctx);
    let has_refused = match &recv.responder {
        Responder::Reliable(responder) => responder.has_refused() && responder.has_response(),
        Responder::Unreliable(_) | Responder::Datagram(_) => false,
    };
    if has_refused && recv.answering == Answering::Inline {
        // The refusal waits behind answers that did not fit into the turn, and we may never come
        // back for it: a worker sends it by packets, and then moves the peer to ERR.
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
        let Responder::Reliable(responder) = &mut recv.responder else {
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
        // Only here, where all answers were taken, so that none is left behind without need.
        if segments >= SEGMENTS_PER_RUN || !ctx.may_move() {
            break;
        }
        let Some(segment) = requester.next_segment(ctx.now(), SPAN) else {
            if deliver::do_here(requester, wqes, qp, ctx) {
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

/// As [`hand_over`], where nothing is answered.
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

/// Counts a segment where it comes from.
#[inline(always)]
pub(super) fn moved(qp: &Qp, bytes: u32, ctx: &mut Ctx<'_>) {
    ctx.moved(bytes);
    let counters = ctx.counters(qp);
    counters.inc(Counter::LocalSegments);
    counters.add(Counter::LocalBytes, u64::from(bytes));
}

/// There is nobody to take what is sent: it is lost, as on any network. Where it is acknowledged
/// the deadline of the requester decides what comes next.
fn lose(
    requester: &mut Requester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    for _ in 0..SEGMENTS_PER_RUN {
        match requester {
            Requester::Reliable(requester) => {
                if requester.next_segment(ctx.now(), SPAN).is_none()
                    && !deliver::do_here(requester, wqes, qp, ctx)
                {
                    return false;
                }
            }
            Requester::Unreliable(requester) => {
                let Some(segment) = requester.next_segment(SPAN) else {
                    return false;
                };
                deliver::left(requester, qp, &segment, Ok(()), ctx);
            }
            Requester::Datagram(_) => return false,
        }
    }
    true
}

/// Gives one segment to the peer. An error is one of our own memory.
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
    // On the wire our memory is read before the peer gets the message: so it is here.
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    let extension = segment.extension(|| wqes.arguments(segment.slot));
    let request = IncomingRequest::local(segment, extension);
    deliver::request(recv, peer, &request, payload, ctx);
    Ok(())
}
