// SPDX-License-Identifier: GPL-2.0

//! Packet reception: from the UDP socket to the QP, all in the receive softirq, or in a softirq of
//! the CPU that a batch is steered to ([`super::backlog`]).

use crate::core::kick::Kick;
use crate::core::segment::{
    IncomingRequest,
    ReadSegment, //
};
use crate::core::send::Progress;
use crate::core::wire::bth::Bth;
use crate::core::wire::gid::{
    self,
    Gid,
    GROUP_QPN, //
};
use crate::core::wire::headers::{
    Aeth,
    AethSyndrome, //
};
use crate::core::wire::opcode::{
    Opcode,
    OpcodeService, //
};
use crate::core::wire::packet::{
    self,
    Packet,
    ParseError, //
};
use crate::core::wire::DEFAULT_PKEY;
use crate::datapath::backlog::Backlog;
use crate::datapath::ctx::{
    Ctx,
    RunContext, //
};
use crate::datapath::deliver::{
    self,
    DatagramOrigin, //
};
use crate::datapath::directory::Directory;
use crate::datapath::memory::sg::Payload;
use crate::datapath::path::icrc_of;
use crate::datapath::port::{
    Port,
    MANAGEMENT_QP, //
};
use crate::datapath::protocol::{
    acknowledged,
    AnyRequester,
    AnyResponder, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Answering,
    RecvQueue,
    SendQueue, //
};
use crate::datapath::{
    congestion,
    post,
    traced,
    tx, //
};
use crate::observe::{
    Counter,
    Counters, //
};
use crate::sys::net::{
    Addresses,
    Astray,
    NetNs,
    Receiver,
    RxPacket,
    Unreadable,
    Verdict, //
};
use crate::sys::trace;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::WorkItem;
use zerocopy::FromBytes;

/// The receiver of the sockets.
pub struct Input;

impl Receiver for Input {
    fn settle() {
        // An error: the module is being unloaded, and no QP is left.
        if let Ok(directory) = Directory::current() {
            directory.backlogs.settle();
        }
    }

    fn receive(netns: NetNs, packet: &RxPacket<'_>) -> Verdict {
        // `None`: the module is being unloaded.
        Ctx::run(RunContext::Softirq, |ctx| receive(netns, packet, ctx)).unwrap_or(Verdict::Dropped)
    }

    fn unreadable(netns: NetNs, ifindex: i32, why: Unreadable<'_>) {
        // `None`: the module is being unloaded.
        let _ = Ctx::run(RunContext::Softirq, |ctx| {
            if let Some(port) = ctx.directory.port_at(netns, ifindex, ctx.rcu) {
                let reason = match why {
                    Unreadable::IpHeader => Counter::DropIpHeader,
                    Unreadable::NoMemory(_) => Counter::DropNoMemory,
                };
                trace::drop(move || traced::dropped(None, reason));
                port.counters().inc(reason);
            }
            // Of a batch, whose headers are all alike, only this one may lack.
            if let Unreadable::NoMemory(packet) = &why {
                let bth = Bth::ref_from_prefix(packet.head()).ok().map(|(bth, _)| bth);
                if let Some(qp) = qp_of(netns, bth.map(Bth::dest_qp), ctx) {
                    finish_batch(qp, packet, ctx);
                }
            }
        });
    }
}

/// Drops a packet and counts the reason. It has no effect and gets no response: a sender who
/// guesses learns nothing.
#[cold]
#[inline(never)]
fn dropped(packet: &RxPacket<'_>, counters: &Counters, reason: Counter) -> Verdict {
    trace::drop(move || traced::dropped(Some(packet), reason));
    counters.inc(reason);
    Verdict::Dropped
}

fn count_copied(counters: &Counters, packet: &RxPacket<'_>) {
    if packet.was_copied() {
        counters.inc(Counter::Linearized);
    }
}

/// Receives a packet of the RoCEv2 port.
///
/// The QP is looked up first: its device counts the drop reasons. A QP of another network namespace
/// is not found; this namespace may neither change nor count anything there.
fn receive(netns: NetNs, packet: &RxPacket<'_>, ctx: &mut Ctx<'_>) -> Verdict {
    let bytes = packet.head();
    let bth = Bth::ref_from_prefix(bytes).ok().map(|(bth, _)| bth);
    let number = bth.map(Bth::dest_qp);
    let qp = qp_of(netns, number, ctx);
    let Some(qp) = qp.or_else(|| for_management(netns, packet, number, ctx)) else {
        return match number {
            Some(GROUP_QPN) => for_group(netns, packet, ctx),
            _ => for_nobody(netns, packet, number, ctx),
        };
    };
    if is_steered(&qp, packet, bth, ctx) {
        count_copied(ctx.counters(&qp), packet);
        return Verdict::Consumed;
    }
    execute(qp, packet, bth, ctx)
}

/// The QP of this number in this namespace.
#[inline(always)]
fn qp_of<'a>(netns: NetNs, number: Option<u32>, ctx: &Ctx<'a>) -> Option<ArcBorrow<'a, Qp>> {
    let qp = ctx.directory.get(number?, ctx.rcu)?;
    Some(qp).filter(|qp| qp.port.netns() == netns)
}

/// Executes a packet for this QP on this CPU.
#[inline(always)]
fn execute(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    bth: Option<&Bth>,
    ctx: &mut Ctx<'_>,
) -> Verdict {
    let verdict = receive_at(qp, packet, bth, ctx);
    if verdict == Verdict::Dropped {
        finish_batch(qp, packet, ctx);
    }
    verdict
}

/// Whether another CPU executes this packet.
#[inline(always)]
fn is_steered(qp: &Qp, packet: &RxPacket<'_>, bth: Option<&Bth>, ctx: &Ctx<'_>) -> bool {
    if qp.opcodes != OpcodeService::Rc {
        return false;
    }
    let (backlogs, counters) = (&ctx.directory.backlogs, ctx.counters(qp));
    let (qpn, steering) = (qp.number, &qp.steering);
    // What is for the receive queue has nothing to wait for.
    let sender = qp
        .sender()
        .filter(|_| bth.and_then(is_request) == Some(false));
    backlogs.takes(qpn, steering, packet, counters, sender, || qp.elsewhere())
}

/// Whether a packet with this BTH is for the receive queue, or else for the send queue. `None`: its
/// opcode is unknown.
#[inline(always)]
fn is_request(bth: &Bth) -> Option<bool> {
    bth.opcode().map(|opcode| opcode.info().kind.is_request())
}

/// Batches of a backlog that are executed before other softirqs have their turn.
const BATCHES_PER_RUN: u32 = 4;

impl WorkItem for Backlog {
    type Pointer = Arc<Self>;

    /// Packets were left to this CPU. Runs in a softirq.
    fn run(this: Arc<Self>) {
        if execute_backlog(&this) {
            // `None`: the module is being unloaded. What is left is freed.
            let _ = Ctx::run(RunContext::Softirq, |ctx| {
                ctx.directory.backlogs.again(this);
            });
        }
    }
}

/// Executes what waits in the backlog of a CPU. Returns whether there may be more.
fn execute_backlog(backlog: &Backlog) -> bool {
    for _ in 0..BATCHES_PER_RUN {
        let Some(batch) = backlog.take() else {
            return false;
        };
        let packets = batch.each(|netns, packet| {
            // `None`: the module is being unloaded.
            Ctx::run(RunContext::Softirq, |ctx| deferred(netns, packet, ctx))
                .unwrap_or(Verdict::Dropped)
        });
        backlog.executed(packets);
    }
    true
}

/// Executes a packet of a backlog. Its QP may have gone meanwhile.
fn deferred(netns: NetNs, packet: &RxPacket<'_>, ctx: &mut Ctx<'_>) -> Verdict {
    let bth = Bth::ref_from_prefix(packet.head()).ok().map(|(bth, _)| bth);
    let number = bth.map(Bth::dest_qp);
    match qp_of(netns, number, ctx) {
        Some(qp) => execute(qp, packet, bth, ctx),
        None => for_nobody(netns, packet, number, ctx),
    }
}

/// Receives a packet for this QP.
#[inline(always)]
fn receive_at(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    bth: Option<&Bth>,
    ctx: &mut Ctx<'_>,
) -> Verdict {
    let counters = ctx.counters(&qp);
    count_copied(counters, packet);
    let (parsed, payload) = match intact(packet, bth, qp.opcodes) {
        Ok(intact) => intact,
        Err(reason) => return dropped(packet, counters, reason),
    };
    let request = IncomingRequest::from_packet(&parsed);
    if congestion::tells(packet, bth) {
        congestion::told(qp, packet, bth, &parsed, ctx);
    }
    match &request {
        Some(request) if qp.opcodes == OpcodeService::Ud => {
            on_datagram(qp, packet, request, payload, ctx)
        }
        Some(request) => on_request(qp, packet, request, payload, ctx),
        None => on_response(qp, packet, &parsed, payload, ctx),
    }
}

/// Whether the next packet of the same batch is for the same queue of the same QP.
///
/// Then that one does what is left to do: a batch is answered once, and its responses let the send
/// queue go on once.
#[inline]
fn is_continued(packet: &RxPacket<'_>) -> bool {
    packet.next().is_some_and(|next| {
        let [this, next] = [packet.head(), next].map(|bytes| Bth::ref_from_prefix(bytes).ok());
        this.zip(next).is_some_and(|((this, _), (next, _))| {
            this.dest_qp() == next.dest_qp() && is_request(this) == is_request(next)
        })
    })
}

/// A packet was dropped. If it is the last of a batch, this does what the others have left to it.
#[cold]
fn finish_batch(qp: ArcBorrow<'_, Qp>, packet: &RxPacket<'_>, ctx: &mut Ctx<'_>) {
    if qp.opcodes != OpcodeService::Rc || is_continued(packet) {
        return;
    }
    let mut recv = qp.recv.lock();
    if qp.serves() {
        answer(&mut recv, qp, ctx);
    }
    drop(recv);
    let mut send = qp.send.lock();
    if qp.sends() {
        post::kick(&mut send, qp, Kick::Progress(Progress::default()), ctx);
    }
}

/// The GSI QP of the device that the packet is for, if the packet names QP 1.
#[cold]
fn for_management<'a>(
    netns: NetNs,
    packet: &RxPacket<'_>,
    number: Option<u32>,
    ctx: &Ctx<'a>,
) -> Option<ArcBorrow<'a, Qp>> {
    if number != Some(MANAGEMENT_QP) {
        return None;
    }
    ctx.directory.management(netns, packet, ctx.rcu)
}

/// Parses a packet of this service and checks its ICRC. The error is the drop reason.
// Inlined: two callers, one of them for every packet.
#[inline(always)]
fn intact<'p>(
    packet: &RxPacket<'p>,
    bth: Option<&Bth>,
    service: OpcodeService,
) -> Result<(Packet, &'p [u8]), Counter> {
    let bytes = packet.head();
    if bth.is_some_and(|bth| bth.version() == 0 && !bth.is_of(service)) {
        return Err(Counter::DropOpcode);
    }
    let parsed = match packet::parse(bytes, bytes.len()) {
        Ok(parsed) => parsed,
        Err(ParseError::UnknownOpcode) => return Err(Counter::DropOpcode),
        Err(_) => return Err(Counter::DropMalformed),
    };
    if parsed.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
        return Err(Counter::DropPkey);
    }
    if icrc_of(packet.ip_header(), packet.udp_header(), bytes).as_ref() != bytes.last_chunk() {
        return Err(Counter::DropIcrc);
    }
    let start = parsed.payload_offset;
    match bytes.get(start..start.wrapping_add(parsed.payload_len)) {
        Some(payload) => Ok((parsed, payload)),
        // Cannot happen: the lengths of a parsed packet add up to its own.
        None => Err(Counter::DropMalformed),
    }
}

/// A multicast datagram. A datagram that this host sends to its own group returns by the netdev it
/// left by: all arrive the same way, and each is seen once.
#[cold]
fn for_group(netns: NetNs, packet: &RxPacket<'_>, ctx: &mut Ctx<'_>) -> Verdict {
    let (directory, rcu) = (ctx.directory, ctx.rcu);
    let port = directory.port_on(netns, packet.real_ifindex(), rcu);
    let group = match packet.addresses() {
        Some(Addresses::V4 { dst, .. }) => gid::of_ipv4(dst),
        Some(Addresses::V6 { dst, .. }) => dst,
        // Cannot happen: the packet has an IP header.
        None => return Verdict::Dropped,
    };
    let Some(port) = port.filter(|_| gid::is_multicast(&group)) else {
        return for_nobody(netns, packet, Some(GROUP_QPN), ctx);
    };
    count_copied(port.counters(), packet);
    let bth = Bth::ref_from_prefix(packet.head()).ok().map(|(bth, _)| bth);
    match group_datagram(port, packet, bth, &group, ctx) {
        Ok(()) => {
            count_received(0, port.counters(), packet);
            Verdict::Consumed
        }
        Err(reason) => dropped(packet, port.counters(), reason),
    }
}

/// Delivers a datagram to all QPs of a group. It is dropped if no member takes it.
fn group_datagram(
    port: &Port,
    packet: &RxPacket<'_>,
    bth: Option<&Bth>,
    group: &Gid,
    ctx: &mut Ctx<'_>,
) -> Result<(), Counter> {
    let (directory, rcu) = (ctx.directory, ctx.rcu);
    let (parsed, payload) = intact(packet, bth, OpcodeService::Ud)?;
    let request = IncomingRequest::from_packet(&parsed).ok_or(Counter::DropOpcode)?;
    let origin = DatagramOrigin::of_packet(packet).ok_or(Counter::DropMalformed)?;
    let mut verdict = Err(Counter::DropGroup);
    for member in port.groups.members(group, rcu) {
        let qp = directory.get(member, rcu);
        // A member that is leaving may be gone, and its number reused.
        let Some(qp) = qp.filter(|qp| core::ptr::eq(&*qp.port, port)) else {
            continue;
        };
        let payload = Payload::Bytes(payload);
        let taken = deliver::datagram(&mut qp.recv.lock(), qp, &request, &origin, payload, ctx);
        if verdict.is_err() {
            verdict = taken;
        }
    }
    verdict
}

/// No QP of the namespace has this number, or the packet carries none.
#[cold]
fn for_nobody(netns: NetNs, packet: &RxPacket<'_>, number: Option<u32>, ctx: &Ctx<'_>) -> Verdict {
    let port = ctx.directory.port_at(netns, packet.ifindex(), ctx.rcu);
    let Some(port) = port else {
        // The first link of the namespace is being created, or the last one removed.
        return Verdict::Dropped;
    };
    count_copied(port.counters(), packet);
    dropped(
        packet,
        port.counters(),
        match number {
            Some(_) => Counter::DropUnknownQp,
            None => Counter::DropMalformed,
        },
    )
}

/// A packet was received for the QP `qpn`, or for a group, which is 0.
#[inline]
fn count_received(qpn: u32, counters: &Counters, packet: &RxPacket<'_>) {
    trace::rx(move || traced::received(qpn, packet));
    counters.inc(Counter::ReceivedPackets);
    counters.add(Counter::ReceivedBytes, packet.head().len() as u64);
}

#[inline(always)]
fn on_request(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    request: &IncomingRequest,
    payload: &[u8],
    ctx: &mut Ctx<'_>,
) -> Verdict {
    let mut recv = qp.recv.lock();
    let Some(peer) = recv.peer.as_mut().filter(|_| qp.serves()) else {
        return dropped(packet, ctx.counters(&qp), Counter::DropState);
    };
    if let Err(reason) = peer.path.admits(packet) {
        return dropped(packet, ctx.counters(&qp), reason);
    }
    count_received(qp.number, ctx.counters(&qp), packet);
    let payload = (Some(packet), Payload::Bytes(payload));
    deliver::request(&mut recv, qp, request, payload, ctx);
    if !is_continued(packet) {
        answer(&mut recv, qp, ctx);
    }
    Verdict::Consumed
}

/// Sends the responses that are due, unless a worker does.
#[inline(always)]
fn answer(recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) {
    if recv.answering == Answering::Inline && tx::answer(recv, qp, ctx) {
        ctx.leave_to_answerer(recv, qp);
    }
}

fn on_datagram(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    request: &IncomingRequest,
    payload: &[u8],
    ctx: &mut Ctx<'_>,
) -> Verdict {
    let mut recv = qp.recv.lock();
    let AnyResponder::Datagram(ud) = &mut recv.responder else {
        // Cannot happen: the opcode matches the type of the QP.
        return dropped(packet, ctx.counters(&qp), Counter::DropOpcode);
    };
    if !qp.serves() {
        return dropped(packet, ctx.counters(&qp), Counter::DropState);
    }
    let (Some(addresses), Some(origin)) = (packet.addresses(), DatagramOrigin::of_packet(packet))
    else {
        // Cannot happen: the packet has an IP header.
        return dropped(packet, ctx.counters(&qp), Counter::DropMalformed);
    };
    // The source does not matter: one admitted packet stands for most that follow.
    let arrival = (addresses.destination_only(), packet.ifindex());
    if ud.admitted != Some(arrival) {
        match qp.port.arrived(packet.ifindex(), &addresses) {
            Ok(()) => ud.admitted = Some(arrival),
            Err(Astray::Address) => {
                return dropped(packet, ctx.counters(&qp), Counter::DropAddress)
            }
            Err(Astray::Interface) => {
                return dropped(packet, ctx.counters(&qp), Counter::DropInterface)
            }
        }
    }
    let payload = Payload::Bytes(payload);
    match deliver::datagram(&mut recv, qp, request, &origin, payload, ctx) {
        Ok(()) => {
            count_received(qp.number, ctx.counters(&qp), packet);
            Verdict::Consumed
        }
        Err(reason) => dropped(packet, ctx.counters(&qp), reason),
    }
}

fn on_response(
    qp: ArcBorrow<'_, Qp>,
    packet: &RxPacket<'_>,
    parsed: &Packet,
    payload: &[u8],
    ctx: &mut Ctx<'_>,
) -> Verdict {
    let mut send = qp.send.lock();
    let Some(peer) = send.peer.as_mut().filter(|_| qp.sends()) else {
        return dropped(packet, ctx.counters(&qp), Counter::DropState);
    };
    if let Err(reason) = peer.path.admits(packet) {
        return dropped(packet, ctx.counters(&qp), reason);
    }
    let SendQueue {
        requester: AnyRequester::Reliable(requester),
        wqes,
        ..
    } = &mut *send
    else {
        // A notification: UC, which has no window, has no other response.
        count_received(qp.number, ctx.counters(&qp), packet);
        ctx.counters(&qp).inc(Counter::NotificationIgnored);
        return Verdict::Consumed;
    };
    let progress = if let Some(segment) = ReadSegment::from_packet(parsed) {
        let is_ack = |aeth: Aeth| matches!(aeth.syndrome(), AethSyndrome::Ack { .. });
        if !parsed.extension.aeth().is_none_or(is_ack) {
            // Data and a NAK in one packet: not a valid packet.
            return dropped(packet, ctx.counters(&qp), Counter::DropMalformed);
        }
        count_received(qp.number, ctx.counters(&qp), packet);
        // The original value of an atomic operation is in a header, in wire order.
        let original = parsed.extension.original().map(u64::to_ne_bytes);
        let payload = Payload::Bytes(original.as_ref().map_or(payload, |bytes| bytes));
        deliver::read_response(requester, wqes, qp, &segment, &payload, ctx)
    } else if let Some(aeth) = parsed.extension.aeth() {
        count_received(qp.number, ctx.counters(&qp), packet);
        let now = ctx.now;
        let (before, psn) = (&*requester, parsed.psn);
        trace::ack(move || acknowledged(before, qp.number, psn, aeth));
        let mut complete = |done| ctx.complete_send(qp, done);
        if parsed.opcode == Opcode::RcMissing {
            requester.on_missing(psn, aeth, payload, now, &mut complete)
        } else {
            requester.on_acknowledge(psn, aeth, now, &mut complete)
        }
    } else {
        // A notification: all other responses without payload carry an AETH.
        count_received(qp.number, ctx.counters(&qp), packet);
        ctx.counters(&qp).inc(Counter::NotificationHandled);
        requester.slow_down();
        Progress::default()
    };
    if progress.has_failed() || !is_continued(packet) {
        post::kick(&mut send, qp, Kick::Progress(progress), ctx);
    }
    Verdict::Consumed
}
