// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the state machines count. Plain numbers: the owner of the QP reads them under its lock.

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Packets sent, each time they are sent.
    pub packets: u64,
    /// Of these, packets that had been sent before.
    pub retransmitted: u64,
    /// ACK timeouts (`local_ack_timeout_err`).
    pub timeouts: u64,
    /// RNR NAKs that were obeyed (`rnr_nak_retry_err`).
    pub rnr_naks: u64,
    /// NAKs for a PSN sequence error (`packet_seq_err`).
    pub seq_naks: u64,
    /// Losses of READ responses that a later response or ACK told (`implied_nak_seq_err`).
    pub implied_naks: u64,
    /// NAKs that end the connection.
    pub fatal_naks: u64,
    /// Responses to what is complete already.
    pub stale: u64,
    /// Responses to what was never sent, or with a reserved syndrome.
    pub ghosts: u64,
    /// READ responses behind a gap.
    pub out_of_sequence: u64,
    /// READ responses that broke the rules of their message.
    pub bad_responses: u64,
}

/// Counters of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderCounters {
    /// Packets accepted in order.
    pub packets: u64,
    /// Packets that had been accepted before (`duplicate_request`).
    pub duplicates: u64,
    /// Packets behind a gap (`out_of_sequence`).
    pub out_of_sequence: u64,
    /// NAKs for a PSN sequence error.
    pub seq_naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
    /// Packets before the first one of the connection, or in a state that takes none.
    pub ignored: u64,
    /// Requests refused as invalid (`req_remote_invalid_request`).
    pub invalid_requests: u64,
    /// Requests refused for a lack of rights (`req_remote_access_errors`).
    pub access_errors: u64,
    /// Requests refused because of our own receive or memory.
    pub local_errors: u64,
}
