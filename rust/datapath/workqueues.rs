// SPDX-License-Identifier: GPL-2.0

//! The workqueues of the data path, and the share of each CPU that they may take.

use super::qp::{
    Qp,
    ANSWER,
    POSTED,
    SEND_FAR,
    SEND_NEAR, //
};
use crate::core::offload::budget::{
    Budget,
    Rounds, //
};
use crate::core::offload::budget::{
    Helper,
    HelperVerdict, //
};
use crate::core::offload::{
    Worker,
    WorkerCall, //
};
use crate::sys::table::filled;
use crate::sys::work::{
    self,
    Cpu,
    OwnedQueue, //
};
use kernel::c_str;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// CPUs with a budget and rounds of their own; beyond that, some share them.
const CPUS: usize = 64;

/// CPUs that a queue looks at before it finds nobody to invite.
const HELPERS_ASKED: u32 = 4;

/// The workqueues, for all devices.
pub(super) struct Workqueues {
    cpus: KVec<PerCpu>,
    /// Runs notifiers and the posts of ULPs in a softirq.
    notifications: OwnedQueue,
    /// High priority: runs work beyond the budget of a system call or softirq, as long as the CPU
    /// has budget for it. The other task on that CPU is usually the process that polls for these
    /// very completions.
    urgent: OwnedQueue,
    /// Normal priority: runs the rest, and sends on other CPUs for offloaded queues.
    normal: OwnedQueue,
}

/// State of one CPU.
#[derive(Default)]
struct PerCpu {
    /// Time left for workers of high priority.
    budget: Budget,
    /// Polling rounds.
    rounds: Rounds,
    /// Whether to invite workers here.
    helper: Helper,
}

impl Workqueues {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            cpus: filled(CPUS, PerCpu::default)?,
            notifications: OwnedQueue::bh(c_str!("ferroce_notify"))?,
            urgent: OwnedQueue::urgent(c_str!("ferroce_urgent"))?,
            normal: OwnedQueue::normal(c_str!("ferroce"))?,
        })
    }

    /// The workqueue of notifiers.
    #[inline]
    pub(super) fn notifications(&self) -> &OwnedQueue {
        &self.notifications
    }

    /// Queues a sending worker. It is queued once, however often it is called.
    pub(super) fn call_sender(&self, qp: ArcBorrow<'_, Qp>, call: WorkerCall<Cpu>, now: u64) {
        match call.worker {
            Worker::Near => {
                let queue = self.queue(call.cpu, now);
                let _ = queue.enqueue_on::<_, SEND_NEAR>(call.cpu, Arc::from(qp));
            }
            Worker::Far => {
                let queue = &self.normal;
                let _ = queue.enqueue_on::<_, SEND_FAR>(call.cpu, Arc::from(qp));
            }
            Worker::Timer => {
                if let Some(rounds) = self.rounds(call.cpu) {
                    qp.poll_timer().arm(rounds.next(now, call.periods));
                }
            }
        }
    }

    /// Queues the responding worker on this CPU: responses that leave from another one could
    /// overtake those that have left from here.
    pub(super) fn call_answerer(&self, qp: ArcBorrow<'_, Qp>, now: u64) {
        let (cpu, work) = (Cpu::current(), Arc::from(qp));
        let queue = self.queue(cpu, now);
        let _ = queue.enqueue_on::<_, ANSWER>(cpu, work);
    }

    /// Queues a softirq on this CPU: a ULP has posted.
    pub(super) fn call_posted(&self, qp: ArcBorrow<'_, Qp>) {
        // If it is queued already, it has not looked yet.
        let _ = self.notifications.enqueue::<Arc<Qp>, POSTED>(Arc::from(qp));
    }

    /// This CPU has polled a ring until `now`.
    pub(super) fn polled(&self, now: u64) {
        if let Some(rounds) = self.rounds(Cpu::current()) {
            rounds.served(now);
        }
    }

    /// Polling rounds of this CPU.
    pub(super) fn rounds(&self, cpu: Cpu) -> Option<&Rounds> {
        self.cpu(cpu).map(|cpu| &cpu.rounds)
    }

    /// Another CPU on which a worker may help. The calling process may run there.
    pub(super) fn helper(&self, seed: u32, now: u64) -> Option<Cpu> {
        (0..HELPERS_ASKED)
            .filter_map(|number| Cpu::another(seed.wrapping_add(number)))
            .find(|cpu| self.cpu(*cpu).is_some_and(|cpu| cpu.helper.may_help(now)))
    }

    /// A queue has seen whether a worker on `cpu` helps.
    pub(super) fn judge_helper(&self, cpu: Cpu, verdict: HelperVerdict, now: u64) {
        if let Some(cpu) = self.cpu(cpu) {
            cpu.helper.judge(verdict, now);
        }
    }

    fn cpu(&self, cpu: Cpu) -> Option<&PerCpu> {
        self.cpus.get(cpu.index() % CPUS)
    }

    /// The workqueue for urgent work on `cpu`, within its budget.
    fn queue(&self, cpu: Cpu, now: u64) -> &OwnedQueue {
        match self.cpu(cpu) {
            Some(cpu) if cpu.budget.has_left(now) => &self.urgent,
            _ => &self.normal,
        }
    }

    /// Charges the time of a worker on this CPU.
    pub(super) fn worked(&self, begin: u64, end: u64) {
        if work::is_urgent() {
            if let Some(cpu) = self.cpu(Cpu::current()) {
                cpu.budget.spend(begin, end);
            }
        }
    }
}
