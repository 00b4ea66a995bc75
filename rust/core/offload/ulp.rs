// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Whether a post of a ULP waits for others ([`Posts`]).
//!
//! A softirq sends what a ULP posts. Left to ksoftirqd it takes two context switches; run at once,
//! it nearly halves the latency of a ULP that has one request under way. But where a ULP posts many
//! requests one after the other, what has gathered when ksoftirqd runs leaves as one batch, and up
//! to three times as many are served.
//!
//! So posts wait as long as others join them. After [`ALONE`] posts that none has joined they do
//! not wait any more, but for one in [`PROBE`]: if another joins that one, all wait again.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

/// Posts that none joins, after which posts do not wait.
const ALONE: u32 = 8;
/// Of so many posts one waits nevertheless.
const PROBE: u32 = 64;

/// The posts to one send queue. Posters on several CPUs may lose a count to each other.
#[derive(Debug, Default)]
pub struct Posts {
    /// How many have not joined another, since the last that has.
    alone: AtomicU32,
}

impl Posts {
    /// Whether the next post waits for others.
    #[inline]
    pub fn wait(&self) -> bool {
        let alone = self.alone.load(Relaxed);
        alone < ALONE || alone % PROBE == 0
    }

    /// A post has joined one that waits, or it has not.
    #[inline]
    pub fn add(&self, has_joined: bool) {
        let alone = self.alone.load(Relaxed);
        let alone = if has_joined { 0 } else { alone.wrapping_add(1) };
        self.alone.store(alone, Relaxed);
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_offload_ulp)
)]
mod tests {
    use super::*;

    /// Makes posts in lists of so many: the rest of a list joins the first of it that waits.
    /// Returns how many posts waited.
    fn make(posts: &Posts, lists: u32, of: u32) -> u32 {
        let mut all_waited = 0;
        for _ in 0..lists {
            let mut waited = 0;
            for _ in 0..of {
                let waits = waited != 0 || posts.wait();
                posts.add(waited != 0);
                waited += u32::from(waits);
            }
            all_waited += waited;
        }
        all_waited
    }

    #[test]
    fn single_posts_soon_do_not_wait() {
        let posts = Posts::default();
        assert_eq!(make(&posts, ALONE, 1), ALONE);
        assert_eq!(make(&posts, 10 * PROBE, 1), 10);
    }

    #[test]
    fn posts_wait_for_each_other_soon_after_single_ones() {
        for together in [2, 3, 32] {
            let posts = Posts::default();
            assert_eq!(make(&posts, 100, together), 100 * together);
            make(&posts, 3 * PROBE, 1);
            make(&posts, 2 * PROBE, together);
            assert_eq!(make(&posts, 100, together), 100 * together);
        }
    }

    #[test]
    fn the_count_may_wrap() {
        let posts = Posts {
            alone: AtomicU32::new(u32::MAX),
        };
        posts.add(false);
        assert_eq!(make(&posts, ALONE, 1), ALONE);
        assert!(!posts.wait());
    }
}
