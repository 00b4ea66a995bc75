// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! WQEs of a send queue, as every requester takes them.

use super::operation::Operation;

/// A work request for the send queue: what the protocol needs of it. Where the data is, and what
/// the extended headers are filled from, is the owner's to keep, by slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendRequest {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Bytes of the message, at most [`crate::core::message::MAX_MESSAGE`].
    pub length: u32,
    /// What to do.
    pub op: Operation,
    /// Report a success too.
    pub signaled: bool,
    /// Do not begin before all earlier requests that are answered by a response are complete.
    pub fence: bool,
    /// Raise a solicited event at the responder.
    pub solicited: bool,
}

/// What an event changed, for the driver of a requester. In any case there may be
/// something to send after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// A work request ended in error: the QP leaves its state (for ERR, or on an unreliable service
    /// for SQE), and the caller flushes the requester.
    pub fatal: bool,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// All slots are in use.
    Full,
    /// The message is longer than the service carries: 2 GiB, or a packet of datagrams.
    TooLong,
    /// A request for a response, and the connection permits none (`max_rd_atomic` is 0).
    NoReads,
}
