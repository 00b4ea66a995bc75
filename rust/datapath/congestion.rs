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

use super::ctx::Ctx;
use super::protocol::AnyRequester;
use super::qp::Qp;
use super::queues::Peer;
use super::traced::Origin;
use super::tx_batch::TxBatch;
use crate::core::wire::headers::Bth;
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
use crate::observe::counters::Counter;
use crate::sys::net::RxPacket;
use kernel::sync::ArcBorrow;

/// Whether a packet tells of congestion: it is marked, or its sender says that others are.
#[inline(always)]
pub(super) fn tells(packet: &RxPacket<'_>, bth: Option<&Bth>) -> bool {
    packet.is_marked() || bth.is_some_and(Bth::becn)
}

/// A packet of the peer that tells of congestion was received.
#[cold]
pub(super) fn told(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    bth: Option<&Bth>,
    parsed: &Packet,
    ctx: &mut Ctx<'_>,
) {
    let kind = parsed.opcode.info().kind;
    let is_marked = packet.is_marked();
    if is_marked {
        ctx.counters(&qp).inc(Counter::MarkedReceived);
    }
    let asked_for = is_marked && kind == Kind::ReadResponse;
    let says_so = !kind.is_request() && kind != Kind::Notification && bth.is_some_and(Bth::becn);
    if asked_for || says_so {
        if let AnyRequester::Reliable(requester) = &mut qp.send.lock().requester {
            requester.slow_down();
        }
    }
    // Whoever sends acknowledgements and requests without payload cannot send less of them.
    let can_slow_down = parsed.payload_len != 0 && qp.opcodes() != OpcodeService::Ud;
    if is_marked && can_slow_down {
        notify(qp, ctx);
    }
}

/// Sends the peer a notification, unless one left a moment ago. It takes no PSN, and nobody waits
/// for it: if it is lost, the next mark asks for another one.
fn notify(qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    let mut recv = qp.recv.lock();
    if !qp.serves() || !recv.notices.due(ctx.now()) {
        return;
    }
    let Some(Peer { number, path, .. }) = &mut recv.peer else {
        return;
    };
    let mut headers = Headers::new(Opcode::CongestionNotification, *number, Psn::default());
    headers.extension = Extension::Reserved;
    let (counters, origin) = (ctx.counters(&qp), Origin::response(qp.number()));
    let mut alone = TxBatch::default();
    let added = alone.add(path, counters, origin, &headers, 0, (), |_| Ok(()));
    if added.is_ok() && alone.flush(path, counters).is_ok() {
        counters.inc(Counter::NotificationSent);
    }
}
