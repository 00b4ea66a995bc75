// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Back-off from what did not help: of one queue ([`Backoff`]), and from one CPU, for all queues
//! ([`Helper`]). Times are nanoseconds of one clock.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Nanoseconds before an attempt that did not help is repeated for the first time.
const FIRST_PAUSE: u64 = 1_000_000;

/// Each pause is twice as long as the one before, up to this.
const LONGEST_PAUSE: u64 = 128_000_000;

/// The pause behind this one.
fn longer(pause: u64) -> u64 {
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}

/// Back-off for attempts that did not help.
#[derive(Debug)]
pub struct Backoff {
    /// Not before this time.
    until: u64,
    /// Length of the next pause.
    pause: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            until: 0,
            pause: FIRST_PAUSE,
        }
    }
}

impl Backoff {
    /// Whether the back-off is over.
    #[inline]
    pub fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// The attempt did not help: back off, longer each time.
    pub fn begin(&mut self, now: u64) {
        self.until = now.saturating_add(self.pause);
        self.pause = longer(self.pause);
    }

    /// The attempt helped: reset the pause.
    pub fn helped(&mut self) {
        self.pause = FIRST_PAUSE;
    }
}

/// Whether a worker on another CPU is worth its invitation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HelperVerdict {
    /// It has served a queue well.
    Helps,
    /// Another task wants that CPU, or it has been slow.
    Declines,
}

/// Back-off from inviting a worker on one CPU, for all queues: what one of them has seen there, the
/// others need not try.
///
/// Queues of all CPUs come here without a lock; one that comes between two words of another changes
/// the length of a pause, nothing else.
#[derive(Debug)]
#[repr(align(64))]
pub struct Helper {
    until: AtomicU64,
    pause: AtomicU64,
}

impl Default for Helper {
    fn default() -> Self {
        Self {
            until: AtomicU64::new(0),
            pause: AtomicU64::new(FIRST_PAUSE),
        }
    }
}

impl Helper {
    /// Whether to invite a worker there.
    pub fn may_help(&self, now: u64) -> bool {
        self.until.load(Relaxed) <= now
    }

    /// A queue has seen at `now` whether it helps.
    pub fn judge(&self, verdict: HelperVerdict, now: u64) {
        let pause = match verdict {
            HelperVerdict::Helps => FIRST_PAUSE,
            // Several queues that were declined at once are one attempt.
            HelperVerdict::Declines if !self.may_help(now) => return,
            HelperVerdict::Declines => {
                let pause = self.pause.load(Relaxed);
                self.until.store(now.saturating_add(pause), Relaxed);
                longer(pause)
            }
        };
        self.pause.store(pause, Relaxed);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_backoff))]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_help_came() {
        let mut backoff = Backoff::default();
        let mut now = 0;
        let mut pause = |backoff: &mut Backoff| {
            assert!(backoff.is_over(now));
            backoff.begin(now);
            (1..)
                .find(|ms| backoff.is_over(now + ms * 1_000_000))
                .inspect(|ms| now += ms * 1_000_000)
        };
        for ms in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
            assert_eq!(pause(&mut backoff), Some(ms));
        }
        backoff.helped();
        assert_eq!(pause(&mut backoff), Some(1));
        assert_eq!(pause(&mut backoff), Some(2));
    }

    #[test]
    fn one_queue_that_was_declined_speaks_for_all() {
        const MS: u64 = 1_000_000;
        let helper = Helper::default();
        assert!(helper.may_help(0));
        for _ in 0..5 {
            helper.judge(HelperVerdict::Declines, 0);
        }
        assert!(!helper.may_help(MS - 1) && helper.may_help(MS));
        helper.judge(HelperVerdict::Declines, MS);
        assert!(!helper.may_help(3 * MS - 1) && helper.may_help(3 * MS));
        helper.judge(HelperVerdict::Helps, 3 * MS);
        helper.judge(HelperVerdict::Declines, 3 * MS);
        assert!(helper.may_help(4 * MS));
    }
}
