// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Counters of the requester. Plain numbers: the owner of the QP reads them under its lock.

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Packets sent, including retransmissions.
    pub packets: u64,
    /// Retransmitted packets.
    pub retransmitted: u64,
    /// Tail-loss probes; they are not in `retransmitted`.
    pub tail_probes: u64,
    /// ACK timeouts (`local_ack_timeout_err`).
    pub timeouts: u64,
    /// RNR NAKs that were honoured (`rnr_nak_retry_err`).
    pub rnr_naks: u64,
    /// NAKs for a PSN sequence error (`packet_seq_err`).
    pub seq_naks: u64,
    /// Losses of READ responses implied by a later response or ACK (`implied_nak_seq_err`).
    pub implied_naks: u64,
    /// Fatal NAKs.
    pub fatal_naks: u64,
    /// Responses to completed requests.
    pub duplicate_responses: u64,
    /// Responses to requests that were never sent, with an impossible MSN, or with a reserved
    /// syndrome.
    pub unexpected_responses: u64,
    /// Reports of the peer that say which packets are missing.
    pub missing_reports: u64,
    /// Times that the window shrank because the network marks packets.
    pub slowdowns: u64,
    /// READ responses behind a gap.
    pub out_of_sequence: u64,
    /// READ responses that violate the protocol.
    pub bad_responses: u64,
}
