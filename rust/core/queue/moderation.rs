// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Moderation of completion events: one event for several completions.

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
    kernel::prelude::kunit_tests(ferroce_core_moderation)
)]
mod tests {
    use super::*;

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
