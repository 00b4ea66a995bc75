// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The reliable connection: packets are acknowledged, retransmitted after a loss, and executed in
//! order and once (IBTA volume 1, 9.7).
//!
//! | part | file |
//! |---|---|
//! | configuration, counters, the pace of congestion notifications | here |
//! | requester | [`requester`] |
//! | responder | [`responder`] |
//! | PSNs as numbers that do not wrap; packets kept behind a gap | `sequence` |

use crate::core::message::Mtu;
use crate::core::wire::psn::Psn;

mod conversation;
pub mod requester;
pub mod responder;
mod sequence;

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

/// Counters of a requester. Plain numbers: the owner of the QP takes them under its lock, often
/// enough that 32 bits are plenty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Packets sent, including retransmissions; the number wraps.
    pub packets: u32,
    /// Retransmitted packets.
    pub retransmitted: u32,
    /// Tail-loss probes; they are not in `retransmitted`.
    pub tail_probes: u32,
    /// ACK timeouts (`local_ack_timeout_err`).
    pub timeouts: u32,
    /// RNR NAKs that were honoured (`rnr_nak_retry_err`).
    pub rnr_naks: u32,
    /// NAKs for a PSN sequence error (`packet_seq_err`).
    pub seq_naks: u32,
    /// Losses of READ responses implied by a later response or ACK (`implied_nak_seq_err`).
    pub implied_naks: u32,
    /// Fatal NAKs.
    pub fatal_naks: u32,
    /// Responses to completed requests.
    pub duplicate_responses: u32,
    /// Responses to requests that were never sent, with an impossible MSN, or with a reserved
    /// syndrome.
    pub unexpected_responses: u32,
    /// Reports of the peer that say which packets are missing.
    pub missing_reports: u32,
    /// Times that the window shrank because the network marks packets.
    pub slowdowns: u32,
    /// READ responses behind a gap.
    pub out_of_sequence: u32,
    /// READ responses that violate the protocol.
    pub bad_responses: u32,
}

/// Nanoseconds between two congestion notifications: as adapters have it, far below a round trip
/// with a queue in it, and far above the time of a packet.
const CNP_INTERVAL: u64 = 50_000;

/// The pace of a QP's congestion notifications (CNPs): when a responder tells its peer that the
/// network has marked a packet (RoCEv2, IBTA annex A17.9.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct CnpPacer {
    /// No notification is sent before this time.
    not_before: u64,
}

impl CnpPacer {
    /// A marked packet came. Returns whether the peer is to be notified.
    pub fn due(&mut self, now: u64) -> bool {
        if now < self.not_before {
            return false;
        }
        self.not_before = now.saturating_add(CNP_INTERVAL);
        true
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_rc))]
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

    #[test]
    fn one_at_most_in_an_interval() {
        let mut cnp = CnpPacer::default();
        let told: u32 = (0..1000).map(|us| u32::from(cnp.due(us * 1000))).sum();
        assert_eq!(told, 20);
    }
}
