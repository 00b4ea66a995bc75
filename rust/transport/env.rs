// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What a responder asks of the QP that it belongs to: its receive queue and its memory.

use super::completion::vendor;
use super::completion::Carried;
use super::completion::RecvCompletion;
use super::completion::RecvOp;
use super::completion::Status;
use crate::wire::headers::Reth;

/// Which right a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
}

/// What an atomic operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Puts `swap` there if `compare` is there.
    CompareSwap {
        /// What is to be there.
        compare: u64,
        /// What comes there.
        swap: u64,
    },
    /// Adds this, modulo 2^64.
    FetchAdd(u64),
}

/// Where a FLUSH brings what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// To where all see it.
    pub global: bool,
    /// To where it persists.
    pub persistent: bool,
}

/// The memory is not there, or may not be accessed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

/// The next receive of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeReceive {
    /// It is taken; [`ResponderEnv::scatter`] is about this one from now on.
    Taken {
        /// Returned in the completion.
        wr_id: u64,
        /// Bytes that it holds.
        capacity: u64,
    },
    /// There is none.
    Empty,
    /// It is taken, but cannot be used.
    Malformed {
        /// Returned in the completion.
        wr_id: u64,
        /// How it ends.
        status: Status,
    },
}

/// The QP as its responder sees it.
///
/// "The payload" is that of the request that the responder was called with.
pub trait ResponderEnv {
    /// Takes the next receive.
    fn take_receive(&mut self) -> TakeReceive;

    /// Whether the peer may access all of `va..va + len` with this key. `len` is not 0.
    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError>;

    /// Writes the payload, `len` bytes, to remotely accessible memory; checks the access again.
    fn write_remote(&mut self, rkey: u32, va: u64, len: u32) -> Result<(), AccessError>;

    /// Changes the 8 bytes at `va`, a multiple of 8, as one for all who access them, if the peer
    /// may do that with this key. The answer is what was there before.
    fn change_remote(&mut self, rkey: u32, va: u64, change: Change) -> Result<u64, AccessError>;

    /// Writes the payload, 8 bytes, to `va`, a multiple of 8, as one for all who access them;
    /// checks the right to write.
    fn write_word(&mut self, rkey: u32, va: u64) -> Result<(), AccessError>;

    /// Brings what was written so far to where `placement` says, if the peer may ask for that with
    /// this key: a range of the region, or all of it.
    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), AccessError>;

    /// Writes the payload, `len` bytes, to the receive taken last, from `offset` on. Both were
    /// checked against its capacity.
    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError>;

    /// Invalidates a key for the peer, if that is for the peer to do.
    fn invalidate(&mut self, _key: u32) -> Result<(), AccessError> {
        Err(AccessError)
    }

    /// A receive is complete.
    fn complete(&mut self, completion: RecvCompletion);
}

/// Whether the peer may access the range of the RETH. An empty one needs no right (C9-88).
#[inline(always)]
pub(super) fn check_range(
    access: RemoteAccess,
    reth: &Reth,
    env: &mut impl ResponderEnv,
) -> Result<(), AccessError> {
    let (va, length) = (reth.va(), reth.length());
    let Some(before_last) = length.checked_sub(1) else {
        return Ok(());
    };
    if va.checked_add(u64::from(before_last)).is_none() {
        return Err(AccessError);
    }
    env.check_remote(access, reth.rkey(), va, length)
}

/// A receive that was taken and will not be filled.
pub(super) fn flushed(wr_id: u64, op: RecvOp) -> RecvCompletion {
    RecvCompletion {
        wr_id,
        status: Status::WrFlushErr,
        op,
        byte_len: 0,
        carried: Carried::Nothing,
        solicited: false,
        vendor_err: vendor::FLUSHED,
    }
}
