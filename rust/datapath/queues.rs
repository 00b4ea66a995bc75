// SPDX-License-Identifier: GPL-2.0

//! The send queue and the receive queue of a QP, as data under their locks. The files above this
//! one operate on them.
//!
//! Requests that arrived behind a gap are kept as the packets that they are until their turn comes.
//! They cost no copy, and memory is written in order, as if the network had been late.

use crate::core::env::Keep;
use crate::core::kick::AskedBy;
use crate::core::offload::{
    InFlight,
    Moves,
    Offload,
    SenderKind, //
};
use crate::core::queue::wqe::{
    RecvWqes,
    SendWqes, //
};
use crate::core::rc::{
    CnpPacer,
    RequesterCounters, //
};
use crate::core::segment::{
    RequestSegment,
    Response, //
};
use crate::core::service::Service;
use crate::core::storage::Known;
use crate::core::uabi::wqe::{
    recv_stride,
    send_stride, //
};
use crate::core::wire::ICRC_LEN;
use crate::datapath::path::{
    Path,
    TxBatch, //
};
use crate::datapath::protocol::{
    AnyRequester,
    AnyResponder,
    ReliableRequester,
    RequesterSlots, //
};
use crate::datapath::traced;
use crate::observe::{
    Counter,
    Counters, //
};
use crate::sys::ib::qp::Capacity;
use crate::sys::net::{
    KeptPacket,
    RxPacket, //
};
use crate::sys::trace::{
    self,
    Recovery, //
};
use crate::sys::work::{
    self,
    Cpu, //
};
use kernel::prelude::*;
use kernel::rbtree::RBTree;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The peer of a queue: its QP number, the path to it, and the batch of packets for it. `M` marks
/// the packets of the batch.
pub(super) struct Peer<M> {
    pub(super) number: u32,
    pub(super) path: Path,
    pub(super) batch: TxBatch<M>,
}

/// The private copies of the WQEs of a send queue.
pub(super) type SendCopies = SendWqes<KVVec<u64>>;

/// The data under the send lock.
pub(super) struct SendQueue {
    /// The protocol.
    pub(super) requester: AnyRequester,
    /// The private copies of the WQEs.
    pub(super) wqes: SendCopies,
    /// Set from RTR on.
    pub(super) peer: Option<Peer<RequestSegment>>,
    /// Which CPU transmits.
    pub(super) offload: Offload<Cpu>,
    /// Messages in flight use the local path. Chosen again when none is in flight.
    pub(super) local: bool,
    /// The round in which a timer last polled the ring.
    pub(super) round: u32,
    /// When packets of UC last left.
    pub(super) left_at: Option<Known>,
    /// Raise `IBV_EVENT_SQ_DRAINED` when the queue is drained.
    pub(super) notify_drained: bool,
    /// Some WQE was signaled.
    pub(super) asks_for_completions: bool,
    /// Who transmits, by the last event that said it.
    traced_sender: SenderKind,
}

/// Where responses are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answering {
    /// In the invocation that received the request.
    Inline,
    /// In a worker that is queued or running: there are more responses than one invocation may
    /// send.
    Worker,
}

/// The data under the receive lock.
pub(super) struct RecvQueue {
    /// The protocol.
    pub(super) responder: AnyResponder,
    /// The receive WQE in use.
    pub(super) wqes: RecvWqes<KVec<u64>>,
    /// Set from RTR on.
    pub(super) peer: Option<Peer<Response>>,
    /// Where responses are sent or, in ERR, receives are flushed.
    pub(super) answering: Answering,
    /// A request in sequence has arrived since RTR.
    pub(super) established: bool,
    /// Requests behind a gap.
    pub(super) kept: KeptRequests,
    /// Responses that the local stack refused.
    pub(super) refusals: Refusals,
    /// Notifications of marked packets.
    pub(super) cnp: CnpPacer,
}

/// Consecutive refusals after which responses count as lost; the peer's retransmission asks for
/// them again.
const MAX_REFUSALS: u8 = 64;

/// How long packets that are not acknowledged may stay in queues of the CPU that sent them, where
/// packets from another CPU could overtake them.
const TIME_TO_LEAVE: u64 = 10_000_000;

/// Back-off after the local stack refused a response: time for a queue to drain a little.
const REFUSAL_PAUSE: u64 = 1_000_000;

/// State of responses that the local stack refused.
#[derive(Default)]
pub(super) struct Refusals {
    /// When to retry.
    resume: Option<Known>,
    /// Consecutive refusals.
    count: u8,
}

impl Refusals {
    /// Records one more refusal at `now`. Returns when to retry, if a retry is still worthwhile.
    #[cold]
    pub(super) fn add(&mut self, now: u64) -> Option<u64> {
        self.count = self.count.saturating_add(1);
        let resume = now.saturating_add(REFUSAL_PAUSE);
        let resume = (self.count <= MAX_REFUSALS).then_some(resume);
        self.resume = resume.and_then(Known::new);
        resume
    }

    /// Responses were sent.
    #[inline]
    pub(super) fn end(&mut self) {
        self.count = 0;
    }

    /// Returns when to retry if it is too early now.
    #[inline]
    pub(super) fn wait_until(&mut self, now: u64) -> Option<u64> {
        if self.resume.is_some_and(|at| at.get() <= now) {
            self.resume = None;
        }
        self.resume.map(Known::get)
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
    /// The send queue of a QP in RESET, to be made where it stays: it is large. May sleep.
    pub(super) fn new(
        service: &Service,
        capacity: &Capacity,
        signal_all: bool,
    ) -> Result<impl Init<Self>> {
        let stride = send_stride(capacity.max_send_sge, capacity.max_inline);
        let mut words = KVVec::new();
        let len = (capacity.max_send_wr as usize).checked_mul(stride as usize / 8);
        words.resize(len.ok_or(EINVAL)?, 0, GFP_KERNEL_ACCOUNT)?;
        let (max_sge, max_inline) = (capacity.max_send_sge, capacity.max_inline);
        let slots = RequesterSlots::new(service.protocol, capacity)?;
        let service = *service;
        Ok(init!(Self {
            requester: AnyRequester::new(slots),
            wqes: SendWqes::new(words, max_sge, max_inline, service, signal_all),
            peer: None,
            offload: Offload::default(),
            local: false,
            round: 0,
            left_at: None,
            notify_drained: false,
            asks_for_completions: false,
            traced_sender: SenderKind::default(),
        }))
    }

    /// Discards everything; no WQE completes.
    pub(super) fn reset(&mut self) {
        self.requester.reset();
        self.left_at = None;
        self.asks_for_completions = false;
        self.end();
    }

    /// Nothing is sent any more. The indices of the requester stay: a worker that still runs
    /// publishes them.
    pub(super) fn end(&mut self) {
        self.requester.forget_destination();
        self.peer = None;
        self.offload.reset();
    }

    /// Whether the process learns when its WQEs have been sent. Without acknowledgements and
    /// signaled WQEs it assumes, as on hardware, that a posted WQE is sent, and may destroy the AH
    /// and the QP immediately. WQEs that a worker had not reached by then would be lost.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        match &self.requester {
            AnyRequester::Reliable(_) => true,
            AnyRequester::Unreliable(_) | AnyRequester::Datagram(_) => self.asks_for_completions,
        }
    }

    /// Packets in flight at `now`, as far as their order counts.
    #[inline]
    pub(super) fn in_flight(&self, now: u64) -> InFlight {
        match &self.requester {
            _ if self.local => InFlight::Nothing,
            AnyRequester::Reliable(it) if !it.has_in_flight() => InFlight::Nothing,
            AnyRequester::Reliable(it) if it.is_answer_due() && it.deadline().is_some() => {
                InFlight::Awaited
            }
            AnyRequester::Reliable(_) => InFlight::Unbounded,
            // UD promises no order, and a worker on another CPU might be late: for a process that
            // is not watched, and for ib_mad, which posts on every CPU.
            AnyRequester::Datagram(_) => InFlight::Nothing,
            AnyRequester::Unreliable(_) => match self.left_at {
                Some(at) if now.saturating_sub(at.get()) < TIME_TO_LEAVE => InFlight::Unbounded,
                _ => InFlight::Nothing,
            },
        }
    }

    /// Adds the values counted since the last call to the counters of the port. Usually there are
    /// none.
    #[inline]
    pub(super) fn count(&mut self, qpn: u32, counters: &Counters) {
        if let Some(moves) = self.offload.take_moves() {
            Self::add_moves(moves, counters);
        }
        if let AnyRequester::Reliable(requester) = &mut self.requester {
            if let Some(news) = requester.take_counters() {
                Self::add(requester, qpn, &news, counters);
            }
        }
    }

    #[cold]
    fn add_moves(moves: Moves, counters: &Counters) {
        counters.add(Counter::Offloaded, moves.away.into());
        counters.add(Counter::OffloadEnded, moves.back.into());
        counters.add(Counter::Polled, moves.polled.into());
    }

    /// Counts each kind of loss that was met since the last call, and traces it.
    #[cold]
    fn add(requester: &ReliableRequester, qpn: u32, news: &RequesterCounters, counters: &Counters) {
        for (what, counter, count) in [
            (Recovery::Timeout, Some(Counter::AckTimeout), news.timeouts),
            (
                Recovery::RnrNak,
                Some(Counter::RnrNakReceived),
                news.rnr_naks,
            ),
            (
                Recovery::SequenceNak,
                Some(Counter::SequenceNakReceived),
                news.seq_naks,
            ),
            (Recovery::ImpliedNak, None, news.implied_naks),
            (
                Recovery::FatalNak,
                Some(Counter::FatalNakReceived),
                news.fatal_naks,
            ),
            (
                Recovery::TailProbe,
                Some(Counter::TailProbe),
                news.tail_probes,
            ),
            (Recovery::Slowdown, None, news.slowdowns),
            (
                Recovery::DuplicateResponse,
                Some(Counter::StaleResponse),
                news.duplicate_responses,
            ),
            (
                Recovery::UnexpectedResponse,
                Some(Counter::StaleResponse),
                news.unexpected_responses,
            ),
            (
                Recovery::OutOfSequenceResponse,
                Some(Counter::OutOfSequenceResponse),
                news.out_of_sequence,
            ),
            (
                Recovery::BadResponse,
                Some(Counter::BadResponse),
                news.bad_responses,
            ),
            (
                Recovery::Retransmitted,
                Some(Counter::Retransmitted),
                news.retransmitted,
            ),
        ] {
            if count == 0 {
                continue;
            }
            if let Some(counter) = counter {
                counters.add(counter, count.into());
            }
            trace::recover(move || {
                let (retries, rnr_retries) = requester.retries_left();
                let due = requester.deadline().unwrap_or(0);
                trace::Recover {
                    qpn,
                    what: what as u32,
                    count,
                    una: requester.oldest_psn().get(),
                    retries: retries.into(),
                    rnr_retries: rnr_retries.into(),
                    timer_ns: due.saturating_sub(work::now()),
                }
            });
        }
        counters.add(Counter::MissingReceived, news.missing_reports.into());
    }

    /// An event, if another one transmits than the last event said.
    #[inline(always)]
    pub(super) fn trace_offload(&mut self, qpn: u32, asked_by: AskedBy) {
        trace::offload(move || {
            let now = self.offload.sender();
            let before = core::mem::replace(&mut self.traced_sender, now);
            traced::offloaded(qpn, before, now, asked_by)
        });
    }
}

impl RecvQueue {
    /// The receive queue of a QP in RESET whose receives have up to `max_sge` entries, to be made
    /// where it stays. May sleep.
    pub(super) fn new(service: &Service, max_sge: u32) -> Result<impl Init<Self>> {
        let mut words = KVec::new();
        let len = recv_stride(max_sge) as usize / 8;
        words.resize(len, 0, GFP_KERNEL_ACCOUNT)?;
        let responder = AnyResponder::maker(service.protocol);
        Ok(init!(Self {
            responder: responder(),
            wqes: RecvWqes::new(words, max_sge),
            peer: None,
            answering: Answering::Inline,
            established: false,
            kept: KeptRequests::default(),
            refusals: Refusals::default(),
            cnp: CnpPacer::default(),
        }))
    }

    /// Discards everything; no WQE completes.
    pub(super) fn reset(&mut self) {
        self.answering = Answering::Inline;
        self.responder.reset();
        self.wqes.reset();
        self.peer = None;
        self.established = false;
        self.kept.clear();
        self.refusals = Refusals::default();
        self.cnp = CnpPacer::default();
    }
}

/// Connects both queues to the QP `peer`.
pub(super) fn connect(send: &mut SendQueue, recv: &mut RecvQueue, peer: u32, paths: [Path; 2]) {
    let [sending, receiving] = paths;
    send.peer = Some(Peer::new(peer, sending));
    recv.peer = Some(Peer::new(peer, receiving));
}

/// Most bytes of kept packets of all devices together. What comes beyond them is dropped, as it is
/// for a peer that does not know better. A packet that shares a page counts as a quarter of it at
/// least, so the pages that are held are at most four times as much.
const MOST_BYTES: usize = 64 << 20;

/// The bytes of all kept packets.
static BYTES: Atomic<usize> = Atomic::new(0);

/// A kept packet, and what it counts in [`BYTES`].
struct Budgeted {
    packet: KeptPacket,
    bytes: usize,
}

impl Drop for Budgeted {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// The kept requests of a QP.
pub(super) struct KeptRequests(RBTree<u64, Budgeted>);

/// A kept request whose turn has come.
pub(super) struct KeptRequest(Budgeted);

impl KeptRequest {
    /// The packet, from the BTH to the ICRC.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.packet.head()
    }
}

impl Default for KeptRequests {
    fn default() -> Self {
        Self(RBTree::new())
    }
}

impl KeptRequests {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a packet under this number.
    pub(super) fn keep(&mut self, number: u64, packet: &RxPacket<'_>) -> Keep {
        if let Some(before) = self.0.get(&number) {
            if says_the_same(before.packet.head(), packet.head()) {
                return Keep::Again;
            }
            self.0.remove(&number);
            return Keep::Conflict;
        }
        let Some((packet, bytes)) = packet.keep() else {
            return Keep::NoRoom;
        };
        let taken = BYTES.fetch_add(bytes, Relaxed);
        let budgeted = Budgeted { packet, bytes };
        if taken.saturating_add(bytes) > MOST_BYTES {
            return Keep::NoRoom;
        }
        match self.0.try_create_and_insert(number, budgeted, GFP_ATOMIC) {
            Ok(_) => Keep::Kept,
            Err(_) => Keep::NoRoom,
        }
    }

    /// The packet that is kept under this number.
    pub(super) fn take(&mut self, number: u64) -> Option<KeptRequest> {
        self.0.remove(&number).map(KeptRequest)
    }

    /// Frees all of them.
    #[cold]
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether two packets differ in nothing but what they ask for: congestion bits, AckReq, and with
/// that the ICRC.
fn says_the_same(one: &[u8], other: &[u8]) -> bool {
    const CONGESTION: usize = 4;
    const ACK_REQ: usize = 8;
    let end = one.len().saturating_sub(ICRC_LEN);
    let mut pairs = one.iter().zip(other).take(end).enumerate();
    one.len() == other.len()
        && pairs.all(|(at, (a, b))| a == b || matches!(at, CONGESTION | ACK_REQ))
}
