// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Detects a process that streams: it posts one WQE after the other and polls no completion in
//! between.
//!
//! Such a queue is better served without doorbells, many WQEs at a time: by a worker on another
//! CPU, if the kernel's work for each WQE is no small part of the process's time, or by a timer on
//! this one ([`offload`](super)). A process that waits for a response before it posts again is not
//! served in this way: both take longer than sending inline.

/// Doorbells between two looks.
const DOORBELLS: u32 = 8;

/// WQEs per doorbell from which on the cost of the doorbell does not matter.
const LISTED: u32 = 16;

/// A process streams if its own time between two doorbells is at most this many nanoseconds, or
/// within [`AT_MOST`]. It includes the system call of the doorbell.
const SOON: u64 = 20_000;

/// Another CPU helps if that time is at most this multiple of the kernel's.
///
/// With a worker a WQE costs the longer of the two times instead of their sum: two thirds of it
/// even at twice the kernel's time. And the measured time includes the system call of the doorbell,
/// which a worker saves.
const AT_MOST: u64 = 2;

/// Progress of a process and of its peer. Only changes matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// CQEs taken from the send CQ.
    pub sends: u32,
    /// CQEs taken from the receive CQ.
    pub receives: u32,
    /// Request packets from the peer, by the expected PSN: a process may poll its memory instead of
    /// a CQ.
    pub requests: u32,
}

/// What the next doorbell means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextDoorbell {
    /// So many came since the last look.
    Counted(u32),
    /// The process streams on: it did until it had nothing to post to this queue.
    Resumes,
}

impl Default for NextDoorbell {
    fn default() -> Self {
        NextDoorbell::Counted(0)
    }
}

/// Watches the doorbells of one send queue. Times are nanoseconds of one clock.
#[derive(Debug, Default)]
pub struct StreamDetector {
    next: NextDoorbell,
    /// Time of the doorbell before the look, and WQEs fetched before it.
    rang: u64,
    taken: u32,
    /// When it had been served.
    served: u64,
    /// WQEs of the last doorbell before the look.
    requests: u32,
    /// The kernel's work was no small part of the time.
    is_kernel_bound: bool,
    /// Nanoseconds per WQE from one doorbell to the next while the process streams: the last
    /// measurement, bounded by a little more than the recent minimum. The process may have been
    /// interrupted.
    cost: u64,
    position: Position,
}

impl StreamDetector {
    /// A doorbell rings at `now`; earlier doorbells have fetched `taken` WQEs. Returns whether the
    /// process streams. Most calls do not look, and do not evaluate `position`.
    #[inline]
    pub fn on_doorbell(
        &mut self,
        now: u64,
        taken: u32,
        position: impl FnOnce() -> Position,
    ) -> bool {
        match self.next {
            NextDoorbell::Counted(before) if before < DOORBELLS.wrapping_sub(1) => {
                self.next = NextDoorbell::Counted(before.wrapping_add(1));
                (self.rang, self.taken) = (now, taken);
                return false;
            }
            NextDoorbell::Counted(_) => self.forget(),
            NextDoorbell::Resumes => {
                self.forget();
                return true;
            }
        }
        let position = position();
        let none = core::mem::replace(&mut self.position, position) == position;
        let kernel_time = self.served.saturating_sub(self.rang);
        let user_time = now.saturating_sub(self.served);
        self.requests = taken.wrapping_sub(self.taken).max(1);
        let passed = now.saturating_sub(self.rang);
        let cost = passed.checked_div(self.requests.into()).unwrap_or(passed);
        self.cost = match self.cost {
            0 => cost,
            least => cost.min(least.saturating_add(least / 8)),
        };
        self.is_kernel_bound = user_time <= kernel_time.saturating_mul(AT_MOST);
        none && (self.is_kernel_bound || user_time <= SOON)
    }

    /// Whether the kernel's work is no small part of the time, so that another CPU helps.
    pub fn is_kernel_bound(&self) -> bool {
        self.is_kernel_bound
    }

    /// Whether it rings for few WQEs at a time, so that doorbells are a cost.
    pub fn posts_singly(&self) -> bool {
        self.requests < LISTED
    }

    /// Nanoseconds per WQE while the process streams with doorbells.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether the end of the current doorbell matters: if so, call [`Self::served`].
    #[inline]
    pub fn wants_end(&self) -> bool {
        self.next == NextDoorbell::Counted(DOORBELLS.wrapping_sub(1))
    }

    /// The doorbell was served at `now`.
    pub fn served(&mut self, now: u64) {
        self.served = now;
    }

    /// Restarts the count: the next look is [`DOORBELLS`] doorbells away.
    #[inline]
    pub fn forget(&mut self) {
        self.next = NextDoorbell::default();
    }

    /// The process has streamed without doorbells, and has posted no more: the next doorbell is
    /// taken to begin the next part of the stream, without a look.
    ///
    /// A process that streams on many queues fills one after the other. A look would cost
    /// [`DOORBELLS`] at each; a wrong guess costs one message the delay of the timer, and is not
    /// repeated.
    pub fn resume(&mut self) {
        self.next = NextDoorbell::Resumes;
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_stream))]
mod tests {
    use super::*;

    /// Rings `count` doorbells: the kernel serves each for `kernel_time`, then the process works
    /// for `user_time`. Returns the first one at which the process streamed, counted from 1, and
    /// the number of these.
    fn ring(
        stream: &mut StreamDetector,
        count: u32,
        (kernel_time, user_time): (u64, u64),
        position: impl Fn(u32) -> Position,
    ) -> (u32, u32) {
        let (mut first, mut times) = (0, 0);
        let mut now = 0;
        for n in 1..=count {
            if stream.on_doorbell(now, 3 * n, || position(n)) {
                times += 1;
                if first == 0 {
                    first = n;
                }
            }
            now += kernel_time;
            if stream.wants_end() {
                stream.served(now);
            }
            now += user_time;
        }
        (first, times)
    }

    fn nothing(_: u32) -> Position {
        Position::default()
    }

    #[test]
    fn streams_who_posts_and_posts() {
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 64, (1000, 200), nothing), (8, 8));
    }

    #[test]
    fn knows_what_a_request_costs() {
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 8, (1000, 200), nothing), (8, 1));
        assert_eq!(stream.cost(), 400);
    }

    #[test]
    fn does_not_stream_who_takes_much_longer_than_we() {
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 64, (10_000, 20_001), nothing), (0, 0));
        assert_eq!(ring(&mut stream, 64, (10_000, 20_000), nothing), (8, 8));
        assert!(stream.is_kernel_bound());
        // Soon again, but not because of the kernel's work.
        assert_eq!(ring(&mut stream, 64, (1000, 20_001), nothing), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 20_000), nothing), (8, 8));
        assert!(!stream.is_kernel_bound());
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
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 64, (1000, 200), send), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 200), receive), (0, 0));
        assert_eq!(ring(&mut stream, 64, (1000, 200), request), (0, 0));
    }

    #[test]
    fn streams_between_two_visits_to_the_cq() {
        // 100 WQEs, then one poll: all looks but those right after a poll.
        let visits = |n| Position {
            sends: n / 100,
            ..Position::default()
        };
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 400, (1000, 200), visits), (8, 46));
    }

    #[test]
    fn knows_who_rings_for_lists() {
        let mut stream = StreamDetector::default();
        assert_eq!(ring(&mut stream, 8, (1000, 200), nothing), (8, 1));
        assert!(stream.posts_singly());
        for n in 1..=DOORBELLS {
            let _ = stream.on_doorbell(10_000, LISTED * n, Position::default);
        }
        assert!(!stream.posts_singly());
    }

    #[test]
    fn resumes_once_without_a_look() {
        let mut stream = StreamDetector::default();
        stream.resume();
        let no_look = || unreachable!("it looks");
        assert!(!stream.wants_end());
        assert!(stream.on_doorbell(0, 0, no_look));
        assert!(!stream.on_doorbell(1, 0, no_look));
        stream.resume();
        stream.forget();
        assert!(!stream.on_doorbell(2, 0, no_look));
    }
}
