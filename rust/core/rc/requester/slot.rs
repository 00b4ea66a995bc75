// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the requester keeps of each WQE.

use crate::core::completion::Status;
use crate::core::rc::sequence::Sequence;
use crate::core::send::SendRequest;

/// A slot of the send queue, for its requester. The content is the requester's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendSlot {
    pub(super) request: SendRequest,
    /// Sequence of the message's first packet; only meaningful once it has `begun`.
    pub(super) first: Sequence,
    /// How many PSNs the message takes; only meaningful once it has `begun`.
    pub(super) packets: u32,
    /// Not success: the WQE failed locally, and completes with this status in its order.
    pub(super) status: Status,
    /// Its first packet was sent at least once.
    pub(super) begun: bool,
    /// Some packet of it was retransmitted.
    pub(super) repeated: bool,
}

impl SendSlot {
    /// Sequence of the packet behind the message's last one.
    #[inline]
    pub(super) const fn end(&self) -> Sequence {
        self.first.wrapping_add(self.packets as u64)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_slot)
)]
mod tests {
    use super::*;

    /// A send queue of 16384 requests has as many of them.
    #[test]
    fn slots_are_small() {
        assert_eq!(size_of::<SendSlot>(), 32);
    }
}
