// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! When to try again, and how often: the ACK timeout, the RNR wait, and their counts.
//!
//! IBTA 9.9.2.1.1 (retry counters), 9.7.6.1.3 (timeout), 9.7.5.2.8 (RNR NAK). The deadline is data:
//! nothing here runs, and progress only moves a number.

/// The value of `rnr_retry` that never runs out. `retry_cnt` has no such value.
const FOR_EVER: u8 = 7;

/// Both counts are 3 bits wide.
const MAX_COUNT: u8 = 7;

/// Retry state of a requester.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    retry_cnt: u8,
    rnr_retry: u8,
    /// How often the oldest packet may still be sent again.
    left: u8,
    /// How often after an RNR NAK.
    rnr_left: u8,
    ack_timeout_ns: Option<u64>,
    /// Since when the oldest packet waits for its acknowledgement.
    since: u64,
    /// Nothing may be sent before, because the responder was not ready.
    rnr_until: Option<u64>,
    /// The responder refused the oldest packet, which was not sent again since.
    refused: bool,
    /// As it was before that packet was sent last.
    refused_before: bool,
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
            rnr_until: None,
            refused: false,
            refused_before: false,
        }
    }

    pub(super) fn set_counts(&mut self, retry_cnt: u8, rnr_retry: u8) {
        self.retry_cnt = retry_cnt.min(MAX_COUNT);
        self.rnr_retry = rnr_retry.min(MAX_COUNT);
        self.left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
    }

    pub(super) fn set_ack_timeout(&mut self, ack_timeout_ns: Option<u64>) {
        self.ack_timeout_ns = ack_timeout_ns;
    }

    /// The oldest packet is another one now.
    #[inline]
    pub(super) fn progress(&mut self, now: u64) {
        self.left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.since = now;
        self.rnr_until = None;
        self.refused = false;
    }

    /// The oldest packet was sent (again).
    #[inline]
    pub(super) fn sent(&mut self, now: u64) {
        self.since = now;
        self.refused_before = self.refused;
        self.refused = false;
    }

    /// It was not, after all.
    pub(super) fn unsent(&mut self) {
        self.refused = self.refused_before;
    }

    /// The timeout begins anew.
    #[inline]
    pub(super) fn restart(&mut self, now: u64) {
        self.since = now;
    }

    /// Takes one from the retries; `false` if none was left.
    pub(super) fn take(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Takes one from the RNR retries; `false` if none was left.
    pub(super) fn take_rnr(&mut self) -> bool {
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

    /// Sends nothing for `delay` nanoseconds from `now`.
    pub(super) fn wait_for_receiver(&mut self, now: u64, delay: u64) {
        self.rnr_until = Some(now.saturating_add(delay));
        self.refused = true;
    }

    /// Whether an RNR NAK for the oldest packet is about a sending that was refused already: the
    /// network may have brought the packet twice.
    pub(super) const fn was_refused(&self) -> bool {
        self.refused
    }

    /// Whether the RNR wait is not over at `now`; forgets it when it is.
    #[inline]
    pub(super) fn is_waiting(&mut self, now: u64) -> bool {
        match self.rnr_until {
            None => false,
            Some(until) if now < until => true,
            Some(_) => {
                self.end_wait();
                self.since = now;
                false
            }
        }
    }

    /// Whether an RNR wait was begun and not ended.
    #[inline]
    pub(super) const fn has_wait(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// Sending may go on. The refusal is forgotten only when it does.
    pub(super) fn end_wait(&mut self) {
        self.rnr_until = None;
    }

    /// When to look again, given whether packets wait for an acknowledgement.
    #[inline]
    pub(super) fn deadline(&self, outstanding: bool) -> Option<u64> {
        if self.rnr_until.is_some() {
            return self.rnr_until;
        }
        match self.ack_timeout_ns {
            Some(timeout) if outstanding => Some(self.since.saturating_add(timeout)),
            _ => None,
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_requester_retry)
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
}
