// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The module's side of a CQ ring: completions are added, an arm word is taken, an overrun is
//! noticed, and a resize moves what is not consumed to another ring. [`Moderation`] decides which
//! completions raise an event.

use crate::core::uabi::cqe::CQE_STRIDE;
use crate::core::uabi::ring::{
    RingOps,
    Word,
    ARM_NONE, //
};

/// The effect of a completion that finds the CQ full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnOverrun {
    /// The CQ becomes unusable (IBTA 11.6.3.1).
    #[default]
    Fatal,
    /// The completion is lost, nothing else: the process promised to prevent overruns
    /// (`IGNORE_OVERRUN`).
    Ignored,
}

/// The module's side of a CQ ring, guarded by the producer lock.
#[derive(Debug, Default)]
pub struct CqProducer {
    /// Index of the next CQE. The process sees a copy and cannot change this one.
    producer: u32,
    /// A CQE was lost: the CQ is unusable.
    overrun: bool,
    on_overrun: OnOverrun,
    moderation: Option<Moderation>,
}

/// The CQ was full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun {
    /// This is the first overrun.
    pub first: bool,
}

impl CqProducer {
    /// Producer of an empty ring.
    pub fn new(on_overrun: OnOverrun) -> Self {
        Self {
            on_overrun,
            ..Self::default()
        }
    }

    /// Adds a CQE. Returns when to raise the event.
    #[inline]
    pub fn push(
        &mut self,
        ring: &impl RingOps,
        entry: &[u64],
        solicited: bool,
        now: impl FnOnce() -> u64,
    ) -> Result<Due, Overrun> {
        let used = self.producer.wrapping_sub(ring.load_consumer());
        if self.overrun || used >= ring.entries() {
            return self.no_room();
        }
        ring.write_slot(self.producer, entry);
        self.producer = self.producer.wrapping_add(1);
        ring.store_producer(self.producer);
        let wanted = ring.take_arm(solicited);
        Ok(match &mut self.moderation {
            None if wanted => Due::Now,
            None => Due::Nothing,
            Some(moderation) => moderation.completed(wanted, now),
        })
    }

    #[cold]
    fn no_room(&mut self) -> Result<Due, Overrun> {
        match self.on_overrun {
            OnOverrun::Ignored => Ok(Due::Nothing),
            OnOverrun::Fatal => {
                let first = !core::mem::replace(&mut self.overrun, true);
                Err(Overrun { first })
            }
        }
    }

    /// Sets the moderation. Returns whether an event was held back, which is due now.
    pub fn moderate(&mut self, moderation: Option<Moderation>) -> bool {
        let before = core::mem::replace(&mut self.moderation, moderation);
        before.is_some_and(|moderation| moderation.holds())
    }

    /// The timer of a moderated event has expired.
    pub fn expired(&mut self, now: u64) -> Due {
        self.moderation
            .as_mut()
            .map_or(Due::Nothing, |moderation| moderation.expired(now))
    }

    /// CQEs that the process has not consumed.
    pub fn waiting(&self, ring: &impl RingOps) -> u32 {
        let waiting = self.producer.wrapping_sub(ring.load_consumer());
        waiting.min(ring.entries())
    }

    /// Whether a CQE was lost, which makes the CQ unusable.
    pub fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// The moderation, if it is on.
    pub fn moderation(&self) -> Option<&Moderation> {
        self.moderation.as_ref()
    }

    /// Index of the next CQE.
    pub fn producer(&self) -> u32 {
        self.producer
    }
}

/// The new ring is too small for the CQEs of the old one, or the process's consumer index is
/// invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSmall;

/// Copies unconsumed CQEs to the replacement ring of a resize. The process consumes nothing
/// meanwhile; CQEs that are added meanwhile are copied too.
#[derive(Debug)]
pub struct CqResize {
    /// The consumer index, in both rings.
    consumer: u32,
    /// CQEs before this index are in the new ring.
    copied: u32,
}

/// CQEs that the last step may copy under the lock.
const SHORT: u32 = 128;

impl CqResize {
    /// Starts at the consumer index.
    pub fn new(from: &impl RingOps) -> Self {
        let consumer = from.load_consumer();
        Self {
            consumer,
            copied: consumer,
        }
    }

    /// Whether the rest is short enough to copy under the lock.
    pub fn is_short(&self, cq: &CqProducer) -> bool {
        cq.producer.wrapping_sub(self.copied) <= SHORT
    }

    /// Copies the CQEs before `end`, which are already in the old ring.
    pub fn copy(
        &mut self,
        from: &impl RingOps,
        to: &impl RingOps,
        end: u32,
    ) -> Result<(), TooSmall> {
        let held = end.wrapping_sub(self.consumer);
        if held > from.entries() || held > to.entries() {
            return Err(TooSmall);
        }
        while self.copied != end {
            let mut entry = [0; CQE_STRIDE as usize / 8];
            from.read_slot(self.copied, 0, &mut entry);
            to.write_slot(self.copied, &entry);
            self.copied = self.copied.wrapping_add(1);
        }
        Ok(())
    }

    /// Copies the rest, the indices and the arm word. From here on the producer uses the new ring;
    /// its lock is held until all readers see that.
    pub fn finish(
        mut self,
        cq: &CqProducer,
        from: &impl RingOps,
        to: &impl RingOps,
    ) -> Result<(), TooSmall> {
        self.copy(from, to, cq.producer)?;
        to.store_consumer(self.consumer);
        to.store_producer(cq.producer);
        to.store(Word::Arm, from.swap(Word::Arm, ARM_NONE));
        Ok(())
    }
}

// Moderation of completion events: one event for several completions.

/// When to raise a completion event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Never: the CQ is not armed.
    Nothing,
    /// At once.
    Now,
    /// At this time, unless enough completions come before.
    At(u64),
}

/// Holds events back until a number of completions has come or a period has passed, whichever is
/// first. Both count from the first completion for which the CQ is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moderation {
    count: u16,
    period_ns: u64,
    held: Option<Held>,
}

/// An event that is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    /// Completions since then.
    completions: u16,
    until: u64,
}

impl Moderation {
    /// `None` if the values hold nothing back: with a count of 1 every completion is enough, and
    /// with a period of 0 no event may be late.
    pub fn new(count: u16, period_us: u16) -> Option<Self> {
        (count > 1 && period_us > 0).then_some(Self {
            count,
            period_ns: u64::from(period_us).wrapping_mul(1000),
            held: None,
        })
    }

    /// Completions that an event waits for, and its longest delay in microseconds.
    pub fn count_and_period(&self) -> (u16, u64) {
        (self.count, self.period_ns / 1000)
    }

    /// A completion at `now`; `wanted` if the CQ is armed for it.
    pub fn completed(&mut self, wanted: bool, now: impl FnOnce() -> u64) -> Due {
        match &mut self.held {
            None if wanted => {
                let until = now().saturating_add(self.period_ns);
                let completions = 1;
                self.held = Some(Held { completions, until });
                Due::At(until)
            }
            None => Due::Nothing,
            Some(held) => {
                held.completions = held.completions.saturating_add(1);
                if held.completions < self.count {
                    return Due::Nothing;
                }
                self.held = None;
                Due::Now
            }
        }
    }

    /// The timer has expired, perhaps for an event that is no longer held back.
    pub fn expired(&mut self, now: u64) -> Due {
        match self.held {
            None => Due::Nothing,
            Some(held) if now < held.until => Due::At(held.until),
            Some(_) => {
                self.held = None;
                Due::Now
            }
        }
    }

    /// Whether an event is held back.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_cq_producer)
)]
mod tests {
    use super::*;
    use crate::core::queue::fake::Fake;
    use crate::core::uabi::ring::{
        Words,
        ARM_NEXT, //
    };

    /// A producer at `index`, with a ring of `entries`.
    fn at(index: u32, entries: u32) -> (CqProducer, Fake) {
        let cq = CqProducer {
            producer: index,
            ..CqProducer::default()
        };
        (cq, Fake::new(entries, index))
    }

    fn push(cq: &mut CqProducer, ring: &Fake, value: u64) -> Result<Due, Overrun> {
        cq.push(ring, &[value], false, || 0)
    }

    #[test]
    fn an_overrun_ends_a_queue_or_loses_one_entry() {
        let (mut cq, ring) = at(5, 2);
        assert_eq!(push(&mut cq, &ring, 1), Ok(Due::Nothing));
        assert_eq!(push(&mut cq, &ring, 2), Ok(Due::Nothing));
        assert_eq!(push(&mut cq, &ring, 3), Err(Overrun { first: true }));
        ring.store_consumer(7);
        assert_eq!(push(&mut cq, &ring, 4), Err(Overrun { first: false }));

        let (mut cq, ring) = (CqProducer::new(OnOverrun::Ignored), Fake::new(2, 0));
        for value in 1..5 {
            assert_eq!(push(&mut cq, &ring, value), Ok(Due::Nothing));
        }
        assert_eq!([ring.slot(0)[0].get(), ring.slot(1)[0].get()], [1, 2]);
        ring.store_consumer(1);
        assert_eq!(push(&mut cq, &ring, 5), Ok(Due::Nothing));
        assert_eq!(ring.slot(2)[0].get(), 5);
        assert_eq!(ring.load_producer(), 3);
    }

    #[test]
    fn a_moderated_arm_is_taken_and_due_later() {
        let (mut cq, ring) = at(0, 8);
        assert!(!cq.moderate(Moderation::new(2, 1)));
        ring.store(Word::Arm, ARM_NEXT);
        assert_eq!(push(&mut cq, &ring, 1), Ok(Due::At(1000)));
        assert_eq!(ring.load(Word::Arm), ARM_NONE);
        assert_eq!(push(&mut cq, &ring, 2), Ok(Due::Now));
        ring.store(Word::Arm, ARM_NEXT);
        assert_eq!(push(&mut cq, &ring, 3), Ok(Due::At(1000)));
        // An event that is held back is not lost.
        assert!(cq.moderate(None));
        assert_eq!(cq.expired(1000), Due::Nothing);
    }

    /// From every fill level to every size, across the wrap of the index, with a push in between.
    #[test]
    fn a_transfer_keeps_indices_entries_and_arm() {
        for start in [0, 3, u32::MAX - 2] {
            for held in 0..8 {
                for entries in [1, 2, 8, 16] {
                    let (mut cq, old) = at(start, 8);
                    for value in 0..held {
                        assert!(push(&mut cq, &old, value).is_ok());
                    }
                    old.store(Word::Arm, ARM_NONE);
                    let new = Fake::new(entries, 77);
                    let mut resize = CqResize::new(&old);
                    let end = cq.producer();
                    let fits = held <= u64::from(entries);
                    assert_eq!(resize.copy(&old, &new, end).is_ok(), fits);
                    assert!(push(&mut cq, &old, held).is_ok());
                    old.store(Word::Arm, ARM_NEXT);
                    let fits = held < u64::from(entries);
                    assert_eq!(resize.finish(&cq, &old, &new).is_ok(), fits);
                    if !fits {
                        // Nothing has changed.
                        assert_eq!(old.load(Word::Arm), ARM_NEXT);
                        continue;
                    }
                    assert_eq!(old.load(Word::Arm), ARM_NONE);
                    assert_eq!(new.load(Word::Arm), ARM_NEXT);
                    assert_eq!(new.load_consumer(), start);
                    assert_eq!(new.load_producer(), cq.producer());
                    for value in 0..=held {
                        let index = start.wrapping_add(value as u32);
                        assert_eq!(new.slot(index)[0].get(), value);
                    }
                }
            }
        }
    }

    #[test]
    fn a_consumer_that_cannot_be_is_refused() {
        let (cq, old) = at(10, 8);
        let new = Fake::new(16, 0);
        for consumer in [1, 11, 10 + (1 << 31)] {
            old.store_consumer(consumer);
            let mut resize = CqResize::new(&old);
            assert_eq!(resize.copy(&old, &new, 10), Err(TooSmall));
            assert_eq!(resize.finish(&cq, &old, &new), Err(TooSmall));
        }
    }

    #[test]
    fn much_is_not_short() {
        let (mut cq, ring) = at(5, 16);
        let resize = CqResize::new(&ring);
        cq.producer = 5 + SHORT;
        assert!(resize.is_short(&cq));
        cq.producer = 6 + SHORT;
        assert!(!resize.is_short(&cq));
    }

    #[test]
    fn what_holds_nothing_back_is_none() {
        for (count, period) in [(0, 0), (0, 5), (1, 5), (5, 0), (1, 0)] {
            assert_eq!(Moderation::new(count, period), None);
        }
        assert!(Moderation::new(2, 1).is_some());
    }

    #[test]
    fn the_event_comes_with_the_last_of_so_many_completions() {
        let mut moderation = Moderation::new(3, 10).unwrap();
        for round in 0..3u64 {
            // Not armed: nothing starts.
            assert_eq!(moderation.completed(false, || unreachable!()), Due::Nothing);
            assert!(!moderation.holds());
            let start = round * 1_000_000;
            assert_eq!(
                moderation.completed(true, || start),
                Due::At(start + 10_000)
            );
            assert_eq!(moderation.completed(false, || unreachable!()), Due::Nothing);
            assert_eq!(moderation.completed(false, || unreachable!()), Due::Now);
            assert_eq!(moderation.expired(start + 10_000), Due::Nothing);
        }
    }

    #[test]
    fn the_event_comes_at_the_end_of_the_period() {
        let mut moderation = Moderation::new(3, 10).unwrap();
        assert_eq!(moderation.completed(true, || 5), Due::At(10_005));
        assert_eq!(moderation.expired(10_004), Due::At(10_005));
        assert_eq!(moderation.completed(false, || unreachable!()), Due::Nothing);
        assert_eq!(moderation.expired(10_005), Due::Now);
        assert_eq!(moderation.expired(20_000), Due::Nothing);
        assert_eq!(moderation.completed(false, || unreachable!()), Due::Nothing);
    }

    /// The process armed again while an event was held back: one event is enough for both.
    #[test]
    fn an_arm_meanwhile_begins_nothing_new() {
        let mut moderation = Moderation::new(2, u16::MAX).unwrap();
        let until = u64::from(u16::MAX) * 1000;
        assert_eq!(moderation.completed(true, || 0), Due::At(until));
        assert_eq!(moderation.completed(true, || unreachable!()), Due::Now);
        assert!(!moderation.holds());
    }
}
