// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the requester answers to the one who drives it.

use crate::transport::reliable::sequence::Sequence;

/// What an event changed, for the one who drives the requester. Whatever it says,
/// [`super::Requester::next_segment`] may have something to send after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// A work request ended in error: the QP goes to ERR, and the caller calls
    /// [`super::Requester::flush`].
    pub fatal: bool,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// All slots are in use.
    Full,
    /// The message is longer than [`crate::transport::message::MAX_MESSAGE`].
    TooLong,
    /// A request for a response, and the connection permits none (`max_rd_atomic` is 0).
    NoReads,
}

/// Where the payload of an accepted READ response goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Slot of the work request.
    pub slot: u32,
    /// Offset in its message, in bytes.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Of its first packet.
    pub(super) sequence: Sequence,
    /// How many packets it stands for.
    pub(super) span: u32,
    /// Of the connection.
    pub(super) epoch: u32,
}

/// Why a READ response is not to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// That part was placed already.
    Duplicate,
    /// Nothing was asked that this could answer.
    Unexpected,
    /// An earlier response is missing; it will be asked for again.
    Gap,
    /// It breaks the rules of its message: the work request ended with `BadRespErr`.
    Bad,
    /// The QP is not connected.
    NotReady,
}

/// A READ response that is not to be placed, and what it changed nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Ignored,
    /// What it changed.
    pub progress: Progress,
}
