// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The module's side of the rings: [`wqe`] has the private copies of WQEs, [`cq_producer`] writes
//! CQEs and decides which of them raise an event, [`srq_consumer`] takes receives from the ring of
//! an SRQ.

pub mod cq_producer;
pub mod srq_consumer;
pub mod wqe;

/// A ring for tests: up to 16 slots, of which the first four words matter.
#[cfg(any(test, CONFIG_KUNIT = "y"))]
mod fake {
    use crate::core::uabi::ring::{
        Module,
        RingOps,
        Word,
        Words, //
    };
    use core::cell::Cell;

    /// A ring that nobody else uses.
    pub(super) struct Fake {
        words: [Cell<u32>; 4],
        slots: [[Cell<u64>; 4]; 16],
        entries: u32,
    }

    impl Fake {
        /// An empty ring of `entries` whose indices are `index`.
        pub(super) fn new(entries: u32, index: u32) -> Self {
            Self {
                words: [index, index, 0, 0].map(Cell::new),
                slots: [const { [const { Cell::new(0) }; 4] }; 16],
                entries,
            }
        }

        /// The words of a slot.
        pub(super) fn slot(&self, index: u32) -> &[Cell<u64>; 4] {
            &self.slots[(index & self.entries.wrapping_sub(1)) as usize]
        }
    }

    impl Words for Fake {
        fn load(&self, word: Word) -> u32 {
            self.words[word as usize].get()
        }
        fn load_acquire(&self, word: Word) -> u32 {
            self.load(word)
        }
        fn store(&self, word: Word, value: u32) {
            self.words[word as usize].set(value);
        }
        fn store_release(&self, word: Word, value: u32) {
            self.store(word, value);
        }
        fn full_barrier(&self) {}
    }

    impl Module for Fake {
        fn swap(&self, word: Word, value: u32) -> u32 {
            self.words[word as usize].replace(value)
        }
    }

    impl RingOps for Fake {
        fn entries(&self) -> u32 {
            self.entries
        }
        fn read_slot(&self, index: u32, first: usize, out: &mut [u64]) {
            let words = self.slot(index).iter().skip(first);
            for (to, from) in out.iter_mut().zip(words) {
                *to = from.get();
            }
        }
        fn write_slot(&self, index: u32, words: &[u64]) {
            for (to, from) in self.slot(index).iter().zip(words) {
                to.set(*from);
            }
        }
    }
}
