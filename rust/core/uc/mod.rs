// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Unreliable services, where nothing is acknowledged and nothing retransmitted: the unreliable
//! connection (IBTA volume 1, 9.8.2), and the requester of datagrams, whose messages are one packet
//! each.
//!
//! | what | file |
//! |---|---|
//! | the requester: a WQE is complete when its last packet has left | [`requester`] |
//! | the responder of a connection: messages without a gap | [`responder`] |
//! | what that shares with [`super::ud`]: what becomes of a packet, and of its receive | here |

use super::completion::{
    vendor,
    RecvCompletion,
    RecvOp,
    Status, //
};
use super::env::{
    Receive,
    ReceiveEnv,
    TakeReceive, //
};

pub mod requester;
pub mod responder;

#[cfg(test)]
mod tests;

/// Why a packet had no effect. Each has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreliableDrop {
    /// It is old: it came late, or twice.
    Old,
    /// Packets of its message are missing.
    Gap,
    /// There is no receive for its message.
    NoReceive,
    /// Its message is longer than the receive.
    TooLong,
    /// Its message may not write there.
    Denied,
    /// It breaks the rules of messages.
    Invalid,
    /// The responder is not connected, or stopped.
    NotReady,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum UnreliableOutcome {
    /// It was executed.
    Executed,
    /// It was not.
    Dropped(UnreliableDrop),
    /// A receive ended in error: the QP goes to ERR.
    Failed,
}

/// Takes the next receive, or the one that is still there. An error is what becomes of the message.
pub(super) fn take_receive(
    held: &mut Option<Receive>,
    op: RecvOp,
    env: &mut impl ReceiveEnv,
) -> Result<Receive, UnreliableOutcome> {
    if let Some(receive) = *held {
        return Ok(receive);
    }
    match env.take_receive() {
        TakeReceive::Taken { wr_id, capacity } => Ok(*held.insert(Receive { wr_id, capacity })),
        TakeReceive::Empty => Err(UnreliableOutcome::Dropped(UnreliableDrop::NoReceive)),
        TakeReceive::Malformed { wr_id, status } => {
            env.complete(RecvCompletion {
                status,
                vendor_err: vendor::RECEIVE_MALFORMED,
                ..RecvCompletion::flushed(wr_id, op)
            });
            Err(UnreliableOutcome::Failed)
        }
    }
}

/// A receive whose memory is not accessible completes in error.
pub(super) fn fail_receive(receive: Receive, env: &mut impl ReceiveEnv) -> UnreliableOutcome {
    env.complete(RecvCompletion {
        status: Status::LocProtErr,
        vendor_err: vendor::RECEIVE_MEMORY,
        ..RecvCompletion::flushed(receive.wr_id, RecvOp::Send)
    });
    UnreliableOutcome::Failed
}
