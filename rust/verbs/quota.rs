// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! How many objects of each kind a device may have: the limits that it reports, enforced.
//!
//! Any user may open a device, so each object that he makes is counted. An object has its
//! [`Permit`] until it is destroyed. Some of its memory is freed a grace period later: the limit
//! is of objects, and memory is bounded by what it is charged to.

use core::ops::Deref;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};

/// A kind of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Open device files.
    Context,
    /// Protection domains.
    Pd,
    /// Address handles.
    Ah,
    /// Completion queues; each has one ring that can be mapped.
    Cq,
    /// Queue pairs; each has two rings that can be mapped.
    Qp,
    /// Memory regions.
    Mr,
    /// Memory windows.
    Mw,
    /// Shared receive queues; each has one ring that can be mapped.
    Srq,
}

impl Kind {
    /// What they are called.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Context => "number of contexts",
            Kind::Pd => "number of PDs",
            Kind::Ah => "number of AHs",
            Kind::Cq => "number of CQs",
            Kind::Qp => "number of QPs",
            Kind::Mr => "number of MRs",
            Kind::Mw => "number of MWs",
            Kind::Srq => "number of SRQs",
        }
    }

    /// How many there may be, unless the administrator wants fewer.
    pub const fn limit(self) -> u32 {
        match self {
            Kind::Context => 1 << 16,
            Kind::Pd => 1 << 15,
            Kind::Ah => 1 << 18,
            Kind::Cq => 1 << 17,
            Kind::Qp => 1 << 16,
            Kind::Mr | Kind::Mw => 1 << 20,
            Kind::Srq => 1 << 16,
        }
    }
}

/// How many objects of each kind a device has, and may have.
#[derive(Debug)]
pub struct Quotas {
    most: u32,
    contexts: AtomicU32,
    pds: AtomicU32,
    ahs: AtomicU32,
    cqs: AtomicU32,
    qps: AtomicU32,
    mrs: AtomicU32,
    mws: AtomicU32,
    srqs: AtomicU32,
}

impl Quotas {
    /// None yet, and at most `most` of each kind where that is fewer than [`Kind::limit`].
    pub fn new(most: u32) -> Self {
        Self {
            most,
            contexts: AtomicU32::new(0),
            pds: AtomicU32::new(0),
            ahs: AtomicU32::new(0),
            cqs: AtomicU32::new(0),
            qps: AtomicU32::new(0),
            mrs: AtomicU32::new(0),
            mws: AtomicU32::new(0),
            srqs: AtomicU32::new(0),
        }
    }

    /// How many there may be of a kind.
    pub fn limit(&self, kind: Kind) -> u32 {
        kind.limit().min(self.most)
    }

    fn count(&self, kind: Kind) -> &AtomicU32 {
        match kind {
            Kind::Context => &self.contexts,
            Kind::Pd => &self.pds,
            Kind::Ah => &self.ahs,
            Kind::Cq => &self.cqs,
            Kind::Qp => &self.qps,
            Kind::Mr => &self.mrs,
            Kind::Mw => &self.mws,
            Kind::Srq => &self.srqs,
        }
    }

    /// How many there are of a kind.
    pub fn used(&self, kind: Kind) -> u32 {
        self.count(kind).load(Ordering::Relaxed)
    }
}

/// Permission for one object, given back when it is dropped.
#[derive(Debug)]
pub struct Permit<Q: Deref<Target = Quotas>> {
    quotas: Q,
    kind: Kind,
}

impl<Q: Deref<Target = Quotas>> Permit<Q> {
    /// Permission for one more of `kind`, if there may be one.
    pub fn take(quotas: Q, kind: Kind) -> Option<Self> {
        let limit = quotas.limit(kind);
        quotas
            .count(kind)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < limit).then_some(used.wrapping_add(1))
            })
            .ok()?;
        Some(Self { quotas, kind })
    }
}

impl<Q: Deref<Target = Quotas>> Drop for Permit<Q> {
    fn drop(&mut self) {
        self.quotas.count(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}
