// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the responder asks of the QP that it belongs to: its receive queue and its memory.

use crate::transport::completion::RecvCompletion;
use crate::transport::completion::Status;

/// Which right a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
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
/// "The payload" is that of the request that [`super::Responder::on_request`] was called with.
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

    /// Writes the payload, `len` bytes, to the receive taken last, from `offset` on. Both were
    /// checked against its capacity.
    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError>;

    /// A receive is complete.
    fn complete(&mut self, completion: RecvCompletion);
}
