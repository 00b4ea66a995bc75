// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Retries: the ACK timeout, back-offs, and their counts.
//!
//! IBTA 9.9.2.1.1 (retry counters), 9.7.6.1.3 (timeout), 9.7.5.2.8 (RNR NAK). The deadline is data:
//! nothing here runs by itself, and progress only moves a number.

use crate::core::storage::Known;

/// The value of `rnr_retry` that means infinite. `retry_cnt` has no such value.
const FOR_EVER: u8 = 7;

/// Both counts are 3 bits wide.
const MAX_COUNT: u8 = 7;

/// Back-off after the local stack refused a packet (qdisc full).
const DEVICE_PAUSE: u64 = 1_000_000;

/// An RNR back-off lasts at least this part of the time that the receive has taken so far. A
/// receiver may ask for 10 us each time and for ever: to honour that would keep this host busy, and
/// a receiver on the same host from posting.
const TIME_PART: u64 = 8;

/// Upper bound of that part.
const LONGEST_WAIT: u64 = 100_000_000;

/// Why nothing may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The responder had no receive.
    Receiver,
    /// The local stack refused a packet.
    Device,
}

/// A time before which nothing may be sent.
#[derive(Clone, Copy, Debug)]
struct Wait {
    until: u64,
    reason: Reason,
}

/// Retry state of a requester.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Retry {
    retry_cnt: u8,
    rnr_retry: u8,
    /// Retries left for the oldest packet.
    left: u8,
    /// RNR retries left.
    rnr_left: u8,
    ack_timeout_ns: Option<Known>,
    /// Since when the oldest packet waits for its acknowledgement.
    since: u64,
    /// When the local stack first refused the oldest packet, since the last progress or timeout:
    /// the timeout runs from then on, however often the packet is tried.
    refused_since: Option<Known>,
    wait: Option<Wait>,
    /// The oldest packet had an RNR NAK and was not retransmitted since.
    rnr_nak: bool,
    /// The same before the last transmission of that packet.
    rnr_nak_before: bool,
    /// When the oldest packet had its first RNR NAK.
    rnr_since: Option<Known>,
    /// How many NAKs for the oldest packet were honoured.
    reports: u8,
}

impl Retry {
    pub(super) const fn new() -> Self {
        Self {
            retry_cnt: 0,
            rnr_retry: 0,
            left: 0,
            rnr_left: 0,
            ack_timeout_ns: None,
            since: 0,
            refused_since: None,
            wait: None,
            rnr_nak: false,
            rnr_nak_before: false,
            rnr_since: None,
            reports: 0,
        }
    }

    /// Changes the counts. Retries spent on the oldest packet stay spent.
    pub(in super::super) fn set_counts(&mut self, retry_cnt: u8, rnr_retry: u8) {
        let spent = self.retry_cnt.saturating_sub(self.left);
        let rnr_spent = self.rnr_retry.saturating_sub(self.rnr_left);
        self.retry_cnt = retry_cnt.min(MAX_COUNT);
        self.rnr_retry = rnr_retry.min(MAX_COUNT);
        self.left = self.retry_cnt.saturating_sub(spent);
        self.rnr_left = self.rnr_retry.saturating_sub(rnr_spent);
    }

    /// Retries left, and RNR retries.
    pub(in super::super) const fn left(&self) -> (u8, u8) {
        (self.left, self.rnr_left)
    }

    pub(in super::super) fn set_ack_timeout(&mut self, ack_timeout_ns: Option<u64>) {
        self.ack_timeout_ns = ack_timeout_ns.and_then(Known::new);
    }

    #[inline]
    pub(super) fn ack_timeout_ns(&self) -> Option<u64> {
        self.ack_timeout_ns.map(Known::get)
    }

    /// Since when the oldest packet waits for its acknowledgement.
    #[inline]
    pub(super) const fn since(&self) -> u64 {
        self.since
    }

    /// The oldest packet is now another one.
    #[inline]
    pub(super) fn progress(&mut self, now: u64) {
        self.left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.since = now;
        self.refused_since = None;
        self.wait = None;
        self.rnr_nak = false;
        self.rnr_since = None;
        self.reports = 0;
    }

    /// The oldest packet was sent or retransmitted.
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        self.since = now;
        self.rnr_nak_before = self.rnr_nak;
        self.rnr_nak = false;
    }

    /// It was not sent after all. Its timeout has run since the first such report, so that this
    /// cannot last for ever.
    pub(super) fn unsent(&mut self) {
        self.rnr_nak = self.rnr_nak_before;
        self.refused_since = self.refused_since.or(Known::new(self.since));
        self.since = self.refused_since.map_or(self.since, Known::get);
    }

    /// Backs off from `now`: the local stack refused a packet.
    pub(in super::super) fn pause(&mut self, now: u64) {
        if self.wait.is_none() {
            self.wait = Some(Wait {
                until: now.saturating_add(DEVICE_PAUSE),
                reason: Reason::Device,
            });
        }
    }

    /// Restarts the timeout.
    #[inline]
    pub(super) fn restart(&mut self, now: u64) {
        self.since = now;
        self.refused_since = None;
    }

    /// The same, but as to what the local stack refuses the timeout has run on.
    pub(in super::super) fn postpone(&mut self, now: u64) {
        self.since = now;
    }

    /// Spends a retry; `false` if none was left.
    pub(super) fn take(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Whether to honour a NAK for the oldest packet, which is missing.
    ///
    /// A network may lose a certain packet every time and never smaller ones behind it, for
    /// instance while an MTU on the route is too small. The responder then requests it in every
    /// round trip, which would use up the retries in a moment. So half of them are reserved for
    /// the ACK timeout, if there is one.
    pub(super) fn honours_report(&mut self) -> bool {
        if self.ack_timeout_ns.is_some() && self.reports > self.retry_cnt / 2 {
            return false;
        }
        self.reports = self.reports.saturating_add(1);
        true
    }

    /// Spends an RNR retry; `false` if none was left.
    pub(in super::super) fn take_rnr(&mut self) -> bool {
        if self.rnr_retry == FOR_EVER {
            return true;
        }
        match self.rnr_left.checked_sub(1) {
            Some(left) => {
                self.rnr_left = left;
                true
            }
            None => false,
        }
    }

    /// Backs off for `delay` nanoseconds from `now`, or longer: see [`TIME_PART`].
    pub(super) fn wait_for_receiver(&mut self, now: u64, delay: u64) {
        self.rnr_since = self.rnr_since.or(Known::new(now));
        let since = self.rnr_since.map_or(now, Known::get);
        let part = now.saturating_sub(since) / TIME_PART;
        let delay = delay.max(part.min(LONGEST_WAIT));
        self.wait = Some(Wait {
            until: now.saturating_add(delay),
            reason: Reason::Receiver,
        });
        self.rnr_nak = true;
    }

    /// Whether a NAK for the oldest packet is about a transmission that has had an RNR NAK already:
    /// the network may have duplicated one of the two.
    pub(in super::super) const fn has_rnr_nak(&self) -> bool {
        self.rnr_nak
    }

    /// Whether a back-off is still on at `now`. Ends one that is over.
    #[inline]
    pub(in super::super) fn is_waiting(&mut self, now: u64) -> bool {
        match self.wait {
            None => false,
            Some(wait) if now < wait.until => true,
            Some(_) => {
                self.end_wait(now);
                false
            }
        }
    }

    /// Whether a back-off has begun and not ended.
    #[inline]
    pub(in super::super) const fn has_wait(&self) -> bool {
        self.wait.is_some()
    }

    /// Ends a back-off at `now`. The ACK timeout, which does not run during an RNR back-off, starts
    /// again.
    pub(super) fn end_wait(&mut self, now: u64) {
        let wait = self.wait.take();
        if wait.is_some_and(|wait| wait.reason == Reason::Receiver) {
            self.restart(now);
        }
    }

    /// Cancels a back-off.
    pub(super) fn cancel_wait(&mut self) {
        self.wait = None;
    }

    /// When the ACK timeout expires, given whether packets wait for an acknowledgement. It does not
    /// run during an RNR back-off.
    #[inline]
    pub(in super::super) fn timeout_at(&self, outstanding: bool) -> Option<u64> {
        if self
            .wait
            .is_some_and(|wait| wait.reason == Reason::Receiver)
        {
            return None;
        }
        match self.ack_timeout_ns() {
            Some(timeout) if outstanding => Some(self.since.saturating_add(timeout)),
            _ => None,
        }
    }

    /// The deadline, given whether packets wait for an acknowledgement.
    #[inline]
    pub(super) fn deadline(&self, outstanding: bool) -> Option<u64> {
        let timeout = self.timeout_at(outstanding);
        match self.wait {
            None => timeout,
            Some(wait) => Some(timeout.map_or(wait.until, |at| at.min(wait.until))),
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_requester_retry)
)]
mod tests {
    use super::*;

    #[test]
    fn seven_retries_are_seven() {
        let mut retry = Retry::new();
        retry.set_counts(7, 7);
        for _ in 0..7 {
            assert!(retry.take());
        }
        assert!(!retry.take());
        retry.progress(0);
        assert!(retry.take());
    }

    #[test]
    fn seven_rnr_retries_are_for_ever() {
        let mut retry = Retry::new();
        retry.set_counts(0, 7);
        assert!((0..1000).all(|_| retry.take_rnr()));
        retry.set_counts(0, 6);
        assert!((0..6).all(|_| retry.take_rnr()));
        assert!(!retry.take_rnr());
    }

    /// A receiver that is never ready and asks for 10 us is asked some hundred times within the
    /// first second, not 100,000 times, and hardly later than possible.
    #[test]
    fn waits_for_a_slow_receiver_become_longer() {
        let mut retry = Retry::new();
        let (mut now, mut asked) = (7, 0u32);
        while now < 1_000_000_000 {
            retry.wait_for_receiver(now, 10_000);
            let until = retry.deadline(true).unwrap();
            assert!(retry.is_waiting(until - 1) && !retry.is_waiting(until));
            assert!(until - now >= 10_000 && until - now <= 10_000.max((now - 7) / TIME_PART));
            (now, asked) = (until, asked + 1);
        }
        assert!((50..200).contains(&asked));
        retry.wait_for_receiver(now + 1000 * LONGEST_WAIT, 10_000);
        assert_eq!(retry.deadline(true), Some(now + 1001 * LONGEST_WAIT));
        // The requested delay is never cut short, and progress starts again.
        retry.wait_for_receiver(now, 3 * LONGEST_WAIT);
        assert_eq!(retry.deadline(true), Some(now + 3 * LONGEST_WAIT));
        retry.progress(now);
        retry.wait_for_receiver(now, 10_000);
        assert_eq!(retry.deadline(true), Some(now + 10_000));
    }

    #[test]
    fn the_wait_ends_by_itself_and_restarts_the_timeout() {
        let mut retry = Retry::new();
        retry.set_ack_timeout(Some(100));
        retry.restart(5);
        assert_eq!(retry.deadline(true), Some(105));
        assert_eq!(retry.deadline(false), None);
        retry.wait_for_receiver(10, 1000);
        assert_eq!(retry.deadline(true), Some(1010));
        assert!(retry.is_waiting(1009));
        assert!(!retry.is_waiting(1010));
        assert_eq!(retry.deadline(true), Some(1110));
    }

    #[test]
    fn changed_counts_keep_what_was_spent() {
        let mut retry = Retry::new();
        retry.set_counts(3, 2);
        retry.progress(0);
        assert!(retry.take() && retry.take() && retry.take_rnr());
        retry.set_counts(3, 2);
        assert!(retry.take() && !retry.take());
        assert!(retry.take_rnr() && !retry.take_rnr());
        retry.set_counts(5, 1);
        assert!(retry.take() && retry.take() && !retry.take());
        assert!(!retry.take_rnr());
        retry.progress(0);
        assert!((0..5).all(|_| retry.take()) && !retry.take());
    }

    /// A packet that never leaves runs into the timeout, however often it is tried.
    #[test]
    fn the_timeout_runs_while_the_device_takes_nothing() {
        let mut retry = Retry::new();
        retry.set_ack_timeout(Some(5 * DEVICE_PAUSE));
        for n in 0..5 {
            let now = 7 + n * DEVICE_PAUSE;
            assert!(!retry.is_waiting(now));
            retry.sent(now);
            retry.unsent();
            retry.pause(now);
            assert_eq!(retry.deadline(true), Some(now + DEVICE_PAUSE));
        }
        assert_eq!(retry.timeout_at(true), Some(7 + 5 * DEVICE_PAUSE));
    }
}
