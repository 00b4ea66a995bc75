// SPDX-License-Identifier: GPL-2.0

//! Congestion notification (RoCEv2, IBTA annex A17.9): marks of the network on received packets,
//! and what is told to the peer of them.
//!
//! Both ends of a connection react to a mark, each to what it can change: the receiver of requests
//! notifies the peer, whose window shrinks; the receiver of READ responses has asked for them, so
//! its own window shrinks as well.
//!
//! The IP header of each packet is its own, also in a batch: GRO takes no packets together whose
//! ECN bits differ, and a qdisc that marks a batch marks its first packet.

use crate::core::wire::bth::Bth;
use crate::core::wire::opcode::{
    Kind,
    Opcode,
    OpcodeService, //
};
use crate::core::wire::packet::{
    Extension,
    Headers,
    Packet, //
};
use crate::core::wire::psn::Psn;
use crate::datapath::ctx::Ctx;
use crate::datapath::path::TxBatch;
use crate::datapath::protocol::AnyRequester;
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Peer,
    RecvQueue,
    SendQueue, //
};
use crate::datapath::traced::Origin;
use crate::observe::Counter;
use crate::sys::net::RxPacket;
use kernel::sync::ArcBorrow;

/// Whether a packet tells of congestion: it is marked, or its sender says that others are.
#[inline(always)]
pub(super) fn tells(packet: &RxPacket<'_>, bth: Option<&Bth>) -> bool {
    packet.is_marked() || bth.is_some_and(Bth::becn)
}

/// A packet that tells of congestion came for this QP. It counts if it is from the peer.
#[cold]
pub(super) fn told(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    bth: Option<&Bth>,
    parsed: &Packet,
    ctx: &mut Ctx<'_>,
) {
    if qp.opcodes == OpcodeService::Ud {
        // Its sender has no window, and is told nothing.
        return;
    }
    let kind = parsed.opcode.info().kind;
    let is_marked = packet.is_marked();
    let asked_for = is_marked && kind == Kind::ReadResponse;
    let says_so = !kind.is_request() && kind != Kind::Notification && bth.is_some_and(Bth::becn);
    if asked_for || says_so {
        slow_down(qp, packet);
    }
    if is_marked {
        // A peer that sends ACKs and requests without payload cannot send less of them.
        notice(qp, packet, parsed.payload_len != 0, ctx);
    }
}

/// The network holds packets of this QP, or for it.
fn slow_down(qp: ArcBorrow<'_, Qp>, packet: &RxPacket<'_>) {
    let mut send = qp.send.lock();
    let SendQueue {
        peer: Some(peer),
        requester: AnyRequester::Reliable(requester),
        ..
    } = &mut *send
    else {
        return;
    };
    if qp.sends() && peer.path.admits(packet).is_ok() {
        requester.slow_down();
    }
}

/// Counts a marked packet. With data in it the peer is notified, unless it was a moment ago. A
/// notification takes no PSN, and nobody waits for it: if it is lost, the next mark asks for
/// another one.
fn notice(qp: ArcBorrow<'_, Qp>, packet: &RxPacket<'_>, has_data: bool, ctx: &Ctx<'_>) {
    let mut recv = qp.recv.lock();
    let RecvQueue {
        peer: Some(Peer { number, path, .. }),
        cnp,
        ..
    } = &mut *recv
    else {
        return;
    };
    if !qp.serves() || path.admits(packet).is_err() {
        return;
    }
    let counters = ctx.counters(&qp);
    counters.inc(Counter::MarkedReceived);
    if !has_data || !cnp.due(ctx.now) {
        return;
    }
    let mut headers = Headers::new(Opcode::CongestionNotification, *number, Psn::default());
    headers.extension = Extension::Reserved;
    let origin = Origin::response(qp.number);
    let mut alone = TxBatch::default();
    let added = alone.add(path, counters, origin, &headers, 0, (), |_| Ok(()));
    if added.is_ok() && alone.flush(path, counters).is_ok() {
        counters.inc(Counter::NotificationSent);
    }
}
