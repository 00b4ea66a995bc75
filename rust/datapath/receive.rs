// SPDX-License-Identifier: GPL-2.0

//! A packet comes in: from the UDP socket to the QP, all in the receive softirq.

use super::connection::icrc_of;
use super::fabric::FABRIC;
use super::local::take_read;
use super::payload::Payload;
use super::qp::Qp;
use super::recv_queue::RecvHalf;
use super::Turn;
use crate::observe::counters::Counter;
use crate::sys::ib::qp::State;
use crate::sys::net::{
    NetNs,
    Receiver,
    RxPacket,
    Verdict, //
};
use crate::transport::segment::{
    IncomingRequest,
    ReadSegment, //
};
use crate::wire::headers::Bth;
use crate::wire::packet::{
    self,
    Packet,
    ParseError, //
};
use crate::wire::DEFAULT_PKEY;
use kernel::sync::rcu;
use kernel::sync::ArcBorrow;
use zerocopy::FromBytes;

/// What the sockets give their packets to.
pub struct Input;

impl Receiver for Input {
    fn receive(netns: NetNs, packet: &RxPacket<'_>) -> Verdict {
        receive(netns, packet);
        Verdict::Consumed
    }
}

/// Takes a packet of the RoCEv2 port. What is not for one of our connections vanishes: a sender
/// who guesses learns nothing.
fn receive(netns: NetNs, packet: &RxPacket<'_>) {
    let rcu = rcu::read_lock();
    let Some(fabric) = FABRIC.get(&rcu) else {
        return;
    };
    let bytes = packet.head();
    let Ok((bth, _)) = Bth::ref_from_prefix(bytes) else {
        return;
    };
    let Some(qp) = fabric.get(bth.dest_qp(), &rcu) else {
        return;
    };
    let counters = &qp.port.counters;
    let parsed = match packet::parse(bytes, bytes.len()) {
        Ok(parsed) => parsed,
        Err(ParseError::UnknownOpcode) => return counters.inc(Counter::DropOpcode),
        Err(_) => return counters.inc(Counter::DropMalformed),
    };
    if parsed.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
        return counters.inc(Counter::DropPkey);
    }
    if icrc_of(packet.ip_header(), packet.udp_header(), bytes).as_ref() != bytes.last_chunk() {
        return counters.inc(Counter::DropIcrc);
    }
    let start = parsed.payload_offset;
    let Some(payload) = bytes.get(start..start.wrapping_add(parsed.payload_len)) else {
        return;
    };
    let mut turn = Turn::new(&rcu, fabric);
    match IncomingRequest::from_packet(&parsed) {
        Some(request) => on_request(qp, netns, packet, &request, payload, &mut turn),
        None => on_response(qp, netns, packet, &parsed, payload, &mut turn),
    }
    turn.end();
}

fn count_received(qp: &Qp, packet: &RxPacket<'_>) {
    qp.port.counters.inc(Counter::ReceivedPackets);
    qp.port
        .counters
        .add(Counter::ReceivedBytes, packet.head().len() as u64);
}

fn on_request(
    qp: ArcBorrow<'_, Qp>,
    netns: NetNs,
    packet: &RxPacket<'_>,
    request: &IncomingRequest,
    payload: &[u8],
    turn: &mut Turn<'_>,
) {
    let mut recv = qp.recv.lock();
    let Some(connection) = recv.connection.as_ref().filter(|_| RecvHalf::serves(&qp)) else {
        return qp.port.counters.inc(Counter::DropState);
    };
    if !connection.is_from_peer(netns, packet) {
        return qp.port.counters.inc(Counter::DropAddress);
    }
    count_received(&qp, packet);
    recv.execute(qp, request, Payload::Bytes(payload), turn);
    recv.respond(qp, turn);
}

fn on_response(
    qp: ArcBorrow<'_, Qp>,
    netns: NetNs,
    packet: &RxPacket<'_>,
    parsed: &Packet,
    payload: &[u8],
    turn: &mut Turn<'_>,
) {
    let mut send = qp.send.lock();
    let sends = matches!(qp.state(), State::Rts | State::Sqd);
    let Some(connection) = send.connection.as_ref().filter(|_| sends) else {
        return qp.port.counters.inc(Counter::DropState);
    };
    if !connection.is_from_peer(netns, packet) {
        return qp.port.counters.inc(Counter::DropAddress);
    }
    count_received(&qp, packet);
    let progress = if let Some(segment) = ReadSegment::from_packet(parsed) {
        take_read(&mut send, qp, &segment, Payload::Bytes(payload), turn)
    } else if let Some(aeth) = parsed.aeth {
        let deferred = &mut turn.deferred;
        send.requester
            .on_acknowledge(parsed.psn, aeth.syndrome, turn.now, &mut |done| {
                qp.complete_send(done, deferred)
            })
    } else {
        return;
    };
    send.proceed(qp, progress, turn);
}
