// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Index arithmetic of the shared rings: free-running `u32`, as `uabi::ring` says.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use ferroce_core::uabi::{ring, udata::RingMap};

/// How the provider stands in one ring: the index that it owns, and the last that it has seen of
/// the index of the module.
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

    /// Forgets what was seen, for a ring that was emptied: both indices are `index`.
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

    /// Whether a consumer finds something in slot `index`; `producer` as above.
    #[inline]
    pub fn has_entry(&self, index: u32, producer: impl FnOnce() -> u32) -> bool {
        if index != self.seen.load(Relaxed) {
            return true;
        }
        let now = producer();
        self.seen.store(now, Relaxed);
        index != now
    }
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
        assert!(!cursor.has_entry(u32::MAX, || u32::MAX));
        assert!(cursor.has_entry(u32::MAX, || 2));
        assert!(cursor.has_entry(0, || unreachable!()));
        assert!(cursor.has_entry(1, || unreachable!()));
        assert!(!cursor.has_entry(2, || 2));
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
