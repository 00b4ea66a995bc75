// SPDX-License-Identifier: GPL-2.0

//! Packets to be sent: one, or a batch of one flow.
//!
//! Everything here is for softirq and for process context with BH disabled, under any spinlock
//! that is not taken in hard interrupts. Sending never receives in the same stack: whatever
//! loops a packet back (`lo`, veth, macvlan, bridges, a redirect of tc or BPF) queues it to the
//! per-CPU backlog or a NAPI instance, which run when BHs are enabled again.

use super::Route;
use crate::sys::bindings;
use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};

/// What became of packets that were sent. The protocol treats all but `Sent` as loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxResult {
    /// It is under way, as far as this machine knows.
    Sent,
    /// It is under way, but the queue it went through asks for less.
    Congested,
    /// The stack has dropped it.
    Lost,
}

/// A packet whose network headers are complete and whose InfiniBand bytes are yet to be written.
///
/// What was not written would show what the memory held before: all of it must be, or the packet
/// be dropped.
///
/// # Invariants
///
/// `skb` is a linear skb that only we know; `headers` is valid for `headers_len` bytes of it, `ib`
/// for `ib_len` bytes, and they do not overlap. The bytes are of an allocation of the kernel,
/// whose content is arbitrary but fixed.
pub struct TxPacket {
    skb: NonNull<bindings::sk_buff>,
    headers: NonNull<u8>,
    headers_len: usize,
    ib: NonNull<u8>,
    ib_len: usize,
}

// SAFETY: The skb is only known here.
unsafe impl Send for TxPacket {}

impl TxPacket {
    /// Makes a packet for `route` with `ib_len` bytes from the BTH to the ICRC, whose content is
    /// arbitrary. `place` is its place in a batch, from 0: see [`TxBatch`].
    ///
    /// `None` when there is no memory or the packet does not fit into an IP packet.
    #[inline]
    pub fn alloc(route: &Route, ib_len: usize, place: u16) -> Option<Self> {
        let mut raw = bindings::ferroce_tx::default();
        let len = u32::try_from(ib_len).ok()?;

        // SAFETY: The route is valid by its invariant.
        if unsafe { bindings::ferroce_tx_alloc(route.as_raw(), len, place, &mut raw) } != 0 {
            return None;
        }
        // INVARIANT: `ferroce_tx_alloc` has succeeded: it wrote the headers and made room for the
        // rest.
        Some(Self {
            skb: NonNull::new(raw.skb)?,
            headers: NonNull::new(raw.headers.cast_mut())?,
            headers_len: raw.headers_len as usize,
            ib: NonNull::new(raw.ib)?,
            ib_len,
        })
    }

    /// The bytes from the BTH to the ICRC.
    #[inline]
    pub fn ib_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: By the type invariant, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.ib.as_ptr(), self.ib_len) }
    }

    /// Both at once, as the ICRC needs them.
    #[inline]
    pub fn parts_mut(&mut self) -> (&[u8], &mut [u8]) {
        // SAFETY: By the type invariant the two do not overlap; `self` is borrowed mutably.
        unsafe {
            (
                slice::from_raw_parts(self.headers.as_ptr(), self.headers_len),
                slice::from_raw_parts_mut(self.ib.as_ptr(), self.ib_len),
            )
        }
    }
}

impl Drop for TxPacket {
    fn drop(&mut self) {
        // SAFETY: The skb is ours and is not used again.
        unsafe { bindings::ferroce_tx_free(self.skb.as_ptr()) };
    }
}

/// Packets of one flow that go through the network stack together, as one GSO packet does.
///
/// Whoever takes a batch apart numbers the packets in their IPv4 headers from that of the first,
/// and the ICRC covers the number: so the packet at place n is made with the number n.
///
/// # Invariants
///
/// `head` is an skb that only we know, with `count - 1` skbs in its fragment list, the last of
/// which is `tail`; for a batch of one `tail` is `head`.
pub struct TxBatch {
    head: NonNull<bindings::sk_buff>,
    tail: NonNull<bindings::sk_buff>,
    count: u16,
    /// Bytes of the first packet, from the IP header on. Nobody asks the others whether they fit
    /// the MTU.
    first: u32,
    bytes: u32,
    /// Bytes of IP and UDP headers of each.
    headers_len: u32,
    most_bytes: u32,
    most: u16,
}

// SAFETY: The skbs are only known here.
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// A batch of one packet, made with place 0 for `route`.
    pub fn new(first: TxPacket, route: &Route) -> Self {
        let first = ManuallyDrop::new(first);
        let bytes = first.headers_len.wrapping_add(first.ib_len) as u32;
        let (mut most_bytes, mut most) = (0, 0);

        // SAFETY: The route is valid by its invariant.
        unsafe {
            bindings::ferroce_tx_batch_limits(route.as_raw(), &mut most_bytes, &mut most);
        }
        // INVARIANT: The packet is ours, and given to the batch.
        Self {
            head: first.skb,
            tail: first.skb,
            count: 1,
            first: bytes,
            bytes,
            headers_len: first.headers_len as u32,
            most_bytes,
            most: u16::try_from(most).unwrap_or(u16::MAX),
        }
    }

    /// How many packets it holds, which is the place of the next one.
    #[inline]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Whether there is room for a packet of `ib_len` bytes from the BTH to the ICRC.
    #[inline]
    pub fn takes(&self, ib_len: usize) -> bool {
        let Ok(len) = u32::try_from(ib_len.saturating_add(self.headers_len as usize)) else {
            return false;
        };

        self.count < self.most
            && len <= self.first
            && self
                .bytes
                .checked_add(len)
                .is_some_and(|bytes| bytes <= self.most_bytes)
    }

    /// Adds a packet that it [takes](Self::takes), made for the same route with the place
    /// [`Self::count`].
    pub fn push(&mut self, packet: TxPacket) {
        let packet = ManuallyDrop::new(packet);
        let len = packet.headers_len.wrapping_add(packet.ib_len) as u32;

        // INVARIANT: One more in the list, and it is the last.
        // SAFETY: By the type invariant all three are ours, and `tail` is the last of the list.
        unsafe {
            bindings::ferroce_tx_append(
                self.head.as_ptr(),
                self.tail.as_ptr(),
                packet.skb.as_ptr(),
            );
        }
        self.tail = packet.skb;
        self.bytes = self.bytes.wrapping_add(len);
        self.count = self.count.wrapping_add(1);
    }

    /// Sends it by `route`, which must be the one it was made for: its headers are that route's.
    pub fn send(self, route: &Route) -> TxResult {
        let this = ManuallyDrop::new(self);

        if this.count > 1 {
            // SAFETY: By the type invariant `head` is ours and has a list.
            unsafe { bindings::ferroce_tx_close(this.head.as_ptr(), this.count) };
        }
        // SAFETY: The route is valid by its invariant, the skb is ours and given away here.
        let code = unsafe { bindings::ferroce_tx_send(route.as_raw(), this.head.as_ptr()) };

        match u32::try_from(code) {
            Ok(0) => TxResult::Sent,
            Ok(bindings::NET_XMIT_CN) => TxResult::Congested,
            _ => TxResult::Lost,
        }
    }
}

impl Drop for TxBatch {
    fn drop(&mut self) {
        // SAFETY: The skbs are ours and are not used again; the head frees its list.
        unsafe { bindings::ferroce_tx_free(self.head.as_ptr()) };
    }
}
