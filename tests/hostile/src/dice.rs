// SPDX-License-Identifier: GPL-2.0

//! Chance that is the same again for the same seed.
//!
//! Dice are thrown for one thing at a time (a packet of a direction, the data of a message), whose
//! names are the seed. So a decision does not depend on how many others were made before it,
//! and a scenario that loses a work request keeps most of its luck while it shrinks.

/// A generator of numbers (splitmix64).
#[derive(Clone, Copy, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice for the thing with this name.
    pub fn of(name: &[u64]) -> Self {
        let mut dice = Self { state: 0 };
        for part in name {
            dice.state ^= *part;
            dice.state = dice.throw();
        }
        dice
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.throw().to_ne_bytes()[..word.len()]);
        }
        bytes
    }

    /// Others, which depend on this throw alone.
    pub fn fork(&mut self) -> Self {
        Self::of(&[self.throw()])
    }
}

/// Where decisions come from: dice, for tests that can be run again, or the bytes of a fuzzer.
pub trait Chance {
    /// Any number.
    fn throw(&mut self) -> u64;

    /// A number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64 {
        self.throw() % n.max(1)
    }

    /// Nothing more is to be decided.
    fn is_over(&self) -> bool {
        false
    }

    /// True so often in a hundred times.
    fn percent(&mut self, percent: u8) -> bool {
        percent != 0 && self.below(100) < u64::from(percent)
    }

    /// One of these.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Any number, often a small one, or one next to a power of two.
    fn number(&mut self) -> u32 {
        match self.below(3) {
            0 => ((1u64 << self.below(33)) + self.below(3)).wrapping_sub(1) as u32,
            1 => self.below(600) as u32,
            _ => self.throw() as u32,
        }
    }

    /// A number of 24 bits.
    fn psn(&mut self) -> u32 {
        (self.throw() >> 40) as u32
    }
}

impl Chance for Dice {
    fn throw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
