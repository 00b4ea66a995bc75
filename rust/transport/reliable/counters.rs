// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the requester counts. Plain numbers: the owner of the QP reads them under its lock.

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Packets sent, each time they are sent.
    pub packets: u64,
    /// Of these, packets that had been sent before.
    pub retransmitted: u64,
    /// Tail-loss probes; they are not in `retransmitted`.
    pub tail_probes: u64,
    /// ACK timeouts (`local_ack_timeout_err`).
    pub timeouts: u64,
    /// RNR NAKs that were obeyed (`rnr_nak_retry_err`).
    pub rnr_naks: u64,
    /// NAKs for a PSN sequence error (`packet_seq_err`).
    pub seq_naks: u64,
    /// Losses of READ responses that a later response or ACK showed (`implied_nak_seq_err`).
    pub implied_naks: u64,
    /// NAKs that end the connection.
    pub fatal_naks: u64,
    /// Responses to what is complete already.
    pub duplicate_responses: u64,
    /// Responses to what was never sent, with an MSN that cannot be, or with a reserved syndrome.
    pub unexpected_responses: u64,
    /// READ responses behind a gap.
    pub out_of_sequence: u64,
    /// READ responses that broke the rules of their message.
    pub bad_responses: u64,
}
