// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The RDMA READs that wait for their answers, in the order of their PSNs.

use crate::transport::config::Mtu;
use crate::transport::config::MAX_RD_ATOMIC;
use crate::transport::segment::ReadSegment;
use crate::transport::segment::Reth;
use crate::transport::sequence::Sequence;

/// A READ to be answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadJob {
    /// Of its first response.
    pub(super) start: Sequence,
    /// How many responses it has.
    pub(super) packets: u32,
    /// How many of them were sent.
    pub(super) sent: u32,
    pub(super) rkey: u32,
    pub(super) va: u64,
    pub(super) length: u32,
    pub(super) msn: u32,
    /// It was answered before, and is answered again.
    pub(super) replay: bool,
}

impl ReadJob {
    pub(super) fn new(start: Sequence, reth: &Reth, mtu: Mtu, msn: u32) -> Self {
        Self {
            start,
            packets: mtu.packets(reth.length),
            sent: 0,
            rkey: reth.rkey,
            va: reth.va,
            length: reth.length,
            msn,
            replay: false,
        }
    }

    /// Sequence behind its last response.
    #[inline]
    pub(super) const fn end(&self) -> Sequence {
        self.start.wrapping_add(self.packets as u64)
    }

    /// Sequence of its next response.
    #[inline]
    pub(super) const fn position(&self) -> Sequence {
        self.start.wrapping_add(self.sent as u64)
    }

    #[inline]
    pub(super) const fn is_answered(&self) -> bool {
        self.sent >= self.packets
    }

    /// The next responses, at most `max_span` packets, without their PSN; and the address of their
    /// bytes.
    #[inline]
    pub(super) fn advance(&mut self, max_span: u32, mtu: Mtu) -> (ReadSegment, u64) {
        let left = self.packets.saturating_sub(self.sent);
        let span = left.min(max_span.max(1));
        let offset = mtu.span_bytes(self.sent);
        let rest = u64::from(self.length).saturating_sub(offset);
        let segment = ReadSegment {
            psn: Default::default(),
            span,
            first: self.sent == 0,
            last: span == left,
            // Not more than the length.
            len: mtu.span_bytes(span).min(rest) as u32,
        };
        let va = self.va.wrapping_add(offset);
        self.sent = self.sent.saturating_add(span);
        (segment, va)
    }
}

const CAPACITY: usize = MAX_RD_ATOMIC as usize;

/// The jobs, ordered and not overlapping; only the first one may have been begun.
#[derive(Debug, Default)]
pub(super) struct ReadJobs {
    jobs: [ReadJob; CAPACITY],
    len: usize,
}

impl ReadJobs {
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    fn live(&self) -> &[ReadJob] {
        self.jobs.get(..self.len).unwrap_or(&[])
    }

    #[inline]
    fn live_mut(&mut self) -> &mut [ReadJob] {
        self.jobs.get_mut(..self.len).unwrap_or(&mut [])
    }

    #[inline]
    pub(super) fn front(&mut self) -> Option<&mut ReadJob> {
        self.live_mut().first_mut()
    }

    pub(super) fn pop(&mut self) {
        self.remove(0);
    }

    /// How many READs wait that were not answered before.
    pub(super) fn outstanding(&self) -> usize {
        self.live().iter().filter(|job| !job.replay).count()
    }

    /// Adds a new READ, whose PSNs are behind those of all others. `false` if there is no room.
    pub(super) fn push(&mut self, job: ReadJob) -> bool {
        if self.len == CAPACITY {
            // Answers that were given once have no claim to the room.
            self.drop_replays();
        }
        self.insert(self.len, job)
    }

    /// Adds a READ that was accepted before, which the peer asks for again: as a whole, or from
    /// some response on.
    ///
    /// What waits already and begins with it needs nothing. If it continues a waiting READ, the peer
    /// has what is before it, so the waiting one is replaced. The READs behind it stay, and answer
    /// from their beginning, since the peer has not accepted what they sent so far.
    pub(super) fn push_again(&mut self, mut job: ReadJob) {
        let found = self
            .live()
            .iter()
            .position(|waiting| waiting.end() > job.start);
        let index = found.unwrap_or(self.len);
        if let Some(waiting) = self.live_mut().get_mut(index) {
            if waiting.end() == job.end() && waiting.start <= job.start {
                if waiting.start != job.start || waiting.sent != 0 {
                    job.replay = waiting.replay;
                    *waiting = job;
                }
                return;
            }
            if job.end() <= waiting.start {
                waiting.sent = 0;
            } else {
                // It overlaps in a way that no requester asks for.
                self.len = index;
            }
        }
        job.replay = true;
        if self.len == CAPACITY {
            // The last one will be asked for again.
            self.len = CAPACITY.wrapping_sub(1);
        }
        let index = index.min(self.len);
        self.insert(index, job);
    }

    fn insert(&mut self, index: usize, job: ReadJob) -> bool {
        let end = self.len.wrapping_add(1);
        let Some(tail) = self.jobs.get_mut(index..end) else {
            return false;
        };
        tail.rotate_right(1);
        if let Some(place) = tail.first_mut() {
            *place = job;
        }
        self.len = end;
        true
    }

    fn remove(&mut self, index: usize) {
        let Some(tail) = self.jobs.get_mut(index..self.len) else {
            return;
        };
        if tail.is_empty() {
            return;
        }
        tail.rotate_left(1);
        self.len = self.len.saturating_sub(1);
    }

    fn drop_replays(&mut self) {
        let mut index = 0;
        while let Some(job) = self.live().get(index) {
            if job.replay {
                self.remove(index);
            } else {
                index = index.wrapping_add(1);
            }
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_responder_jobs)
)]
mod tests {
    use super::*;

    const MTU: Mtu = Mtu::MIN;

    fn job(start: Sequence, packets: u32) -> ReadJob {
        let reth = Reth {
            va: start * 0x1_0000,
            rkey: 7,
            length: packets * 256,
        };
        ReadJob::new(start, &reth, MTU, 1)
    }

    /// Whether these jobs wait: start, packets, sent.
    fn are(jobs: &ReadJobs, expected: &[(u64, u32, u32)]) -> bool {
        let waiting = jobs.live().iter();
        waiting
            .map(|job| (job.start, job.packets, job.sent))
            .eq(expected.iter().copied())
    }

    fn queue(jobs: &[ReadJob]) -> ReadJobs {
        let mut queue = ReadJobs::default();
        for job in jobs {
            assert!(queue.push(*job));
        }
        queue
    }

    #[test]
    fn pieces_of_a_job() {
        let mut job = ReadJob::new(
            5,
            &Reth {
                va: 1000,
                rkey: 1,
                length: 600,
            },
            MTU,
            9,
        );
        let (segment, va) = job.advance(1, MTU);
        assert_eq!(
            (segment.first, segment.last, segment.len),
            (true, false, 256)
        );
        assert_eq!((va, job.position()), (1000, 6));
        let (segment, va) = job.advance(10, MTU);
        assert_eq!(
            (segment.first, segment.last, segment.len),
            (false, true, 344)
        );
        assert_eq!((segment.span, va), (2, 1256));
        assert!(job.is_answered());
    }

    #[test]
    fn the_same_again_while_it_waits_changes_nothing() {
        let mut jobs = queue(&[job(0, 4), job(4, 2)]);
        jobs.push_again(job(4, 2));
        assert!(are(&jobs, &[(0, 4, 0), (4, 2, 0)]));
        assert_eq!(jobs.outstanding(), 2);
    }

    #[test]
    fn the_rest_of_one_in_progress_replaces_it() {
        let mut jobs = queue(&[job(0, 4), job(4, 2)]);
        jobs.front().unwrap().advance(3, MTU);
        jobs.push_again(job(1, 3));
        assert!(are(&jobs, &[(1, 3, 0), (4, 2, 0)]));
        assert_eq!(jobs.outstanding(), 2);
    }

    #[test]
    fn an_answered_one_comes_first_again() {
        let mut jobs = queue(&[job(4, 2), job(6, 1)]);
        jobs.front().unwrap().advance(1, MTU);
        jobs.push_again(job(0, 4));
        assert!(are(&jobs, &[(0, 4, 0), (4, 2, 0), (6, 1, 0)]));
        assert_eq!(jobs.outstanding(), 2);
    }

    #[test]
    fn an_overlap_drops_what_it_overlaps() {
        let mut jobs = queue(&[job(0, 4), job(4, 2)]);
        jobs.push_again(job(2, 3));
        assert!(are(&jobs, &[(2, 3, 0)]));
    }

    #[test]
    fn replays_make_room() {
        let mut jobs = ReadJobs::default();
        for start in 0..CAPACITY as u64 {
            jobs.push_again(job(start, 1));
        }
        assert_eq!(jobs.outstanding(), 0);
        jobs.push_again(job(100, 1));
        assert_eq!(jobs.len, CAPACITY);
        assert!(jobs.push(job(200, 1)));
        assert!(are(&jobs, &[(200, 1, 0)]));
        for start in 1..CAPACITY as u64 {
            assert!(jobs.push(job(200 + start, 1)));
        }
        assert!(!jobs.push(job(300, 1)));
        for _ in 0..CAPACITY {
            jobs.pop();
        }
        assert!(jobs.is_empty());
        jobs.pop();
        assert!(jobs.is_empty());
    }
}
