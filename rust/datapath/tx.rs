// SPDX-License-Identifier: GPL-2.0

//! What transmits segments: the wire, and for datagrams, each of which names its own address
//! handle, the wire or the local path. Each is a [`Transmit`] of the one send loop, and so is the
//! local path of connections ([`super::local`]).

use crate::core::completion::{
    SendCompletion,
    Status, //
};
use crate::core::env::AccessError;
use crate::core::segment::{
    IncomingRequest,
    RequestSegment,
    Response, //
};
use crate::core::send::{
    self,
    SendEnv,
    SendError,
    Transmit,
    SEGMENTS_PER_RUN, //
};
use crate::core::storage::{
    Known,
    Slot, //
};
use crate::core::ud::qkey_of;
use crate::core::wire::headers::Deth;
use crate::core::wire::opcode::OpcodeService;
use crate::core::wire::packet::{
    Extension,
    Headers, //
};
use crate::core::wire::psn::Psn;
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver::{
    self,
    DatagramOrigin, //
};
use crate::datapath::memory::sg::Payload;
use crate::datapath::memory::window::BindError;
use crate::datapath::path::{
    TxBatch,
    TxError,
    TxRefused, //
};
use crate::datapath::port::MANAGEMENT_QP;
use crate::datapath::protocol::{
    AhPath,
    AnyRequester,
    AnyResponder,
    Datagrams,
    ReliableResponder, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::{
    Peer,
    RecvQueue,
    Refusals,
    SendCopies,
    SendQueue, //
};
use crate::datapath::traced::{
    self,
    Origin, //
};
use crate::observe::Counter;
use crate::sys::trace::{
    self,
    Unsent, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// The QP that sends, in one invocation.
pub(super) struct Sender<'q, 't, 'a> {
    pub(super) qp: ArcBorrow<'q, Qp>,
    pub(super) wqes: &'t SendCopies,
    pub(super) ctx: &'t mut Ctx<'a>,
}

impl SendEnv for Sender<'_, '_, '_> {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.ctx.now
    }

    #[inline(always)]
    fn may_move(&self) -> bool {
        self.ctx.may_move()
    }

    #[inline(always)]
    fn may_move_beyond(&self, bytes: u32) -> bool {
        self.ctx.may_move_beyond(bytes)
    }

    #[inline(always)]
    fn complete(&mut self, done: SendCompletion) {
        self.ctx.complete_send(self.qp, done);
    }

    #[cold]
    fn fail(&mut self) {
        self.ctx.fail_sends(self.qp);
    }

    #[cold]
    fn will_retry(&mut self) {
        self.ctx.counters(&self.qp).inc(Counter::SendRetried);
    }

    #[cold]
    fn execute_local_op(&mut self, slot: Slot) -> Status {
        let changed = match self.wqes.key_change(slot) {
            Some(change) => self.ctx.regions(&self.qp).change(self.qp.id, change),
            None => Err(BindError),
        };
        match changed {
            Ok(()) => Status::Success,
            Err(BindError) => Status::MwBindErr,
        }
    }
}

/// Counts a segment of the local path at its source.
#[inline(always)]
pub(super) fn moved(qp: &Qp, bytes: u32, ctx: &mut Ctx<'_>) {
    ctx.moved(bytes);
    let counters = ctx.counters(qp);
    counters.inc(Counter::LocalSegments);
    counters.add(Counter::LocalBytes, u64::from(bytes));
}

/// Sends requests up to the budget. Returns whether there are more.
pub(super) fn send(send: &mut SendQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let SendQueue {
        requester,
        wqes,
        peer,
        left_at,
        ..
    } = &mut *send;
    let backlogs = &ctx.directory.backlogs;
    let sender = Sender { qp, wqes, ctx };
    let more = match (requester, peer) {
        (AnyRequester::Reliable(requester), Some(peer)) => {
            send::send(requester, &mut Wire { sender, peer }, SEGMENTS_PER_RUN)
        }
        (AnyRequester::Unreliable(requester), Some(peer)) => {
            let (now, next) = (sender.ctx.now, requester.next_psn());
            let more = send::send(requester, &mut Wire { sender, peer }, SEGMENTS_PER_RUN);
            if requester.next_psn() != next {
                *left_at = Known::new(now);
            }
            more
        }
        (AnyRequester::Datagram(datagrams), _) => send_datagrams(datagrams, sender),
        (_, None) => false,
    };
    qp.steering.sent(send.requester.has_unsent(), backlogs);
    more
}

/// The wire to the peer of a connection: a segment is a packet, and leaves in a batch.
struct Wire<'q, 't, 'a> {
    sender: Sender<'q, 't, 'a>,
    peer: &'t mut Peer<RequestSegment>,
}

impl<'q, 't, 'a, S> Transmit<S> for Wire<'q, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    const REQUESTS_ACK: bool = true;

    #[inline(always)]
    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    #[inline(always)]
    fn max_span(&mut self) -> u32 {
        1
    }

    #[inline(always)]
    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        let Sender { qp, wqes, ctx } = &mut self.sender;
        ctx.moved(segment.len);
        qp.steering.sends(segment.len);
        let Peer {
            number,
            path,
            batch,
        } = &mut *self.peer;
        let mut headers = Headers::new(segment.opcode, *number, segment.psn);
        headers.ack_req = segment.ack_req;
        headers.solicited = segment.solicited;
        headers.keeps = segment.opcode.info().service == OpcodeService::Rc;
        headers.extension = segment.extension(|| wqes.arguments(segment.slot));
        let data = wqes.data(segment.slot);
        let payload = Payload::of(data, segment.offset, qp.regions(ctx.rcu));
        let counters = ctx.counters(qp);
        let origin = Origin::request(qp.number, segment.slot);
        let added = batch.add(
            path,
            counters,
            origin,
            &headers,
            segment.len,
            *segment,
            |out| payload.read(segment.len, out),
        );
        match added {
            Ok(()) => Ok(()),
            Err(TxError::Access) => Err(SendError::Local(Status::LocProtErr)),
            Err(TxError::Refused(first)) => {
                trace::unsent(|| traced::unsent(qp.number, first.psn, Unsent::Again));
                Err(SendError::Refused(first))
            }
        }
    }

    #[inline(always)]
    fn flush(&mut self) -> Result<(), RequestSegment> {
        let Sender { qp, ctx, .. } = &self.sender;
        let Peer { path, batch, .. } = &mut *self.peer;
        batch
            .flush(path, ctx.counters(qp))
            .map_err(|TxRefused(first)| {
                trace::unsent(|| traced::unsent(qp.number, first.psn, Unsent::Again));
                first
            })
    }
}

/// Sends responses up to the budget. Returns whether there are more.
pub(super) fn answer(recv: &mut RecvQueue, qp: ArcBorrow<'_, Qp>, ctx: &mut Ctx<'_>) -> bool {
    let more_kept = deliver::kept(recv, qp, ctx);
    if recv.refusals.wait_until(ctx.now).is_some() {
        // The timer continues.
        return more_kept;
    }
    let (AnyResponder::Reliable(responder), Some(peer)) = (&mut recv.responder, &mut recv.peer)
    else {
        return false;
    };
    let refusals = &mut recv.refusals;
    let mut more = true;
    responder.begin_run();
    for _ in 0..SEGMENTS_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let Some(response) = responder.next_response(1) else {
            more = false;
            break;
        };
        match add_response(responder, peer, response, qp, ctx) {
            Ok(()) => {}
            Err(TxError::Access) => deliver::read_failed(responder, qp, ctx),
            Err(TxError::Refused(first)) => {
                return more_kept | requeue_responses(responder, refusals, qp, &first, ctx)
            }
        }
    }
    match peer.batch.flush(&peer.path, ctx.counters(&qp)) {
        Ok(()) => {
            refusals.end();
            deliver::end_if_answered(responder, qp, ctx);
        }
        Err(TxRefused(first)) => {
            return more_kept | requeue_responses(responder, refusals, qp, &first, ctx)
        }
    }
    more_kept || (more && responder.has_response())
}

/// Adds a response to the batch. One that ends a part of a READ ends the batch too.
#[inline(always)]
fn add_response(
    responder: &ReliableResponder,
    peer: &mut Peer<Response>,
    response: Response,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> Result<(), TxError<Response>> {
    let Peer {
        number,
        path,
        batch,
    } = peer;
    let mut headers = Headers::new(response.opcode(), *number, response.psn());
    headers.keeps = response.keeps();
    headers.extension = response.extension();
    let counters = ctx.counters(&qp);
    let origin = Origin::response(qp.number);
    let ends_part = response.ends_part();
    let added = match &response {
        Response::Acknowledge { .. } | Response::Atomic { .. } => {
            batch.add(path, counters, origin, &headers, 0, response, |_| Ok(()))
        }
        Response::Missing { len, .. } => {
            counters.inc(Counter::MissingSent);
            let words = responder.kept_words();
            batch.add(path, counters, origin, &headers, *len, response, |out| {
                for word in words {
                    out.put(&word.to_le_bytes()).map_err(|_| AccessError)?;
                }
                Ok(())
            })
        }
        Response::ReadResponse {
            segment, source, ..
        } => {
            ctx.moved(segment.len);
            // Looked up for the copy alone: a change of a memory window waits for it.
            batch.add(
                path,
                counters,
                origin,
                &headers,
                segment.len,
                response,
                |out| deliver::read_source(&qp, *source, ctx)?.read(segment.len, out),
            )
        }
    };
    added?;
    if ends_part {
        batch
            .flush(path, counters)
            .map_err(|TxRefused(first)| TxError::Refused(first))?;
    }
    Ok(())
}

/// The local stack refused the responses from `first` on: they are sent soon, after a back-off.
/// Without it the peer would spend a retry.
#[cold]
fn requeue_responses(
    responder: &mut ReliableResponder,
    refusals: &mut Refusals,
    qp: ArcBorrow<'_, Qp>,
    first: &Response,
    ctx: &mut Ctx<'_>,
) -> bool {
    match refusals.add(ctx.now) {
        Some(at) => {
            trace::unsent(move || traced::unsent(qp.number, first.psn(), Unsent::Again));
            ctx.counters(&qp).inc(Counter::SendRetried);
            responder.unsend(first);
            qp.deadline.arm(at);
            false
        }
        // Lost, as on any network: the peer retransmits its request.
        None => {
            trace::unsent(move || traced::unsent(qp.number, first.psn(), Unsent::Lost));
            deliver::end_if_answered(responder, qp, ctx);
            responder.has_response()
        }
    }
}

/// Sends datagrams up to the budget. Returns whether there are more.
fn send_datagrams(datagrams: &mut Datagrams, sender: Sender<'_, '_, '_>) -> bool {
    let Datagrams {
        queue,
        qkey,
        ah_path,
    } = datagrams;
    let mut tx = DatagramTx {
        sender,
        qkey: *qkey,
        ah_path,
    };
    send::send(queue, &mut tx, SEGMENTS_PER_RUN)
}

/// The way of each datagram to the destination that its WQE names: a packet, or the local path.
struct DatagramTx<'q, 't, 'a> {
    sender: Sender<'q, 't, 'a>,
    /// Q_Key of the QP.
    qkey: u32,
    /// Destination of the last datagram.
    ah_path: &'t mut Option<AhPath>,
}

impl<'q, 't, 'a, S> Transmit<S> for DatagramTx<'q, 't, 'a> {
    type Env = Sender<'q, 't, 'a>;
    const REQUESTS_ACK: bool = false;

    #[inline(always)]
    fn env(&mut self) -> &mut Self::Env {
        &mut self.sender
    }

    #[inline(always)]
    fn max_span(&mut self) -> u32 {
        1
    }

    // In a frame of its own: it is large, and the loop that calls it is that of each service.
    #[inline(never)]
    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        let Sender { qp, wqes, ctx } = &mut self.sender;
        let (qp, wqes) = (*qp, *wqes);
        let destination = wqes.destination(segment.slot);
        let deth = Deth::new(qkey_of(destination.qkey, self.qkey), qp.known_as);
        let extension = match wqes.arguments(segment.slot).imm {
            imm if segment.opcode.has_imm() => Extension::DethImm(deth, imm),
            _ => Extension::Deth(deth),
        };
        let Some(ah_path) = aim(self.ah_path, destination.ah, qp, ctx) else {
            // It does not exist, or belongs to another domain.
            return Err(SendError::Local(Status::LocQpOpErr));
        };
        let datagram = Datagram {
            qp,
            wqes,
            segment,
            to: destination.qpn,
            extension,
        };
        let sent = if qp.port.local_path.is_on() && ah_path.path.is_to_own_device() {
            moved(&qp, segment.len, ctx);
            let (qpn, to) = (qp.number, destination.qpn);
            let (opcode, psn) = (segment.opcode, segment.psn);
            trace::handed(move || traced::handed([qpn, to], opcode, psn, [1, segment.len]));
            datagram.give(ah_path, ctx)
        } else {
            ctx.moved(segment.len);
            datagram.add(ah_path, ctx)
        };
        sent.map_err(|AccessError| SendError::Local(Status::LocProtErr))
    }

    /// A packet that the local stack refuses is lost, as it may be anywhere on the network, and
    /// counted.
    fn flush(&mut self) -> Result<(), RequestSegment> {
        flush_datagrams(self.ah_path, self.sender.qp, self.sender.ctx);
        Ok(())
    }
}

/// Flushes the batch.
fn flush_datagrams(ah_path: &mut Option<AhPath>, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(AhPath { path, batch, .. }) = ah_path {
        if batch.flush(path, ctx.counters(&qp)).is_err() {
            trace::unsent(move || traced::unsent(qp.number, Psn::default(), Unsent::Lost));
        }
    }
}

/// The path of an address handle. The batch of another one is flushed first.
fn aim<'t>(
    ah_path: &'t mut Option<AhPath>,
    number: u32,
    qp: ArcBorrow<'_, Qp>,
    ctx: &Ctx<'_>,
) -> Option<&'t mut AhPath> {
    let ah = qp.port.ahs.get(number, ctx.rcu)?;
    if ah.domain() != qp.domain {
        return None;
    }
    let is_it = |ah_path: &AhPath| core::ptr::eq(&*ah_path.ah, &*ah);
    if !ah_path.as_ref().is_some_and(is_it) {
        flush_datagrams(ah_path, qp, ctx);
        *ah_path = Some(AhPath {
            path: ah.path().clone(),
            ah: Arc::from(ah),
            batch: TxBatch::default(),
        });
    }
    ah_path.as_mut()
}

/// A datagram to be sent.
struct Datagram<'t, 'q> {
    qp: ArcBorrow<'q, Qp>,
    wqes: &'t SendCopies,
    segment: &'t RequestSegment,
    /// Number of the destination QP.
    to: u32,
    extension: Extension,
}

impl Datagram<'_, '_> {
    /// Adds it as a packet to the batch. The error is one of local memory.
    #[inline]
    fn add(&self, ah_path: &mut AhPath, ctx: &Ctx<'_>) -> Result<(), AccessError> {
        let (qp, segment) = (self.qp, self.segment);
        let mut headers = Headers::new(segment.opcode, self.to, segment.psn);
        headers.solicited = segment.solicited;
        headers.extension = self.extension;
        let payload = Payload::of(self.wqes.data(segment.slot), 0, qp.regions(ctx.rcu));
        let added = ah_path.batch.add(
            &mut ah_path.path,
            ctx.counters(&qp),
            Origin::request(qp.number, segment.slot),
            &headers,
            segment.len,
            (),
            |out| payload.read(segment.len, out),
        );
        match added {
            Ok(()) => Ok(()),
            Err(TxError::Refused(())) => {
                trace::unsent(|| traced::unsent(qp.number, segment.psn, Unsent::Lost));
                Ok(())
            }
            Err(TxError::Access) => Err(AccessError),
        }
    }

    /// Delivers it over the local path. The error is one of local memory.
    #[inline]
    fn give(&self, ah_path: &AhPath, ctx: &mut Ctx<'_>) -> Result<(), AccessError> {
        let (qp, segment) = (self.qp, self.segment);
        let payload = Payload::of(self.wqes.data(segment.slot), 0, qp.regions(ctx.rcu));
        let mut pieces = None;
        let payload = payload.resolve(segment.len, &mut pieces)?;
        let request = IncomingRequest::local(segment, self.extension);
        let number = match self.to {
            MANAGEMENT_QP => qp.port.management(),
            number => Some(number),
        };
        let peer = number.and_then(|number| ctx.directory.get(number, ctx.rcu));
        let peer = peer.filter(|peer| Arc::ptr_eq(&peer.port, &qp.port));
        let lost = match peer {
            None => Err(Counter::DropUnknownQp),
            Some(peer) if peer.opcodes != qp.opcodes => Err(Counter::DropOpcode),
            Some(peer) => {
                let origin = DatagramOrigin::local(&ah_path.path, &qp.port, segment);
                let mut recv = peer.recv.lock();
                deliver::datagram(&mut recv, peer, &request, &origin, payload, ctx)
            }
        };
        if let Err(reason) = lost {
            let (to, psn, opcode) = (self.to, segment.psn, segment.opcode);
            trace::drop(move || traced::lost(to, psn, opcode, reason));
            ctx.counters(&qp).inc(reason);
        }
        Ok(())
    }
}
