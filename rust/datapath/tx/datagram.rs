// SPDX-License-Identifier: GPL-2.0

//! Datagrams: each request names its own address handle, and leaves as one packet, or is handed to
//! a QP of the same device.

use super::local::moved;
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver::{
    self,
    Origin, //
};
use crate::datapath::memory::sg::Payload;
use crate::datapath::port::MANAGEMENT_QP;
use crate::datapath::protocol::{
    Datagrams,
    Towards, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::SendCopies;
use crate::datapath::tx_batch::{
    TxBatch,
    TxError, //
};
use crate::datapath::wqe::Destination;
use crate::observe::counters::Counter;
use crate::transport::completion::Status;
use crate::transport::datagram::qkey_of;
use crate::transport::env::AccessError;
use crate::transport::segment::{
    IncomingRequest,
    RequestSegment, //
};
use crate::wire::headers::Deth;
use crate::wire::packet::{
    Extension,
    Headers, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Datagrams of a turn before it gives its locks back.
const DATAGRAMS_PER_RUN: u32 = 64;

/// Sends datagrams, up to the budget of the turn; tells whether there are more. `left_at` is when
/// packets left last.
pub(in crate::datapath) fn send(
    datagrams: &mut Datagrams,
    wqes: &SendCopies,
    left_at: &mut Option<u64>,
    qp: ArcBorrow<'_, Qp>,
    ctx: &mut Ctx<'_>,
) -> bool {
    let mut more = true;
    for _ in 0..DATAGRAMS_PER_RUN {
        if !ctx.may_move() {
            break;
        }
        let Some(segment) = datagrams.queue.next_segment(1) else {
            more = false;
            break;
        };
        let destination = wqes.destination(segment.slot);
        let deth = Deth::new(qkey_of(destination.qkey, datagrams.qkey), qp.known_as());
        let extension = match wqes.arguments(segment.slot).imm {
            imm if segment.opcode.has_imm() => Extension::DethImm(deth, imm),
            _ => Extension::Deth(deth),
        };
        let done = match aim(&mut datagrams.towards, destination.ah, qp, ctx) {
            // One that does not exist, or belongs to somebody else.
            None => Err(Status::LocQpOpErr),
            Some(towards) if qp.port().local_path() && towards.path.is_to_own_device() => {
                moved(&qp, segment.len, ctx);
                give(towards, wqes, qp, &segment, &destination, extension, ctx)
                    .map_err(|AccessError| Status::LocProtErr)
            }
            Some(towards) => {
                ctx.moved(segment.len);
                *left_at = Some(ctx.now());
                add(towards, wqes, qp, &segment, &destination, extension, ctx)
                    .map_err(|AccessError| Status::LocProtErr)
            }
        };
        deliver::left(&mut datagrams.queue, qp, &segment, done, ctx);
    }
    flush(&mut datagrams.towards, qp, ctx);
    more
}

/// What was made leaves. What the stack does not take is lost here, as it may be anywhere on the
/// way, and counted.
fn flush(towards: &mut Option<Towards>, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(Towards { path, batch, .. }) = towards {
        let _ = batch.flush(path, ctx.counters(&qp));
    }
}

/// The way of an address handle. What was made for another one leaves before.
fn aim<'t>(
    towards: &'t mut Option<Towards>,
    number: u32,
    qp: ArcBorrow<'_, Qp>,
    ctx: &Ctx<'_>,
) -> Option<&'t mut Towards> {
    let ah = qp.port().ah(number, ctx.rcu())?;
    if ah.domain() != qp.domain() {
        return None;
    }
    let is_it = |towards: &Towards| core::ptr::eq(&*towards.ah, &*ah);
    if !towards.as_ref().is_some_and(is_it) {
        flush(towards, qp, ctx);
        *towards = Some(Towards {
            path: ah.path().clone(),
            ah: Arc::from(ah),
            batch: TxBatch::default(),
        });
    }
    towards.as_mut()
}

/// Makes a packet. An error is one of our own memory.
fn add(
    towards: &mut Towards,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    segment: &RequestSegment,
    destination: &Destination,
    extension: Extension,
    ctx: &Ctx<'_>,
) -> Result<(), AccessError> {
    let mut headers = Headers::new(segment.opcode, destination.qpn, segment.psn);
    headers.solicited = segment.solicited;
    headers.extension = extension;
    let payload = Payload::of(wqes.data(segment.slot), 0, qp.regions(ctx.rcu()));
    let added = towards.batch.add(
        &mut towards.path,
        ctx.counters(&qp),
        &headers,
        segment.len,
        (),
        |out| payload.read(segment.len, out),
    );
    match added {
        Ok(()) | Err(TxError::Refused(())) => Ok(()),
        Err(TxError::Access) => Err(AccessError),
    }
}

/// Hands a datagram to a QP of the same device. An error is one of our own memory.
fn give(
    towards: &Towards,
    wqes: &SendCopies,
    qp: ArcBorrow<'_, Qp>,
    segment: &RequestSegment,
    destination: &Destination,
    extension: Extension,
    ctx: &mut Ctx<'_>,
) -> Result<(), AccessError> {
    let payload = Payload::of(wqes.data(segment.slot), 0, qp.regions(ctx.rcu()));
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    let request = IncomingRequest::local(segment, extension);
    let number = match destination.qpn {
        MANAGEMENT_QP => qp.port().management(),
        number => Some(number),
    };
    let peer = number.and_then(|number| ctx.directory().get(number, ctx.rcu()));
    let peer = peer.filter(|peer| Arc::ptr_eq(peer.port(), qp.port()));
    let lost = match peer {
        None => Err(Counter::DropUnknownQp),
        Some(peer) if peer.opcodes() != qp.opcodes() => Err(Counter::DropOpcode),
        Some(peer) => {
            let origin = Origin::local(&towards.path, qp.port(), segment.len);
            let mut recv = peer.recv.lock();
            deliver::datagram(&mut recv, peer, &request, &origin, payload, ctx)
        }
    };
    if let Err(reason) = lost {
        ctx.counters(&qp).inc(reason);
    }
    Ok(())
}
