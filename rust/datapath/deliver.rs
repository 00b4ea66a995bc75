// SPDX-License-Identifier: GPL-2.0

//! Delivery: executes a segment at the QP it is for, from the wire or the local path. A request is
//! executed, a READ response is placed.

use crate::core::completion::{
    DatagramSource,
    RecvCompletion,
    Status, //
};
use crate::core::env::{
    AccessError,
    AtomicOp,
    FlushPlacement,
    FlushRange,
    Keep,
    ReceiveEnv,
    RemoteAccess,
    ResponderEnv,
    TakeReceive,
    WriteEnv, //
};
use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::queue::wqe::{
    are_apart,
    Data,
    KeyChange,
    RecvWqes, //
};
use crate::core::rc;
use crate::core::rc::responder::Fatal;
use crate::core::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment, //
};
use crate::core::send::Progress;
use crate::core::uc::UnreliableOutcome;
use crate::core::ud::DatagramEnv;
use crate::core::wire::gid::{
    self,
    Grh,
    IpFields,
    GRH_LEN,
    UDP_HEADER, //
};
use crate::core::wire::packet;
use crate::core::wire::performance::MAD_LEN;
use crate::datapath::ctx::Ctx;
use crate::datapath::memory::sg::{
    Payload,
    Regions,
    SgList, //
};
use crate::datapath::memory::window::BindError;
use crate::datapath::path::Path;
use crate::datapath::port::Port;
use crate::datapath::protocol::{
    AnyResponder,
    ReliableRequester,
    ReliableResponder, //
};
use crate::datapath::qp::{
    Qp,
    ReceiveSource, //
};
use crate::datapath::queues::{
    KeptRequests,
    RecvQueue,
    SendCopies, //
};
use crate::datapath::traced;
use crate::observe::Counter;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::{
    Access,
    QpState, //
};
use crate::sys::net::{
    Addresses,
    LinkHeader,
    RxPacket, //
};
use crate::sys::{
    memory,
    trace, //
};
use kernel::prelude::*;
use kernel::sync::ArcBorrow;

/// The target of a request: the receives and the memory of its QP.
struct Target<'q, 't, 'a> {
    qp: ArcBorrow<'q, Qp>,
    receives: &'t mut RecvWqes<KVec<u64>>,
    /// Payload of the request.
    payload: Payload<'t>,
    /// The packet of a request that may be kept, and those that are.
    packet: Option<(&'t RxPacket<'t>, &'t mut KeptRequests)>,
    /// Set for a datagram.
    origin: Option<&'t DatagramOrigin>,
    ctx: &'t mut Ctx<'a>,
}

/// Hop limit of a packet that gives none: the default of the kernel's routes, unless a sysctl
/// changes it.
const DEFAULT_HOPS: u8 = 64;

/// The source of a datagram, as its receiver sees it.
pub(super) struct DatagramOrigin {
    grh: Grh,
    link: LinkHeader,
}

impl DatagramOrigin {
    /// The source of a packet. `None` if its IP header is invalid, which cannot happen.
    pub(super) fn of_packet(packet: &RxPacket<'_>) -> Option<Self> {
        Some(Self {
            grh: gid::grh_of_packet(packet.ip_header())?,
            link: packet.link(),
        })
    }

    /// The source of a datagram on the local path of `port`: the headers that its packet along
    /// `path` would carry.
    pub(super) fn local(path: &Path, port: &Port, datagram: &RequestSegment) -> Self {
        let flow = path.flow();
        let udp_payload = packet::packet_len(datagram.opcode, datagram.len as usize);
        let fields = IpFields {
            traffic_class: flow.traffic_class,
            hop_limit: match flow.hop_limit {
                0 => DEFAULT_HOPS,
                hops => hops,
            },
            flow_label: flow.flow_label,
            // A datagram is one packet: its length always fits.
            length: u16::try_from(udp_payload)
                .unwrap_or(u16::MAX)
                .saturating_add(UDP_HEADER),
        };
        Self {
            grh: match flow.addresses {
                Addresses::V4 { src, dst } => gid::made_grh_v4(fields, src, dst),
                Addresses::V6 { src, dst } => gid::made_grh_v6(fields, src, dst),
            },
            link: LinkHeader {
                mac: port.mac,
                vlan: None,
            },
        }
    }
}

impl Target<'_, '_, '_> {
    fn regions(&self) -> Regions<'_> {
        self.qp.regions(self.ctx.rcu)
    }

    /// The memory of the receive WQE in use. A WQE of an SRQ names memory of the SRQ's domain.
    #[inline(always)]
    fn receive_list(&self) -> SgList<'_> {
        SgList::new(self.receives.sges(), self.qp.recv_regions(self.ctx.rcu))
    }
}

fn rights(access: RemoteAccess) -> u32 {
    match access {
        RemoteAccess::Read => Access::REMOTE_READ,
        RemoteAccess::Write => Access::REMOTE_WRITE,
    }
}

impl DatagramEnv for Target<'_, '_, '_> {
    fn scatter_header(&mut self) -> Result<(), AccessError> {
        let grh = &self.origin.ok_or(AccessError)?.grh;
        self.receive_list()
            .scatter(0, GRH_LEN, &Payload::Bytes(grh))
    }

    fn complete_from(&mut self, done: RecvCompletion, source: u32) {
        let Some(DatagramOrigin { grh, link }) = self.origin else {
            return;
        };
        let [first, ..] = grh;
        let source = DatagramSource {
            qp: source,
            is_v6: first >> 4 == 6,
            vlan: link.vlan,
            mac: link.mac,
        };
        self.ctx.complete_datagram(self.qp, done, &source);
    }
}

impl ReceiveEnv for Target<'_, '_, '_> {
    #[inline]
    fn take_receive(&mut self) -> TakeReceive {
        match &self.qp.receives {
            ReceiveSource::Own(rq) => self.receives.take(&**rq),
            ReceiveSource::Shared(srq) => {
                let notifications = self.ctx.directory.notifications();
                srq.take(self.receives, notifications)
            }
        }
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        self.receive_list().scatter(offset, len, &self.payload)
    }

    #[inline(always)]
    fn complete(&mut self, done: RecvCompletion) {
        self.ctx.complete_receive(self.qp, done);
    }
}

impl WriteEnv for Target<'_, '_, '_> {
    fn check_remote(&mut self, access: RemoteAccess, span: Span) -> Result<(), AccessError> {
        self.regions().permits(self.qp.id, rights(access), span)
    }

    fn write_remote(&mut self, span: Span) -> Result<(), AccessError> {
        self.regions().write(self.qp.id, span, &self.payload)
    }
}

impl ResponderEnv for Target<'_, '_, '_> {
    #[cold]
    fn keep(&mut self, sequence: u64) -> Keep {
        match &mut self.packet {
            Some((packet, kept)) => kept.keep(sequence, packet),
            None => Keep::NoRoom,
        }
    }

    fn invalidate(&mut self, key: MemoryKey) -> Result<(), AccessError> {
        self.regions()
            .change(self.qp.id, KeyChange::Invalidate(key))
            .map_err(|BindError| AccessError)
    }

    fn change_remote(&mut self, word: Span, change: AtomicOp) -> Result<u64, AccessError> {
        let (qp, rights) = (self.qp.id, Access::REMOTE_ATOMIC);
        self.regions().word(qp, rights, word, |word| match change {
            AtomicOp::CompareSwap { compare, swap } => word.compare_swap(compare, swap),
            AtomicOp::FetchAdd(value) => word.fetch_add(value),
        })
    }

    fn write_word(&mut self, word: Span) -> Result<(), AccessError> {
        let value = self.payload.word().ok_or(AccessError)?;
        let (qp, rights) = (self.qp.id, Access::REMOTE_WRITE);
        self.regions()
            .word(qp, rights, word, |word| word.store(value))
    }

    fn flush(&mut self, range: FlushRange, placement: FlushPlacement) -> Result<(), AccessError> {
        let mut rights = 0;
        if placement.global {
            rights |= Access::FLUSH_GLOBAL;
        }
        if placement.persistent {
            // No region grants this right yet: there is no persistent memory.
            rights |= Access::FLUSH_PERSISTENT;
        }
        match range {
            FlushRange::Range(span) => self.regions().permits(self.qp.id, rights, span)?,
            FlushRange::Region(key) => self.regions().permits_all(key, rights)?,
        }
        memory::full_barrier();
        Ok(())
    }
}

/// Executes one request of the peer, which came in `packet` if it may be kept. Responses stay in
/// the responder until they are sent.
#[inline]
pub(super) fn request(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    (packet, payload): (Option<&RxPacket<'_>>, Payload<'_>),
    ctx: &mut Ctx<'_>,
) {
    let mut target = Target {
        qp,
        receives: &mut recv.wqes,
        payload,
        packet: packet.map(|packet| (packet, &mut recv.kept)),
        origin: None,
        ctx: &mut *ctx,
    };
    let executed = match &mut recv.responder {
        AnyResponder::Reliable(responder) => {
            let outcome = responder.on_request(request, &mut target);
            drop(target);
            count_reliable(qp, request, outcome, ctx)
        }
        AnyResponder::Unreliable(responder) => {
            let outcome = responder.on_request(request, &mut target);
            drop(target);
            count_unreliable(qp, request, outcome, ctx)
        }
        // Datagrams go to [`datagram`].
        AnyResponder::Datagram(_) => return,
    };
    if recv.wqes.take_corrupt() {
        ctx.fail_fatally(qp);
    }
    // Only a request in sequence proves that the peer is there: any old or forged packet may carry
    // its address.
    if executed && !recv.established {
        recv.established = true;
        if qp.state() == QpState::Rtr {
            ctx.event(qp, QpEvent::CommEstablished);
        }
    }
}

/// Kept requests that one invocation executes.
const KEPT_PER_RUN: u32 = 64;

/// Executes kept requests whose turn has come, up to the budget. Returns whether there are more.
#[inline]
pub(super) fn kept(recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    !recv.kept.is_empty() && some_kept(recv, qp, ctx)
}

#[cold]
fn some_kept(recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    for _ in 0..KEPT_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let AnyResponder::Reliable(responder) = &mut recv.responder else {
            return false;
        };
        let Some(sequence) = responder.next_kept() else {
            break;
        };
        let Some(kept) = recv.kept.take(sequence) else {
            responder.kept_is_gone();
            continue;
        };
        let bytes = kept.bytes();
        let parsed = packet::parse(bytes, bytes.len()).ok();
        let request_of = |parsed| IncomingRequest::from_packet(&parsed).map(|it| (it, parsed));
        // It was parsed before it was kept.
        let Some((incoming, parsed)) = parsed.and_then(request_of) else {
            responder.kept_is_gone();
            continue;
        };
        let payload = bytes.get(parsed.payload_offset..).unwrap_or_default();
        let payload = payload.get(..parsed.payload_len).unwrap_or_default();
        // No more than a packet.
        ctx.moved(payload.len() as u32);
        request(recv, qp, &incoming, (None, Payload::Bytes(payload)), ctx);
    }
    let AnyResponder::Reliable(responder) = &recv.responder else {
        return false;
    };
    if responder.keeps_nothing() {
        recv.kept.clear();
    }
    responder.next_kept().is_some()
}

/// Delivers a datagram. The error is the drop reason.
pub(super) fn datagram(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    origin: &DatagramOrigin,
    payload: Payload<'_>,
    ctx: &mut Ctx<'_>,
) -> Result<(), Counter> {
    let (AnyResponder::Datagram(ud), Some(deth)) = (&mut recv.responder, request.extension.deth())
    else {
        return Err(Counter::DropOpcode);
    };
    if !qp.serves() {
        return Err(Counter::DropState);
    }
    if !ud.responder.admits(deth.qkey()) {
        return Err(Counter::DropQkey);
    }
    // ib_mad treats a receive as a whole MAD: bytes missing from a short one would be stale
    // contents of the buffer.
    if qp.is_management() && request.payload_len as usize != MAD_LEN {
        return Err(Counter::DropMad);
    }
    let mut target = Target {
        qp,
        receives: &mut recv.wqes,
        payload,
        packet: None,
        origin: Some(origin),
        ctx: &mut *ctx,
    };
    let outcome = ud
        .responder
        .on_datagram(request, deth.source_qp(), &mut target);
    drop(target);
    count_unreliable(qp, request, outcome, ctx);
    if recv.wqes.take_corrupt() {
        ctx.fail_fatally(qp);
    }
    Ok(())
}

/// Counts the outcome of a request of a reliable service. Returns whether it was executed.
#[inline]
fn count_reliable(
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    outcome: rc::responder::Outcome,
    ctx: &Ctx<'_>,
) -> bool {
    let which = (request.psn, request.opcode);
    trace::request(move || traced::reliable_request(qp.number, which, outcome));
    if let Some(why) = outcome.dropped {
        ctx.counters(&qp).inc(traced::of_dropped(why).1);
    }
    if let Some(fatal) = outcome.fatal {
        count_fatal_nak(qp, fatal, ctx);
    }
    outcome.dropped.is_none()
}

/// The same for an unreliable service.
fn count_unreliable(
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    outcome: UnreliableOutcome,
    ctx: &mut Ctx<'_>,
) -> bool {
    let which = (request.psn, request.opcode);
    trace::request(move || traced::unreliable_request(qp.number, which, outcome));
    match outcome {
        UnreliableOutcome::Executed => return true,
        UnreliableOutcome::Failed => ctx.fail(qp),
        UnreliableOutcome::Dropped(why) => ctx.counters(&qp).inc(traced::of_lost(why).1),
    }
    false
}

/// Counts and reports a fatal NAK. The QP goes to ERR once the NAK has been sent: see
/// [`end_if_answered`].
fn count_fatal_nak(qp: ArcBorrow<'_, Qp>, fatal: Fatal, ctx: &Ctx<'_>) {
    ctx.counters(&qp).inc(Counter::RefusedRequest);
    match fatal {
        Fatal::InvalidRequest => ctx.event(qp, QpEvent::RequestError),
        Fatal::AccessError => ctx.event(qp, QpEvent::AccessError),
        Fatal::LocalError => {}
    }
}

/// All responses taken so far have left, or the local stack does not take them. If the last one was
/// a fatal NAK, the QP goes to ERR now. Any earlier, the peer would not learn the reason.
pub(super) fn end_if_answered(
    responder: &ReliableResponder,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) {
    if responder.has_ended() {
        ctx.fail(qp);
    }
}

/// The source of the data of a READ response. A READ of 0 bytes needs no region (C9-88).
#[inline(always)]
pub(super) fn read_source<'q, 'a: 'q>(
    qp: &'q Qp,
    source: Span,
    ctx: &Ctx<'a>,
) -> Result<Payload<'q>, AccessError> {
    if source.len == 0 {
        return Ok(Payload::Bytes(&[]));
    }
    ctx.regions(qp).source(qp.id, source)
}

/// The memory of a READ response is no longer accessible.
pub(super) fn read_failed(responder: &mut ReliableResponder, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(fatal) = responder.read_failed().fatal {
        count_fatal_nak(qp, fatal, ctx);
    }
}

/// Places the payload of a response.
pub(super) fn read_response(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    segment: &ReadSegment,
    from: &Payload<'_>,
    ctx: &mut Ctx<'_>,
) -> Progress {
    let now = ctx.now;
    let regions = qp.regions(ctx.rcu);
    let mut complete = |done| ctx.complete_send(qp, done);
    match requester.accept_read_response(segment, now, &mut complete) {
        Err(refused) => refused.progress,
        Ok(place) => {
            // A WQE that is answered by a response carries no inline data.
            let sges_of = |slot| match wqes.data(slot) {
                Data::Sges(sges) => sges,
                Data::Inline(_) => &[],
            };
            let sges = sges_of(place.slot);
            let bytes = || place.offset..place.offset.saturating_add(place.len);
            let is_apart = |slot| are_apart(sges, bytes(), sges_of(slot));
            if !requester.earlier_reads(&place).all(is_apart) {
                return requester.read_response_declined(&place, now, &mut complete);
            }
            match SgList::new(sges, regions).scatter(place.offset, place.len, from) {
                Ok(()) => requester.read_response_placed(&place, now, &mut complete),
                Err(AccessError) => requester.fail(place.slot, Status::LocProtErr, &mut complete),
            }
        }
    }
}
