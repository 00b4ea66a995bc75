// SPDX-License-Identifier: GPL-2.0

//! What the events of [`trace`] say of packets, completions and queues; and, in one table, what a
//! dropped request is called and counted as. But for that, nothing here runs while nobody traces.
//!
//! What callers have in registers is passed by value: a reference would have it in memory, traced
//! or not.

use crate::core::completion::Status;
use crate::core::kick::AskedBy;
use crate::core::offload::SenderKind;
use crate::core::rc;
use crate::core::send::SendRequest;
use crate::core::storage::Slot;
use crate::core::uabi::cqe::Cqe;
use crate::core::uc::{
    UnreliableDrop,
    UnreliableOutcome, //
};
use crate::core::wire::bth::Bth;
use crate::core::wire::headers::Aeth;
use crate::core::wire::opcode::Opcode;
use crate::core::wire::packet;
use crate::core::wire::psn::Psn;
use crate::observe::Counter;
use crate::sys::net::RxPacket;
use crate::sys::trace::{
    self,
    OffloadCause,
    RequestEnd,
    Unsent,
    HEAD, //
};
use zerocopy::FromBytes;

/// Who makes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    qpn: u32,
    /// Slot of the WQE of a request; -1 for a response.
    slot: i32,
}

impl Origin {
    /// The WQE in this slot.
    #[inline(always)]
    pub(super) fn request(qpn: u32, slot: Slot) -> Self {
        let slot = slot.number() as i32;
        Self { qpn, slot }
    }

    /// The responder.
    #[inline(always)]
    pub(super) fn response(qpn: u32) -> Self {
        Self { qpn, slot: -1 }
    }
}

/// A packet that was made, from its BTH on.
#[cold]
pub(super) fn made(origin: Origin, bytes: &[u8]) -> trace::Packet {
    trace::Packet {
        qpn: origin.qpn,
        slot: origin.slot,
        ..of_bytes(bytes)
    }
}

const _: () = assert!(HEAD == packet::MAX_HEADERS);

fn with_aeth(aeth: Option<Aeth>) -> trace::Packet {
    trace::Packet {
        syndrome: aeth.map_or(-1, |aeth| aeth.syndrome().encode().into()),
        msn: aeth.map_or(0, |aeth| aeth.msn()),
        slot: -1,
        ..trace::Packet::default()
    }
}

/// A packet that came for the QP with this number.
#[cold]
pub(super) fn received(qpn: u32, packet: &RxPacket<'_>) -> trace::Packet {
    trace::Packet {
        qpn,
        ifindex: packet.ifindex(),
        ..of_bytes(packet.head())
    }
}

/// A packet that was dropped, or without `packet` one that could not be read.
#[cold]
pub(super) fn dropped(packet: Option<&RxPacket<'_>>, reason: Counter) -> trace::Packet {
    let none = || with_aeth(None);
    trace::Packet {
        reason: reason as u32,
        ..packet.map_or_else(none, |packet| received(0, packet))
    }
}

/// A segment of the local path that was dropped.
#[cold]
pub(super) fn lost(dqpn: u32, psn: Psn, opcode: Opcode, reason: Counter) -> trace::Packet {
    trace::Packet {
        dqpn,
        psn: psn.get(),
        opcode: opcode.as_u8(),
        reason: reason as u32,
        ..with_aeth(None)
    }
}

/// What the bytes of a packet say. Of the payload the event has the length; of an opcode that is
/// not known it has the BTH alone.
fn of_bytes(bytes: &[u8]) -> trace::Packet {
    let parsed = packet::parse(bytes, bytes.len()).ok();
    let mut event = trace::Packet {
        len: parsed.map_or(0, |parsed| parsed.payload_len as u32),
        ..with_aeth(parsed.and_then(|parsed| parsed.extension.aeth()))
    };
    let Ok((bth, _)) = Bth::ref_from_prefix(bytes) else {
        return event;
    };
    let len = bth
        .opcode()
        .map_or(size_of::<Bth>(), |opcode| opcode.info().headers_len());
    let mut head_len = 0;
    for (to, from) in event.head.iter_mut().zip(bytes.iter().take(len)) {
        *to = *from;
        head_len += 1;
    }
    event.head_len = head_len;
    event.dqpn = bth.dest_qp();
    event.psn = bth.psn().get();
    event.ack_req = bth.ack_req();
    // The first byte, also if it is no opcode that is served.
    event.opcode = bytes.first().copied().unwrap_or(0);
    event
}

/// A WQE that was taken from the ring.
#[cold]
pub(super) fn taken(
    qpn: u32,
    index: u32,
    slot: Slot,
    request: Result<SendRequest, (u64, Status)>,
) -> trace::Taken {
    let at = trace::Taken {
        qpn,
        index,
        slot: slot.number(),
        // No operation has it.
        opcode: u32::MAX,
        ..trace::Taken::default()
    };
    match request {
        Ok(request) => trace::Taken {
            wr_id: request.wr_id,
            opcode: request.op as u32,
            len: request.length,
            signaled: request.signaled,
            fence: request.fence,
            solicited: request.solicited,
            ..at
        },
        Err((wr_id, status)) => trace::Taken {
            wr_id,
            status: status.as_u32(),
            ..at
        },
    }
}

/// A completion in the CQ with this number.
#[cold]
pub(super) fn completed(cq: u32, cqe: &Cqe) -> trace::Complete {
    trace::Complete {
        wr_id: cqe.wr_id,
        cq,
        qpn: cqe.qp_num,
        status: cqe.status,
        opcode: cqe.opcode,
        byte_len: cqe.byte_len,
        vendor_err: cqe.vendor_err,
    }
}

/// Why another one transmits, if another one does.
#[cold]
pub(super) fn offloaded(
    qpn: u32,
    from: SenderKind,
    to: SenderKind,
    asked_by: AskedBy,
) -> Option<trace::OffloadChange> {
    use SenderKind::{
        Far,
        Inline,
        Inviting,
        Moving,
        Near,
        Polling, //
    };
    if from == to {
        return None;
    }
    let why = match (asked_by, from, to) {
        (AskedBy::End, ..) => OffloadCause::Ended,
        (_, _, Inviting | Polling) => OffloadCause::Streams,
        (_, Inviting | Polling, Far) | (AskedBy::WorkerRuns, Inviting | Polling, Moving) => {
            OffloadCause::Taken
        }
        (AskedBy::WorkerRuns, Inviting, _) => OffloadCause::Declined,
        (AskedBy::Budget, ..) | (AskedBy::WorkerRan, Polling, Near) => OffloadCause::Budget,
        (_, Moving, _) => OffloadCause::Acknowledged,
        (_, _, Inline) => OffloadCause::Idle,
        (_, Far, _) => OffloadCause::NoHelp,
        _ => OffloadCause::InFlight,
    };
    Some(trace::OffloadChange {
        qpn,
        from: from as u32,
        to: to as u32,
        why: why as u32,
    })
}

/// Packets from this PSN on that have not left.
#[cold]
pub(super) fn unsent(qpn: u32, psn: Psn, what: Unsent) -> trace::UnsentPackets {
    trace::UnsentPackets {
        qpn,
        psn: psn.get(),
        what: what as u32,
    }
}

/// What a request of a reliable service that was dropped is called, and its counter.
#[inline(always)]
pub(super) fn of_dropped(why: rc::responder::DropReason) -> (RequestEnd, Counter) {
    use rc::responder::DropReason;
    match why {
        DropReason::Duplicate => (RequestEnd::Duplicate, Counter::Duplicate),
        DropReason::OutOfSequence => (RequestEnd::OutOfSequence, Counter::OutOfSequence),
        DropReason::Kept => (RequestEnd::Kept, Counter::Kept),
        DropReason::NoReceive => (RequestEnd::NoReceive, Counter::RnrNakSent),
        DropReason::OutsideWindow => (RequestEnd::OutsideWindow, Counter::IgnoredRequest),
        DropReason::UnknownRead => (RequestEnd::UnknownRead, Counter::IgnoredRequest),
        DropReason::NotReady => (RequestEnd::NotReady, Counter::IgnoredRequest),
    }
}

/// The same of an unreliable service.
#[inline(always)]
pub(super) fn of_lost(why: UnreliableDrop) -> (RequestEnd, Counter) {
    match why {
        UnreliableDrop::Old => (RequestEnd::Duplicate, Counter::IgnoredRequest),
        UnreliableDrop::NotReady => (RequestEnd::NotReady, Counter::IgnoredRequest),
        UnreliableDrop::Gap => (RequestEnd::OutOfSequence, Counter::OutOfSequence),
        UnreliableDrop::NoReceive => (RequestEnd::NoReceive, Counter::LostNoReceive),
        UnreliableDrop::TooLong => (RequestEnd::TooLong, Counter::LostTooLong),
        UnreliableDrop::Denied => (RequestEnd::Denied, Counter::LostDenied),
        UnreliableDrop::Invalid => (RequestEnd::Invalid, Counter::LostInvalid),
    }
}

/// What became of a request of a reliable service.
#[cold]
pub(super) fn reliable_request(
    qpn: u32,
    (psn, opcode): (Psn, Opcode),
    outcome: rc::responder::Outcome,
) -> trace::Request {
    use rc::responder::Fatal;
    let end = match (outcome.fatal, outcome.dropped) {
        (Some(Fatal::InvalidRequest), _) => RequestEnd::InvalidRequest,
        (Some(Fatal::AccessError), _) => RequestEnd::AccessError,
        (Some(Fatal::LocalError), _) => RequestEnd::LocalError,
        (None, None) => RequestEnd::Executed,
        (None, Some(why)) => of_dropped(why).0,
    };
    ended(qpn, psn, opcode, end)
}

/// What became of a packet of an unreliable service.
#[cold]
pub(super) fn unreliable_request(
    qpn: u32,
    (psn, opcode): (Psn, Opcode),
    outcome: UnreliableOutcome,
) -> trace::Request {
    let end = match outcome {
        UnreliableOutcome::Executed => RequestEnd::Executed,
        UnreliableOutcome::Failed => RequestEnd::LocalError,
        UnreliableOutcome::Dropped(why) => of_lost(why).0,
    };
    ended(qpn, psn, opcode, end)
}

fn ended(qpn: u32, psn: Psn, opcode: Opcode, end: RequestEnd) -> trace::Request {
    trace::Request {
        qpn,
        psn: psn.get(),
        opcode: opcode.as_u8().into(),
        outcome: end as u32,
    }
}

/// A segment, or a response, on the local path.
#[cold]
pub(super) fn handed(
    [qpn, to]: [u32; 2],
    opcode: Opcode,
    psn: Psn,
    [span, len]: [u32; 2],
) -> trace::Handed {
    trace::Handed {
        qpn,
        to,
        opcode: opcode.as_u8().into(),
        psn: psn.get(),
        span,
        len,
    }
}
