// SPDX-License-Identifier: GPL-2.0

//! Requester and responder of a QP, by its type.
//!
//! The types differ in what a segment means, not in how a ring is fetched. The common part is here;
//! code that moves segments matches the type once.

use crate::core::completion::{
    RecvCompletion,
    SendCompletion,
    Status, //
};
use crate::core::message::Mtu;
use crate::core::rc::requester::SendSlot;
use crate::core::rc::responder::{
    resources_for,
    Resource, //
};
use crate::core::rc::{
    ack_timeout_ns,
    RemoteRights,
    RequesterConfig,
    ResponderConfig, //
};
use crate::core::send::{
    Progress,
    PushError,
    SendRequest, //
};
use crate::core::service::Protocol;
use crate::core::storage::{
    Slot,
    Spare, //
};
use crate::core::uc::requester::UnreliableSlot;
use crate::core::wire::headers::Aeth;
use crate::core::wire::opcode;
use crate::core::wire::psn::Psn;
use crate::core::{
    rc,
    uc,
    ud, //
};
use crate::datapath::path::{
    Ah,
    Path,
    TxBatch, //
};
use crate::sys::ib::qp::{
    Access,
    Attributes,
    Capacity, //
};
use crate::sys::net::Addresses;
use crate::sys::refusal::refuse;
use crate::sys::trace;
use core::convert::Infallible;
use kernel::alloc::flags::__GFP_NOWARN;
use kernel::alloc::Allocator;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Memory for losses, allocated when the first one is met: under locks, in softirqs.
pub(super) struct LossMemory;

impl Spare for LossMemory {
    type Array<T: Copy + Default, const N: usize> = KBox<[T; N]>;

    // Not on the stack of who has met the loss, and each value where it stays.
    #[inline(never)]
    fn array<T: Copy + Default, const N: usize>() -> Option<KBox<[T; N]>> {
        let defaults = pin_init::init_array_from_fn::<_, N, T, Infallible>(|_| T::default());
        KBox::init(defaults, GFP_ATOMIC | __GFP_NOWARN).ok()
    }
}

/// Requester of RC.
pub(super) type ReliableRequester = rc::requester::Requester<KVVec<SendSlot>, LossMemory>;
/// Responder of RC.
pub(super) type ReliableResponder = rc::responder::Responder<KVVec<Resource>, LossMemory>;
/// Requester of UC and UD, without acknowledgements.
pub(super) type UnreliableRequester = uc::requester::UnreliableRequester<KVVec<UnreliableSlot>>;

/// The requester of a send queue. It is one of many fields, so a box would not help.
#[allow(clippy::large_enum_variant)]
pub(super) enum AnyRequester {
    /// RC.
    Reliable(ReliableRequester),
    /// UC.
    Unreliable(UnreliableRequester),
    /// UD.
    Datagram(Datagrams),
}

/// Requester of UD.
pub(super) struct Datagrams {
    /// The protocol.
    pub(super) queue: UnreliableRequester,
    /// Q_Key of the QP.
    pub(super) qkey: u32,
    /// Destination of the last datagram.
    pub(super) ah_path: Option<AhPath>,
}

/// A destination of datagrams with the batch for it. Keeps an address handle that is destroyed
/// meanwhile.
pub(super) struct AhPath {
    pub(super) ah: Arc<Ah>,
    pub(super) path: Path,
    pub(super) batch: TxBatch<()>,
}

/// The responder of a receive queue.
#[allow(clippy::large_enum_variant)]
pub(super) enum AnyResponder {
    /// RC.
    Reliable(ReliableResponder),
    /// UC.
    Unreliable(uc::responder::UnreliableResponder),
    /// UD.
    Datagram(UdResponder),
}

/// Responder of UD.
#[derive(Default)]
pub(super) struct UdResponder {
    /// The protocol.
    pub(super) responder: ud::DatagramResponder,
    /// Destination and netdev of the last packet that was found to be for the device.
    pub(super) admitted: Option<(Addresses, i32)>,
}

/// An acknowledgement, and what the requester waits for.
#[cold]
pub(super) fn acknowledged(
    requester: &ReliableRequester,
    qpn: u32,
    psn: Psn,
    aeth: Aeth,
) -> trace::Ack {
    trace::Ack {
        qpn,
        psn: psn.get(),
        syndrome: aeth.syndrome().encode().into(),
        msn: aeth.msn(),
        una: requester.oldest_psn().get(),
        next: requester.next_psn().get(),
        window: requester.window_size(),
    }
}

/// Memory for the resources of a responder of RC. What was exchanged for it is freed with it, which
/// is to happen outside of locks.
pub(super) struct ResourceSlots(KVVec<Resource>);

impl ResourceSlots {
    /// As many as the peer may have outstanding requests at a QP of this service. May sleep.
    pub(super) fn new(service: opcode::OpcodeService, attributes: &Attributes) -> Result<Self> {
        Ok(Self(match service {
            opcode::OpcodeService::Rc => {
                slots(usize::from(resources_for(attributes.max_dest_rd_atomic)))?
            }
            _ => KVVec::new(),
        }))
    }
}

/// The path MTU of a connection, or `EINVAL`.
fn path_mtu(attributes: &Attributes) -> Result<Mtu> {
    let bytes = attributes.mtu;
    Mtu::from_bytes(bytes).ok_or_else(|| refuse(EINVAL, "path_mtu", bytes, 256..=4096))
}

/// Multiple of the Local ACK Timeout after which a response is late. One to four are permitted
/// (IBTA 9.7.6.1.3). Losses are found sooner, by NAKs and probes; lateness comes from a busy CPU,
/// or one that a hypervisor has taken away. A larger factor would only hide a dead peer: with
/// `retry_cnt` retries it is noticed after `retry_cnt + 1` timeouts.
const INTERVALS_OF_TIMEOUT: u64 = 2;

/// The shortest ACK timeout, in nanoseconds, whatever a program asks for: that of a `timeout` of
/// 10. A peer whose CPU is busy is silent for that long, as is one that still copies a long
/// message: with a timeout of microseconds all retries are gone before it can answer. It is long
/// enough for a tail-loss probe. IBTA has no such least value.
const SHORTEST_ACK_TIMEOUT: u64 = 8_388_608;

fn ack_timeout(attributes: &Attributes) -> Option<u64> {
    let interval = ack_timeout_ns(attributes.timeout)?;
    let timeout = interval.saturating_mul(INTERVALS_OF_TIMEOUT);
    Some(timeout.max(SHORTEST_ACK_TIMEOUT))
}

/// What the peer may do.
fn remote_rights(access: Access) -> RemoteRights {
    RemoteRights {
        read: access.has(Access::REMOTE_READ),
        write: access.has(Access::REMOTE_WRITE),
        atomic: access.has(Access::REMOTE_ATOMIC),
        flush_global: access.has(Access::FLUSH_GLOBAL),
        flush_persistent: access.has(Access::FLUSH_PERSISTENT),
    }
}

/// Forwards to the requester of the type.
macro_rules! requester {
    ($half:expr, $one:ident => $what:expr) => {
        match $half {
            AnyRequester::Reliable($one) => $what,
            AnyRequester::Unreliable($one) => $what,
            AnyRequester::Datagram(Datagrams { queue: $one, .. }) => $what,
        }
    };
}

/// Forwards to the responder of the type.
macro_rules! responder {
    ($half:expr, $one:ident => $what:expr) => {
        match $half {
            AnyResponder::Reliable($one) => $what,
            AnyResponder::Unreliable($one) => $what,
            AnyResponder::Datagram(UdResponder {
                responder: $one, ..
            }) => $what,
        }
    };
}

fn slots<T: Clone + Default, A: Allocator>(count: usize) -> Result<Vec<T, A>> {
    let mut slots = Vec::new();
    slots.resize(count, T::default(), GFP_KERNEL_ACCOUNT)?;
    Ok(slots)
}

/// The memory of a requester, one slot for each WQE. It is allocated first, so that the requester
/// can be made where it stays.
pub(super) enum RequesterSlots {
    /// RC.
    Reliable(KVVec<SendSlot>),
    /// UC.
    Unreliable(KVVec<UnreliableSlot>),
    /// UD.
    Datagram(KVVec<UnreliableSlot>),
}

impl RequesterSlots {
    /// May sleep.
    pub(super) fn new(protocol: Protocol, capacity: &Capacity) -> Result<Self> {
        let count = capacity.max_send_wr as usize;
        Ok(match protocol {
            Protocol::Reliable => Self::Reliable(slots(count)?),
            Protocol::Unreliable => Self::Unreliable(slots(count)?),
            Protocol::Datagram => Self::Datagram(slots(count)?),
        })
    }
}

impl AnyRequester {
    /// Requester of a QP in RESET. It is large, so it is made in a frame of its own.
    #[inline(never)]
    pub(super) fn new(slots: RequesterSlots) -> Self {
        match slots {
            RequesterSlots::Reliable(slots) => Self::Reliable(ReliableRequester::with_spare(slots)),
            RequesterSlots::Unreliable(slots) => {
                let service = opcode::OpcodeService::Uc;
                Self::Unreliable(UnreliableRequester::new(slots, service))
            }
            RequesterSlots::Datagram(slots) => Self::Datagram(Datagrams {
                queue: UnreliableRequester::new(slots, opcode::OpcodeService::Ud),
                qkey: 0,
                ah_path: None,
            }),
        }
    }

    /// Discards everything but the counters.
    pub(super) fn reset(&mut self) {
        requester!(self, it => {
            it.reset();
            it.drain(false);
        });
    }

    /// Lets go of the address handle that was used last.
    pub(super) fn forget_destination(&mut self) {
        if let Self::Datagram(it) = self {
            it.ah_path = None;
        }
    }

    /// To RTS from RTR. `longest` is that of datagrams, and `ecn` says whether the network may mark
    /// the packets of RC.
    pub(super) fn connect(&mut self, attributes: &Attributes, longest: Mtu, ecn: bool) -> Result {
        let sq_psn = Psn::new(attributes.sq_psn);
        match self {
            Self::Reliable(it) => it.connect(RequesterConfig {
                mtu: path_mtu(attributes)?,
                sq_psn,
                retry_cnt: attributes.retry_cnt,
                rnr_retry: attributes.rnr_retry,
                ack_timeout_ns: ack_timeout(attributes),
                max_rd_atomic: attributes.max_rd_atomic,
                ecn,
            }),
            Self::Unreliable(it) => it.connect(path_mtu(attributes)?, sq_psn),
            Self::Datagram(it) => {
                it.qkey = attributes.qkey;
                it.queue.connect(longest, sq_psn)
            }
        }
        Ok(())
    }

    /// Changes the attributes that may change in RTS and SQD; a queue in SQE continues.
    pub(super) fn update(&mut self, attributes: &Attributes) {
        match self {
            Self::Reliable(it) => {
                it.set_retries(attributes.retry_cnt, attributes.rnr_retry);
                it.set_ack_timeout(ack_timeout(attributes));
                it.set_max_rd_atomic(attributes.max_rd_atomic);
            }
            Self::Unreliable(it) => it.resume(),
            Self::Datagram(it) => {
                it.qkey = attributes.qkey;
                it.queue.resume()
            }
        }
    }

    #[inline]
    pub(super) fn pushed(&self) -> u32 {
        requester!(self, it => it.pushed())
    }

    #[inline]
    pub(super) fn retired(&self) -> u32 {
        requester!(self, it => it.retired())
    }

    #[inline]
    pub(super) fn push(&mut self, request: SendRequest) -> Result<Slot, PushError> {
        requester!(self, it => it.push(request))
    }

    pub(super) fn push_failed(
        &mut self,
        wr_id: u64,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Result<Progress, PushError> {
        requester!(self, it => it.push_failed(wr_id, status, sink))
    }

    pub(super) fn flush_some(&mut self, most: u32, sink: &mut impl FnMut(SendCompletion)) -> u32 {
        requester!(self, it => it.flush_some(most, sink))
    }

    pub(super) fn flush(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        requester!(self, it => it.flush(sink));
    }

    pub(super) fn drain(&mut self, on: bool) {
        requester!(self, it => it.drain(on));
    }

    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        requester!(self, it => it.is_drained())
    }

    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        requester!(self, it => it.has_unsent())
    }

    /// When the requester's timer is due, if it is armed.
    #[inline]
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Reliable(it) => it.deadline(),
            Self::Unreliable(_) | Self::Datagram(_) => None,
        }
    }

    pub(super) fn next_psn(&self) -> Psn {
        requester!(self, it => it.next_psn())
    }
}

impl AnyResponder {
    /// What makes the responder of a QP in RESET where it stays: it is large. That of RC gets
    /// memory for its resources when it is connected.
    pub(super) fn maker(protocol: Protocol) -> fn() -> Self {
        match protocol {
            Protocol::Reliable => || Self::Reliable(ReliableResponder::with_spare(KVVec::new())),
            Protocol::Unreliable => || Self::Unreliable(Default::default()),
            Protocol::Datagram => || Self::Datagram(UdResponder::default()),
        }
    }

    /// Discards everything.
    pub(super) fn reset(&mut self) {
        responder!(self, it => it.reset());
    }

    /// Exchanges its resources for `slots`, if these are more: before a setting that permits more
    /// requests.
    pub(super) fn grow(&mut self, slots: &mut ResourceSlots) {
        if let Self::Reliable(it) = self {
            it.grow(&mut slots.0);
        }
    }

    /// To RTR from INIT.
    pub(super) fn connect(&mut self, attributes: &Attributes) -> Result {
        let rq_psn = Psn::new(attributes.rq_psn);
        match self {
            Self::Reliable(it) => it.connect(ResponderConfig {
                mtu: path_mtu(attributes)?,
                rq_psn,
                max_dest_rd_atomic: attributes.max_dest_rd_atomic,
                min_rnr_timer: attributes.min_rnr_timer,
                rights: remote_rights(attributes.access),
            }),
            Self::Unreliable(it) => {
                let allow_write = attributes.access.has(Access::REMOTE_WRITE);
                it.connect(path_mtu(attributes)?, rq_psn, allow_write)
            }
            Self::Datagram(it) => it.responder.connect(attributes.qkey),
        }
        Ok(())
    }

    /// Changes the attributes that may change in RTS and SQD.
    pub(super) fn update(&mut self, attributes: &Attributes) {
        match self {
            Self::Reliable(it) => {
                it.set_min_rnr_timer(attributes.min_rnr_timer);
                it.set_max_dest_rd_atomic(attributes.max_dest_rd_atomic);
                it.set_rights(remote_rights(attributes.access));
            }
            Self::Unreliable(it) => it.set_access(attributes.access.has(Access::REMOTE_WRITE)),
            Self::Datagram(it) => it.responder.set_qkey(attributes.qkey),
        }
    }

    /// PSN of the next request in sequence; datagrams have none.
    pub(super) fn expected_psn(&self) -> Psn {
        match self {
            Self::Reliable(it) => it.expected_psn(),
            Self::Unreliable(it) => it.expected_psn(),
            Self::Datagram(_) => Psn::default(),
        }
    }

    /// Whether there is a response to send.
    #[inline]
    pub(super) fn has_response(&self) -> bool {
        match self {
            Self::Reliable(it) => it.has_response(),
            Self::Unreliable(_) | Self::Datagram(_) => false,
        }
    }

    /// The QP goes to ERR. Returns the completion of the receive in progress.
    pub(super) fn abort(&mut self) -> Option<RecvCompletion> {
        responder!(self, it => it.abort())
    }
}
