// SPDX-License-Identifier: GPL-2.0

//! Backlogs: received packets that are executed on another CPU than the one they arrived on.
//!
//! [`steering`](crate::core::steering) says which, and why. A batch is gathered on the CPU where it
//! arrives; with its last packet, or the last one before another QP's, it joins the backlog of the
//! other CPU, a softirq of which executes it as if it had arrived there. If the network stack drops
//! the last packet, the next one for the same CPU ends the batch: the peer, which gets no answer,
//! sends one. A netdev that leaves waits for its packets, so it ends all batches
//! ([`Backlogs::settle`]).

use crate::core::steering::{
    is_bulk_packet,
    sends_bulk,
    steer,
    tick,
    Arrived,
    BacklogState,
    Homes,
    Punctuality,
    QueuedBatch,
    Sender,
    Steer, //
};
use crate::core::wire::bth::Bth;
use crate::observe::{
    Counter,
    Counters, //
};
use crate::sys::net::{
    RxBatch,
    RxBatches,
    RxPacket, //
};
use crate::sys::sync::{
    new_spinlock_bh,
    SpinLockBh, //
};
use crate::sys::work::{
    self,
    Cpu,
    OwnedQueue, //
};
use kernel::c_str;
use kernel::cpu::nr_cpu_ids;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};
use kernel::sync::Arc;
use kernel::workqueue::{
    impl_has_work,
    new_work,
    Work, //
};
use zerocopy::FromBytes;

/// The backlogs of all CPUs.
pub(super) struct Backlogs {
    cpus: KVec<Arc<Backlog>>,
    queue: OwnedQueue,
}

/// The backlog of one CPU.
#[pin_data]
pub(super) struct Backlog {
    #[pin]
    work: Work<Backlog>,
    /// The batch that is arriving on this CPU, for another one. Taken before any `queued`.
    #[pin]
    arriving: SpinLockBh<Option<Arriving>>,
    /// Where the next packet lies of the batch that is being executed where it arrives, on this
    /// CPU: each batch is judged once. A hint: if the first packet of another batch comes to lie
    /// there, that one is executed here, too.
    next_here: Atomic<usize>,
    /// What waits to be executed on this CPU.
    #[pin]
    queued: SpinLockBh<Queued>,
    /// Packets in `queued`.
    waiting: Atomic<u32>,
    /// Batches executed; the number wraps.
    served: Atomic<u32>,
    /// Whether this CPU serves it in time.
    punctuality: Punctuality,
    /// The [`tick`] in which bulk was last sent on this CPU.
    sent_at: Atomic<u32>,
}

impl_has_work! {
    impl HasWork<Self> for Backlog { self.work }
}

/// A batch of which not all packets have arrived.
struct Arriving {
    qpn: u32,
    to: Cpu,
    batch: RxBatch,
}

impl Arriving {
    fn new(qpn: u32, to: Cpu) -> Self {
        Self {
            qpn,
            to,
            batch: RxBatch::default(),
        }
    }
}

#[derive(Default)]
struct Queued {
    batches: RxBatches,
    /// Batches that were ever queued; the number wraps.
    pushed: u32,
}

/// Where what arrives for a QP is executed.
pub(super) struct Steering {
    /// [`Homes`], as one word.
    homes: Atomic<u32>,
    /// The [`tick`] in which the QP last sent bulk.
    sent_at: Atomic<u32>,
    /// The last [`QueuedBatch`], as one word; 0 when that is known to be executed.
    last: Atomic<u64>,
    /// The [`Sender`], as one word; 0 is none.
    sender: Atomic<u32>,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            homes: Atomic::new(0),
            sent_at: Atomic::new(0),
            last: Atomic::new(0),
            sender: Atomic::new(0),
        }
    }
}

impl Steering {
    /// A packet with so much payload is about to be sent, with the send queue locked. If it is
    /// bulk, responses that arrive follow to this CPU until [`Self::sent`].
    #[inline(always)]
    pub(super) fn sends(&self, len: u32) {
        if is_bulk_packet(len) {
            let here = Sender {
                cpu: Cpu::current().number(),
                holds: true,
            };
            self.sender.store(here.to_bits(), Relaxed);
        }
    }

    /// The send queue will be unlocked, with something `unsent` in it or not. Notes in `backlogs`
    /// if bulk was sent since [`Self::sends`].
    #[inline(always)]
    pub(super) fn sent(&self, unsent: bool, backlogs: &Backlogs) {
        let bits = self.sender.load(Relaxed);
        let Some(sender) = Sender::from_bits(bits) else {
            return;
        };
        let waits = Sender {
            holds: false,
            ..sender
        };
        let bits = if unsent { waits.to_bits() } else { 0 };
        self.sender.store(bits, Relaxed);
        if sender.holds {
            let sent_at = tick(work::now());
            self.sent_at.store(sent_at, Relaxed);
            backlogs.sent_bulk(sent_at);
        }
    }

    /// The other CPU that sends bulk.
    #[inline]
    pub(super) fn sender(&self) -> Option<Sender> {
        let sender = Sender::from_bits(self.sender.load(Relaxed));
        sender.filter(|sender| sender.cpu != Cpu::current().number())
    }

    /// Its process is in the kernel, on this CPU.
    #[inline]
    pub(super) fn seen_at_home(&self, qpn: u32) {
        let homes = Homes::from_bits(self.homes.load(Relaxed));
        if homes.home != Some(Cpu::current().number()) {
            self.moved(qpn);
        }
    }

    #[cold]
    fn moved(&self, qpn: u32) {
        let homes = Homes {
            home: Some(Cpu::current().number()),
            spare: Cpu::another(qpn).map(Cpu::number),
        };
        self.homes.store(homes.to_bits(), Relaxed);
    }

    pub(super) fn homes(&self) -> Homes {
        Homes::from_bits(self.homes.load(Relaxed))
    }
}

impl Backlogs {
    pub(super) fn new() -> Result<Self> {
        let mut cpus = KVec::new();
        for _ in 0..nr_cpu_ids() {
            cpus.push(Backlog::new()?, GFP_KERNEL)?;
        }
        Ok(Self {
            cpus,
            queue: OwnedQueue::bh(c_str!("ferroce_backlog"))?,
        })
    }

    /// Ends all batches that are arriving, and waits for a run of each backlog. What is left then
    /// waits for nothing but its turn. May sleep.
    pub(super) fn settle(&self) {
        for backlog in &self.cpus {
            self.end_arriving(&mut backlog.arriving.lock());
        }
        self.queue.flush();
    }

    /// Waits until what is in a backlog for the QP with this `steering` is executed. May sleep.
    pub(super) fn wait_for(&self, steering: &Steering) {
        let last = QueuedBatch::from_bits(steering.last.load(Relaxed));
        let Some((last, of)) = last.and_then(|last| Some((last, self.of(last.cpu)?))) else {
            return;
        };
        self.settle();
        // What was arriving has a number by now, which may be behind the announced one.
        let last = QueuedBatch {
            number: of.queued.lock().pushed,
            ..last
        };
        while last.is_waiting(of.served.load(Acquire)) {
            self.queue.flush();
        }
    }

    /// Bulk was sent on this CPU, in this [`tick`].
    fn sent_bulk(&self, sent_at: u32) {
        if let Some(here) = self.cpus.get(Cpu::current().index()) {
            here.sent_at.store(sent_at, Relaxed);
        }
    }

    /// Whether a packet for the QP `qpn` is executed on another CPU, whose backlog has it now.
    /// `sender` sends bulk from the queue that it is for, and `elsewhere` names a CPU for bulk
    /// batches.
    #[inline(always)]
    pub(super) fn takes(
        &self,
        qpn: u32,
        steering: &Steering,
        packet: &RxPacket<'_>,
        counters: &Counters,
        sender: Option<Sender>,
        elsewhere: impl FnOnce() -> Option<Cpu>,
    ) -> bool {
        let nothing_waits = steering.last.load(Relaxed) == 0;
        if nothing_waits && packet.next().is_none() && sender.is_none() {
            return false;
        }
        let here = self.cpus.get(Cpu::current().index());
        here.is_some_and(|here| {
            if nothing_waits && here.continues(packet) {
                return false;
            }
            let mut arriving = here.arriving.lock();
            if arriving.as_ref().is_none_or(|batch| batch.qpn != qpn) {
                self.end_arriving(&mut arriving);
                let now = work::now();
                let arrived = Arrived {
                    bytes: packet.batch_len(),
                    sends: sends_bulk(steering.sent_at.load(Relaxed), now),
                    sender: sender.filter(|_| !here.sends_bulk(now)),
                };
                let Some(to) = self.choose(steering, arrived, now, elsewhere) else {
                    here.next_here.store(next_address(packet), Relaxed);
                    return false;
                };
                counters.inc(Counter::Steered);
                *arriving = Some(Arriving::new(qpn, to));
            }
            self.add(&mut arriving, steering, packet)
        })
    }

    /// The CPU for what begins to arrive, if not this one.
    fn choose(
        &self,
        steering: &Steering,
        arrived: Arrived,
        now: u64,
        elsewhere: impl FnOnce() -> Option<Cpu>,
    ) -> Option<Cpu> {
        let last = steering.last.load(Relaxed);
        let state = |cpu| {
            self.of(cpu)
                .map_or(BacklogState::default(), |of| of.state(now))
        };
        let chosen = steer(QueuedBatch::from_bits(last), arrived, state, || {
            elsewhere().map(Cpu::number)
        });
        let cpu = match chosen {
            Steer::To(cpu) => cpu,
            Steer::Overtaking => return None,
            Steer::Here => {
                // Nothing waits: the next packets need not look.
                let _ = steering.last.cmpxchg(last, 0, Relaxed);
                return None;
            }
        };
        let to = Cpu::online(cpu)?;
        // What follows on another CPU does not overtake it.
        let announced = QueuedBatch {
            cpu,
            number: self.of(cpu)?.queued.lock().pushed.wrapping_add(1),
        };
        steering.last.store(announced.to_bits(), Relaxed);
        Some(to)
    }

    /// Adds a packet to the batch that is arriving; with the last one for its QP the batch is
    /// queued.
    fn add(
        &self,
        arriving: &mut Option<Arriving>,
        steering: &Steering,
        packet: &RxPacket<'_>,
    ) -> bool {
        let Some(Arriving { qpn, batch, .. }) = arriving else {
            return false;
        };
        let is_in = batch.defer(packet);
        if !is_followed(packet, *qpn) {
            if let Some(last) = self.end_arriving(arriving) {
                steering.last.store(last.to_bits(), Relaxed);
            }
        }
        is_in
    }

    /// Queues the batch that has been arriving, unless there is none. The caller holds the lock of
    /// `arriving`, so no CPU goes offline.
    fn end_arriving(&self, arriving: &mut Option<Arriving>) -> Option<QueuedBatch> {
        let Arriving { to, batch, .. } = arriving.take().filter(|it| it.batch.packets() != 0)?;
        let of = self.of(to.number())?;
        let mut queued = of.queued.lock();
        queued.pushed = queued.pushed.wrapping_add(1);
        let is_first = of.waiting.load(Relaxed) == 0;
        of.punctuality.queues(is_first, work::now());
        of.waiting.fetch_add(batch.packets(), Relaxed);
        queued.batches.push(batch);
        let last = QueuedBatch {
            cpu: to.number(),
            number: queued.pushed,
        };
        drop(queued);
        let by = Cpu::online(to.number()).unwrap_or(Cpu::current());
        // If the work is queued already, it has not taken this batch yet.
        let _ = self.queue.enqueue_on::<_, 0>(by, of.clone());
        Some(last)
    }

    /// Queues the rest of a backlog that has been executed for long enough.
    pub(super) fn again(&self, backlog: Arc<Backlog>) {
        let _ = self.queue.enqueue_on::<_, 0>(Cpu::current(), backlog);
    }

    fn of(&self, cpu: u32) -> Option<&Arc<Backlog>> {
        self.cpus.get(cpu as usize)
    }
}

impl Backlog {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("ferroce_backlog"),
                arriving <- new_spinlock_bh!(None, "ferroce_arriving"),
                queued <- new_spinlock_bh!(Queued::default(), "ferroce_backlog"),
                next_here: Atomic::new(0),
                waiting: Atomic::new(0),
                served: Atomic::new(0),
                punctuality: Punctuality::default(),
                sent_at: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether this packet continues a batch that is executed on this CPU, where it arrives.
    #[inline]
    fn continues(&self, packet: &RxPacket<'_>) -> bool {
        let does = self.next_here.load(Relaxed) == packet.head().as_ptr().addr();
        if does {
            self.next_here.store(next_address(packet), Relaxed);
        }
        does
    }

    fn sends_bulk(&self, now: u64) -> bool {
        sends_bulk(self.sent_at.load(Relaxed), now)
    }

    fn state(&self, now: u64) -> BacklogState {
        let waiting = self.waiting.load(Relaxed);
        BacklogState {
            served: self.served.load(Acquire),
            waiting,
            late: self.punctuality.is_late(waiting, now),
            sends: self.sends_bulk(now),
        }
    }

    /// Takes the first batch; then [`Self::executed`] is called.
    pub(super) fn take(&self) -> Option<RxBatch> {
        let batch = self.queued.lock().batches.take()?;
        self.punctuality.progress(work::now());
        Some(batch)
    }

    /// A batch of so many packets was executed.
    pub(super) fn executed(&self, packets: u32) {
        self.punctuality.progress(work::now());
        self.waiting.fetch_sub(packets, Relaxed);
        let served = self.served.load(Relaxed);
        self.served.store(served.wrapping_add(1), Release);
    }
}

/// Whether the packet behind this one in its batch is for this QP, too.
#[inline]
fn is_followed(packet: &RxPacket<'_>, qpn: u32) -> bool {
    let next = packet
        .next()
        .and_then(|next| Bth::ref_from_prefix(next).ok());
    next.is_some_and(|(bth, _)| bth.dest_qp() == qpn)
}

/// Where the packet behind this one in its batch begins, or 0.
#[inline]
fn next_address(packet: &RxPacket<'_>) -> usize {
    packet.next().map_or(0, |next| next.as_ptr().addr())
}
