// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Which packets may form a batch: lengths and numbers only.
//!
//! A batch that is linearized, as by generic XDP, is segmented again by the length of its first
//! packet. So all are as long as the first, but for the last, which may be shorter.

/// Limits of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, the network headers of the first packet included.
    pub bytes: u32,
    /// Packets.
    pub packets: u16,
}

/// The lengths of the packets of a batch.
#[derive(Debug)]
pub struct BatchShape {
    limits: Limits,
    packets: u16,
    bytes: u32,
    first: u32,
    last: u32,
}

impl BatchShape {
    /// One packet, of `len` bytes behind `headers` bytes of network headers.
    pub fn new(headers: u32, len: u32, limits: Limits) -> Self {
        Self {
            limits,
            packets: 1,
            bytes: headers.saturating_add(len),
            first: len,
            last: len,
        }
    }

    /// How many packets there are.
    #[inline]
    pub fn packets(&self) -> u16 {
        self.packets
    }

    /// Whether a packet of `len` bytes behind its network headers can be the next one.
    #[inline]
    pub fn takes(&self, len: u32) -> bool {
        self.packets < self.limits.packets
            && self.last == self.first
            && len <= self.first
            && self.bytes.saturating_add(len) <= self.limits.bytes
    }

    /// Adds such a packet, if it can be the next one; says whether it did.
    #[inline]
    pub fn add(&mut self, len: u32) -> bool {
        if !self.takes(len) {
            return false;
        }
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(len);
        self.last = len;
        true
    }
}
