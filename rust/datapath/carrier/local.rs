// SPDX-License-Identifier: GPL-2.0

//! The local path: segments between QPs of one device are handed over in memory.
//!
//! It is the same protocol with the same checks, only the segments are larger: one copy from region
//! to region, no packet, no ICRC, no IP. The sender holds its sending half and the peer's receiving
//! half for a turn, feeds the peer and takes its answers.

use crate::datapath::deliver;
use crate::datapath::halves::{
    Answering,
    RecvHalf,
    SendCopies,
    SendHalf, //
};
use crate::datapath::memory::sg::Payload;
use crate::datapath::protocol::{
    ReliableRequester,
    Requester,
    Responder,
    UnreliableRequester, //
};
use crate::datapath::qp::Qp;
use crate::datapath::turn::Turn;
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
const SEGMENTS_PER_TURN: u32 = 64;
/// Packets' worth of data in one segment.
const SPAN: u32 = 16;

/// Whether the peer is a QP of the same device, and the local path is on.
pub(in crate::datapath) fn serves(send: &SendHalf, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) -> bool {
    let Some(peer) = &send.peer else {
        return false;
    };
    qp.port().local_path()
        && peer.way.is_to_own_device()
        && turn
            .directory()
            .get(peer.number, turn.rcu())
            .is_none_or(|peer| Arc::ptr_eq(peer.port(), qp.port()))
}

/// Hands over what may be sent and takes what is answered, up to the budget of the turn; tells
/// whether there is more.
pub(in crate::datapath) fn exchange(
    send: &mut SendHalf,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let SendHalf {
        requester,
        wqes,
        peer: Some(there),
        ..
    } = send
    else {
        return false;
    };
    let Some(peer) = turn.directory().get(there.number, turn.rcu()) else {
        return lose(requester, wqes, qp, turn);
    };
    let mut recv = peer.recv.lock();
    let connected = recv
        .peer
        .as_ref()
        .is_some_and(|back| back.number == qp.number() && back.way.is_reverse_of(&there.way));
    // Also of this device: the number may be another one's since the path was chosen.
    let reachable = connected && Arc::ptr_eq(peer.port(), qp.port());
    if !reachable || !peer.serves() || peer.opcodes() != qp.opcodes() {
        drop(recv);
        turn.counters(&qp).inc(Counter::DropState);
        return lose(requester, wqes, qp, turn);
    }
    let requester = match requester {
        Requester::Reliable(requester) => requester,
        Requester::Unreliable(requester) => {
            return hand_over_unreliably(requester, wqes, qp, &mut recv, peer, turn);
        }
        // They have a way of their own.
        Requester::Datagram(_) => return false,
    };
    let more = hand_over(requester, wqes, qp, &mut recv, peer, turn);
    let has_refused = match &recv.responder {
        Responder::Reliable(responder) => responder.has_refused() && responder.has_response(),
        Responder::Unreliable(_) | Responder::Datagram(_) => false,
    };
    if has_refused && recv.answering == Answering::Inline {
        // The refusal waits behind answers that did not fit into the turn, and we may never come
        // back for it: a worker sends it by packets, and then moves the peer to ERR.
        turn.leave_to_answerer(&mut recv, peer);
    }
    more
}

#[inline(always)]
fn hand_over(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    recv: &mut RecvHalf,
    peer: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    for segments in 0.. {
        let Responder::Reliable(responder) = &mut recv.responder else {
            return false;
        };
        while let Some(response) = responder.next_response(SPAN) {
            deliver::answer_taken(responder, peer, turn);
            let progress = match response {
                Response::Acknowledge { psn, syndrome, msn } => {
                    let (now, aeth) = (turn.now(), Aeth::new(syndrome, msn));
                    requester
                        .on_acknowledge(psn, aeth, now, &mut |done| turn.complete_send(qp, done))
                }
                Response::ReadResponse {
                    segment, rkey, va, ..
                } => {
                    moved(&peer, segment.len, turn);
                    match deliver::read_source(&peer, rkey, va, segment.len, turn) {
                        Ok(from) => {
                            deliver::read_response(requester, wqes, qp, &segment, &from, turn)
                        }
                        Err(AccessError) => {
                            deliver::read_failed(responder, peer, turn);
                            continue;
                        }
                    }
                }
                Response::Atomic { psn, original, .. } => {
                    let segment = ReadSegment::original(psn);
                    let bytes = original.to_ne_bytes();
                    let from = Payload::Bytes(&bytes);
                    moved(&peer, segment.len, turn);
                    deliver::read_response(requester, wqes, qp, &segment, &from, turn)
                }
            };
            if progress.fatal {
                turn.fail(qp);
                return false;
            }
            if !turn.may_move() {
                return true;
            }
        }
        // Only here, where all answers were taken, so that none is left behind without need.
        if segments >= SEGMENTS_PER_TURN || !turn.may_move() {
            break;
        }
        let Some(segment) = requester.next_segment(turn.now(), SPAN) else {
            if deliver::do_here(requester, wqes, qp, turn) {
                continue;
            }
            return false;
        };
        moved(&qp, segment.len, turn);
        if give(wqes, qp, &segment, recv, peer, turn).is_err() {
            deliver::local_memory_failed(requester, qp, segment.slot, turn);
        }
    }
    true
}

/// As [`hand_over`], where nothing is answered.
fn hand_over_unreliably(
    requester: &mut UnreliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    recv: &mut RecvHalf,
    peer: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    for _ in 0..SEGMENTS_PER_TURN {
        if !turn.may_move() {
            return true;
        }
        let Some(segment) = requester.next_segment(SPAN) else {
            return false;
        };
        moved(&qp, segment.len, turn);
        let done = give(wqes, qp, &segment, recv, peer, turn);
        let done = done.map_err(|AccessError| Status::LocProtErr);
        deliver::left(requester, qp, &segment, done, turn);
    }
    true
}

/// Counts a segment where it comes from.
#[inline(always)]
pub(super) fn moved(qp: &Qp, bytes: u32, turn: &mut Turn<'_>) {
    turn.moved(bytes);
    let counters = turn.counters(qp);
    counters.inc(Counter::LocalSegments);
    counters.add(Counter::LocalBytes, u64::from(bytes));
}

/// There is nobody to take what is sent: it is lost, as on any network. Where it is acknowledged
/// the deadline of the requester decides what comes next.
fn lose(
    requester: &mut Requester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    for _ in 0..SEGMENTS_PER_TURN {
        match requester {
            Requester::Reliable(requester) => {
                if requester.next_segment(turn.now(), SPAN).is_none()
                    && !deliver::do_here(requester, wqes, qp, turn)
                {
                    return false;
                }
            }
            Requester::Unreliable(requester) => {
                let Some(segment) = requester.next_segment(SPAN) else {
                    return false;
                };
                deliver::left(requester, qp, &segment, Ok(()), turn);
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
    recv: &mut RecvHalf,
    peer: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> Result<(), AccessError> {
    let regions = qp.regions(turn.rcu());
    let payload = Payload::of(wqes.data(segment.slot), segment.offset, regions);
    // On the wire our memory is read before the peer gets the message: so it is here.
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    let extension = segment.extension(|| wqes.arguments(segment.slot));
    let request = IncomingRequest::local(segment, extension);
    deliver::request(recv, peer, &request, payload, turn);
    Ok(())
}
