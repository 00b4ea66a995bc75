// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! When a process streams: it posts one request after the other, takes no completion in between,
//! and our work for each is no small part of its time.
//!
//! Then two CPUs are faster than one: the process posts, and a worker elsewhere sends what it finds
//! in the ring, many requests in a turn and without doorbells. Whoever waits for an answer before
//! he posts again is not served so: waking another CPU takes longer than to send.

/// Doorbells from one look to the next.
const DOORBELLS: u32 = 8;

/// Doorbells without a look when another CPU was of no help: at first, and at most.
const PAUSE: (u32, u32) = (64, 8192);

/// A process streams whose own time from one doorbell to the next is at most so many times ours.
///
/// With a worker a request costs the longer of the two times in place of both: at twice our time
/// still two thirds. And the process's own is measured with the system call of the doorbell, which
/// a worker spares it.
const AT_MOST: u64 = 2;

/// How far a process, and its peer, have come. Whether it changes is all that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Entries taken from the CQ of sends.
    pub sends: u32,
    /// Entries taken from the CQ of receives.
    pub receives: u32,
    /// Packets of requests that came from the peer, by the PSN of the next one: a process may look
    /// at its memory instead of a CQ.
    pub requests: u32,
}

/// Watches the doorbells of one send queue. Times are nanoseconds of one clock.
#[derive(Debug)]
pub struct Stream {
    /// Doorbells since the last look.
    doorbells: u32,
    /// Doorbells that will not be counted.
    pause: u32,
    /// How many it will be the next time.
    next_pause: u32,
    /// When the doorbell before the look rang, and how many requests had been taken before it.
    rang: u64,
    taken: u32,
    /// When it was served.
    served: u64,
    /// Nanoseconds that a request took from one doorbell to the next, when the process streamed.
    cost: u64,
    position: Position,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            doorbells: 0,
            pause: 0,
            next_pause: PAUSE.0,
            rang: 0,
            taken: 0,
            served: 0,
            cost: 0,
            position: Position::default(),
        }
    }
}

impl Stream {
    /// A doorbell rings at `now`, when so many requests have been `taken` from the ring by those
    /// before. Tells whether the process streams; most calls do not look, and do not ask for
    /// `position` either.
    #[inline]
    pub fn rings(&mut self, now: u64, taken: u32, position: impl FnOnce() -> Position) -> bool {
        if self.pause != 0 {
            self.pause = self.pause.wrapping_sub(1);
            return false;
        }
        self.doorbells = self.doorbells.wrapping_add(1);
        if self.doorbells < DOORBELLS {
            (self.rang, self.taken) = (now, taken);
            return false;
        }
        self.doorbells = 0;
        let position = position();
        let none = core::mem::replace(&mut self.position, position) == position;
        let ours = self.served.saturating_sub(self.rang);
        let its_own = now.saturating_sub(self.served);
        let requests = u64::from(taken.wrapping_sub(self.taken).max(1));
        self.cost = now.saturating_sub(self.rang) / requests;
        none && its_own <= ours.saturating_mul(AT_MOST)
    }

    /// Nanoseconds that a request took, from one doorbell to the next, when the process streamed.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether the end of the doorbell that just rang matters, so that [`Self::served`] is due.
    #[inline]
    pub fn wants_end(&self) -> bool {
        self.pause == 0 && self.doorbells == DOORBELLS.wrapping_sub(1)
    }

    /// The doorbell was served at `now`.
    pub fn served(&mut self, now: u64) {
        self.served = now;
    }

    /// Another CPU was of no help, or there is none: does not look for a while, which is longer
    /// each time.
    pub fn pause(&mut self) {
        self.pause = self.next_pause;
        self.next_pause = self.next_pause.saturating_mul(2).min(PAUSE.1);
        self.doorbells = 0;
    }

    /// Another CPU has sent until there was nothing left.
    pub fn helped(&mut self) {
        self.next_pause = PAUSE.0;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_datapath_stream)
)]
mod tests {
    use super::*;

    /// Rings `count` times: our work takes `ours`, then the process takes `its_own`. Tells at which
    /// doorbells, counted from 1, it streamed.
    fn ring(
        stream: &mut Stream,
        count: u32,
        (ours, its_own): (u64, u64),
        position: impl Fn(u32) -> Position,
    ) -> (u32, u32) {
        let (mut first, mut times) = (0, 0);
        let mut now = 0;
        for n in 1..=count {
            if stream.rings(now, 3 * n, || position(n)) {
                times += 1;
                if first == 0 {
                    first = n;
                }
            }
            now += ours;
            if stream.wants_end() {
                stream.served(now);
            }
            now += its_own;
        }
        (first, times)
    }

    fn nothing(_: u32) -> Position {
        Position::default()
    }

    #[test]
    fn streams_who_posts_and_posts() {
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 64, (1000, 200), nothing), (8, 8));
    }

    #[test]
    fn knows_what_a_request_costs() {
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 8, (1000, 200), nothing), (8, 1));
        assert_eq!(stream.cost(), 400);
    }

    #[test]
    fn does_not_stream_who_takes_much_longer_than_we() {
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 64, (1000, 2001), nothing), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 2000), nothing), (8, 8));
    }

    #[test]
    fn does_not_stream_who_makes_progress_in_between() {
        let send = |n| Position {
            sends: n / 4,
            ..Position::default()
        };
        let receive = |n| Position {
            receives: n,
            ..Position::default()
        };
        let request = |n| Position {
            requests: n,
            ..Position::default()
        };
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 64, (1000, 200), send), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 200), receive), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 200), request), (0, 0));
    }

    #[test]
    fn streams_between_two_visits_to_the_cq() {
        // 100 requests, then it takes a completion: all looks but those right behind a visit.
        let visits = |n| Position {
            sends: n / 100,
            ..Position::default()
        };
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 400, (1000, 200), visits), (8, 46));
    }

    #[test]
    fn pauses_grow_until_help_came() {
        let mut stream = Stream::default();
        let after_pause = |stream: &mut Stream| {
            stream.pause();
            ring(stream, 2 * PAUSE.1, (1000, 200), nothing).0 - DOORBELLS
        };
        for pause in [64, 128, 256, 512, 1024, 2048, 4096, 8192, 8192] {
            assert_eq!(after_pause(&mut stream), pause);
        }
        stream.helped();
        assert_eq!(after_pause(&mut stream), 64);
        assert_eq!(after_pause(&mut stream), 128);
    }
}
