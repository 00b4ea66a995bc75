// SPDX-License-Identifier: GPL-2.0

//! Who sends: whoever has a reason to, or, for a process that streams, a worker on another CPU.
//!
//! Packets of one sender must not overtake each other. Those that were sent on one CPU may still
//! wait there, in a backlog or a queue of the netdev, when another CPU sends; so a send queue moves
//! from one to the other only when nothing of it is under way.

use super::fabric::FABRIC;
use super::qp::Qp;
use super::send_queue::SendHalf;
use super::stream::Stream;
use super::Turn;
use crate::observe::counters::Counter;
use crate::sys::cpu::{
    self,
    Cpu, //
};
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::WorkItem;

/// The work item of [`Qp`] that sends on another CPU. It is one of its own, because one that is
/// running cannot be queued for another CPU.
pub const OFFLOAD: u64 = 1;

/// Turns on a CPU that has other work as well, before the queue goes back to its process.
const CROWDED_TURNS: u32 = 8;

/// Turns in which a worker on another CPU finds nothing in the ring before it ends.
const IDLE_TURNS: u32 = 64;

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// Whoever has a reason, where it comes up: a doorbell, an ACK, a timer.
    Anybody,
    /// A worker on `cpu`, for a process that streams and did so on the CPU `home`.
    Offloaded { cpu: Cpu, home: Cpu },
    /// A worker on this CPU, where the process is, because the other one was wanted.
    Home(Cpu),
}

/// What a send queue has to do with other CPUs.
pub struct Offload {
    /// Whether the process streams.
    pub stream: Stream,
    sender: Sender,
    /// The worker that is in charge is to run on another CPU than the sender before, and waits for
    /// the ACKs of what is under way.
    moving: bool,
    /// Turns in a row in which something else wanted to run where it sends.
    crowded: u32,
    /// Turns in a row in which it found nothing in the ring.
    idle: u32,
}

impl Default for Offload {
    fn default() -> Self {
        Self {
            stream: Stream::default(),
            sender: Sender::Anybody,
            moving: false,
            crowded: CROWDED_TURNS / 2,
            idle: 0,
        }
    }
}

impl Offload {
    /// Whether nobody but a worker sends, on a certain CPU.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.sender != Sender::Anybody
    }

    /// Whether that CPU is not the one of the process.
    fn is_elsewhere(&self) -> bool {
        matches!(self.sender, Sender::Offloaded { .. })
    }

    /// Whether the worker that is in charge waits for ACKs.
    pub fn is_moving(&self) -> bool {
        self.moving
    }

    /// Whether a worker that was queued for the CPU of the process is the one in charge.
    pub fn is_here(&self) -> bool {
        !self.is_elsewhere() && !self.moving
    }

    /// Whoever has a reason sends again.
    pub fn end(&mut self) {
        self.sender = Sender::Anybody;
        self.moving = false;
    }

    /// After a turn that took new requests from the ring, or none: whether the worker goes on
    /// looking. Who streams posts more in a moment, and then to be found is cheaper than to ring.
    pub fn lingers(&mut self, took: bool) -> bool {
        if !self.is_elsewhere() || self.crowded != 0 {
            return false;
        }
        self.idle = if took { 0 } else { self.idle.saturating_add(1) };
        self.idle <= IDLE_TURNS
    }
}

/// The sending half of a process that streams, on another CPU.
impl WorkItem<OFFLOAD> for Qp {
    type Pointer = Arc<Self>;

    /// One turn; if there is more to do it is queued again.
    fn run(this: Arc<Self>) {
        let rcu = rcu::read_lock();
        let Some(fabric) = FABRIC.get(&rcu) else {
            return;
        };
        let qp = this.as_arc_borrow();
        let mut turn = Turn::new(&rcu, fabric);
        {
            let mut send = this.send.lock();
            let in_charge = send.worker && send.offload.is_elsewhere() && !send.offload.moving;
            if in_charge && !send.leave_if_crowded(qp, &turn) && send.work(qp, &mut turn) {
                send.queue_worker(qp, &turn);
            }
        }
        turn.end();
    }
}

impl SendHalf {
    /// No worker is in charge any more; one that is queued does nothing.
    pub fn dismiss_worker(&mut self) {
        self.worker = false;
        self.offload.end();
    }

    /// Queues the worker that is in charge, unless it has to wait: the last ACK calls again.
    pub fn queue_worker(&mut self, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) {
        if self.offload.moving && !self.local && self.requester.has_in_flight() {
            return;
        }
        self.offload.moving = false;
        let (work, fabric): (Arc<Qp>, _) = (Arc::from(qp), turn.fabric);
        // If it is queued already, that does as well.
        let _ = match self.offload.sender {
            Sender::Offloaded { cpu, .. } => fabric.offload.enqueue_on::<_, OFFLOAD>(cpu, work),
            Sender::Home(cpu) => fabric.workers.enqueue_on::<_, 0>(cpu, work),
            Sender::Anybody => fabric.workers.enqueue::<_, 0>(work),
        };
    }

    /// At a doorbell: whether the process sends by it, or a worker for it.
    pub fn choose_sender(&mut self, qp: &Qp, now: u64) {
        if self.offload.is_on() {
            if self.requester.has_in_flight() {
                return;
            }
            self.offload.end();
            if self.offload.crowded == 0 {
                self.offload.stream.helped();
            }
        }
        if !self.offload.stream.rings(now, || qp.heard()) {
            return;
        }
        match Cpu::another(qp.number) {
            Some(cpu) if self.can_move() => {
                let home = Cpu::current();
                self.offload.sender = Sender::Offloaded { cpu, home };
                self.offload.moving = true;
                self.offload.idle = 0;
                qp.port.counters.inc(Counter::Offloaded);
            }
            _ => self.offload.stream.pause(),
        }
    }

    /// Whether what is under way will end some time, for the move waits for that: without an ACK
    /// timeout a lost packet is only found by those behind it.
    fn can_move(&self) -> bool {
        !self.requester.has_in_flight() || self.requester.deadline().is_some()
    }

    /// Gives the process its queue back if this CPU has other work for some turns, fewer of them if
    /// it has from the beginning: there are short tasks everywhere, so one turn says nothing.
    fn leave_if_crowded(&mut self, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) -> bool {
        let Sender::Offloaded { home, .. } = self.offload.sender else {
            return true;
        };
        if cpu::is_alone() {
            self.offload.crowded = 0;
            return false;
        }
        self.offload.crowded = self.offload.crowded.saturating_add(1);
        if self.offload.crowded <= CROWDED_TURNS || !self.can_move() {
            return false;
        }
        self.offload.crowded = CROWDED_TURNS / 2;
        self.offload.sender = Sender::Home(home);
        self.offload.moving = true;
        self.offload.stream.pause();
        qp.port.counters.inc(Counter::OffloadEnded);
        self.queue_worker(qp, turn);
        true
    }
}
