// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Configuration of a connection: the attributes of `ibv_modify_qp` that the transport needs.

use crate::core::message::Mtu;
use crate::core::wire::psn::Psn;

/// Most requests that a responder holds a resource for, or that a requester has outstanding: as
/// many as rdma_rxe, whose peers rely on that number.
pub const MAX_RD_ATOMIC: u8 = 128;

/// Attributes of the requester, from the transition to RTS (and the path MTU of RTR).
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub sq_psn: Psn,
    /// Retransmissions of the same packet after a timeout or a NAK before the QP gives up: 0..=7,
    /// and 7 means seven (IBTA 9.9.2.1.1).
    pub retry_cnt: u8,
    /// Retransmissions of a message after an RNR NAK: 0..=7, 7 means for ever.
    pub rnr_retry: u8,
    /// The Local ACK Timeout in nanoseconds; `None` waits for ever.
    pub ack_timeout_ns: Option<u64>,
    /// RDMA READs and atomic operations outstanding at a time, at most [`MAX_RD_ATOMIC`].
    pub max_rd_atomic: u8,
    /// Packets may be marked: the window begins small, for the network is to hold no long queue.
    pub ecn: bool,
}

/// Rights of the peer at a QP (`qp_access_flags`), if the region grants them too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRights {
    /// RDMA READ (`IBV_ACCESS_REMOTE_READ`).
    pub read: bool,
    /// RDMA WRITE (`IBV_ACCESS_REMOTE_WRITE`).
    pub write: bool,
    /// Atomic operations (`IBV_ACCESS_REMOTE_ATOMIC`).
    pub atomic: bool,
    /// FLUSH to global visibility (`IBV_ACCESS_FLUSH_GLOBAL`).
    pub flush_global: bool,
    /// FLUSH to persistence (`IBV_ACCESS_FLUSH_PERSISTENT`).
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

/// Attributes of the responder, from the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub rq_psn: Psn,
    /// RDMA READs and atomic operations that the peer may have outstanding, at most
    /// [`MAX_RD_ATOMIC`].
    pub max_dest_rd_atomic: u8,
    /// The 5-bit timer code of RNR NAKs: [`crate::core::wire::headers::rnr_delay_ns`].
    pub min_rnr_timer: u8,
    /// Rights of the peer.
    pub rights: RemoteRights,
}

/// The nanoseconds of a QP's Local ACK Timeout: 4.096 us times 2^`timeout`; 0 is no timeout.
///
/// The field is 5 bits wide (IBTA 9.7.6.1.3); the low 5 bits count.
#[inline]
pub const fn ack_timeout_ns(timeout: u8) -> Option<u64> {
    match timeout & 0x1f {
        0 => None,
        exponent => Some(4096 << exponent),
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_config))]
mod tests {
    use super::*;

    #[test]
    fn ack_timeouts() {
        assert_eq!(ack_timeout_ns(0), None);
        assert_eq!(ack_timeout_ns(1), Some(8_192));
        assert_eq!(ack_timeout_ns(14), Some(67_108_864));
        assert_eq!(ack_timeout_ns(31), Some(4_096 << 31));
        assert_eq!(ack_timeout_ns(32), None);
    }
}
