// SPDX-License-Identifier: GPL-2.0

//! The local path: messages between QPs of one device go without packets.
//!
//! It is the same protocol with the same checks, only the segments are larger and are handed over
//! in memory: one copy from region to region, no packet, no ICRC, no IP. The sender holds its
//! sending half and the peer's receiving half for a turn, feeds the peer and takes its answers.

use super::payload::Payload;
use super::qp::Qp;
use super::recv_queue::RecvHalf;
use super::send_queue::SendHalf;
use super::Turn;
use crate::observe::counters::Counter;
use crate::transport::requester::Progress;
use crate::transport::responder::AccessError;
use crate::transport::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment,
    Response, //
};
use kernel::prelude::*;
use kernel::sync::ArcBorrow;

/// Bytes that one turn copies before it gives its locks back.
const BYTES_PER_TURN: u32 = 256 << 10;
/// Segments that one turn hands over.
const SEGMENTS_PER_TURN: u32 = 64;
/// Packets' worth of data in one segment.
const SPAN: u32 = 16;

/// Whether the peer is a QP of the same device.
pub fn is_local(send: &SendHalf, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) -> bool {
    let Some(connection) = &send.connection else {
        return false;
    };
    connection.path().to_own_device
        && turn
            .fabric
            .get(connection.dest_qpn, turn.rcu)
            .is_none_or(|peer| kernel::sync::Arc::ptr_eq(&peer.port, &qp.port))
}

/// Hands over what may be sent and takes what is answered, up to the budget; tells whether there
/// is more.
pub fn exchange(send: &mut SendHalf, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
    let Some(connection) = &send.connection else {
        return false;
    };
    let Some(peer) = turn.fabric.get(connection.dest_qpn, turn.rcu) else {
        return lose(send, turn);
    };
    let mut recv = peer.recv.lock();
    let connected = recv
        .connection
        .as_ref()
        .is_some_and(|back| back.is_reverse_of(qp.number, connection));
    if !connected || !RecvHalf::serves(&peer) {
        drop(recv);
        qp.port.counters.inc(Counter::DropState);
        return lose(send, turn);
    }
    let more = converse(send, qp, &mut recv, peer, turn);
    if recv.responder.has_refused() && recv.responder.has_response() && !recv.worker {
        // The refusal waits behind answers that did not fit into the turn, and we may never come
        // back for it: a worker tells it by packets, and then moves the peer to ERR.
        recv.hand_over(peer, turn);
    }
    more
}

fn converse(
    send: &mut SendHalf,
    qp: ArcBorrow<'_, Qp>,
    recv: &mut RecvHalf,
    peer: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let mut bytes = 0u32;
    for segments in 0.. {
        while let Some(response) = recv.responder.next_response(SPAN) {
            recv.end_if_told(peer, turn);
            let progress = match response {
                Response::Acknowledge { psn, syndrome, .. } => {
                    let deferred = &mut turn.deferred;
                    send.requester
                        .on_acknowledge(psn, syndrome, turn.now, &mut |done| {
                            qp.complete_send(done, deferred)
                        })
                }
                Response::ReadResponse {
                    segment, rkey, va, ..
                } => {
                    bytes = bytes.saturating_add(segment.len);
                    count(&peer, segment.len);
                    match peer.read_source(turn, rkey, va, segment.len) {
                        Ok(from) => take_read(send, qp, &segment, from, turn),
                        Err(AccessError) => {
                            recv.read_failed(peer, turn);
                            continue;
                        }
                    }
                }
            };
            if progress.fatal {
                turn.deferred.fail(qp);
                return false;
            }
            if bytes >= BYTES_PER_TURN {
                return true;
            }
        }
        // Only here, where all answers were taken, so that none is left behind without need.
        if segments >= SEGMENTS_PER_TURN || bytes >= BYTES_PER_TURN {
            break;
        }
        let Some(segment) = send.requester.next_segment(turn.now, SPAN) else {
            return false;
        };
        bytes = bytes.saturating_add(segment.len);
        count(&qp, segment.len);
        if deliver(send, qp, &segment, recv, peer, turn).is_err() {
            send.fail(qp, segment.slot, turn);
        }
    }
    true
}

/// Counts a segment where it comes from.
fn count(qp: &Qp, bytes: u32) {
    let counters = &qp.port.counters;
    counters.inc(Counter::LocalSegments);
    counters.add(Counter::LocalBytes, u64::from(bytes));
}

/// There is nobody to take what is sent: it is lost, as on any network, and the deadline of the
/// requester decides what comes next.
fn lose(send: &mut SendHalf, turn: &Turn<'_>) -> bool {
    for _ in 0..SEGMENTS_PER_TURN {
        if send.requester.next_segment(turn.now, SPAN).is_none() {
            return false;
        }
    }
    true
}

/// Gives one segment to the peer. An error is one of our own memory.
fn deliver(
    send: &SendHalf,
    qp: ArcBorrow<'_, Qp>,
    segment: &RequestSegment,
    recv: &mut RecvHalf,
    peer: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> Result<(), AccessError> {
    let rcu = turn.rcu;
    let payload = send
        .wqes
        .payload(segment.slot, segment.offset, qp.regions(rcu));
    // On the wire our memory is read before the peer hears of the message: so it is here.
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    recv.execute(peer, &IncomingRequest::from(segment), payload, turn);
    Ok(())
}

/// Places the data of a READ response.
pub fn take_read(
    send: &mut SendHalf,
    qp: ArcBorrow<'_, Qp>,
    segment: &ReadSegment,
    from: Payload<'_>,
    turn: &mut Turn<'_>,
) -> Progress {
    let regions = qp.regions(turn.rcu);
    let deferred = &mut turn.deferred;
    let mut sink = |done| qp.complete_send(done, deferred);
    match send
        .requester
        .accept_read_response(segment, turn.now, &mut sink)
    {
        Err(refused) => refused.progress,
        Ok(place) => {
            let placed =
                send.wqes
                    .sg_list(place.slot, regions)
                    .scatter(place.offset, place.len, &from);
            match placed {
                Ok(()) => send
                    .requester
                    .read_response_placed(&place, turn.now, &mut sink),
                Err(AccessError) => send.requester.fail(
                    place.slot,
                    crate::transport::completion::Status::LocProtErr,
                    &mut sink,
                ),
            }
        }
    }
}
