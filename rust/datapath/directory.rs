// SPDX-License-Identifier: GPL-2.0

//! State shared by all devices: QPs by number, ports by netdev, and the workqueues of the data path
//! with the share of each CPU that they may take.
//!
//! QP numbers are unique over all devices of the module, so a packet finds its QP by the number
//! alone. The addresses of the connection decide whether the packet may be for it.

use crate::core::offload::budget::{
    Budget,
    Helper,
    HelperVerdict,
    Rounds, //
};
use crate::core::offload::{
    Worker,
    WorkerCall, //
};
use crate::core::wire::gid::GROUP_QPN;
use crate::core::wire::ident::RangedPermutation24;
use crate::datapath::backlog::Backlogs;
use crate::datapath::port::Port;
use crate::datapath::qp::{
    Ending,
    Qp,
    ANSWER,
    POSTED,
    SEND_FAR,
    SEND_NEAR, //
};
use crate::sys;
use crate::sys::net::{
    NetNs,
    RxPacket, //
};
use crate::sys::reclaim::Global;
use crate::sys::table::{
    filled,
    Published,
    Reserved,
    Table, //
};
use crate::sys::work::{
    self,
    Cpu,
    OwnedQueue, //
};
use kernel::c_str;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};

/// The directory of the module, from init to exit.
pub static DIRECTORY: Global<Directory> = Global::empty();

/// Most QPs of all devices together.
pub const MAX_QP: u32 = 1 << 20;

/// The QPs and ports of all devices.
#[pin_data]
pub struct Directory {
    #[pin]
    qps: Table<Qp>,
    /// Secret of the QP numbers.
    numbers: RangedPermutation24,
    /// Ports by the hash of their netdev, and of their namespace.
    #[pin]
    on_netdev: Table<Port>,
    #[pin]
    in_netns: Table<Port>,
    /// The workqueues of the data path.
    pub(super) workqueues: Workqueues,
    /// Packets that other CPUs execute.
    pub(super) backlogs: Backlogs,
}

/// The hash of a netdev by which ports are found; with index 0 that of its namespace.
fn hash_of(netns: NetNs, ifindex: i32) -> u32 {
    let seed = u64::from(ifindex as u32) << 32;
    let mixed = (netns.id() as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The first port that stays, or else the first. When the netdev of a port is gone, another one may
/// have its index before the port has left.
fn one_of<'g>(mut ports: impl Iterator<Item = &'g Port>) -> Option<&'g Port> {
    let first = ports.next()?;
    if !first.is_leaving() {
        return Some(first);
    }
    ports.find(|port| !port.is_leaving()).or(Some(first))
}

impl Directory {
    /// The directory of the module. `ENODEV` when it is being unloaded and no device is left.
    pub fn current() -> Result<Arc<Self>> {
        let rcu = rcu::read_lock();
        DIRECTORY.get_arc(&rcu).ok_or(ENODEV)
    }

    /// An empty directory.
    pub fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                qps <- Table::named(),
                numbers: RangedPermutation24::new(sys::random_words(), sys::random_words()),
                on_netdev <- Table::new(),
                in_netns <- Table::new(),
                workqueues: Workqueues::new()?,
                backlogs: Backlogs::new()?,
            }),
            GFP_KERNEL,
        )
    }

    /// Reserves a QP number, which leads nowhere until it is published. May sleep.
    pub fn reserve(&self) -> Result<(Reserved<'_, Qp>, u32)> {
        self.qps.reserve_named(MAX_QP, &|index| {
            let number = self.numbers.number(index);
            // Two numbers are for management QPs, the last for multicast.
            (!matches!(number, 0 | 1 | GROUP_QPN)).then_some(number)
        })
    }

    /// The QP with this number.
    #[inline]
    pub fn get<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, Qp>> {
        self.qps.find(number, rcu, || self.numbers.index(number))
    }

    /// Unpublishes a QP. A reader that has found it before may use it until its RCU section ends.
    pub fn remove(&self, qp: &mut Published<Qp>) {
        self.qps.remove(qp);
    }

    /// Lets a port count packets of its netdev that are for no QP, until the result is dropped. May
    /// sleep, also in that drop.
    pub fn list(self: &Arc<Self>, port: &Arc<Port>) -> Result<PortListing> {
        let netns = port.netns();
        let on_netdev = (self.on_netdev).reserve_hashed(hash_of(netns, port.ifindex))?;
        let in_netns = self.in_netns.reserve_hashed(hash_of(netns, 0))?;
        Ok(PortListing {
            on_netdev: on_netdev.publish(port.clone()),
            in_netns: in_netns.publish(port.clone()),
            directory: self.clone(),
        })
    }

    /// The port that counts a packet for no QP: the one on the netdev by which it arrived or, if
    /// that has none (`lo`, a VLAN), any port of the namespace.
    pub fn port_at<'g>(
        &'g self,
        netns: NetNs,
        ifindex: i32,
        rcu: &'g rcu::Guard,
    ) -> Option<&'g Port> {
        self.port_on(netns, ifindex, rcu)
            .or_else(|| self.ports_in(netns, rcu).next())
    }

    /// The port on this netdev.
    pub fn port_on<'g>(
        &'g self,
        netns: NetNs,
        ifindex: i32,
        rcu: &'g rcu::Guard,
    ) -> Option<&'g Port> {
        let ports = self.on_netdev.hashed(hash_of(netns, ifindex), rcu);
        one_of(ports.filter(|port| port.ifindex == ifindex && port.netns() == netns))
    }

    /// The ports in this namespace.
    fn ports_in<'g>(&'g self, netns: NetNs, rcu: &'g rcu::Guard) -> impl Iterator<Item = &'g Port> {
        let ports = self.in_netns.hashed(hash_of(netns, 0), rcu);
        ports.filter(move |port| port.netns() == netns)
    }

    /// The GSI QP of the device that a packet is for. The packet names it by a number that is the
    /// same on every device. A packet from outside is for the port of its netdev; only for one that
    /// this host sent to itself are all ports of the namespace asked.
    pub fn management<'g>(
        &'g self,
        netns: NetNs,
        packet: &RxPacket<'_>,
        rcu: &'g rcu::Guard,
    ) -> Option<ArcBorrow<'g, Qp>> {
        let addresses = packet.addresses()?;
        let ifindex = packet.ifindex();
        let is_for = |port: &&Port| port.arrived(ifindex, &addresses).is_ok();
        let port = if packet.is_own() {
            one_of(self.ports_in(netns, rcu).filter(is_for))
        } else {
            self.port_on(netns, packet.real_ifindex(), rcu)
                .filter(is_for)
        };
        self.get(port?.management()?, rcu)
    }

    /// Marks every device as leaving: the module is being unloaded.
    pub fn leave_all(&self) {
        let rcu = rcu::read_lock();
        self.in_netns.all(&rcu).for_each(|port| port.leave());
    }

    /// The workqueue of notifiers.
    #[inline]
    pub fn notifications(&self) -> &OwnedQueue {
        self.workqueues.notifications()
    }
}

/// The entries of a port in the directory.
pub struct PortListing {
    on_netdev: Published<Port>,
    in_netns: Published<Port>,
    directory: Arc<Directory>,
}

impl PortListing {
    /// The netdev of the port is gone. Moves its QPs to ERR, so that users waiting for a peer are
    /// notified before the device is taken from them. The GSI QP belongs to ib_core, which ends its
    /// own sends when the device goes.
    pub fn lose_netdev(&self) {
        let (rcu, now) = (rcu::read_lock(), work::now());
        let port = &*self.in_netns;
        port.leave();
        for qp in self.directory.qps.all(&rcu) {
            if Arc::ptr_eq(&qp.port, port) && !qp.is_management() {
                qp.mark_failing(Ending::User);
                self.directory.workqueues.call_answerer(qp, now);
            }
        }
    }
}

impl Drop for PortListing {
    fn drop(&mut self) {
        self.directory.on_netdev.remove(&mut self.on_netdev);
        self.directory.in_netns.remove(&mut self.in_netns);
    }
}

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
                    qp.poll.arm(rounds.next(now, call.periods));
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

    /// Queues a softirq: a ULP has posted. Returns `false` if it is queued already, and so has not
    /// looked yet.
    ///
    /// It runs on this CPU, but for ib_mad on another one. The CPU that sends a management datagram
    /// over veth does the work of both ends: a process that connects to many peers would wait for
    /// that in each step.
    pub(super) fn call_posted(&self, qp: ArcBorrow<'_, Qp>) -> bool {
        let (queue, work) = (&self.notifications, Arc::from(qp));
        let queued = match qp.is_management() {
            true => queue.enqueue_elsewhere::<Arc<Qp>, POSTED>(qp.number, work),
            false => queue.enqueue::<Arc<Qp>, POSTED>(work),
        };
        queued.is_ok()
    }

    /// This CPU has polled a ring until `now`. Returns how many queues share its rounds.
    pub(super) fn polled(&self, now: u64) -> u32 {
        self.rounds(Cpu::current()).map_or(1, |rounds| {
            rounds.served(now);
            rounds.queues()
        })
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
