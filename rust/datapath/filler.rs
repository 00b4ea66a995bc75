// SPDX-License-Identifier: GPL-2.0

//! The producing side of a completion ring.

use crate::uabi::words::Ring;

/// Where the module stands in a completion ring. Who pushes holds the lock of the queue.
#[derive(Debug, Default)]
pub struct Filler {
    /// Index of the next entry; the process sees a copy and cannot change this one.
    producer: u32,
    /// An entry was lost: the queue is of no use any more.
    overrun: bool,
}

/// There was no room for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// For the first time.
    pub first: bool,
}

impl Filler {
    /// Adds an entry, and tells whether somebody waits for it.
    #[inline]
    pub fn push(
        &mut self,
        ring: &impl Ring,
        entry: &[u64],
        solicited: bool,
    ) -> Result<bool, Overrun> {
        let used = self.producer.wrapping_sub(ring.load_consumer());
        if self.overrun || used >= ring.entries() {
            let first = !core::mem::replace(&mut self.overrun, true);
            return Err(Overrun { first });
        }
        ring.write_slot(self.producer, entry);
        self.producer = self.producer.wrapping_add(1);
        ring.store_producer(self.producer);
        Ok(ring.take_arm(solicited))
    }
}
