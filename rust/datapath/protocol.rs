// SPDX-License-Identifier: GPL-2.0

//! The protocol of each half of a QP, by its type.
//!
//! The types differ in what a segment means, not in how a ring is emptied: what all have is here,
//! and who moves segments matches once and then works with one of them.

use super::ah::Ah;
use super::path::Path;
use super::tx_batch::TxBatch;
use crate::sys::ib::qp::Capacity;
use crate::sys::net::Addresses;
use crate::transport::completion::{
    SendCompletion,
    Status, //
};
use crate::transport::datagram;
use crate::transport::env::ResponderEnv;
use crate::transport::message::Mtu;
use crate::transport::reliable;
use crate::transport::reliable::config::{
    RequesterConfig,
    ResponderConfig,
    MAX_RD_ATOMIC, //
};
use crate::transport::reliable::requester::SendSlot;
use crate::transport::reliable::responder::Resource;
use crate::transport::request::{
    Progress,
    PushError,
    SendRequest, //
};
use crate::transport::service::Protocol;
use crate::transport::unreliable;
use crate::transport::unreliable::requester::Slot;
use crate::wire::opcode;
use crate::wire::psn::Psn;
use kernel::alloc::Allocator;
use kernel::prelude::*;
use kernel::sync::Arc;

/// The sending side that acknowledges.
pub(super) type ReliableRequester = reliable::requester::Requester<KVVec<SendSlot>>;
/// The receiving side that acknowledges.
pub(super) type ReliableResponder = reliable::responder::Responder<KVVec<Resource>>;
/// The sending side without acknowledgements.
pub(super) type UnreliableRequester = unreliable::requester::Requester<KVVec<Slot>>;

/// What a sending half does. It is one of many fields of a half, so a box would not help.
#[allow(clippy::large_enum_variant)]
pub(super) enum Requester {
    /// RC.
    Reliable(ReliableRequester),
    /// UC.
    Unreliable(UnreliableRequester),
    /// UD.
    Datagram(Datagrams),
}

/// What sends datagrams.
pub(super) struct Datagrams {
    /// The protocol.
    pub(super) queue: UnreliableRequester,
    /// That of the QP.
    pub(super) qkey: u32,
    /// Where the last one went.
    pub(super) towards: Option<Towards>,
}

/// Where datagrams go, and packets that will go there. It keeps an address handle that is destroyed
/// meanwhile.
pub(super) struct Towards {
    pub(super) ah: Arc<Ah>,
    pub(super) path: Path,
    pub(super) batch: TxBatch<()>,
}

/// What a receiving half does.
#[allow(clippy::large_enum_variant)]
pub(super) enum Responder {
    /// RC.
    Reliable(ReliableResponder),
    /// UC.
    Unreliable(unreliable::responder::Responder),
    /// UD.
    Datagram(Inbox),
}

/// What receives datagrams.
#[derive(Default)]
pub(super) struct Inbox {
    /// The protocol.
    pub(super) responder: datagram::Responder,
    /// The destination and the netdev of the packet that was found to be for the device last.
    pub(super) admitted: Option<(Addresses, i32)>,
}

/// What a sending half is configured with.
pub enum RequesterSetting {
    /// RC.
    Reliable(RequesterConfig),
    /// UC.
    Unreliable {
        /// Path MTU.
        mtu: Mtu,
        /// PSN of the first packet.
        sq_psn: Psn,
    },
    /// UD.
    Datagram {
        /// The longest datagram.
        mtu: Mtu,
        /// PSN of the first packet.
        sq_psn: Psn,
        /// The Q_Key of the QP.
        qkey: u32,
    },
}

/// What a receiving half is configured with.
pub enum ResponderSetting {
    /// RC.
    Reliable(ResponderConfig),
    /// UC.
    Unreliable {
        /// Path MTU.
        mtu: Mtu,
        /// PSN of the first packet.
        rq_psn: Psn,
        /// The peer may write.
        allow_write: bool,
    },
    /// UD.
    Datagram {
        /// The Q_Key of the QP.
        qkey: u32,
    },
}

/// Does the same with whichever requester it is.
macro_rules! requester {
    ($half:expr, $one:ident => $what:expr) => {
        match $half {
            Requester::Reliable($one) => $what,
            Requester::Unreliable($one) => $what,
            Requester::Datagram(Datagrams { queue: $one, .. }) => $what,
        }
    };
}

/// Does the same with whichever responder it is.
macro_rules! responder {
    ($half:expr, $one:ident => $what:expr) => {
        match $half {
            Responder::Reliable($one) => $what,
            Responder::Unreliable($one) => $what,
            Responder::Datagram(Inbox {
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

impl Requester {
    /// Of a QP in RESET. May sleep.
    pub(super) fn new(half: Protocol, capacity: &Capacity) -> Result<Self> {
        let count = capacity.max_send_wr as usize;
        Ok(match half {
            Protocol::Reliable => Self::Reliable(ReliableRequester::new(slots(count)?)),
            Protocol::Unacknowledged => {
                let service = opcode::Service::Uc;
                Self::Unreliable(UnreliableRequester::new(slots(count)?, service))
            }
            Protocol::Datagram => Self::Datagram(Datagrams {
                queue: UnreliableRequester::new(slots(count)?, opcode::Service::Ud),
                qkey: 0,
                towards: None,
            }),
            Protocol::None => return Err(EINVAL),
        })
    }

    /// Everything is forgotten but the counters.
    pub(super) fn reset(&mut self) {
        requester!(self, it => {
            it.reset();
            it.drain(false);
        });
        if let Self::Datagram(it) = self {
            it.towards = None;
        }
    }

    /// To RTS from RTR.
    pub(super) fn connect(&mut self, setting: RequesterSetting) -> Result {
        match (self, setting) {
            (Self::Reliable(it), RequesterSetting::Reliable(config)) => it.connect(config),
            (Self::Unreliable(it), RequesterSetting::Unreliable { mtu, sq_psn }) => {
                it.connect(mtu, sq_psn)
            }
            (Self::Datagram(it), RequesterSetting::Datagram { mtu, sq_psn, qkey }) => {
                it.qkey = qkey;
                it.queue.connect(mtu, sq_psn)
            }
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    /// Changes what may change in RTS and SQD; from SQE the queue goes on.
    pub(super) fn update(&mut self, setting: &RequesterSetting) {
        match (self, setting) {
            (Self::Reliable(it), RequesterSetting::Reliable(config)) => {
                it.set_retries(config.retry_cnt, config.rnr_retry);
                it.set_ack_timeout(config.ack_timeout_ns);
                it.set_max_rd_atomic(config.max_rd_atomic);
            }
            (Self::Unreliable(it), RequesterSetting::Unreliable { .. }) => it.resume(),
            (Self::Datagram(it), RequesterSetting::Datagram { qkey, .. }) => {
                it.qkey = *qkey;
                it.queue.resume()
            }
            _ => {}
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
    pub(super) fn push(&mut self, request: SendRequest) -> Result<u32, PushError> {
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

    /// When the requester wants to be called, if ever.
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

impl Responder {
    /// Of a QP in RESET. May sleep.
    pub(super) fn new(half: Protocol) -> Result<Self> {
        Ok(match half {
            Protocol::Reliable => {
                let resources = slots(usize::from(MAX_RD_ATOMIC))?;
                Self::Reliable(ReliableResponder::new(resources))
            }
            Protocol::Unacknowledged => Self::Unreliable(Default::default()),
            Protocol::Datagram => Self::Datagram(Inbox::default()),
            Protocol::None => return Err(EINVAL),
        })
    }

    /// Everything is forgotten.
    pub(super) fn reset(&mut self) {
        responder!(self, it => it.reset());
    }

    /// To RTR from INIT.
    pub(super) fn connect(&mut self, setting: ResponderSetting) -> Result {
        match (self, setting) {
            (Self::Reliable(it), ResponderSetting::Reliable(config)) => it.connect(config),
            (
                Self::Unreliable(it),
                ResponderSetting::Unreliable {
                    mtu,
                    rq_psn,
                    allow_write,
                },
            ) => it.connect(mtu, rq_psn, allow_write),
            (Self::Datagram(it), ResponderSetting::Datagram { qkey }) => it.responder.connect(qkey),
            _ => return Err(EINVAL),
        }
        Ok(())
    }

    /// Changes what may change in RTS and SQD.
    pub(super) fn update(&mut self, setting: &ResponderSetting) {
        match (self, setting) {
            (Self::Reliable(it), ResponderSetting::Reliable(config)) => {
                it.set_min_rnr_timer(config.min_rnr_timer);
                it.set_max_dest_rd_atomic(config.max_dest_rd_atomic);
                it.set_rights(config.rights);
            }
            (Self::Unreliable(it), ResponderSetting::Unreliable { allow_write, .. }) => {
                it.set_access(*allow_write)
            }
            (Self::Datagram(it), ResponderSetting::Datagram { qkey }) => {
                it.responder.set_qkey(*qkey)
            }
            _ => {}
        }
    }

    /// PSN of the next request in order; datagrams have no order.
    pub(super) fn expected_psn(&self) -> Psn {
        match self {
            Self::Reliable(it) => it.expected_psn(),
            Self::Unreliable(it) => it.expected_psn(),
            Self::Datagram(_) => Psn::default(),
        }
    }

    /// Whether there is something to answer.
    #[inline]
    pub(super) fn has_response(&self) -> bool {
        match self {
            Self::Reliable(it) => it.has_response(),
            Self::Unreliable(_) | Self::Datagram(_) => false,
        }
    }

    /// The QP goes to ERR: a receive in progress is flushed.
    pub(super) fn abort(&mut self, env: &mut impl ResponderEnv) {
        responder!(self, it => it.abort(env));
    }
}
