// SPDX-License-Identifier: GPL-2.0

//! Datagrams: each WQE names its own address handle, and leaves as one packet or over the local
//! path.

use super::local::moved;
use crate::core::completion::Status;
use crate::core::env::AccessError;
use crate::core::queue::wqe::Destination;
use crate::core::segment::{
    IncomingRequest,
    RequestSegment, //
};
use crate::core::ud::qkey_of;
use crate::core::wire::headers::Deth;
use crate::core::wire::packet::{
    Extension,
    Headers, //
};
use crate::datapath::ctx::Ctx;
use crate::datapath::deliver::{
    self,
    DatagramOrigin, //
};
use crate::datapath::memory::sg::Payload;
use crate::datapath::port::MANAGEMENT_QP;
use crate::datapath::protocol::{
    AhPath,
    Datagrams, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::SendCopies;
use crate::datapath::tx_batch::{
    TxBatch,
    TxError, //
};
use crate::observe::counters::Counter;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Datagrams of one invocation.
const DATAGRAMS_PER_RUN: u32 = 64;

/// Sends datagrams up to the budget. Returns whether there are more. `left_at` is when packets last
/// left.
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
        let done = match aim(&mut datagrams.ah_path, destination.ah, qp, ctx) {
            // It does not exist, or belongs to another domain.
            None => Err(Status::LocQpOpErr),
            Some(ah_path) if qp.port().local_path() && ah_path.path.is_to_own_device() => {
                moved(&qp, segment.len, ctx);
                give(ah_path, wqes, qp, &segment, &destination, extension, ctx)
                    .map_err(|AccessError| Status::LocProtErr)
            }
            Some(ah_path) => {
                ctx.moved(segment.len);
                *left_at = Some(ctx.now());
                add(ah_path, wqes, qp, &segment, &destination, extension, ctx)
                    .map_err(|AccessError| Status::LocProtErr)
            }
        };
        deliver::left(&mut datagrams.queue, qp, &segment, done, ctx);
    }
    flush(&mut datagrams.ah_path, qp, ctx);
    more
}

/// Flushes the batch. A packet that the local stack refuses is lost, as it may be anywhere on the
/// network, and counted.
fn flush(ah_path: &mut Option<AhPath>, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(AhPath { path, batch, .. }) = ah_path {
        let _ = batch.flush(path, ctx.counters(&qp));
    }
}

/// The path of an address handle. The batch of another one is flushed first.
fn aim<'t>(
    ah_path: &'t mut Option<AhPath>,
    number: u32,
    qp: ArcBorrow<'_, Qp>,
    ctx: &Ctx<'_>,
) -> Option<&'t mut AhPath> {
    let ah = qp.port().ah(number, ctx.rcu())?;
    if ah.domain() != qp.domain() {
        return None;
    }
    let is_it = |ah_path: &AhPath| core::ptr::eq(&*ah_path.ah, &*ah);
    if !ah_path.as_ref().is_some_and(is_it) {
        flush(ah_path, qp, ctx);
        *ah_path = Some(AhPath {
            path: ah.path().clone(),
            ah: Arc::from(ah),
            batch: TxBatch::default(),
        });
    }
    ah_path.as_mut()
}

/// Adds a packet to the batch. The error is one of local memory.
fn add(
    ah_path: &mut AhPath,
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
    let added = ah_path.batch.add(
        &mut ah_path.path,
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

/// Delivers a datagram over the local path. The error is one of local memory.
fn give(
    ah_path: &AhPath,
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
            let origin = DatagramOrigin::local(&ah_path.path, qp.port(), segment.len);
            let mut recv = peer.recv.lock();
            deliver::datagram(&mut recv, peer, &request, &origin, payload, ctx)
        }
    };
    if let Err(reason) = lost {
        ctx.counters(&qp).inc(reason);
    }
    Ok(())
}
