// SPDX-License-Identifier: GPL-2.0

//! The two halves of a QP, as data under their locks. What is done with them is in the files above.

use super::path::Path;
use super::protocol::{
    Requester,
    Responder, //
};
use super::schedule::{
    InFlight,
    Moment,
    Moves,
    Schedule, //
};
use super::tx_batch::TxBatch;
use super::wqe::{
    RecvWqes,
    SendWqes, //
};
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::cpu::Cpu;
use crate::sys::ib::qp::Capacity;
use crate::transport::reliable::counters::RequesterCounters;
use crate::transport::segment::{
    RequestSegment,
    Response, //
};
use crate::transport::service::Service;
use crate::uabi::wqe::{
    recv_stride,
    send_stride, //
};
use kernel::prelude::*;

/// How a half reaches the peer: its number, the way, and packets that will take it. `M` marks the
/// packets.
pub(super) struct Peer<M> {
    pub(super) number: u32,
    pub(super) path: Path,
    pub(super) batch: TxBatch<M>,
}

/// The private copies of the requests of a QP.
pub(super) type SendCopies = SendWqes<KVVec<u64>>;

/// What the lock of the sending half guards.
pub(super) struct SendQueue {
    /// The protocol.
    pub(super) requester: Requester,
    /// The private copies of the requests.
    pub(super) wqes: SendCopies,
    /// From RTR on.
    pub(super) peer: Option<Peer<RequestSegment>>,
    /// Who sends.
    pub(super) schedule: Schedule<Cpu>,
    /// The messages that are under way take the local path. It is chosen anew when none is.
    pub(super) local: bool,
    /// The round in which its ring was polled last.
    pub(super) round: u32,
    /// When packets left last that nobody acknowledges.
    pub(super) left_at: Option<u64>,
    /// The user wants to know when the queue is drained.
    pub(super) notify_drained: bool,
    /// The user has asked for the completion of a request.
    pub(super) asks_for_completions: bool,
    /// What had been counted when the counters were added to those of the port.
    counted: (RequesterCounters, Moves),
}

/// Who answers requests of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answering {
    /// Whoever received them.
    Inline,
    /// A worker that is queued or running: there is more to answer than one turn may.
    Worker,
}

/// What the lock of the receiving half guards.
pub(super) struct RecvQueue {
    /// The protocol.
    pub(super) responder: Responder,
    /// The receives.
    pub(super) wqes: RecvWqes<KVec<u64>>,
    /// From RTR on.
    pub(super) peer: Option<Peer<Response>>,
    /// Who answers, or, in ERR, flushes.
    pub(super) answering: Answering,
    /// A request in order came since RTR.
    pub(super) established: bool,
    /// Answers that this host could not send.
    pub(super) refusals: Refusals,
}

/// How often in a row answers could not leave, after which they count as lost: the peer asks again.
const MAX_REFUSALS: u8 = 64;

/// How long packets that nobody acknowledges may wait in queues of the CPU that they left from, so
/// that those from another CPU could overtake them.
const TIME_TO_LEAVE: u64 = 10_000_000;

/// How long to wait before they are tried again: until a queue has drained a little.
const REFUSAL_PAUSE: u64 = 1_000_000;

/// What became of answers that the stack did not take.
#[derive(Default)]
pub(super) struct Refusals {
    /// When to try again.
    resume: Option<u64>,
    /// In a row.
    count: u8,
}

impl Refusals {
    /// One more at `now`: when to try again, if that is of any use.
    #[cold]
    pub(super) fn add(&mut self, now: u64) -> Option<u64> {
        self.count = self.count.saturating_add(1);
        let resume = now.saturating_add(REFUSAL_PAUSE);
        self.resume = (self.count <= MAX_REFUSALS).then_some(resume);
        self.resume
    }

    /// Answers have left.
    #[inline]
    pub(super) fn end(&mut self) {
        self.count = 0;
    }

    /// Whether it is too early to try again, and when it will not be.
    #[inline]
    pub(super) fn wait_until(&mut self, now: u64) -> Option<u64> {
        if self.resume.is_some_and(|at| at <= now) {
            self.resume = None;
        }
        self.resume
    }
}

impl<M> Peer<M> {
    fn new(number: u32, path: Path) -> Self {
        Self {
            number,
            path,
            batch: TxBatch::default(),
        }
    }
}

impl SendQueue {
    /// Of a QP in RESET. May sleep.
    pub(super) fn new(service: &Service, capacity: &Capacity, signal_all: bool) -> Result<Self> {
        let stride = send_stride(capacity.max_send_sge, capacity.max_inline);
        let mut words = KVVec::new();
        let len = (capacity.max_send_wr as usize).checked_mul(stride as usize / 8);
        words.resize(len.ok_or(EINVAL)?, 0, GFP_KERNEL_ACCOUNT)?;
        let (max_sge, max_inline) = (capacity.max_send_sge, capacity.max_inline);
        Ok(Self {
            requester: Requester::new(service.requester, capacity)?,
            wqes: SendWqes::new(words, stride, max_sge, max_inline, *service, signal_all),
            peer: None,
            schedule: Schedule::default(),
            local: false,
            round: 0,
            left_at: None,
            notify_drained: false,
            asks_for_completions: false,
            counted: Default::default(),
        })
    }

    /// Everything is forgotten, nothing completes.
    pub(super) fn reset(&mut self) {
        self.requester.reset();
        self.left_at = None;
        self.asks_for_completions = false;
        self.peer = None;
        self.schedule.reset();
    }

    /// Whether its process learns when its requests have left. If nobody answers them and it asks
    /// for no completion, it takes what it has posted for sent, and may destroy the address handle
    /// and the QP at once: what a worker had not come to by then would be lost.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        match &self.requester {
            Requester::Reliable(_) => true,
            Requester::Unreliable(_) | Requester::Datagram(_) => self.asks_for_completions,
        }
    }

    /// What the schedule has to know of this moment.
    #[inline]
    pub(super) fn moment(&self, now: u64) -> Moment<Cpu> {
        let in_flight = match &self.requester {
            _ if self.local => InFlight::Nothing,
            Requester::Reliable(it) if !it.has_in_flight() => InFlight::Nothing,
            Requester::Reliable(it) if it.is_answer_due() && it.deadline().is_some() => {
                InFlight::Awaited
            }
            Requester::Reliable(_) => InFlight::Unbounded,
            // UD promises no order, and a worker on the other CPU might be late (`is_watched`).
            Requester::Datagram(_) if !self.is_watched() => InFlight::Nothing,
            Requester::Unreliable(_) | Requester::Datagram(_) => match self.left_at {
                Some(at) if now.saturating_sub(at) < TIME_TO_LEAVE => InFlight::Unbounded,
                _ => InFlight::Nothing,
            },
        };
        Moment {
            here: Cpu::current(),
            now,
            in_flight,
        }
    }

    /// Adds what was counted since the last call to the counters of the port. Mostly that is
    /// nothing.
    #[inline]
    pub(super) fn count(&mut self, counters: &Counters) {
        let moves = self.schedule.moves();
        let news = match &mut self.requester {
            Requester::Reliable(it) => it.take_news(),
            Requester::Unreliable(_) | Requester::Datagram(_) => None,
        };
        if news.is_some() || moves != self.counted.1 {
            self.add(news, moves, counters);
        }
    }

    #[cold]
    fn add(&mut self, news: Option<RequesterCounters>, moves: Moves, counters: &Counters) {
        let (before, moved) = self.counted;
        let now = news.unwrap_or(before);
        self.counted = (now, moves);
        let add = |counter, now: u64, before: u64| {
            if now != before {
                counters.add(counter, now.wrapping_sub(before));
            }
        };
        add(
            Counter::Retransmitted,
            now.retransmitted,
            before.retransmitted,
        );
        add(Counter::AckTimeout, now.timeouts, before.timeouts);
        add(Counter::RnrNakReceived, now.rnr_naks, before.rnr_naks);
        add(Counter::SequenceNakReceived, now.seq_naks, before.seq_naks);
        add(Counter::FatalNakReceived, now.fatal_naks, before.fatal_naks);
        add(Counter::TailProbe, now.tail_probes, before.tail_probes);
        add(
            Counter::StaleResponse,
            now.duplicate_responses,
            before.duplicate_responses,
        );
        add(
            Counter::StaleResponse,
            now.unexpected_responses,
            before.unexpected_responses,
        );
        add(
            Counter::OutOfSequenceResponse,
            now.out_of_sequence,
            before.out_of_sequence,
        );
        add(
            Counter::BadResponse,
            now.bad_responses,
            before.bad_responses,
        );
        add(Counter::Offloaded, moves.away, moved.away);
        add(Counter::OffloadEnded, moves.back, moved.back);
        add(Counter::Polled, moves.polled, moved.polled);
    }
}

impl RecvQueue {
    /// Of a QP in RESET whose receives have up to `max_sge` entries. May sleep.
    pub(super) fn new(service: &Service, max_sge: u32) -> Result<Self> {
        let mut words = KVec::new();
        let len = recv_stride(max_sge) as usize / 8;
        words.resize(len, 0, GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            responder: Responder::new(service.responder)?,
            wqes: RecvWqes::new(words, max_sge),
            peer: None,
            answering: Answering::Inline,
            established: false,
            refusals: Refusals::default(),
        })
    }

    /// Everything is forgotten, nothing completes.
    pub(super) fn reset(&mut self) {
        self.answering = Answering::Inline;
        self.responder.reset();
        self.wqes.reset();
        self.peer = None;
        self.established = false;
        self.refusals = Refusals::default();
    }
}

/// Both halves lead to the QP `peer` from here on.
pub(super) fn connect(send: &mut SendQueue, recv: &mut RecvQueue, peer: u32, paths: [Path; 2]) {
    let [sending, receiving] = paths;
    send.peer = Some(Peer::new(peer, sending));
    recv.peer = Some(Peer::new(peer, receiving));
}
