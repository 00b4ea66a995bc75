// SPDX-License-Identifier: GPL-2.0

//! Received packets that are executed later, on another CPU.
//!
//! They are linked through the packets themselves, so nothing is allocated. Each is held with its
//! net device, which therefore may be unregistered, but is not freed before they are executed.

use super::receive::{
    self,
    RxPacket, //
};
use super::{
    NetNs,
    Verdict, //
};
use crate::sys::bindings;
use core::ptr::NonNull;

/// Packets that arrived one after the other.
///
/// # Invariants
///
/// `raw` lists packets that are owned, each with a reference of its net device. None was freed.
#[derive(Default)]
pub struct RxBatch {
    raw: bindings::ferroce_rx_batch,
    packets: u32,
}

// SAFETY: Packets and references of net devices belong to no thread.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Adds a packet, whose receiver consumes it next. Returns whether it is in: one without a net
    /// device is not.
    pub fn defer(&mut self, packet: &RxPacket<'_>) -> bool {
        // SAFETY: By the type invariants the list is intact, and the skb is valid; nobody else
        // has a reference yet, or looks at what this clears and links.
        let is_in = unsafe { bindings::ferroce_rx_defer(&mut self.raw, packet.skb()) };
        // INVARIANT: The list has got a reference of its own.
        self.packets = self.packets.wrapping_add(is_in.into());
        is_in
    }

    /// The number of packets.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Hands over one packet after the other, with the namespace that its net device is in.
    /// Returns how many there were.
    pub fn each(mut self, mut receive: impl FnMut(NetNs, &RxPacket<'_>) -> Verdict) -> u32 {
        let mut packets = 0_u32;
        while let Some(skb) = self.take() {
            packets = packets.wrapping_add(1);
            // SAFETY: By the type invariant the skb was owned by the list, with its net device.
            let netns = unsafe { NetNs::of_deferred(skb.as_ptr()) };
            // SAFETY: The skb is ours. Its data began with the UDP header when it was received,
            // and nobody has moved it since. What follows it is in the list behind it.
            let packet = unsafe { receive::open(skb.as_ptr()) };
            let verdict = match (netns, packet) {
                (Some(netns), Ok(packet)) => receive(netns, &packet),
                // Cannot happen: it could be read when it was received.
                _ => Verdict::Dropped,
            };
            end(skb, verdict);
        }
        packets
    }

    /// The first packet, which leaves the list and is still linked to the next one.
    fn take(&mut self) -> Option<NonNull<bindings::sk_buff>> {
        let first = NonNull::new(self.raw.first)?;
        // SAFETY: By the type invariant.
        self.raw.first = unsafe { bindings::ferroce_rx_deferred_next(first.as_ptr()) };
        Some(first)
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        while let Some(skb) = self.take() {
            end(skb, Verdict::Dropped);
        }
    }
}

/// Frees a packet that a list has owned, and the reference of its net device.
fn end(skb: NonNull<bindings::sk_buff>, verdict: Verdict) {
    // SAFETY: By the invariant of the list that it was taken from, both are owned, and neither is
    // used again.
    unsafe { bindings::ferroce_rx_deferred_end(skb.as_ptr(), verdict == Verdict::Dropped) }
}

/// Batches in the order in which they arrived.
///
/// # Invariants
///
/// `raw` lists the first packets of batches that are owned, as those of [`RxBatch`] are. None is
/// empty.
#[derive(Default)]
pub struct RxBatches {
    raw: bindings::ferroce_rx_batch,
}

// SAFETY: As for `RxBatch`.
unsafe impl Send for RxBatches {}

impl RxBatches {
    /// Adds a batch at the end.
    pub fn push(&mut self, mut batch: RxBatch) {
        let first = core::mem::take(&mut batch.raw).first;
        if !first.is_null() {
            // INVARIANT: The batch was the owner, and has been emptied.
            // SAFETY: By the type invariants of both.
            unsafe { bindings::ferroce_rx_batches_add(&mut self.raw, first) }
        }
    }

    /// Takes the first batch.
    pub fn take(&mut self) -> Option<RxBatch> {
        // SAFETY: By the type invariant.
        let first = unsafe { bindings::ferroce_rx_batches_take(&mut self.raw) };
        // INVARIANT: The list was the owner. Nothing is added to this one, so its end is not
        // looked for.
        (!first.is_null()).then(|| RxBatch {
            raw: bindings::ferroce_rx_batch {
                first,
                ..Default::default()
            },
            packets: 0,
        })
    }
}

impl Drop for RxBatches {
    fn drop(&mut self) {
        while let Some(batch) = self.take() {
            drop(batch);
        }
    }
}
