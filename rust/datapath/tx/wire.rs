// SPDX-License-Identifier: GPL-2.0

//! Segments as packets.

use super::datagram;
use super::Sender;
use crate::core::completion::Status;
use crate::core::env::AccessError;
use crate::core::segment::{
    RequestSegment,
    Response, //
};
use crate::core::send::{
    self,
    SendError,
    Transmit,
    SEGMENTS_PER_RUN, //
};
use crate::core::storage::Known;
use crate::core::wire::opcode::OpcodeService;
use crate::core::wire::packet::Headers;
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver;
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    AnyRequester,
    AnyResponder,
    ReliableResponder, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Peer,
    RecvQueue,
    Refusals,
    SendQueue, //
};
use crate::datapath::traced::{
    self,
    Origin, //
};
use crate::datapath::tx_batch::{
    TxError,
    TxRefused, //
};
use crate::observe::counters::Counter;
use crate::sys::trace::{
    self,
    Unsent, //
};
use kernel::sync::ArcBorrow;

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
    let sender = Sender { qp, wqes, ctx };
    let more = match (requester, peer) {
        (AnyRequester::Reliable(requester), Some(peer)) => {
            send::send(requester, &mut Wire { sender, peer }, SEGMENTS_PER_RUN)
        }
        (AnyRequester::Unreliable(requester), Some(peer)) => {
            *left_at = Known::new(sender.ctx.now());
            send::send(requester, &mut Wire { sender, peer }, SEGMENTS_PER_RUN)
        }
        (AnyRequester::Datagram(datagrams), _) => datagram::send(datagrams, sender, left_at),
        (_, None) => false,
    };
    qp.steering().sent();
    more
}

/// The wire to the peer of a connection: a segment is a packet, and leaves in a batch.
struct Wire<'q, 't, 'a> {
    sender: Sender<'q, 't, 'a>,
    peer: &'t mut Peer<RequestSegment>,
}

impl<'q, 't, 'a, S> Transmit<S> for Wire<'q, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    const REQUESTS_ACK: bool = true;

    #[inline(always)]
    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    #[inline(always)]
    fn max_span(&mut self) -> u32 {
        1
    }

    #[inline(always)]
    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        let Sender { qp, wqes, ctx } = &mut self.sender;
        ctx.moved(segment.len);
        qp.steering().sends(segment.len);
        let Peer {
            number,
            path,
            batch,
        } = &mut *self.peer;
        let mut headers = Headers::new(segment.opcode, *number, segment.psn);
        headers.ack_req = segment.ack_req;
        headers.solicited = segment.solicited;
        headers.keeps = segment.opcode.info().service == OpcodeService::Rc;
        headers.extension = segment.extension(|| wqes.arguments(segment.slot));
        let data = wqes.data(segment.slot);
        let payload = Payload::of(data, segment.offset, qp.regions(ctx.rcu()));
        let counters = ctx.counters(qp);
        let origin = Origin::request(qp.number(), segment.slot);
        let added = batch.add(
            path,
            counters,
            origin,
            &headers,
            segment.len,
            *segment,
            |out| payload.read(segment.len, out),
        );
        match added {
            Ok(()) => Ok(()),
            Err(TxError::Access) => Err(SendError::Local(Status::LocProtErr)),
            Err(TxError::Refused(first)) => {
                trace::unsent(|| traced::unsent(qp.number(), first.psn, Unsent::Again));
                Err(SendError::Refused(first))
            }
        }
    }

    #[inline(always)]
    fn flush(&mut self) -> Result<(), RequestSegment> {
        let Sender { qp, ctx, .. } = &self.sender;
        let Peer { path, batch, .. } = &mut *self.peer;
        batch
            .flush(path, ctx.counters(qp))
            .map_err(|TxRefused(first)| {
                trace::unsent(|| traced::unsent(qp.number(), first.psn, Unsent::Again));
                first
            })
    }
}

/// Sends responses up to the budget. Returns whether there are more.
pub(in crate::datapath) fn answer(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let more_kept = deliver::kept(recv, qp, ctx);
    if recv.refusals.wait_until(ctx.now()).is_some() {
        // The timer continues.
        return more_kept;
    }
    let (AnyResponder::Reliable(responder), Some(peer)) = (&mut recv.responder, &mut recv.peer)
    else {
        return false;
    };
    let refusals = &mut recv.refusals;
    let mut more = true;
    responder.begin_run();
    for _ in 0..SEGMENTS_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let Some(response) = responder.next_response(1) else {
            more = false;
            break;
        };
        match add_response(responder, peer, response, qp, ctx) {
            Ok(()) => {}
            Err(TxError::Access) => deliver::read_failed(responder, qp, ctx),
            Err(TxError::Refused(first)) => {
                return more_kept | requeue_responses(responder, refusals, qp, &first, ctx)
            }
        }
    }
    match peer.batch.flush(&peer.path, ctx.counters(&qp)) {
        Ok(()) => {
            refusals.end();
            deliver::end_if_answered(responder, qp, ctx);
        }
        Err(TxRefused(first)) => {
            return more_kept | requeue_responses(responder, refusals, qp, &first, ctx)
        }
    }
    more_kept || (more && responder.has_response())
}

/// Adds a response to the batch. One that ends a part of a READ ends the batch too.
#[inline(always)]
fn add_response(
    responder: &ReliableResponder,
    peer: &mut Peer<Response>,
    response: Response,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> Result<(), TxError<Response>> {
    let Peer {
        number,
        path,
        batch,
    } = peer;
    let mut headers = Headers::new(response.opcode(), *number, response.psn());
    headers.keeps = response.keeps();
    headers.extension = response.extension();
    let counters = ctx.counters(&qp);
    let origin = Origin::response(qp.number());
    let ends_part = response.ends_part();
    let added = match &response {
        Response::Acknowledge { .. } | Response::Atomic { .. } => {
            batch.add(path, counters, origin, &headers, 0, response, |_| Ok(()))
        }
        Response::Missing { len, .. } => {
            counters.inc(Counter::MissingSent);
            let words = responder.kept_words();
            batch.add(path, counters, origin, &headers, *len, response, |out| {
                for word in words {
                    out.put(&word.to_le_bytes()).map_err(|_| AccessError)?;
                }
                Ok(())
            })
        }
        Response::ReadResponse {
            segment, source, ..
        } => {
            ctx.moved(segment.len);
            // Looked up for the copy alone: a change of a memory window waits for it.
            batch.add(
                path,
                counters,
                origin,
                &headers,
                segment.len,
                response,
                |out| deliver::read_source(&qp, *source, ctx)?.read(segment.len, out),
            )
        }
    };
    added?;
    if ends_part {
        batch
            .flush(path, counters)
            .map_err(|TxRefused(first)| TxError::Refused(first))?;
    }
    Ok(())
}

/// The local stack refused the responses from `first` on: they are sent soon, after a back-off.
/// Without it the peer would spend a retry.
#[cold]
fn requeue_responses(
    responder: &mut ReliableResponder,
    refusals: &mut Refusals,
    qp: ArcBorrow<'_, Qp>,
    first: &Response,
    ctx: &mut Ctx<'_>,
) -> bool {
    match refusals.add(ctx.now()) {
        Some(at) => {
            trace::unsent(move || traced::unsent(qp.number(), first.psn(), Unsent::Again));
            ctx.counters(&qp).inc(Counter::SendRetried);
            responder.unsend(first);
            qp.timer().arm(at);
            false
        }
        // Lost, as on any network: the peer retransmits its request.
        None => {
            trace::unsent(move || traced::unsent(qp.number(), first.psn(), Unsent::Lost));
            deliver::end_if_answered(responder, qp, ctx);
            responder.has_response()
        }
    }
}
