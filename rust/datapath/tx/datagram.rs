// SPDX-License-Identifier: GPL-2.0

//! Datagrams: each WQE names its own address handle, and leaves as one packet or over the local
//! path.

use super::local::moved;
use super::Sender;
use crate::core::completion::Status;
use crate::core::env::AccessError;
use crate::core::segment::{
    IncomingRequest,
    RequestSegment, //
};
use crate::core::send::{
    self,
    SendError,
    Transmit,
    SEGMENTS_PER_RUN, //
};
use crate::core::storage::Known;
use crate::core::ud::qkey_of;
use crate::core::wire::headers::Deth;
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
use crate::datapath::port::MANAGEMENT_QP;
use crate::datapath::protocol::{
    AhPath,
    Datagrams, //
};
use crate::datapath::qp::Qp;
use crate::datapath::queues::SendCopies;
use crate::datapath::traced::{
    self,
    Origin, //
};
use crate::datapath::tx_batch::{
    TxBatch,
    TxError, //
};
use crate::observe::counters::Counter;
use crate::sys::trace::{
    self,
    Unsent, //
};
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Sends datagrams up to the budget. Returns whether there are more. `left_at` is when packets last
/// left.
pub(super) fn send(
    datagrams: &mut Datagrams,
    sender: Sender<'_, '_, '_>,
    left_at: &mut Option<Known>,
) -> bool {
    let Datagrams {
        queue,
        qkey,
        ah_path,
    } = datagrams;
    let mut tx = DatagramTx {
        sender,
        qkey: *qkey,
        ah_path,
        left_at,
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
    left_at: &'t mut Option<Known>,
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
        let deth = Deth::new(qkey_of(destination.qkey, self.qkey), qp.known_as());
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
        let sent = if qp.port().local_path() && ah_path.path.is_to_own_device() {
            moved(&qp, segment.len, ctx);
            let (qpn, to) = (qp.number(), destination.qpn);
            let (opcode, psn) = (segment.opcode, segment.psn);
            trace::handed(move || traced::handed([qpn, to], opcode, psn, [1, segment.len]));
            datagram.give(ah_path, ctx)
        } else {
            ctx.moved(segment.len);
            *self.left_at = Known::new(ctx.now());
            datagram.add(ah_path, ctx)
        };
        sent.map_err(|AccessError| SendError::Local(Status::LocProtErr))
    }

    /// A packet that the local stack refuses is lost, as it may be anywhere on the network, and
    /// counted.
    fn flush(&mut self) -> Result<(), RequestSegment> {
        flush(self.ah_path, self.sender.qp, self.sender.ctx);
        Ok(())
    }
}

/// Flushes the batch.
fn flush(ah_path: &mut Option<AhPath>, qp: ArcBorrow<'_, Qp>, ctx: &Ctx<'_>) {
    if let Some(AhPath { path, batch, .. }) = ah_path {
        if batch.flush(path, ctx.counters(&qp)).is_err() {
            trace::unsent(move || traced::unsent(qp.number(), Psn::default(), Unsent::Lost));
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
        let payload = Payload::of(self.wqes.data(segment.slot), 0, qp.regions(ctx.rcu()));
        let added = ah_path.batch.add(
            &mut ah_path.path,
            ctx.counters(&qp),
            Origin::request(qp.number(), segment.slot),
            &headers,
            segment.len,
            (),
            |out| payload.read(segment.len, out),
        );
        match added {
            Ok(()) => Ok(()),
            Err(TxError::Refused(())) => {
                trace::unsent(|| traced::unsent(qp.number(), segment.psn, Unsent::Lost));
                Ok(())
            }
            Err(TxError::Access) => Err(AccessError),
        }
    }

    /// Delivers it over the local path. The error is one of local memory.
    #[inline]
    fn give(&self, ah_path: &AhPath, ctx: &mut Ctx<'_>) -> Result<(), AccessError> {
        let (qp, segment) = (self.qp, self.segment);
        let payload = Payload::of(self.wqes.data(segment.slot), 0, qp.regions(ctx.rcu()));
        let mut pieces = None;
        let payload = payload.resolve(segment.len, &mut pieces)?;
        let request = IncomingRequest::local(segment, self.extension);
        let number = match self.to {
            MANAGEMENT_QP => qp.port().management(),
            number => Some(number),
        };
        let peer = number.and_then(|number| ctx.directory().get(number, ctx.rcu()));
        let peer = peer.filter(|peer| Arc::ptr_eq(peer.port(), qp.port()));
        let lost = match peer {
            None => Err(Counter::DropUnknownQp),
            Some(peer) if peer.opcodes() != qp.opcodes() => Err(Counter::DropOpcode),
            Some(peer) => {
                let origin = DatagramOrigin::local(&ah_path.path, qp.port(), segment);
                let mut recv = peer.recv.lock();
                deliver::datagram(&mut recv, peer, &request, &origin, payload, ctx)
            }
        };
        if let Err(reason) = lost {
            let (to, psn, opcode) = (self.to, segment.psn, segment.opcode);
            trace::drop(move || traced::lost(to, Some((psn, opcode)), reason));
            ctx.counters(&qp).inc(reason);
        }
        Ok(())
    }
}
