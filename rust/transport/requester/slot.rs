// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The requester's private copy of the send queue: one slot a work request.

use crate::transport::completion::SendOp;
use crate::transport::completion::Status;
use crate::transport::sequence::Sequence;
use core::ops::DerefMut;

/// A work request for the send queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendRequest {
    /// Returned in the completion.
    pub wr_id: u64,
    /// RDMA operations: the remote virtual address.
    pub remote_addr: u64,
    /// Bytes of the message, at most [`crate::transport::config::MAX_MESSAGE`].
    pub length: u32,
    /// RDMA operations: the key of the remote region.
    pub rkey: u32,
    /// Immediate data in the order of the wire, if `op` has some.
    pub imm: [u8; 4],
    /// What to do.
    pub op: SendOp,
    /// Report a success too.
    pub signaled: bool,
    /// Do not begin before all earlier RDMA READs are complete.
    pub fence: bool,
    /// Raise a solicited event at the responder.
    pub solicited: bool,
}

/// A slot of the requester's copy of the send queue. Its content is the requester's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    pub(super) request: SendRequest,
    /// Sequence of the message's first packet; only meaningful once it has `begun`.
    pub(super) first: Sequence,
    /// How many PSNs the message takes; only meaningful once it has `begun`.
    pub(super) packets: u32,
    /// Not success: the work request failed on this side, and completes so when its turn comes.
    pub(super) status: Status,
    /// Its first packet was sent at least once.
    pub(super) begun: bool,
    /// RDMA READ: it was asked for again from some packet on.
    pub(super) asked_again: bool,
}

impl SendSlot {
    /// Sequence of the packet behind the message's last one.
    #[inline]
    pub(super) const fn end(&self) -> Sequence {
        self.first.wrapping_add(self.packets as u64)
    }
}

/// The slots, addressed by free-running indices.
pub(super) struct Ring<S> {
    slots: S,
    /// How many of the slots are used: a power of two, or 0.
    capacity: u32,
}

impl<S: DerefMut<Target = [SendSlot]>> Ring<S> {
    pub(super) fn new(slots: S) -> Self {
        let len = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let capacity = match len.checked_ilog2() {
            Some(log) => 1u32.wrapping_shl(log),
            None => 0,
        };
        Self { slots, capacity }
    }

    #[inline]
    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The slot number of an index.
    #[inline]
    pub(super) const fn slot(&self, index: u32) -> u32 {
        index & self.capacity.wrapping_sub(1)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&SendSlot> {
        self.slots.get(self.slot(index) as usize)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut SendSlot> {
        let slot = self.slot(index);
        self.slots.get_mut(slot as usize)
    }
}
