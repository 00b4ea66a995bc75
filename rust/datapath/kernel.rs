// SPDX-License-Identifier: GPL-2.0

//! Queues of users in the kernel: what a provider does for a process.
//!
//! They have the same rings as processes, in memory that nobody maps, so that all that follows is
//! the same. Users in the kernel post, poll and arm in any context, also with interrupts disabled,
//! and while they hold locks that their handlers take. So nothing is sent here: what is posted is
//! written into the ring, under a lock of the ring alone, and a softirq of its own goes on from
//! there ([`super::worker`]). The locks of the data path are not taken.

use super::cq::Cq;
use super::directory::DIRECTORY;
use super::qp::{
    Qp,
    Receives, //
};
use crate::sys::ib::cq::Wanted;
use crate::sys::ib::qp::State;
use crate::sys::ib::wc::Completions;
use crate::sys::ib::wr::{
    RecvRequests,
    SendRequests,
    Slot, //
};
use crate::sys::lock::IrqLock;
use crate::sys::ring::Ring;
use crate::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use crate::uabi::ring::{
    ARM_NEXT,
    ARM_SOLICITED, //
};
use crate::uabi::words::{
    Provider,
    Ring as _,
    Word,
    Words, //
};
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;
use zerocopy::transmute;

/// The locks of those who post to a QP of the kernel.
#[pin_data]
pub struct PostLocks {
    #[pin]
    send: IrqLock,
    #[pin]
    recv: IrqLock,
}

impl PostLocks {
    /// Nobody posts.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            send <- IrqLock::new(),
            recv <- IrqLock::new(),
        })
    }

    /// Posts send requests; `number` is that of an address handle.
    ///
    /// # Errors
    ///
    /// `EINVAL` in a state in which nothing can be posted, or for a request that the queue cannot
    /// hold; `ENOMEM` if it is full. What stands before a request that is refused is posted.
    pub fn post_sends<A>(
        &self,
        qp: &Arc<Qp>,
        requests: SendRequests<'_, A>,
        number: impl Fn(&A) -> u32,
    ) -> Result {
        if matches!(qp.state(), State::Reset | State::Init | State::Rtr) {
            return requests.refuse(EINVAL);
        }
        let capacity = qp.capacity();
        let (max_sge, max_inline) = (capacity.max_send_sge, capacity.max_inline);
        let posted = self.send.with(|| {
            let mut writer = Writer::new(qp.sq());
            let posted =
                requests.each(|request| writer.add(|| request.slot(max_sge, max_inline, &number)));
            writer.publish();
            posted
        });
        call(qp, qp.sq());
        posted
    }

    /// Posts receives.
    ///
    /// # Errors
    ///
    /// As [`Self::post_sends`]; `EINVAL` too if it has no queue of its own.
    pub fn post_receives(&self, qp: &Arc<Qp>, requests: RecvRequests) -> Result {
        let Receives::Own(ring) = qp.receives() else {
            return requests.refuse(EINVAL);
        };
        if qp.state() == State::Reset {
            return requests.refuse(EINVAL);
        }
        let max_sge = qp.capacity().max_recv_sge;
        let posted = self.recv.with(|| {
            let mut writer = Writer::new(ring);
            let posted = requests.each(|request| writer.add(|| request.slot(max_sge)));
            writer.publish();
            posted
        });
        call(qp, ring);
        posted
    }
}

/// Posts receives to the ring of a shared receive queue, for `max_sge` entries each. Nobody is
/// called: who needs one looks for it. `lock` is that of those who post to it.
///
/// # Errors
///
/// `EINVAL` for a request that the queue cannot hold; `ENOMEM` if it is full. What stands before a
/// request that is refused is posted.
pub fn post_shared(ring: &Ring, lock: &IrqLock, max_sge: u32, requests: RecvRequests) -> Result {
    lock.with(|| {
        let mut writer = Writer::new(ring);
        let posted = requests.each(|request| writer.add(|| request.slot(max_sge)));
        writer.publish();
        posted
    })
}

/// Who writes requests into a ring. The lock of the ring is held.
struct Writer<'a> {
    ring: &'a Ring,
    producer: u32,
}

impl<'a> Writer<'a> {
    fn new(ring: &'a Ring) -> Self {
        // Nobody but us has written it.
        let producer = ring.load(Word::Producer);
        Self { ring, producer }
    }

    fn add(&mut self, slot: impl FnOnce() -> Result<Slot>) -> Result {
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

/// Something was posted: calls a softirq, if nobody looks at the ring by himself.
fn call(qp: &Arc<Qp>, ring: &Ring) {
    if !ring.needs_doorbell() {
        return;
    }
    let rcu = rcu::read_lock();
    // Without a directory the module is being unloaded.
    if let Some(directory) = DIRECTORY.get(&rcu) {
        directory.call_posted(qp.as_arc_borrow());
    }
}

/// Takes completions, as many as there is room for. `lock` is that of those who poll the queue.
pub fn poll(cq: &Cq, lock: &IrqLock, into: &mut Completions) -> Result {
    let rcu = rcu::read_lock();
    let directory = DIRECTORY.get(&rcu).ok_or(ENODEV)?;
    lock.with(|| {
        let ring = cq.ring(&rcu);
        // Nobody but us has written it.
        let mut consumer = ring.load(Word::Consumer);
        let producer = ring.load_producer();
        while consumer != producer && into.has_room() {
            let mut words = [0; CQE_STRIDE as usize / 8];
            ring.read_slot(consumer, 0, &mut words);
            let done: Cqe = transmute!(words);
            // A QP that is gone has no completions any more.
            if let Some(qp) = directory.get(done.qp_num, &rcu) {
                into.add(&done, qp.notifier().upcall());
            }
            consumer = consumer.wrapping_add(1);
        }
        ring.store_consumer(consumer);
    });
    Ok(())
}

/// Asks for an event. Tells whether there are completions already.
pub fn arm(cq: &Cq, wanted: Wanted) -> bool {
    let rcu = rcu::read_lock();
    let ring = cq.ring(&rcu);
    ring.arm(match wanted {
        Wanted::Any => ARM_NEXT,
        Wanted::Solicited => ARM_SOLICITED,
    });
    ring.load(Word::Consumer) != ring.load_producer()
}
