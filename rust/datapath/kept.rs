// SPDX-License-Identifier: GPL-2.0

//! Requests that arrived behind a gap, kept as the packets that they are until their turn comes.
//! They cost no copy, and memory is written in order, as if the network had been late.

use crate::core::env::Keep;
use crate::sys::net::{
    KeptPacket,
    RxPacket, //
};
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Most bytes of kept packets of all devices together. What comes beyond them is dropped, as it is
/// for a peer that does not know better.
const MOST_BYTES: usize = 64 << 20;

/// The bytes of all kept packets.
static BYTES: Atomic<usize> = Atomic::new(0);

/// A kept packet, and what it counts in [`BYTES`].
struct Budgeted {
    packet: KeptPacket,
    bytes: usize,
}

impl Drop for Budgeted {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// The kept requests of a QP.
pub(super) struct KeptRequests(RBTree<u64, Budgeted>);

/// A kept request whose turn has come.
pub(super) struct KeptRequest(Budgeted);

impl KeptRequest {
    /// The packet, from the BTH to the ICRC.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.packet.head()
    }
}

impl Default for KeptRequests {
    fn default() -> Self {
        Self(RBTree::new())
    }
}

impl KeptRequests {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a packet under this number.
    pub(super) fn keep(&mut self, number: u64, packet: &RxPacket<'_>) -> Keep {
        if let Some(before) = self.0.get(&number) {
            if says_the_same(before.packet.head(), packet.head()) {
                return Keep::Again;
            }
            self.0.remove(&number);
            return Keep::Conflict;
        }
        let Some((packet, bytes)) = packet.keep() else {
            return Keep::NoRoom;
        };
        let taken = BYTES.fetch_add(bytes, Relaxed);
        let budgeted = Budgeted { packet, bytes };
        if taken.saturating_add(bytes) > MOST_BYTES {
            return Keep::NoRoom;
        }
        match self.0.try_create_and_insert(number, budgeted, GFP_ATOMIC) {
            Ok(_) => Keep::Kept,
            Err(_) => Keep::NoRoom,
        }
    }

    /// The packet that is kept under this number.
    pub(super) fn take(&mut self, number: u64) -> Option<KeptRequest> {
        self.0.remove(&number).map(KeptRequest)
    }

    /// Frees all of them.
    #[cold]
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether two packets differ in nothing but what they ask for: congestion bits, AckReq, and with
/// that the ICRC.
fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    const CONGESTION: usize = 4;
    const ACK_REQ: usize = 8;
    let end = one.len().saturating_sub(crate::core::wire::ICRC_LEN);
    let mut pairs = one.iter().zip(other).take(end).enumerate();
    one.len() == other.len()
        && pairs.all(|(at, (a, b))| a == b || matches!(at, CONGESTION | ACK_REQ))
}
