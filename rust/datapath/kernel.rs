// SPDX-License-Identifier: GPL-2.0

//! Queues of ULPs: does what a provider does for a process.
//!
//! ULPs use the same rings as processes, in memory that is not mapped, so all later steps are the
//! same. A ULP posts, polls and arms in any context, also with interrupts disabled, and while it
//! holds locks that its handlers take. So nothing is sent here: a post writes WQEs into the ring,
//! under a lock of the ring alone, and a softirq continues ([`super::post`]). No lock of the data
//! path is taken.

use crate::core::offload::ulp::Posts;
use crate::core::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use crate::core::uabi::ring::{
    Provider,
    RingOps as _,
    Word,
    Words, //
};
use crate::core::uabi::udata::RingMap;
use crate::datapath::directory::DIRECTORY;
use crate::datapath::qp::{
    Qp,
    ReceiveSource, //
};
use crate::sys::ib::cq::Completions;
use crate::sys::ib::process::Udata;
use crate::sys::ib::qp::QpState;
use crate::sys::ib::wr::{
    RecvWrs,
    SendWrs,
    WqeSlot, //
};
use crate::sys::ib::ContextRef;
use crate::sys::ring::{
    Mapping,
    Ring, //
};
use crate::sys::sync::{
    self,
    IrqLock, //
};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    Mutex,
    MutexGuard, //
};
use zerocopy::transmute;

/// Post locks of a kernel QP, and whether its posts wait for others.
#[pin_data]
pub struct PostLocks {
    #[pin]
    send: IrqLock,
    #[pin]
    recv: IrqLock,
    /// Whether sends wait for others.
    posts: Posts,
}

impl PostLocks {
    /// Both unlocked.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            send <- IrqLock::new(),
            recv <- IrqLock::new(),
            posts: Posts::default(),
        })
    }

    /// Posts send WRs; `number` returns the number of an address handle.
    ///
    /// # Errors
    ///
    /// `EINVAL` in a state that permits no post, or for a WR that the queue cannot hold; `ENOMEM`
    /// if the queue is full. WRs before the failing one are posted.
    pub fn post_sends<A>(
        &self,
        qp: &Arc<Qp>,
        requests: SendWrs<'_, A>,
        number: impl Fn(&A) -> u32,
    ) -> Result {
        if matches!(qp.state(), QpState::Reset | QpState::Init | QpState::Rtr) {
            return requests.refuse(EINVAL);
        }
        let capacity = qp.capacity;
        let (max_sge, max_inline) = (capacity.max_send_sge, capacity.max_inline);
        let posted = self.send.with(|| {
            let mut writer = Writer::new(&qp.sq);
            let posted =
                requests.each(|request| writer.add(|| request.slot(max_sge, max_inline, &number)));
            writer.publish();
            posted
        });
        let call = || self.posts.add(!call(qp, &qp.sq));
        if self.posts.wait() {
            call();
        } else {
            sync::and_run_softirqs(call);
        }
        posted
    }

    /// Posts receive WRs.
    ///
    /// # Errors
    ///
    /// Like [`Self::post_sends`]; also `EINVAL` if the QP uses an SRQ.
    pub fn post_receives(&self, qp: &Arc<Qp>, requests: RecvWrs) -> Result {
        let ReceiveSource::Own(ring) = &qp.receives else {
            return requests.refuse(EINVAL);
        };
        if qp.state() == QpState::Reset {
            return requests.refuse(EINVAL);
        }
        let max_sge = qp.capacity.max_recv_sge;
        let posted = write_receives(ring, &self.recv, max_sge, requests);
        call(qp, ring);
        posted
    }
}

/// The user's side of a ring that is not a QP's: a process posts or polls in its mapping, a ULP by
/// the functions here.
pub enum RingUser {
    /// A process. A resize replaces the ring.
    Process(Pin<KBox<Mutex<MappedRing>>>),
    /// A ULP.
    Kernel(KernelRing),
}

/// A ring, and its mapping by a process.
pub struct MappedRing {
    /// The ring.
    pub ring: Arc<Ring>,
    _mapping: Mapping,
}

/// A ring of a ULP, and the lock of all who post to it or poll it.
pub struct KernelRing {
    ring: Arc<Ring>,
    lock: Pin<KBox<IrqLock>>,
}

impl MappedRing {
    /// Offers `ring` to the process; returns what it must know to map it.
    pub fn new(context: ContextRef<'_>, ring: Arc<Ring>) -> Result<(Self, RingMap)> {
        let (mapping, map) = Mapping::new(context, &ring)?;
        let mapped = Self {
            ring,
            _mapping: mapping,
        };
        Ok((mapped, map))
    }
}

impl RingUser {
    /// The user of the ring that `make` returns, and that ring. Of a process, which has `udata`,
    /// `respond` tells it where to map the ring.
    pub fn new(
        udata: Option<&Udata<'_>>,
        make: impl FnOnce(Option<ContextRef<'_>>) -> Result<Arc<Ring>>,
        respond: impl FnOnce(&Udata<'_>, RingMap) -> Result,
    ) -> Result<(Self, Arc<Ring>)> {
        let Some(udata) = udata else {
            let ring = make(None)?;
            let lock = KBox::pin_init(IrqLock::new(), GFP_KERNEL)?;
            let user = KernelRing {
                ring: ring.clone(),
                lock,
            };
            return Ok((Self::Kernel(user), ring));
        };
        let context = udata.context()?;
        let ring = make(Some(context))?;
        let (mapped, map) = MappedRing::new(context, ring.clone())?;
        respond(udata, map)?;
        let user = KBox::pin_init(new_mutex!(mapped), GFP_KERNEL_ACCOUNT)?;
        Ok((Self::Process(user), ring))
    }

    /// The ring of a ULP; a process posts and polls by itself.
    pub fn of_kernel(&self) -> Option<&KernelRing> {
        match self {
            Self::Process(_) => None,
            Self::Kernel(ring) => Some(ring),
        }
    }

    /// The mapping of a process, locked. ULPs do not resize.
    pub fn mapped(&self) -> Option<MutexGuard<'_, MappedRing>> {
        match self {
            Self::Process(mapped) => Some(mapped.lock()),
            Self::Kernel(_) => None,
        }
    }
}

impl KernelRing {
    /// Posts receives to an SRQ.
    pub fn post_receives(&self, max_sge: u32, requests: RecvWrs) -> Result {
        write_receives(&self.ring, &self.lock, max_sge, requests)
    }

    /// Takes completions out of a CQ.
    pub fn poll(&self, into: &mut Completions) -> Result {
        let rcu = rcu::read_lock();
        let directory = DIRECTORY.get(&rcu).ok_or(ENODEV)?;
        self.lock.with(|| {
            // Only pollers under this lock write it.
            let mut consumer = self.ring.load(Word::Consumer);
            let producer = self.ring.load_producer();
            while consumer != producer && into.has_room() {
                let mut words = [0; CQE_STRIDE as usize / 8];
                self.ring.read_slot(consumer, 0, &mut words);
                let done: Cqe = transmute!(words);
                // Completions of a destroyed QP are dropped.
                if let Some(qp) = directory.get(done.qp_num, &rcu) {
                    into.add(&done, &qp.notifier.upcall);
                }
                consumer = consumer.wrapping_add(1);
            }
            self.ring.store_consumer(consumer);
        });
        Ok(())
    }

    /// Arms a CQ: `wanted` is `ARM_NEXT` or `ARM_SOLICITED`. Returns whether it has completions.
    pub fn arm(&self, wanted: u32) -> bool {
        self.ring.arm(wanted);
        self.ring.load(Word::Consumer) != self.ring.load_producer()
    }
}

/// Writes receives into a ring, under the lock of its posters.
fn write_receives(ring: &Ring, lock: &IrqLock, max_sge: u32, requests: RecvWrs) -> Result {
    lock.with(|| {
        let mut writer = Writer::new(ring);
        let posted = requests.each(|request| writer.add(|| request.slot(max_sge)));
        writer.publish();
        posted
    })
}

/// Writes WQEs into a ring whose post lock is held.
struct Writer<'a> {
    ring: &'a Ring,
    producer: u32,
}

impl<'a> Writer<'a> {
    fn new(ring: &'a Ring) -> Self {
        // Only posters under this lock write it.
        let producer = ring.load(Word::Producer);
        Self { ring, producer }
    }

    fn add(&mut self, slot: impl FnOnce() -> Result<WqeSlot>) -> Result {
        let used = self.producer.wrapping_sub(self.ring.load_consumer());
        if used >= self.ring.entries() {
            return Err(ENOMEM);
        }
        self.ring.write_slot(self.producer, slot()?.words());
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }

    fn publish(self) {
        self.ring.store_producer(self.producer);
    }
}

/// Queues the softirq that sends, if the ring asks for doorbells. Returns whether it was not queued
/// already.
fn call(qp: &Arc<Qp>, ring: &Ring) -> bool {
    if !ring.needs_doorbell() {
        return false;
    }
    let rcu = rcu::read_lock();
    // Without a directory the module is being unloaded.
    DIRECTORY
        .get(&rcu)
        .is_some_and(|directory| directory.workqueues.call_posted(qp.as_arc_borrow()))
}
