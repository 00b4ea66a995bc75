// SPDX-License-Identifier: GPL-2.0

//! A packet to be sent.
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

/// What became of a packet that was sent. The protocol treats all but `Sent` as loss.
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
/// # Invariants
///
/// `skb` is a linear skb that only we know; `headers` is valid for `headers_len` bytes of it, `ib`
/// for `ib_len` bytes, and they do not overlap. All these bytes are initialised.
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
    /// Makes a packet for `route` with `ib_len` bytes from the BTH to the ICRC, which are zero.
    ///
    /// `None` when there is no memory or the packet does not fit into an IP packet.
    #[inline]
    pub fn alloc(route: &Route, ib_len: usize) -> Option<Self> {
        let mut raw = bindings::ferroce_tx::default();
        let len = u32::try_from(ib_len).ok()?;

        // SAFETY: The route is valid by its invariant.
        if unsafe { bindings::ferroce_tx_alloc(route.as_raw(), len, &mut raw) } != 0 {
            return None;
        }
        // INVARIANT: `ferroce_tx_alloc` has succeeded: it wrote the headers and zeroed the rest.
        Some(Self {
            skb: NonNull::new(raw.skb)?,
            headers: NonNull::new(raw.headers.cast_mut())?,
            headers_len: raw.headers_len as usize,
            ib: NonNull::new(raw.ib)?,
            ib_len,
        })
    }

    /// The IP and the UDP header exactly as they leave, but for what routers may change.
    #[inline]
    pub fn network_headers(&self) -> &[u8] {
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(self.headers.as_ptr(), self.headers_len) }
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

    /// Sends it by `route`, which must be the one it was made for: its headers are that route's.
    #[inline]
    pub fn send(self, route: &Route) -> TxResult {
        let this = ManuallyDrop::new(self);
        // SAFETY: The route is valid by its invariant, the skb is ours and given away here.
        let code = unsafe { bindings::ferroce_tx_send(route.as_raw(), this.skb.as_ptr()) };

        match u32::try_from(code) {
            Ok(0) => TxResult::Sent,
            Ok(bindings::NET_XMIT_CN) => TxResult::Congested,
            _ => TxResult::Lost,
        }
    }
}

impl Drop for TxPacket {
    fn drop(&mut self) {
        // SAFETY: The skb is ours and is not used again.
        unsafe { bindings::ferroce_tx_free(self.skb.as_ptr()) };
    }
}
