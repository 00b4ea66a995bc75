// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Counters of the requester. Plain numbers: the owner of the QP takes them under its lock, often
//! enough that 32 bits are plenty.

/// Counters of a requester.
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
