// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What becomes of a READ response: the results that the requester returns to its owner.

use crate::core::rc::sequence::Sequence;
use crate::core::send::Progress;
use crate::core::slots::Slot;

/// Where the payload of an accepted READ response goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPlacement {
    /// Slot of the work request.
    pub slot: Slot,
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

/// Why a READ response is not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// This part is placed already.
    Duplicate,
    /// It answers no request.
    Unexpected,
    /// An earlier response is missing; it will be requested again.
    Gap,
    /// It breaks the rules of its message: the WQE ended with `BadRespErr`.
    Bad,
    /// The QP is not connected.
    NotReady,
}

/// A READ response that is not placed, and what it changed nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIgnored {
    /// Why.
    pub reason: Ignored,
    /// What it changed.
    pub progress: Progress,
}
