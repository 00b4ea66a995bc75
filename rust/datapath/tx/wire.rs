// SPDX-License-Identifier: GPL-2.0

//! Segments as packets.

use super::datagram;
use crate::core::completion::Status;
use crate::core::segment::{
    RequestSegment,
    Response, //
};
use crate::core::wire::packet::Headers;
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver;
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    AnyRequester,
    AnyResponder,
    ReliableRequester,
    ReliableResponder,
    UnreliableRequester, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Peer,
    RecvQueue,
    Refusals,
    SendCopies,
    SendQueue, //
};
use crate::datapath::tx_batch::{
    TxError,
    TxRefused, //
};
use crate::observe::counters::Counter;
use kernel::sync::ArcBorrow;

/// Packets of one invocation.
const PACKETS_PER_RUN: u32 = 64;

/// Sends requests up to the budget. Returns whether there are more.
pub(in crate::datapath) fn send(
    send: &mut SendQueue,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let SendQueue {
        requester,
        wqes,
        peer,
        left_at,
        ..
    } = send;
    match (requester, peer) {
        (AnyRequester::Reliable(requester), Some(peer)) => {
            send_reliably(requester, wqes, peer, qp, ctx)
        }
        (AnyRequester::Unreliable(requester), Some(peer)) => {
            *left_at = Some(ctx.now());
            send_unreliably(requester, wqes, peer, qp, ctx)
        }
        (AnyRequester::Datagram(datagrams), _) => datagram::send(datagrams, wqes, left_at, qp, ctx),
        (_, None) => false,
    }
}

fn send_reliably(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let mut more = true;
    for left in (0..PACKETS_PER_RUN).rev() {
        if !ctx.may_move() {
            break;
        }
        if left == 0 || !ctx.may_move_beyond(requester.mtu().bytes()) {
            // The last packet of this invocation requests an ACK: the queue may have to wait for it
            // before it moves to another CPU.
            requester.request_ack();
        }
        let Some(segment) = requester.next_segment(ctx.now(), 1) else {
            if deliver::execute_local_op(requester, wqes, qp, ctx) {
                continue;
            }
            more = false;
            break;
        };
        ctx.moved(segment.len);
        match add(wqes, peer, qp, segment, ctx) {
            Ok(()) => {}
            Err(TxError::Access) => deliver::local_memory_failed(requester, qp, segment.slot, ctx),
            Err(TxError::Refused(first)) => return requeue(requester, qp, &first, ctx),
        }
    }
    if let Err(TxRefused(first)) = peer.batch.flush(&peer.path, ctx.counters(&qp)) {
        return requeue(requester, qp, &first, ctx);
    }
    more
}

/// A packet that the local stack refuses is lost, as it may be anywhere on the network, and
/// counted.
fn send_unreliably(
    requester: &mut UnreliableRequester,
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let mut more = true;
    for _ in 0..PACKETS_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let Some(segment) = requester.next_segment(1) else {
            more = false;
            break;
        };
        ctx.moved(segment.len);
        let done = match add(wqes, peer, qp, segment, ctx) {
            Ok(()) | Err(TxError::Refused(_)) => Ok(()),
            Err(TxError::Access) => Err(Status::LocProtErr),
        };
        deliver::left(requester, qp, &segment, done, ctx);
    }
    // Losses are counted.
    let _ = peer.batch.flush(&peer.path, ctx.counters(&qp));
    more
}

/// Adds one packet of a request to the batch.
#[inline(always)]
fn add(
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    segment: RequestSegment,
    ctx: &Ctx<'_>,
) -> Result<(), TxError<RequestSegment>> {
    let mut headers = Headers::new(segment.opcode, peer.number, segment.psn);
    headers.ack_req = segment.ack_req;
    headers.solicited = segment.solicited;
    headers.extension = segment.extension(|| wqes.arguments(segment.slot));
    let data = wqes.data(segment.slot);
    let payload = Payload::of(data, segment.offset, qp.regions(ctx.rcu()));
    peer.batch.add(
        &mut peer.path,
        ctx.counters(&qp),
        &headers,
        segment.len,
        segment,
        |out| payload.read(segment.len, out),
    )
}

/// The local stack refused the packets from `first` on. Nobody else will report that, so they are
/// sent soon, after a back-off, without spending a retry.
#[cold]
fn requeue(
    requester: &mut ReliableRequester,
    qp: ArcBorrow<'_, Qp>,
    first: &RequestSegment,
    ctx: &Ctx<'_>,
) -> bool {
    ctx.counters(&qp).inc(Counter::SendRetried);
    requester.unsend(first, ctx.now());
    false
}

/// Sends responses up to the budget. Returns whether there are more.
pub(in crate::datapath) fn answer(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    if recv.refusals.wait_until(ctx.now()).is_some() {
        // The timer continues.
        return false;
    }
    let (AnyResponder::Reliable(responder), Some(peer)) = (&mut recv.responder, &mut recv.peer)
    else {
        return false;
    };
    let refusals = &mut recv.refusals;
    let mut more = true;
    for _ in 0..PACKETS_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let Some(response) = responder.next_response(1) else {
            more = false;
            break;
        };
        deliver::answer_taken(responder, qp, ctx);
        let Peer {
            number,
            path,
            batch,
        } = &mut *peer;
        let mut headers = Headers::new(response.opcode(), *number, response.psn());
        headers.extension = response.extension();
        let counters = ctx.counters(&qp);
        let added = match &response {
            Response::Acknowledge { .. } | Response::Atomic { .. } => {
                batch.add(path, counters, &headers, 0, response, |_| Ok(()))
            }
            Response::ReadResponse {
                segment, rkey, va, ..
            } => {
                ctx.moved(segment.len);
                // Looked up for the copy alone: a change of a memory window waits for it.
                batch.add(path, counters, &headers, segment.len, response, |out| {
                    deliver::read_source(&qp, *rkey, *va, segment.len, ctx)?.read(segment.len, out)
                })
            }
        };
        match added {
            Ok(()) => {}
            Err(TxError::Access) => deliver::read_failed(responder, qp, ctx),
            Err(TxError::Refused(first)) => {
                return requeue_responses(responder, refusals, qp, &first, ctx)
            }
        }
    }
    match peer.batch.flush(&peer.path, ctx.counters(&qp)) {
        Ok(()) => refusals.end(),
        Err(TxRefused(first)) => return requeue_responses(responder, refusals, qp, &first, ctx),
    }
    more && responder.has_response()
}

/// Like [`requeue`], for responses: without it the peer would spend a retry.
#[cold]
fn requeue_responses(
    responder: &mut ReliableResponder,
    refusals: &mut Refusals,
    qp: ArcBorrow<'_, Qp>,
    first: &Response,
    ctx: &Ctx<'_>,
) -> bool {
    match refusals.add(ctx.now()) {
        Some(at) => {
            ctx.counters(&qp).inc(Counter::SendRetried);
            responder.unsend(first);
            qp.timer().arm(at);
            false
        }
        // Lost, as on any network: the peer retransmits its request.
        None => responder.has_response(),
    }
}
