// SPDX-License-Identifier: GPL-2.0

//! Segments as packets.

use super::datagram;
use crate::datapath::deliver;
use crate::datapath::halves::{
    Peer,
    RecvHalf,
    Refusals,
    SendCopies,
    SendHalf, //
};
use crate::datapath::memory::sg::Payload;
use crate::datapath::outbox::{
    Failed,
    Refused, //
};
use crate::datapath::protocol::{
    ReliableRequester,
    ReliableResponder,
    Requester,
    Responder,
    UnreliableRequester, //
};
use crate::datapath::qp::Qp;
use crate::datapath::turn::Turn;
use crate::observe::counters::Counter;
use crate::transport::completion::Status;
use crate::transport::segment::{
    RequestSegment,
    Response, //
};
use crate::wire::packet::Headers;
use kernel::sync::ArcBorrow;

/// Packets that a turn makes before it gives its locks back.
const PACKETS_PER_TURN: u32 = 64;

/// Sends requests, up to the budget of the turn; tells whether there are more.
pub(in crate::datapath) fn send(
    send: &mut SendHalf,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let SendHalf {
        requester,
        wqes,
        peer,
        left_at,
        ..
    } = send;
    match (requester, peer) {
        (Requester::Reliable(requester), Some(peer)) => {
            send_reliably(requester, wqes, peer, qp, turn)
        }
        (Requester::Unreliable(requester), Some(peer)) => {
            *left_at = Some(turn.now());
            send_unreliably(requester, wqes, peer, qp, turn)
        }
        (Requester::Datagram(datagrams), _) => datagram::send(datagrams, wqes, left_at, qp, turn),
        (_, None) => false,
    }
}

fn send_reliably(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let mut more = true;
    for left in (0..PACKETS_PER_TURN).rev() {
        if !turn.may_move() {
            break;
        }
        if left == 0 || !turn.may_move_beyond(requester.mtu().bytes()) {
            // The last one of this turn: the queue may have to wait for its answer, to move.
            requester.ask();
        }
        let Some(segment) = requester.next_segment(turn.now(), 1) else {
            if deliver::do_here(requester, wqes, qp, turn) {
                continue;
            }
            more = false;
            break;
        };
        turn.moved(segment.len);
        match add(wqes, peer, qp, segment, turn) {
            Ok(()) => {}
            Err(Failed::Access) => deliver::local_memory_failed(requester, qp, segment.slot, turn),
            Err(Failed::Refused(first)) => return send_again(requester, qp, &first, turn),
        }
    }
    if let Err(Refused(first)) = peer.outbox.flush(&peer.way, turn.counters(&qp)) {
        return send_again(requester, qp, &first, turn);
    }
    more
}

/// What the stack does not take is lost here, as it may be anywhere on the way, and counted.
fn send_unreliably(
    requester: &mut UnreliableRequester,
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let mut more = true;
    for _ in 0..PACKETS_PER_TURN {
        if !turn.may_move() {
            break;
        }
        let Some(segment) = requester.next_segment(1) else {
            more = false;
            break;
        };
        turn.moved(segment.len);
        let done = match add(wqes, peer, qp, segment, turn) {
            Ok(()) | Err(Failed::Refused(_)) => Ok(()),
            Err(Failed::Access) => Err(Status::LocProtErr),
        };
        deliver::left(requester, qp, &segment, done, turn);
    }
    // Counted if they are lost.
    let _ = peer.outbox.flush(&peer.way, turn.counters(&qp));
    more
}

/// Makes one packet of a request.
#[inline(always)]
fn add(
    wqes: &SendCopies,
    peer: &mut Peer<RequestSegment>,
    qp: ArcBorrow<'_, Qp>,
    segment: RequestSegment,
    turn: &Turn<'_>,
) -> Result<(), Failed<RequestSegment>> {
    let mut headers = Headers::new(segment.opcode, peer.number, segment.psn);
    headers.ack_req = segment.ack_req;
    headers.solicited = segment.solicited;
    headers.extension = segment.extension(|| wqes.arguments(segment.slot));
    let data = wqes.data(segment.slot);
    let payload = Payload::of(data, segment.offset, qp.regions(turn.rcu()));
    peer.outbox.add(
        &mut peer.way,
        turn.counters(&qp),
        &headers,
        segment.len,
        segment,
        |out| payload.read(segment.len, out),
    )
}

/// The kernel itself says that packets from `first` on have not left. Nobody else will, so they
/// are sent again soon, and no retry is spent on it. There is nothing more to send until then.
#[cold]
fn send_again(
    requester: &mut ReliableRequester,
    qp: ArcBorrow<'_, Qp>,
    first: &RequestSegment,
    turn: &Turn<'_>,
) -> bool {
    turn.counters(&qp).inc(Counter::SendRetried);
    requester.unsend(first, turn.now());
    false
}

/// Sends responses, up to the budget of the turn; tells whether there are more.
pub(in crate::datapath) fn answer(
    recv: &mut RecvHalf,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    if recv.refusals.wait_until(turn.now()).is_some() {
        // The timer goes on.
        return false;
    }
    let (Responder::Reliable(responder), Some(peer)) = (&mut recv.responder, &mut recv.peer) else {
        return false;
    };
    let refusals = &mut recv.refusals;
    let mut more = true;
    for _ in 0..PACKETS_PER_TURN {
        if !turn.may_move() {
            break;
        }
        let Some(response) = responder.next_response(1) else {
            more = false;
            break;
        };
        deliver::answer_taken(responder, qp, turn);
        let Peer {
            number,
            way,
            outbox,
        } = &mut *peer;
        let mut headers = Headers::new(response.opcode(), *number, response.psn());
        headers.extension = response.extension();
        let counters = turn.counters(&qp);
        let added = match &response {
            Response::Acknowledge { .. } | Response::Atomic { .. } => {
                outbox.add(way, counters, &headers, 0, response, |_| Ok(()))
            }
            Response::ReadResponse {
                segment, rkey, va, ..
            } => {
                turn.moved(segment.len);
                // Looked up for the copy alone: who changes a window waits for it.
                outbox.add(way, counters, &headers, segment.len, response, |out| {
                    deliver::read_source(&qp, *rkey, *va, segment.len, turn)?.read(segment.len, out)
                })
            }
        };
        match added {
            Ok(()) => {}
            Err(Failed::Access) => deliver::read_failed(responder, qp, turn),
            Err(Failed::Refused(first)) => {
                return answer_again(responder, refusals, qp, &first, turn)
            }
        }
    }
    match peer.outbox.flush(&peer.way, turn.counters(&qp)) {
        Ok(()) => refusals.end(),
        Err(Refused(first)) => return answer_again(responder, refusals, qp, &first, turn),
    }
    more && responder.has_response()
}

/// As [`send_again`], for answers: without them the peer would spend a retry.
#[cold]
fn answer_again(
    responder: &mut ReliableResponder,
    refusals: &mut Refusals,
    qp: ArcBorrow<'_, Qp>,
    first: &Response,
    turn: &Turn<'_>,
) -> bool {
    match refusals.add(turn.now()) {
        Some(at) => {
            turn.counters(&qp).inc(Counter::SendRetried);
            responder.unsend(first);
            qp.timer().arm(at);
            false
        }
        // Lost, as on any network: the peer asks again.
        None => responder.has_response(),
    }
}
