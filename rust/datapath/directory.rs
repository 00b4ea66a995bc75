// SPDX-License-Identifier: GPL-2.0

//! State shared by all devices: QPs by number, ports by netdev, and workers.
//!
//! QP numbers are unique over all devices of the module, so a packet finds its QP by the number
//! alone. The addresses of the connection decide whether the packet may be for it.

use super::port::{
    Port,
    MANAGEMENT_QP, //
};
use super::qp::{
    Ending,
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
use crate::core::offload::{
    Worker,
    WorkerCall, //
};
use crate::core::wire::gid::GROUP_QPN;
use crate::core::wire::ident::Permutation24;
use crate::sys::net::{
    NetNs,
    RxPacket, //
};
use crate::sys::random;
use crate::sys::reclaim::Global;
use crate::sys::table::{
    filled,
    Published,
    Reserved,
    Table, //
};
use crate::sys::timer;
use crate::sys::work::Cpu;
use crate::sys::work::{
    self,
    OwnedQueue, //
};
use kernel::c_str;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Release, //
};
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow,
    Mutex, //
};

/// The directory of the module, from init to exit.
pub static DIRECTORY: Global<Directory> = Global::empty();

/// Most QPs of all devices together.
pub const MAX_QP: u32 = 1 << 20;

/// Most ports of all devices together: more than there can be netdevs.
const MAX_PORT: u32 = i32::MAX as u32;

/// Hash chains of ports. Enough to keep them short on a host with many containers.
const CHAINS: usize = 1024;

/// CPUs with a budget and rounds of their own; beyond that, some share them.
const CPUS: usize = 64;

/// The QPs and ports of all devices.
#[pin_data]
pub struct Directory {
    #[pin]
    qps: Table<Qp>,
    /// Secret of the QP numbers.
    numbers: Permutation24,
    #[pin]
    ports: Table<PortEntry>,
    /// Heads of the chains of ports by netdev and by namespace; 0 is none.
    on_netdev: KVec<Atomic<u32>>,
    in_netns: KVec<Atomic<u32>>,
    /// Serialises changes of the chains.
    #[pin]
    listing: Mutex<()>,
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
}

/// A port in the directory.
struct PortEntry {
    port: Arc<Port>,
    /// Indices of the next entries in its two chains; 0 is none.
    next_on_netdev: Atomic<u32>,
    next_in_netns: Atomic<u32>,
}

/// A chain by netdev or by namespace.
struct Chain<'a> {
    head: &'a Atomic<u32>,
    next: fn(&PortEntry) -> &Atomic<u32>,
}

impl Directory {
    /// The directory of the module. `ENODEV` when it is being unloaded and no device is left.
    pub fn current() -> Result<Arc<Self>> {
        let rcu = rcu::read_lock();
        DIRECTORY.get_arc(&rcu).ok_or(ENODEV)
    }

    /// An empty directory.
    pub fn new() -> Result<Arc<Self>> {
        let notifications = OwnedQueue::bh(c_str!("ferroce_notify"))?;
        let urgent = OwnedQueue::urgent(c_str!("ferroce_urgent"))?;
        let normal = OwnedQueue::normal(c_str!("ferroce"))?;
        let on_netdev = filled(CHAINS, || Atomic::new(0))?;
        let in_netns = filled(CHAINS, || Atomic::new(0))?;
        let cpus = filled(CPUS, PerCpu::default)?;
        Arc::pin_init(
            try_pin_init!(Self {
                qps <- Table::named(),
                numbers: Permutation24::new(random::words()),
                ports <- Table::new(),
                on_netdev,
                in_netns,
                listing <- new_mutex!((), "ferroce_directory"),
                cpus,
                notifications,
                urgent,
                normal,
            }),
            GFP_KERNEL,
        )
    }

    /// Reserves a QP number, which leads nowhere until it is published. May sleep.
    pub fn reserve(&self) -> Result<(Reserved<'_, Qp>, u32)> {
        // Three numbers are reserved: 0 and 1 for management QPs, the last for multicast. A drawn
        // one is kept while another is drawn.
        let mut unusable: [Option<Reserved<'_, Qp>>; 3] = [const { None }; 3];
        let mut spare = unusable.iter_mut();
        loop {
            let reserved = self.qps.reserve(MAX_QP)?;
            let number = self.numbers.number(reserved.number());
            if !matches!(number, 0 | 1 | GROUP_QPN) {
                return Ok((reserved, number));
            }
            *spare.next().ok_or(ENOSPC)? = Some(reserved);
        }
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
        let entry = Arc::new(
            PortEntry {
                port: port.clone(),
                next_on_netdev: Atomic::new(0),
                next_in_netns: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let reserved = self.ports.reserve(MAX_PORT)?;
        let chains = self.chains(port.netns(), port.ifindex())?;
        let entry = reserved.publish(entry);
        let _listing = self.listing.lock();
        for chain in chains {
            (chain.next)(&entry).store(chain.head.load(Acquire), Release);
            chain.head.store(Published::number(&entry), Release);
        }
        Ok(PortListing {
            directory: self.clone(),
            entry,
        })
    }

    /// The chains of a port on this netdev.
    fn chains(&self, netns: NetNs, ifindex: i32) -> Result<[Chain<'_>; 2]> {
        let hash = |seed: u64| {
            let mixed = (netns.id() as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed >> 32) as usize % CHAINS
        };
        Ok([
            Chain {
                head: self
                    .on_netdev
                    .get(hash(u64::from(ifindex as u32) << 32))
                    .ok_or(EINVAL)?,
                next: |entry| &entry.next_on_netdev,
            },
            Chain {
                head: self.in_netns.get(hash(0)).ok_or(EINVAL)?,
                next: |entry| &entry.next_in_netns,
            },
        ])
    }

    /// The port that counts a packet for no QP: the one on the netdev by which it arrived or, if
    /// that has none (`lo`, a VLAN), any port of the namespace.
    pub fn port_at<'g>(
        &'g self,
        netns: NetNs,
        ifindex: i32,
        rcu: &'g rcu::Guard,
    ) -> Option<&'g Port> {
        self.port_on(netns, ifindex, rcu).or_else(|| {
            let [_, in_netns] = self.chains(netns, ifindex).ok()?;
            self.find(in_netns, rcu, &|port| port.netns() == netns)
        })
    }

    /// The port on this netdev.
    pub fn port_on<'g>(
        &'g self,
        netns: NetNs,
        ifindex: i32,
        rcu: &'g rcu::Guard,
    ) -> Option<&'g Port> {
        let [on_netdev, _] = self.chains(netns, ifindex).ok()?;
        self.find(on_netdev, rcu, &|port| {
            port.ifindex() == ifindex && port.netns() == netns
        })
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
        let is_for = |port: &Port| port.arrived(ifindex, &addresses).is_ok();
        let port = if packet.is_own() {
            let [_, in_netns] = self.chains(netns, ifindex).ok()?;
            self.find(in_netns, rcu, &|port| port.netns() == netns && is_for(port))
        } else {
            self.port_on(netns, packet.real_ifindex(), rcu)
                .filter(|port| is_for(port))
        };
        self.get(port?.management()?, rcu)
    }

    fn find<'g>(
        &'g self,
        chain: Chain<'_>,
        rcu: &'g rcu::Guard,
        wanted: &dyn Fn(&Port) -> bool,
    ) -> Option<&'g Port> {
        let mut index = chain.head.load(Acquire);
        while index != 0 {
            let entry = self.ports.get_ref(index, rcu)?;
            if wanted(&entry.port) {
                return Some(&entry.port);
            }
            // An entry that is being removed still leads on.
            index = (chain.next)(entry).load(Acquire);
        }
        None
    }

    /// Marks every device as leaving: the module is being unloaded.
    pub fn leave_all(&self) {
        let rcu = rcu::read_lock();
        self.ports.each(&rcu, |entry| entry.port.leave());
    }

    /// The workqueue of notifiers.
    #[inline]
    pub fn notifications(&self) -> &OwnedQueue {
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

    /// Queues the responding worker on this CPU.
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

/// The entry of a port in the directory.
pub struct PortListing {
    directory: Arc<Directory>,
    entry: Published<PortEntry>,
}

impl PortListing {
    /// The netdev of the port is gone. Moves its QPs to ERR, so that users waiting for a peer are
    /// notified before the device is taken from them. The GSI QP belongs to ib_core, which ends its
    /// own sends when the device goes.
    pub fn lose_netdev(&self) {
        let (rcu, now) = (rcu::read_lock(), timer::now());
        self.entry.port.leave();
        self.directory.qps.each(&rcu, |qp| {
            if Arc::ptr_eq(qp.port(), &self.entry.port) && qp.known_as() != MANAGEMENT_QP {
                qp.fail_later(Ending::User);
                self.directory.call_answerer(qp, now);
            }
        });
    }

    /// Removes the port from its chains. Readers that are walking past continue from it.
    fn unlink(&self) {
        let directory = &self.directory;
        let port = &self.entry.port;
        let _listing = directory.listing.lock();
        let rcu = rcu::read_lock();
        let Ok(chains) = directory.chains(port.netns(), port.ifindex()) else {
            return;
        };
        for chain in chains {
            let behind = (chain.next)(&self.entry).load(Acquire);
            let mut link = chain.head;
            loop {
                match link.load(Acquire) {
                    0 => break,
                    index if index == Published::number(&self.entry) => {
                        link.store(behind, Release);
                        break;
                    }
                    index => match directory.ports.get_ref(index, &rcu) {
                        Some(entry) => link = (chain.next)(entry),
                        None => break,
                    },
                }
            }
        }
    }
}

impl Drop for PortListing {
    fn drop(&mut self) {
        self.unlink();
        self.directory.ports.remove(&mut self.entry);
    }
}
