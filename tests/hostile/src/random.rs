// SPDX-License-Identifier: GPL-2.0

//! Numbers that a seed decides (SplitMix64).

/// A source of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A 24-bit number.
    pub fn psn(&mut self) -> u32 {
        (self.next() >> 40) as u32
    }

    /// A source of its own.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
