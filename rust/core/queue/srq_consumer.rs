// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The module's side of an SRQ ring: QPs take receives from it, a limit event asks for more, and a
//! resize moves what is posted to another ring.

use super::wqe::RecvWqes;
use crate::core::env::TakeReceive;
use crate::core::uabi::ring::RingOps;
use crate::core::uabi::wqe::{
    recv_stride,
    MAX_SGE, //
};
use core::ops::DerefMut;

/// The module's side of an SRQ ring, guarded by the SRQ lock.
#[derive(Debug, Default)]
pub struct SrqConsumer {
    /// Index of the next receive.
    consumer: u32,
    /// Raise the limit event when fewer receives are left; 0 is never.
    limit: u32,
    /// The process published an invalid producer index: the SRQ is unusable.
    broken: bool,
}

/// Side effect of taking a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SrqEffect {
    /// Nothing.
    None,
    /// The limit was reached, and is now disarmed.
    LimitReached,
    /// The SRQ has just become unusable.
    Broken,
}

/// Receives to be copied to another ring.
#[derive(Debug)]
pub struct PostedReceives {
    first: u32,
    end: u32,
}

impl SrqConsumer {
    /// Receives that are posted and not taken; `None` if the SRQ is broken.
    pub fn left(&self, ring: &impl RingOps) -> Option<u32> {
        let left = ring.load_producer().wrapping_sub(self.consumer);
        (!self.broken).then_some(left.min(ring.entries()))
    }

    /// The armed limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes the next receive into `wqes`: copied once, then checked. A broken SRQ, also one that
    /// breaks now, marks `wqes`, which fails the QP.
    pub fn take<W: DerefMut<Target = [u64]>>(
        &mut self,
        ring: &impl RingOps,
        wqes: &mut RecvWqes<W>,
    ) -> (TakeReceive, SrqEffect) {
        if self.broken {
            wqes.set_corrupt();
            return (TakeReceive::Empty, SrqEffect::None);
        }
        let receive = wqes.take_at(ring, &mut self.consumer);
        if wqes.is_corrupt() {
            self.broken = true;
            return (receive, SrqEffect::Broken);
        }
        if self.limit != 0 && receive != TakeReceive::Empty && self.is_below(ring) {
            return (receive, SrqEffect::LimitReached);
        }
        (receive, SrqEffect::None)
    }

    /// Whether fewer receives are left than the limit. If so, the limit is disarmed.
    fn is_below(&mut self, ring: &impl RingOps) -> bool {
        let left = ring.load_producer().wrapping_sub(self.consumer);
        let below = left < self.limit;
        if below {
            self.limit = 0;
        }
        below
    }

    /// Arms the limit. Returns whether it is reached already, and thus disarmed again.
    pub fn arm(&mut self, ring: &impl RingOps, limit: u32) -> bool {
        self.limit = limit;
        limit != 0 && self.is_below(ring)
    }

    /// The receives to be copied to `to`, if they and the limit fit: `limit` if it is given, else
    /// the armed one.
    pub fn receives_to_copy(
        &self,
        from: &impl RingOps,
        to: &impl RingOps,
        limit: Option<u32>,
    ) -> Option<PostedReceives> {
        let end = from.load_producer();
        let posted = end.wrapping_sub(self.consumer);
        let fits = posted <= from.entries()
            && posted <= to.entries()
            && limit.unwrap_or(self.limit) <= to.entries();
        (fits && !self.broken).then_some(PostedReceives {
            first: self.consumer,
            end,
        })
    }

    /// Finishes a resize: receives taken meanwhile are not in the new ring.
    pub fn finish_resize(&self, posted: &PostedReceives, to: &impl RingOps) {
        to.store_consumer(self.consumer);
        to.store_producer(posted.end);
    }
}

impl PostedReceives {
    /// Copies the receives. Both rings have the same stride.
    pub fn copy(&self, from: &impl RingOps, to: &impl RingOps) {
        let mut index = self.first;
        while index != self.end {
            let mut slot = [0; recv_stride(MAX_SGE) as usize / 8];
            from.read_slot(index, 0, &mut slot);
            to.write_slot(index, &slot);
            index = index.wrapping_add(1);
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_srq_consumer)
)]
mod tests {
    use super::*;
    use crate::core::queue::fake::Fake;
    use crate::core::uabi::ring::{
        Word,
        Words, //
    };

    /// Posts receives without entries, with these ids.
    fn post(ring: &Fake, ids: core::ops::Range<u64>) {
        for id in ids {
            let index = ring.load_producer();
            ring.write_slot(index, &[id, 0]);
            ring.store_producer(index.wrapping_add(1));
        }
    }

    fn id(receive: TakeReceive) -> Option<u64> {
        match receive {
            TakeReceive::Taken { wr_id, .. } => Some(wr_id),
            _ => None,
        }
    }

    /// A consumer at `index`, with an empty ring.
    fn at(index: u32) -> (SrqConsumer, Fake) {
        let consumer = SrqConsumer {
            consumer: index,
            ..SrqConsumer::default()
        };
        (consumer, Fake::new(8, index))
    }

    #[test]
    fn two_takers_get_each_receive_once() {
        let (mut consumer, ring) = at(u32::MAX - 1);
        let mut copies = [[0; 8]; 2];
        let [first, second] = &mut copies;
        let mut takers = [
            RecvWqes::new(&mut first[..], 1),
            RecvWqes::new(&mut second[..], 1),
        ];
        post(&ring, 0..8);
        for want in 0..8u64 {
            let wqes = &mut takers[(want % 2) as usize];
            let (receive, taken) = consumer.take(&ring, wqes);
            assert_eq!((id(receive), taken), (Some(want), SrqEffect::None));
            assert_eq!(
                ring.load_consumer(),
                (u32::MAX - 1).wrapping_add(want as u32 + 1)
            );
        }
        let (receive, taken) = consumer.take(&ring, &mut takers[0]);
        assert_eq!((receive, taken), (TakeReceive::Empty, SrqEffect::None));
        assert!(!takers[0].is_corrupt());
    }

    #[test]
    fn the_limit_is_an_event_once() {
        let (mut consumer, ring) = at(3);
        let mut copy = [0; 8];
        let mut wqes = RecvWqes::new(&mut copy[..], 1);
        post(&ring, 0..5);
        assert!(!consumer.arm(&ring, 4));
        assert_eq!(consumer.take(&ring, &mut wqes).1, SrqEffect::None);
        assert_eq!(consumer.limit(), 4);
        assert_eq!(consumer.take(&ring, &mut wqes).1, SrqEffect::LimitReached);
        assert_eq!(consumer.limit(), 0);
        assert_eq!(consumer.take(&ring, &mut wqes).1, SrqEffect::None);
        // 2 are left: fewer than 3, not fewer than 2.
        assert!(consumer.arm(&ring, 3));
        assert!(!consumer.arm(&ring, 2));
        assert_eq!(consumer.limit(), 2);
        assert!(!consumer.arm(&ring, 0));
        assert_eq!(consumer.take(&ring, &mut wqes).1, SrqEffect::None);
    }

    #[test]
    fn an_index_that_cannot_be_breaks_the_queue_for_good() {
        let (mut consumer, ring) = at(3);
        let mut copy = [0; 8];
        let mut wqes = RecvWqes::new(&mut copy[..], 1);
        post(&ring, 0..2);
        ring.store_producer(12);
        let broken = (TakeReceive::Empty, SrqEffect::Broken);
        assert_eq!(consumer.take(&ring, &mut wqes), broken);
        assert!(wqes.take_corrupt());
        ring.store_producer(5);
        let still = (TakeReceive::Empty, SrqEffect::None);
        assert_eq!(consumer.take(&ring, &mut wqes), still);
        // Every taker sees it.
        assert!(wqes.take_corrupt());
        assert!(consumer
            .receives_to_copy(&ring, &Fake::new(16, 0), None)
            .is_none());
    }

    /// From every fill level to every size, with a receive taken during the copy.
    #[test]
    fn a_move_keeps_what_is_posted_and_not_taken() {
        for held in 0..8u64 {
            for entries in [1, 4, 8, 16] {
                let (mut consumer, old) = at(u32::MAX - 3);
                let mut copy = [0; 8];
                let mut wqes = RecvWqes::new(&mut copy[..], 1);
                post(&old, 0..held);
                let new = Fake::new(entries, 99);
                let moves = consumer.receives_to_copy(&old, &new, None);
                assert_eq!(moves.is_some(), held <= u64::from(entries));
                let Some(posted) = moves else { continue };
                posted.copy(&old, &new);
                let first = id(consumer.take(&old, &mut wqes).0);
                assert_eq!(first, (held > 0).then_some(0));
                consumer.finish_resize(&posted, &new);
                assert_eq!(new.load(Word::Producer), old.load(Word::Producer));
                assert_eq!(new.load(Word::Consumer), old.load(Word::Consumer));
                for want in 1..held {
                    assert_eq!(id(consumer.take(&new, &mut wqes).0), Some(want));
                }
                assert_eq!(consumer.take(&new, &mut wqes).0, TakeReceive::Empty);
            }
        }
    }

    #[test]
    fn a_ring_smaller_than_the_limit_is_refused() {
        let (mut consumer, old) = at(0);
        post(&old, 0..6);
        assert!(!consumer.arm(&old, 5));
        let mut copy = [0; 8];
        let mut wqes = RecvWqes::new(&mut copy[..], 1);
        assert_eq!(consumer.take(&old, &mut wqes).1, SrqEffect::None);
        assert_eq!(consumer.take(&old, &mut wqes).1, SrqEffect::LimitReached);
        // The limit is disarmed.
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), None)
            .is_some());
        assert!(!consumer.arm(&old, 4));
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), None)
            .is_some());
        consumer.limit = 5;
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), None)
            .is_none());
        // Unless the resize changes the limit: then the new limit counts.
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), Some(4))
            .is_some());
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), Some(0))
            .is_some());
        assert!(consumer
            .receives_to_copy(&old, &Fake::new(4, 0), Some(5))
            .is_none());
    }
}
