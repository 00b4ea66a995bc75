// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the requester answers to the one who drives it.

use crate::transport::reliable::sequence::Sequence;
use crate::transport::request::Progress;

/// What stands before the send cursor when there is no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// Nothing that can be done now.
    Nothing,
    /// Something that was done: there may be a segment behind it.
    GoOn,
    /// The request in this slot, which asks no peer: to be done now, and then reported by
    /// [`super::Requester::done_here`].
    Do(u32),
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
