// SPDX-License-Identifier: GPL-2.0

//! What a segment does at the QP it is for, whichever way it came: a request is executed, a READ
//! response is placed.

use super::ctx::Ctx;
use super::memory::sg::{
    Payload,
    Regions,
    SgList, //
};
use super::memory::window::BindError;
use super::path::Path;
use super::port::{
    Port,
    MANAGEMENT_QP, //
};
use super::protocol::{
    ReliableRequester,
    ReliableResponder,
    Responder,
    UnreliableRequester, //
};
use super::qp::{
    Qp,
    Receives, //
};
use super::queues::{
    RecvQueue,
    SendCopies, //
};
use super::wqe::{
    Data,
    KeyChange,
    RecvWqes, //
};
use crate::observe::counters::Counter;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::{
    Access,
    State, //
};
use crate::sys::memory;
use crate::sys::net::{
    Addresses,
    Link,
    RxPacket, //
};
use crate::transport::completion::{
    RecvCompletion,
    Status, //
};
use crate::transport::datagram::DatagramEnv;
use crate::transport::env::{
    AccessError,
    Change,
    Placement,
    RemoteAccess,
    ResponderEnv,
    TakeReceive, //
};
use crate::transport::reliable;
use crate::transport::reliable::requester::Here;
use crate::transport::reliable::responder::{
    DropReason,
    Fatal, //
};
use crate::transport::request::Progress;
use crate::transport::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment, //
};
use crate::transport::unreliable;
use crate::wire::grh::{
    self,
    Grh,
    Made,
    GRH_LEN, //
};
use crate::wire::performance::MAD_LEN;
use kernel::prelude::*;
use kernel::sync::ArcBorrow;

/// What a request acts on: the receives and the memory of the QP it is for.
struct Target<'q, 't, 'a> {
    qp: ArcBorrow<'q, Qp>,
    receives: &'t mut RecvWqes<KVec<u64>>,
    /// Of the request.
    payload: Payload<'t>,
    /// Of a datagram.
    origin: Option<&'t Origin>,
    ctx: &'t mut Ctx<'a>,
}

/// How far a packet goes whose sender does not say: the hop limit of the kernel's routes, unless a
/// sysctl changes it.
const DEFAULT_HOPS: u8 = 64;

/// Where a datagram is from, as its receiver will see it.
pub(super) struct Origin {
    grh: Grh,
    link: Link,
}

impl Origin {
    /// That of a packet; `None` if its IP header is none, which cannot be.
    pub(super) fn of_packet(packet: &RxPacket<'_>) -> Option<Self> {
        Some(Self {
            grh: grh::of_packet(packet.ip_header())?,
            link: packet.link(),
        })
    }

    /// That of `len` bytes that went along `path` without leaving the device of `port`: what a
    /// packet would say.
    pub(super) fn local(path: &Path, port: &Port, len: u32) -> Self {
        let flow = path.flow();
        let made = Made {
            traffic_class: flow.sent_class(),
            hop_limit: match flow.hop_limit {
                0 => DEFAULT_HOPS,
                hops => hops,
            },
            flow_label: flow.flow_label,
            // UDP, BTH, DETH and the ICRC.
            length: u16::try_from(len)
                .unwrap_or(u16::MAX)
                .saturating_add(8 + 12 + 8 + 4),
        };
        Self {
            grh: match flow.addresses {
                Addresses::V4 { src, dst } => grh::made_v4(made, src, dst),
                Addresses::V6 { src, dst } => grh::made_v6(made, src, dst),
            },
            link: Link {
                mac: port.mac(),
                vlan: None,
            },
        }
    }
}

impl Target<'_, '_, '_> {
    fn regions(&self) -> Regions<'_> {
        self.qp.regions(self.ctx.rcu())
    }

    /// The memory of the receive that was taken. If it came from a shared queue, that is of the
    /// queue's domain.
    #[inline(always)]
    fn receive_list(&self) -> SgList<'_> {
        SgList::new(self.receives.sges(), self.qp.recv_regions(self.ctx.rcu()))
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
        let Some(Origin { grh, link }) = self.origin else {
            return;
        };
        let [first, ..] = grh;
        let is_v6 = first >> 4 == 6;
        self.ctx
            .complete_datagram(self.qp, done, source, is_v6, *link);
    }
}

impl ResponderEnv for Target<'_, '_, '_> {
    #[inline]
    fn take_receive(&mut self) -> TakeReceive {
        match self.qp.receives() {
            Receives::Own(rq) => self.receives.take(&**rq),
            Receives::Shared(srq) => {
                let notifications = self.ctx.directory().notifications();
                srq.take(self.receives, notifications)
            }
        }
    }

    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.regions()
            .permits(self.qp.id(), rkey, rights(access), va, len)
    }

    fn write_remote(&mut self, rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        self.regions()
            .write(self.qp.id(), rkey, va, len, &self.payload)
    }

    fn invalidate(&mut self, key: u32) -> Result<(), AccessError> {
        self.regions()
            .change(self.qp.id(), KeyChange::Invalidate(key))
            .map_err(|BindError| AccessError)
    }

    fn change_remote(&mut self, rkey: u32, va: u64, change: Change) -> Result<u64, AccessError> {
        let (qp, rights) = (self.qp.id(), Access::REMOTE_ATOMIC);
        self.regions()
            .word(qp, rkey, rights, va, |word| match change {
                Change::CompareSwap { compare, swap } => word.compare_swap(compare, swap),
                Change::FetchAdd(value) => word.fetch_add(value),
            })
    }

    fn write_word(&mut self, rkey: u32, va: u64) -> Result<(), AccessError> {
        let value = self.payload.word().ok_or(AccessError)?;
        let (qp, rights) = (self.qp.id(), Access::REMOTE_WRITE);
        self.regions()
            .word(qp, rkey, rights, va, |word| word.store(value))
    }

    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), AccessError> {
        let mut rights = 0;
        if placement.global {
            rights |= Access::FLUSH_GLOBAL;
        }
        if placement.persistent {
            // No region has that right yet: nothing persists.
            rights |= Access::FLUSH_PERSISTENT;
        }
        match range {
            Some((va, len)) => self
                .regions()
                .permits(self.qp.id(), rkey, rights, va, len)?,
            None => self.regions().permits_all(rkey, rights)?,
        }
        memory::full_barrier();
        Ok(())
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        self.receive_list().scatter(offset, len, &self.payload)
    }

    #[inline(always)]
    fn complete(&mut self, done: RecvCompletion) {
        self.ctx.complete_receive(self.qp, done);
    }
}

/// Executes one request of the peer. What is to be answered waits in the responder.
#[inline]
pub(super) fn request(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    payload: Payload<'_>,
    ctx: &mut Ctx<'_>,
) {
    let mut target = Target {
        qp,
        receives: &mut recv.wqes,
        payload,
        origin: None,
        ctx: &mut *ctx,
    };
    let executed = match &mut recv.responder {
        Responder::Reliable(responder) => {
            let outcome = responder.on_request(request, &mut target);
            drop(target);
            settled(qp, outcome, ctx)
        }
        Responder::Unreliable(responder) => {
            let outcome = responder.on_request(request, &mut target);
            drop(target);
            unanswered(qp, outcome, ctx)
        }
        // It is asked for datagrams alone: see below.
        Responder::Datagram(_) => return,
    };
    if recv.wqes.take_scribbled() {
        ctx.fail_fatally(qp);
    }
    // Only what is in order says that the peer is there: any old or forged packet may carry its
    // address.
    if executed && !recv.established {
        recv.established = true;
        if qp.state() == State::Rtr {
            ctx.event(qp, QpEvent::CommEstablished);
        }
    }
}

/// Takes a datagram, unless there is a reason to drop it.
pub(super) fn datagram(
    recv: &mut RecvQueue,
    qp: ArcBorrow<'_, Qp>,
    request: &IncomingRequest,
    origin: &Origin,
    payload: Payload<'_>,
    ctx: &mut Ctx<'_>,
) -> Result<(), Counter> {
    let (Responder::Datagram(inbox), Some(deth)) = (&mut recv.responder, request.extension.deth())
    else {
        return Err(Counter::DropOpcode);
    };
    if !qp.serves() {
        return Err(Counter::DropState);
    }
    if !inbox.responder.admits(deth.qkey()) {
        return Err(Counter::DropQkey);
    }
    // ib_mad takes a receive for a whole datagram, so what is missing in a short one would be
    // what the buffer held before.
    if qp.known_as() == MANAGEMENT_QP && request.payload_len as usize != MAD_LEN {
        return Err(Counter::DropMad);
    }
    let mut target = Target {
        qp,
        receives: &mut recv.wqes,
        payload,
        origin: Some(origin),
        ctx: &mut *ctx,
    };
    let outcome = inbox
        .responder
        .on_datagram(request, deth.source_qp(), &mut target);
    drop(target);
    unanswered(qp, outcome, ctx);
    if recv.wqes.take_scribbled() {
        ctx.fail_fatally(qp);
    }
    Ok(())
}

/// What a request led to, where it is answered; tells whether it was executed.
#[inline]
fn settled(qp: ArcBorrow<'_, Qp>, outcome: reliable::responder::Outcome, ctx: &Ctx<'_>) -> bool {
    let counter = match outcome.dropped {
        None => None,
        Some(DropReason::Duplicate) => Some(Counter::Duplicate),
        Some(DropReason::OutOfSequence) => Some(Counter::OutOfSequence),
        Some(DropReason::NoReceive) => Some(Counter::RnrNakSent),
        Some(DropReason::OutsideWindow | DropReason::UnknownRead | DropReason::NotReady) => {
            Some(Counter::IgnoredRequest)
        }
    };
    if let Some(counter) = counter {
        ctx.counters(&qp).inc(counter);
    }
    if let Some(fatal) = outcome.fatal {
        refused(qp, fatal, ctx);
    }
    outcome.dropped.is_none()
}

/// The same where nothing is answered.
fn unanswered(
    qp: ArcBorrow<'_, Qp>,
    outcome: unreliable::responder::Outcome,
    ctx: &mut Ctx<'_>,
) -> bool {
    use unreliable::responder::{
        DropReason,
        Outcome, //
    };
    let counter = match outcome {
        Outcome::Executed => return true,
        Outcome::Failed => {
            ctx.fail(qp);
            return false;
        }
        Outcome::Dropped(DropReason::Old | DropReason::NotReady) => Counter::IgnoredRequest,
        Outcome::Dropped(DropReason::Gap) => Counter::OutOfSequence,
        Outcome::Dropped(DropReason::NoReceive) => Counter::LostNoReceive,
        Outcome::Dropped(DropReason::TooLong) => Counter::LostTooLong,
        Outcome::Dropped(DropReason::Denied) => Counter::LostDenied,
        Outcome::Dropped(DropReason::Invalid) => Counter::LostInvalid,
    };
    ctx.counters(&qp).inc(counter);
    false
}

/// The responder refused a request for good. The QP goes to ERR when the peer was answered: see
/// [`answer_taken`].
fn refused(qp: ArcBorrow<'_, Qp>, fatal: Fatal, ctx: &Ctx<'_>) {
    ctx.counters(&qp).inc(Counter::RefusedRequest);
    match fatal {
        Fatal::InvalidRequest => ctx.event(qp, QpEvent::RequestError),
        Fatal::AccessError => ctx.event(qp, QpEvent::AccessError),
        Fatal::LocalError => {}
    }
}

/// An answer was taken from the responder: if it was the refusal, behind which there is nothing,
/// the QP goes to ERR. Sooner, the peer would not learn why.
pub(super) fn answer_taken(
    responder: &ReliableResponder,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) {
    if responder.has_ended() {
        ctx.fail(qp);
    }
}

/// Where the data of a READ response comes from. One without data needs no region (C9-88).
#[inline(always)]
pub(super) fn read_source<'q, 'a: 'q>(
    qp: &'q Qp,
    rkey: u32,
    va: u64,
    len: u32,
    ctx: &Ctx<'a>,
) -> Result<Payload<'q>, AccessError> {
    if len == 0 {
        return Ok(Payload::Bytes(&[]));
    }
    ctx.regions(qp).source(qp.id(), rkey, va, len)
}

/// Does what stands before the send cursor if it asks no peer; tells whether there may be more to
/// do or to send behind it. To be asked when the requester has no segment.
#[inline]
pub(super) fn do_here(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    requester.has_waiting() && do_at_cursor(requester, wqes, qp, ctx)
}

#[cold]
fn do_at_cursor(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let slot = match requester.next_here(ctx.now()) {
        Here::Nothing => return false,
        Here::GoOn => return true,
        Here::Do(slot) => slot,
    };
    let changed = match wqes.key_change(slot) {
        Some(change) => ctx.regions(&qp).change(qp.id(), change),
        None => Err(BindError),
    };
    let status = match changed {
        Ok(()) => Status::Success,
        Err(BindError) => Status::MwBindErr,
    };
    let progress = requester.done_here(status, &mut |done| ctx.complete_send(qp, done));
    if progress.fatal {
        ctx.fail(qp);
    }
    !progress.fatal
}

/// The memory of a READ response is not accessible any more.
pub(super) fn read_failed(responder: &mut ReliableResponder, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(fatal) = responder.read_failed().fatal {
        refused(qp, fatal, ctx);
    }
}

/// Places what a response brings.
pub(super) fn read_response(
    requester: &mut ReliableRequester,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    segment: &ReadSegment,
    from: &Payload<'_>,
    ctx: &mut Ctx<'_>,
) -> Progress {
    let now = ctx.now();
    let regions = qp.regions(ctx.rcu());
    let mut complete = |done| ctx.complete_send(qp, done);
    match requester.accept_read_response(segment, now, &mut complete) {
        Err(refused) => refused.progress,
        Ok(place) => {
            // What is answered so carries nothing inline.
            let sges = match wqes.data(place.slot) {
                Data::Pieces(sges) => sges,
                Data::Inline(_) => &[],
            };
            match SgList::new(sges, regions).scatter(place.offset, place.len, from) {
                Ok(()) => requester.read_response_placed(&place, now, &mut complete),
                Err(AccessError) => requester.fail(place.slot, Status::LocProtErr, &mut complete),
            }
        }
    }
}

/// Local memory of a request is not accessible.
pub(super) fn local_memory_failed(
    requester: &mut ReliableRequester,
    qp: ArcBorrow<'_, Qp>,
    slot: u32,
    ctx: &mut Ctx<'_>,
) {
    let progress = requester.fail(slot, Status::LocProtErr, &mut |done| {
        ctx.complete_send(qp, done)
    });
    if progress.fatal {
        ctx.fail(qp);
    }
}

/// A segment that nobody acknowledges has left, been lost, or cannot leave for a reason on this
/// side.
pub(super) fn left(
    requester: &mut UnreliableRequester,
    qp: ArcBorrow<'_, Qp>,
    segment: &RequestSegment,
    done: Result<(), Status>,
    ctx: &mut Ctx<'_>,
) {
    let mut complete = |done| ctx.complete_send(qp, done);
    let progress = match done {
        Ok(()) => requester.left(segment, &mut complete),
        Err(status) => requester.fail(status, &mut complete),
    };
    if progress.fatal {
        ctx.fail_sends(qp);
    }
}
