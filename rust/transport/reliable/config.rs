// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What a connection is configured with: the attributes of `ibv_modify_qp` that the transport
//! needs.

use crate::transport::message::Mtu;
use crate::wire::psn::Psn;

/// The most requests that a responder holds a resource for, or a requester has outstanding: as many
/// as rdma_rxe, whose peers ask for its number.
pub const MAX_RD_ATOMIC: u8 = 128;

/// The attributes of the sending side, from the transition to RTS (and the path MTU of RTR).
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub sq_psn: Psn,
    /// How often the same packet is sent again after a timeout or a NAK before the QP gives up:
    /// 0..=7, and 7 means seven (IBTA 9.9.2.1.1).
    pub retry_cnt: u8,
    /// How often a message is sent again after an RNR NAK: 0..=7, 7 means for ever.
    pub rnr_retry: u8,
    /// The Local ACK Timeout in nanoseconds; `None` waits for ever.
    pub ack_timeout_ns: Option<u64>,
    /// RDMA READs and atomic operations outstanding at a time, at most [`MAX_RD_ATOMIC`].
    pub max_rd_atomic: u8,
}

/// What a QP lets its peer do (`qp_access_flags`), if the region permits it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    /// RDMA READ (`IBV_ACCESS_REMOTE_READ`).
    pub read: bool,
    /// RDMA WRITE (`IBV_ACCESS_REMOTE_WRITE`).
    pub write: bool,
    /// Atomic operations (`IBV_ACCESS_REMOTE_ATOMIC`).
    pub atomic: bool,
    /// FLUSH to where all see it (`IBV_ACCESS_FLUSH_GLOBAL`).
    pub flush_global: bool,
    /// FLUSH to where it persists (`IBV_ACCESS_FLUSH_PERSISTENT`).
    pub flush_persistent: bool,
}

impl RemoteRights {
    /// All of them.
    pub const ALL: Self = Self {
        read: true,
        write: true,
        atomic: true,
        flush_global: true,
        flush_persistent: true,
    };
}

/// The attributes of the receiving side, from the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub rq_psn: Psn,
    /// RDMA READs and atomic operations that the peer may have outstanding, at most
    /// [`MAX_RD_ATOMIC`].
    pub max_dest_rd_atomic: u8,
    /// The code of the delay that RNR NAKs ask for, 5 bits: [`crate::wire::headers::rnr_delay_ns`].
    pub min_rnr_timer: u8,
    /// What the peer may do.
    pub rights: RemoteRights,
}
