// SPDX-License-Identifier: GPL-2.0

//! A packet comes in: from the UDP socket to the QP, all in the receive softirq.

use super::connection::icrc_of;
use super::fabric::FABRIC;
use super::local::take_read;
use super::payload::Payload;
use super::qp::Qp;
use super::recv_queue::RecvHalf;
use super::Turn;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::ib::qp::State;
use crate::sys::net::{
    NetNs,
    Receiver,
    RxPacket,
    Unreadable,
    Verdict, //
};
use crate::transport::segment::{
    IncomingRequest,
    ReadSegment, //
};
use crate::wire::headers::{
    AethSyndrome,
    Bth, //
};
use crate::wire::packet::{
    self,
    AethInfo,
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
        receive(netns, packet)
    }

    fn unreadable(netns: NetNs, ifindex: i32, why: Unreadable) {
        let rcu = rcu::read_lock();
        let port = FABRIC
            .get(&rcu)
            .and_then(|fabric| fabric.port_at(netns, ifindex, &rcu));
        if let Some(port) = port {
            port.counters.inc(match why {
                Unreadable::IpHeader => Counter::DropIpHeader,
                Unreadable::NoMemory => Counter::DropNoMemory,
            });
        }
    }
}

/// The packet has no effect, and is not answered: a sender who guesses learns nothing.
fn dropped(counters: &Counters, reason: Counter) -> Verdict {
    counters.inc(reason);
    Verdict::Dropped
}

fn count_copied(counters: &Counters, packet: &RxPacket<'_>) {
    if packet.was_copied() {
        counters.inc(Counter::Linearized);
    }
}

/// Takes a packet of the RoCEv2 port.
///
/// The QP is found first, so that its device counts what is wrong with the packet. A QP of another
/// network namespace is none: neither its state nor its counters are the business of this one.
fn receive(netns: NetNs, packet: &RxPacket<'_>) -> Verdict {
    let rcu = rcu::read_lock();
    let Some(fabric) = FABRIC.get(&rcu) else {
        return Verdict::Dropped;
    };
    let bytes = packet.head();
    let number = Bth::ref_from_prefix(bytes)
        .ok()
        .map(|(bth, _)| bth.dest_qp());
    let qp = number.and_then(|number| fabric.get(number, &rcu));
    let Some(qp) = qp.filter(|qp| qp.port.is_in(netns)) else {
        let Some(port) = fabric.port_at(netns, packet.ifindex(), &rcu) else {
            // The first link of the namespace is just being made, or the last one taken down.
            return Verdict::Dropped;
        };
        count_copied(&port.counters, packet);
        return dropped(
            &port.counters,
            match number {
                Some(_) => Counter::DropUnknownQp,
                None => Counter::DropMalformed,
            },
        );
    };
    let counters = &qp.port.counters;
    count_copied(counters, packet);
    let parsed = match packet::parse(bytes, bytes.len()) {
        Ok(parsed) => parsed,
        Err(ParseError::UnknownOpcode) => return dropped(counters, Counter::DropOpcode),
        Err(_) => return dropped(counters, Counter::DropMalformed),
    };
    if parsed.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
        return dropped(counters, Counter::DropPkey);
    }
    if icrc_of(packet.ip_header(), packet.udp_header(), bytes).as_ref() != bytes.last_chunk() {
        return dropped(counters, Counter::DropIcrc);
    }
    let start = parsed.payload_offset;
    let Some(payload) = bytes.get(start..start.wrapping_add(parsed.payload_len)) else {
        // Cannot be, for the lengths of a parsed packet add up to its own.
        return dropped(counters, Counter::DropMalformed);
    };
    let mut turn = Turn::new(&rcu, fabric);
    let verdict = match IncomingRequest::from_packet(&parsed) {
        Some(request) => on_request(qp, packet, &request, payload, &mut turn),
        None => on_response(qp, packet, &parsed, payload, &mut turn),
    };
    turn.end();
    verdict
}

fn count_received(qp: &Qp, packet: &RxPacket<'_>) {
    qp.port.counters.inc(Counter::ReceivedPackets);
    qp.port
        .counters
        .add(Counter::ReceivedBytes, packet.head().len() as u64);
}

fn on_request(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    request: &IncomingRequest,
    payload: &[u8],
    turn: &mut Turn<'_>,
) -> Verdict {
    let mut recv = qp.recv.lock();
    let Some(connection) = recv.connection.as_ref().filter(|_| RecvHalf::serves(&qp)) else {
        return dropped(&qp.port.counters, Counter::DropState);
    };
    if !connection.is_from_peer(packet) {
        return dropped(&qp.port.counters, Counter::DropAddress);
    }
    count_received(&qp, packet);
    recv.execute(qp, request, Payload::Bytes(payload), turn);
    recv.respond(qp, turn);
    Verdict::Consumed
}

fn on_response(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    parsed: &Packet,
    payload: &[u8],
    turn: &mut Turn<'_>,
) -> Verdict {
    let mut send = qp.send.lock();
    let sends = matches!(qp.state(), State::Rts | State::Sqd);
    let Some(connection) = send.connection.as_ref().filter(|_| sends) else {
        return dropped(&qp.port.counters, Counter::DropState);
    };
    if !connection.is_from_peer(packet) {
        return dropped(&qp.port.counters, Counter::DropAddress);
    }
    let progress = if let Some(segment) = ReadSegment::from_packet(parsed) {
        let is_ack = |aeth: AethInfo| matches!(aeth.syndrome, AethSyndrome::Ack { .. });
        if !parsed.aeth.is_none_or(is_ack) {
            // Data, and a NAK in the same packet: nobody sends that.
            return dropped(&qp.port.counters, Counter::DropMalformed);
        }
        count_received(&qp, packet);
        take_read(&mut send, qp, &segment, Payload::Bytes(payload), turn)
    } else if let Some(aeth) = parsed.aeth {
        count_received(&qp, packet);
        let deferred = &mut turn.deferred;
        send.requester
            .on_acknowledge(parsed.psn, aeth.syndrome, turn.now, &mut |done| {
                qp.complete_send(done, deferred)
            })
    } else {
        // Cannot be: what is no request and no READ response is an acknowledgement, and has one.
        return dropped(&qp.port.counters, Counter::DropOpcode);
    };
    send.proceed(qp, progress, turn);
    Verdict::Consumed
}
