// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! When a process streams: it posts one request after the other, and takes no completion in
//! between.
//!
//! Then its ring is better looked at by somebody else, who sends many requests in a turn and spares
//! it the doorbells: a worker on another CPU, if our work for each request is no small part of its
//! time, or a timer on this one ([`super::schedule`]). Whoever waits for an answer before he posts
//! again is not served so: both take longer than to send.

/// Doorbells from one look to the next.
const DOORBELLS: u32 = 8;

/// Requests that come with one doorbell from which on the doorbell itself does not matter.
const LISTED: u32 = 16;

/// Nanoseconds for which something is not tried again that was of no help: at first, and at most.
const PAUSE: (u64, u64) = (1_000_000, 128_000_000);

/// A process streams whose own time from one doorbell to the next is at most so many nanoseconds,
/// or what [`AT_MOST`] says. Part of it is the system call of the doorbell.
const SOON: u64 = 20_000;

/// Another CPU is of help if that time is at most so many times ours.
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
#[derive(Debug, Default)]
pub struct Stream {
    /// Doorbells since the last look.
    doorbells: u32,
    /// When the doorbell before the look rang, and how many requests had been taken before it.
    rang: u64,
    taken: u32,
    /// When it was served.
    served: u64,
    /// Requests that came with the last doorbell before the look.
    requests: u32,
    /// Our work for them was no small part of the time.
    is_ours: bool,
    /// Nanoseconds that a request takes from one doorbell to the next while the process streams:
    /// what was measured last, or a little more than the least of late. The process may have been
    /// interrupted.
    cost: u64,
    position: Position,
}

impl Stream {
    /// A doorbell rings at `now`, when so many requests have been `taken` from the ring by those
    /// before. Tells whether the process streams; most calls do not look, and do not ask for
    /// `position` either.
    #[inline]
    pub fn rings(&mut self, now: u64, taken: u32, position: impl FnOnce() -> Position) -> bool {
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
        self.requests = taken.wrapping_sub(self.taken).max(1);
        let passed = now.saturating_sub(self.rang);
        let cost = passed.checked_div(self.requests.into()).unwrap_or(passed);
        self.cost = match self.cost {
            0 => cost,
            least => cost.min(least.saturating_add(least / 8)),
        };
        self.is_ours = its_own <= ours.saturating_mul(AT_MOST);
        none && (self.is_ours || its_own <= SOON)
    }

    /// Whether our work is no small part of its time, so that another CPU is of help.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Whether it rings for a few requests at a time, so that doorbells cost it something.
    pub fn rings_often(&self) -> bool {
        self.requests < LISTED
    }

    /// Nanoseconds that a request takes while the process streams and rings for it.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether the end of the doorbell that just rang matters, so that [`Self::served`] is due.
    #[inline]
    pub fn wants_end(&self) -> bool {
        self.doorbells == DOORBELLS.wrapping_sub(1)
    }

    /// The doorbell was served at `now`.
    pub fn served(&mut self, now: u64) {
        self.served = now;
    }

    /// Nobody wants to know whether it streams: the next look is at [`DOORBELLS`] from when
    /// somebody does.
    #[inline]
    pub fn forget(&mut self) {
        self.doorbells = 0;
    }
}

/// When to try again what was of no help. Times are nanoseconds of one clock.
#[derive(Debug)]
pub struct Backoff {
    /// Not before.
    until: u64,
    /// How long it will be the next time.
    pause: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            until: 0,
            pause: PAUSE.0,
        }
    }
}

impl Backoff {
    /// Whether it is time to try.
    #[inline]
    pub fn is_over(&self, now: u64) -> bool {
        self.until <= now
    }

    /// It was of no help: not again for a while, which is longer each time.
    pub fn begin(&mut self, now: u64) {
        self.until = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(PAUSE.1);
    }

    /// It has helped.
    pub fn helped(&mut self) {
        self.pause = PAUSE.0;
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
        assert_eq!(ring(&mut stream, 64, (10_000, 20_001), nothing), (0, 0));
        assert_eq!(ring(&mut stream, 64, (10_000, 20_000), nothing), (8, 8));
        assert!(stream.is_ours());
        // Soon again, but not because of us.
        assert_eq!(ring(&mut stream, 64, (1000, 20_001), nothing), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 20_000), nothing), (8, 8));
        assert!(!stream.is_ours());
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
    fn knows_who_rings_for_lists() {
        let mut stream = Stream::default();
        assert_eq!(ring(&mut stream, 8, (1000, 200), nothing), (8, 1));
        assert!(stream.rings_often());
        for n in 1..=DOORBELLS {
            let _ = stream.rings(10_000, LISTED * n, Position::default);
        }
        assert!(!stream.rings_often());
    }

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
}
