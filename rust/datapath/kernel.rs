// SPDX-License-Identifier: GPL-2.0

//! Queues of ULPs: does what a provider does for a process.
//!
//! ULPs use the same rings as processes, in memory that is not mapped, so all later steps are the
//! same. A ULP posts, polls and arms in any context, also with interrupts disabled, and while it
//! holds locks that its handlers take. So nothing is sent here: a post writes WQEs into the ring,
//! under a lock of the ring alone, and a softirq continues ([`super::worker`]). No lock of the data
//! path is taken.

use super::cq::Cq;
use super::directory::DIRECTORY;
use super::qp::{
    Qp,
    ReceiveSource, //
};
use crate::core::uabi::cqe::{
    Cqe,
    CQE_STRIDE, //
};
use crate::core::uabi::ring::{
    Provider,
    RingOps as _,
    Word,
    Words,
    ARM_NEXT,
    ARM_SOLICITED, //
};
use crate::sys::ib::cq::ArmKind;
use crate::sys::ib::qp::QpState;
use crate::sys::ib::wc::Completions;
use crate::sys::ib::wr::{
    RecvRequests,
    SendRequests,
    WqeSlot, //
};
use crate::sys::lock::IrqLock;
use crate::sys::ring::Ring;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::Arc;
use zerocopy::transmute;

/// Post locks of a kernel QP.
#[pin_data]
pub struct PostLocks {
    #[pin]
    send: IrqLock,
    #[pin]
    recv: IrqLock,
}

impl PostLocks {
    /// Both unlocked.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            send <- IrqLock::new(),
            recv <- IrqLock::new(),
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
        requests: SendRequests<'_, A>,
        number: impl Fn(&A) -> u32,
    ) -> Result {
        if matches!(qp.state(), QpState::Reset | QpState::Init | QpState::Rtr) {
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

    /// Posts receive WRs.
    ///
    /// # Errors
    ///
    /// Like [`Self::post_sends`]; also `EINVAL` if the QP uses an SRQ.
    pub fn post_receives(&self, qp: &Arc<Qp>, requests: RecvRequests) -> Result {
        let ReceiveSource::Own(ring) = qp.receives() else {
            return requests.refuse(EINVAL);
        };
        if qp.state() == QpState::Reset {
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

/// Posts receive WRs of up to `max_sge` entries to the ring of an SRQ. No doorbell is needed: a QP
/// that needs a receive looks at the ring. `lock` is the post lock of the SRQ.
///
/// # Errors
///
/// `EINVAL` for a WR that the queue cannot hold; `ENOMEM` if the queue is full. WRs before the
/// failing one are posted.
pub fn post_shared(ring: &Ring, lock: &IrqLock, max_sge: u32, requests: RecvRequests) -> Result {
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

/// Queues the softirq that sends, if the ring asks for doorbells.
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

/// Polls completions, as many as fit. `lock` is the poll lock of the CQ.
pub fn poll(cq: &Cq, lock: &IrqLock, into: &mut Completions) -> Result {
    let rcu = rcu::read_lock();
    let directory = DIRECTORY.get(&rcu).ok_or(ENODEV)?;
    lock.with(|| {
        let ring = cq.ring(&rcu);
        // Only pollers under this lock write it.
        let mut consumer = ring.load(Word::Consumer);
        let producer = ring.load_producer();
        while consumer != producer && into.has_room() {
            let mut words = [0; CQE_STRIDE as usize / 8];
            ring.read_slot(consumer, 0, &mut words);
            let done: Cqe = transmute!(words);
            // Completions of a destroyed QP are dropped.
            if let Some(qp) = directory.get(done.qp_num, &rcu) {
                into.add(&done, qp.notifier().upcall());
            }
            consumer = consumer.wrapping_add(1);
        }
        ring.store_consumer(consumer);
    });
    Ok(())
}

/// Arms the CQ. Returns whether it holds completions already.
pub fn arm(cq: &Cq, wanted: ArmKind) -> bool {
    let rcu = rcu::read_lock();
    let ring = cq.ring(&rcu);
    ring.arm(match wanted {
        ArmKind::Any => ARM_NEXT,
        ArmKind::Solicited => ARM_SOLICITED,
    });
    ring.load(Word::Consumer) != ring.load_producer()
}
