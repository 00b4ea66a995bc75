// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Index arithmetic of the shared rings: free-running `u32`, as `uabi::ring` says.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use ferroce_core::uabi::{ring, udata::RingMap};

/// The indices of one ring: the one that the provider owns, and the last that it has seen of the
/// module's.
///
/// The copies spare a visit to the cache line that the module writes. They change only under the
/// lock of the queue: the atomics are relaxed and cost nothing.
#[derive(Debug, Default)]
pub struct Cursor {
    own: AtomicU32,
    seen: AtomicU32,
}

impl Cursor {
    /// The next index to fill (send, receive queue) or to take (completion queue).
    pub fn own(&self) -> u32 {
        self.own.load(Relaxed)
    }

    /// Moves the own index; the caller publishes it.
    pub fn set_own(&self, index: u32) {
        self.own.store(index, Relaxed);
    }

    /// Resets the cursor, for a ring that was emptied: both indices are `index`.
    pub fn reset(&self, index: u32) {
        self.own.store(index, Relaxed);
        self.seen.store(index, Relaxed);
    }

    /// Whether a producer may fill slot `index` of a ring that holds `limit` requests; `consumer`
    /// reads the index of the module, and is asked only if the last one seen does not suffice.
    #[inline]
    pub fn has_room(&self, index: u32, limit: u32, consumer: impl FnOnce() -> u32) -> bool {
        if index.wrapping_sub(self.seen.load(Relaxed)) < limit {
            return true;
        }
        let now = consumer();
        self.seen.store(now, Relaxed);
        index.wrapping_sub(now) < limit
    }

    /// Whether a consumer of a ring with `entries` slots finds something in slot `index`;
    /// `producer` as above.
    ///
    /// # Errors
    ///
    /// The index of the module is one that cannot be.
    #[inline]
    pub fn has_entry(
        &self,
        index: u32,
        entries: u32,
        producer: impl FnOnce() -> u32,
    ) -> Result<bool, Scribbled> {
        if index != self.seen.load(Relaxed) {
            return Ok(true);
        }
        self.look(index, entries, producer).map(|end| index != end)
    }

    /// The index behind the last entry that a consumer can take, as it is now; otherwise as
    /// [`Cursor::has_entry`].
    pub fn look(
        &self,
        index: u32,
        entries: u32,
        producer: impl FnOnce() -> u32,
    ) -> Result<u32, Scribbled> {
        let end = producer();
        if end.wrapping_sub(index) > entries {
            return Err(Scribbled);
        }
        self.seen.store(end, Relaxed);
        Ok(end)
    }
}

/// Something in the process has written over the control block of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scribbled;

/// Takes entries out of `first..end`: those that are not `kept`. The others move towards the end,
/// in their order, by `copy(from, to)`. Returns the index of the first that is left.
///
/// The entries belong to the consumer, so that the producer writes to none of them meanwhile.
pub fn take_out(
    first: u32,
    end: u32,
    mut kept: impl FnMut(u32) -> bool,
    mut copy: impl FnMut(u32, u32),
) -> u32 {
    let mut left = end;
    let mut index = end;
    while index != first {
        index = index.wrapping_sub(1);
        if kept(index) {
            left = left.wrapping_sub(1);
            if left != index {
                copy(index, left);
            }
        }
    }
    left
}

/// Whether a ring is of the shape that `uabi::ring` promises, with slots of at least `stride`
/// bytes, and fits its mapping.
pub fn well_formed(map: &RingMap, stride: u32) -> bool {
    map.entries.is_power_of_two()
        && map.stride >= stride
        && (map.stride as usize) % ring::SLOT_ALIGN == 0
        && ring::mapping_len(map.entries, map.stride) <= map.length
        && usize::try_from(map.length).is_ok()
        && libc::off_t::try_from(map.offset).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_producer_fills_every_slot_and_looks_again_only_when_full() {
        let cursor = Cursor::default();
        // Close to the wrap of the index on purpose.
        let start = u32::MAX - 1;
        cursor.reset(start);
        let consumer = Cell::new(start);
        let looks = Cell::new(0);
        let read = || {
            looks.set(looks.get() + 1);
            consumer.get()
        };
        for i in 0..4 {
            assert!(cursor.has_room(start.wrapping_add(i), 4, read));
        }
        assert_eq!(looks.get(), 0);
        assert!(!cursor.has_room(start.wrapping_add(4), 4, read));
        consumer.set(start.wrapping_add(3));
        assert!(cursor.has_room(start.wrapping_add(4), 4, read));
        assert!(cursor.has_room(start.wrapping_add(6), 4, read));
        assert!(!cursor.has_room(start.wrapping_add(7), 4, read));
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn a_ring_that_holds_nothing_has_no_room() {
        assert!(!Cursor::default().has_room(0, 0, || 0));
    }

    #[test]
    fn a_consumer_takes_what_was_produced_across_the_wrap() {
        let cursor = Cursor::default();
        cursor.reset(u32::MAX);
        assert_eq!(cursor.has_entry(u32::MAX, 4, || u32::MAX), Ok(false));
        assert_eq!(cursor.has_entry(u32::MAX, 4, || 2), Ok(true));
        assert_eq!(cursor.has_entry(0, 4, || unreachable!()), Ok(true));
        assert_eq!(cursor.has_entry(1, 4, || unreachable!()), Ok(true));
        assert_eq!(cursor.has_entry(2, 4, || 2), Ok(false));
    }

    #[test]
    fn a_producer_that_cannot_be_is_an_error_and_not_remembered() {
        let cursor = Cursor::default();
        cursor.reset(10);
        for index in [15, 9, 0, 10 + (1 << 31), u32::MAX] {
            assert_eq!(cursor.has_entry(10, 4, || index), Err(Scribbled));
        }
        assert_eq!(cursor.has_entry(10, 4, || 10), Ok(false));
        assert_eq!(cursor.has_entry(10, 4, || 14), Ok(true));
    }

    /// Every choice of what goes, at every place of a small ring and across the wrap of the index.
    #[test]
    fn what_is_left_keeps_its_order_and_ends_where_it_ended() {
        for first in [0u32, 5, u32::MAX - 2] {
            for count in 0..=8u32 {
                for choice in 0u32..1 << count {
                    let slot = |index: u32| (index & 7) as usize;
                    let end = first.wrapping_add(count);
                    let ring = [const { Cell::new(0xee) }; 8];
                    for i in 0..count {
                        ring[slot(first.wrapping_add(i))].set(i);
                    }
                    let left = take_out(
                        first,
                        end,
                        |index| (choice >> ring[slot(index)].get()) & 1 == 0,
                        |from, to| ring[slot(to)].set(ring[slot(from)].get()),
                    );
                    let want: Vec<_> = (0..count).filter(|i| (choice >> i) & 1 == 0).collect();
                    let len = end.wrapping_sub(left);
                    let got: Vec<_> = (0..len)
                        .map(|i| ring[slot(left.wrapping_add(i))].get())
                        .collect();
                    assert_eq!(got, want, "{first} {count} {choice:b}");
                }
            }
        }
    }

    #[test]
    fn a_malformed_ring_is_found_out() {
        let good = RingMap {
            offset: 1 << 40,
            length: 4096,
            entries: 32,
            stride: 64,
        };
        assert!(well_formed(&good, 64));
        assert!(!well_formed(&good, 128));
        for bad in [
            RingMap { entries: 0, ..good },
            RingMap {
                entries: 24,
                ..good
            },
            RingMap { stride: 96, ..good },
            RingMap {
                entries: 64,
                ..good
            },
            RingMap {
                offset: u64::MAX,
                ..good
            },
        ] {
            assert!(!well_formed(&bad, 64), "{bad:?}");
        }
    }
}
