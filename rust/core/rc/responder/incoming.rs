// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The message in progress, between its packets.

use crate::core::wire::headers::Reth;

/// The message in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Message {
    /// None: the next request begins one.
    #[default]
    None,
    /// A SEND, which goes to a receive.
    Send {
        /// Of the receive.
        wr_id: u64,
        /// Bytes that the receive holds.
        capacity: u64,
        /// Bytes received so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// What its first packet said.
        reth: Reth,
        /// Bytes received so far.
        received: u32,
    },
}
