// SPDX-License-Identifier: GPL-2.0

//! Datagrams: each request names its own address handle, and leaves as one packet, or is handed to
//! a QP of the same device.

use super::local::moved;
use crate::datapath::deliver::{
    self,
    Origin, //
};
use crate::datapath::halves::SendCopies;
use crate::datapath::memory::sg::Payload;
use crate::datapath::outbox::{
    Failed,
    Outbox, //
};
use crate::datapath::port::MANAGEMENT_QP;
use crate::datapath::protocol::{
    Datagrams,
    Towards, //
};
use crate::datapath::qp::Qp;
use crate::datapath::turn::Turn;
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
const DATAGRAMS_PER_TURN: u32 = 64;

/// Sends datagrams, up to the budget of the turn; tells whether there are more. `left_at` is when
/// packets left last.
pub(in crate::datapath) fn send(
    datagrams: &mut Datagrams,
    wqes: &SendCopies,
    left_at: &mut Option<u64>,
    qp: ArcBorrow<'_, Qp>,
    turn: &mut Turn<'_>,
) -> bool {
    let mut more = true;
    for _ in 0..DATAGRAMS_PER_TURN {
        if !turn.may_move() {
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
        let done = match aim(&mut datagrams.towards, destination.ah, qp, turn) {
            // One that does not exist, or belongs to somebody else.
            None => Err(Status::LocQpOpErr),
            Some(towards) if qp.port().local_path() && towards.way.is_to_own_device() => {
                moved(&qp, segment.len, turn);
                give(towards, wqes, qp, &segment, &destination, extension, turn)
                    .map_err(|AccessError| Status::LocProtErr)
            }
            Some(towards) => {
                turn.moved(segment.len);
                *left_at = Some(turn.now());
                add(towards, wqes, qp, &segment, &destination, extension, turn)
                    .map_err(|AccessError| Status::LocProtErr)
            }
        };
        deliver::left(&mut datagrams.queue, qp, &segment, done, turn);
    }
    flush(&mut datagrams.towards, qp, turn);
    more
}

/// What was made leaves. What the stack does not take is lost here, as it may be anywhere on the
/// way, and counted.
fn flush(towards: &mut Option<Towards>, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) {
    if let Some(Towards { way, outbox, .. }) = towards {
        let _ = outbox.flush(way, turn.counters(&qp));
    }
}

/// The way of an address handle. What was made for another one leaves before.
fn aim<'t>(
    towards: &'t mut Option<Towards>,
    number: u32,
    qp: ArcBorrow<'_, Qp>,
    turn: &Turn<'_>,
) -> Option<&'t mut Towards> {
    let handle = qp.port().handle(number, turn.rcu())?;
    if handle.domain() != qp.domain() {
        return None;
    }
    let is_it = |towards: &Towards| core::ptr::eq(&*towards.handle, &*handle);
    if !towards.as_ref().is_some_and(is_it) {
        flush(towards, qp, turn);
        *towards = Some(Towards {
            way: handle.way().clone(),
            handle: Arc::from(handle),
            outbox: Outbox::default(),
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
    turn: &Turn<'_>,
) -> Result<(), AccessError> {
    let mut headers = Headers::new(segment.opcode, destination.qpn, segment.psn);
    headers.solicited = segment.solicited;
    headers.extension = extension;
    let payload = Payload::of(wqes.data(segment.slot), 0, qp.regions(turn.rcu()));
    let added = towards.outbox.add(
        &mut towards.way,
        turn.counters(&qp),
        &headers,
        segment.len,
        (),
        |out| payload.read(segment.len, out),
    );
    match added {
        Ok(()) | Err(Failed::Refused(())) => Ok(()),
        Err(Failed::Access) => Err(AccessError),
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
    turn: &mut Turn<'_>,
) -> Result<(), AccessError> {
    let payload = Payload::of(wqes.data(segment.slot), 0, qp.regions(turn.rcu()));
    let mut pieces = None;
    let payload = payload.resolve(segment.len, &mut pieces)?;
    let request = IncomingRequest::local(segment, extension);
    let number = match destination.qpn {
        MANAGEMENT_QP => qp.port().management(),
        number => Some(number),
    };
    let peer = number.and_then(|number| turn.directory().get(number, turn.rcu()));
    let peer = peer.filter(|peer| Arc::ptr_eq(peer.port(), qp.port()));
    let lost = match peer {
        None => Err(Counter::DropUnknownQp),
        Some(peer) if peer.opcodes() != qp.opcodes() => Err(Counter::DropOpcode),
        Some(peer) => {
            let origin = Origin::local(&towards.way, qp.port(), segment.len);
            let mut recv = peer.recv.lock();
            deliver::datagram(&mut recv, peer, &request, &origin, payload, turn)
        }
    };
    if let Err(reason) = lost {
        turn.counters(&qp).inc(reason);
    }
    Ok(())
}
