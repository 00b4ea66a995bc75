// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What a responder asks of its QP: receives, and the memory that a peer names.

use super::completion::{
    RecvCompletion,
    Status, //
};
use super::memory::{
    MemoryKey,
    Span, //
};
use crate::core::wire::headers::Reth;

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Writes `swap` if the value is `compare`.
    CompareSwap {
        /// The value to compare with.
        compare: u64,
        /// The value to write.
        swap: u64,
    },
    /// Adds this, modulo 2^64.
    FetchAdd(u64),
}

/// Where a FLUSH places data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPlacement {
    /// Globally visible.
    pub global: bool,
    /// Persistent.
    pub persistent: bool,
}

/// What a FLUSH covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushRange {
    /// A part of a region.
    Range(Span),
    /// A whole region.
    Region(MemoryKey),
}

/// The memory does not exist, or the access is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

/// A receive that was taken and is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    /// Bytes that it holds.
    pub(super) capacity: u64,
}

/// The next receive of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeReceive {
    /// A receive was taken; [`ReceiveEnv::scatter`] writes to it from now on.
    Taken {
        /// `wr_id` of its completion.
        wr_id: u64,
        /// Bytes that it holds.
        capacity: u64,
    },
    /// The queue is empty.
    Empty,
    /// A receive was taken, but is malformed.
    Malformed {
        /// `wr_id` of its completion.
        wr_id: u64,
        /// Status of its completion.
        status: Status,
    },
}

/// The receives of a QP, as its responder sees them.
///
/// "The payload" is that of the request that the responder was called with.
pub trait ReceiveEnv {
    /// Takes the next receive.
    fn take_receive(&mut self) -> TakeReceive;

    /// Writes the payload, `len` bytes, to the receive taken last, from `offset`. Both were checked
    /// against its capacity.
    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError>;

    /// A receive is complete.
    fn complete(&mut self, completion: RecvCompletion);
}

/// What a peer that may write needs besides: the responder of UC.
pub trait WriteEnv: ReceiveEnv {
    /// Whether the peer may access all of the span, which is not empty and does not wrap.
    fn check_remote(&mut self, access: RemoteAccess, span: Span) -> Result<(), AccessError>;

    /// Writes the payload, which is as long, to the span; checks the access again.
    fn write_remote(&mut self, span: Span) -> Result<(), AccessError>;
}

/// What became of a request that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is kept.
    Kept,
    /// It was kept already, and the two say the same.
    Again,
    /// Another one was kept, and says something else: neither is kept, for one may be forged.
    Conflict,
    /// There is no room for it.
    NoRoom,
}

/// What a peer that is answered needs besides: the responder of RC.
pub trait ResponderEnv: WriteEnv {
    /// Carries out the atomic operation on `word`, 8 bytes at a multiple of 8, if the peer may do
    /// that. Returns the original value.
    fn change_remote(&mut self, word: Span, change: AtomicOp) -> Result<u64, AccessError>;

    /// Writes the payload, 8 bytes, atomically to `word`, at a multiple of 8; checks the right to
    /// write.
    fn write_word(&mut self, word: Span) -> Result<(), AccessError>;

    /// Flushes earlier writes to `placement`, if the peer may ask for that.
    fn flush(&mut self, range: FlushRange, placement: FlushPlacement) -> Result<(), AccessError>;

    /// Keeps the request that the responder was called with, under this number, until its turn
    /// comes.
    fn keep(&mut self, _sequence: u64) -> Keep {
        Keep::NoRoom
    }

    /// Invalidates a key for the peer, if the peer may do that.
    fn invalidate(&mut self, _key: MemoryKey) -> Result<(), AccessError> {
        Err(AccessError)
    }
}

/// Whether the peer may access the range of the RETH. An empty one needs no right (C9-88).
#[inline(always)]
pub(super) fn check_range(
    access: RemoteAccess,
    reth: &Reth,
    env: &mut impl WriteEnv,
) -> Result<(), AccessError> {
    let span = Span::from(reth);
    let Some(before_last) = span.len.checked_sub(1) else {
        return Ok(());
    };
    if span.va.checked_add(before_last).is_none() {
        return Err(AccessError);
    }
    env.check_remote(access, span)
}
