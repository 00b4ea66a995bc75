// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Limits of the number of objects per device, as reported by the device.
//!
//! Any user may open a device, so every object is counted. An object has its [`Permit`] until it is
//! destroyed. Some of its memory is freed a grace period later: the limit counts objects, and their
//! memory is bounded by what it is charged to.

use core::ops::Deref;
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};

/// A kind of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
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
    /// Shared receive queues; each has one ring that can be mapped. The last one:
    /// [`KINDS`] counts up to it.
    Srq,
}

impl ObjectKind {
    /// Name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            ObjectKind::Context => "number of contexts",
            ObjectKind::Pd => "number of PDs",
            ObjectKind::Ah => "number of AHs",
            ObjectKind::Cq => "number of CQs",
            ObjectKind::Qp => "number of QPs",
            ObjectKind::Mr => "number of MRs",
            ObjectKind::Mw => "number of MWs",
            ObjectKind::Srq => "number of SRQs",
        }
    }

    /// Default limit, unless the administrator sets a lower one.
    pub const fn limit(self) -> u32 {
        match self {
            ObjectKind::Context => 1 << 16,
            ObjectKind::Pd => 1 << 15,
            ObjectKind::Ah => 1 << 18,
            ObjectKind::Cq => 1 << 17,
            ObjectKind::Qp => 1 << 16,
            ObjectKind::Mr | ObjectKind::Mw => 1 << 20,
            ObjectKind::Srq => 1 << 16,
        }
    }
}

/// Number of kinds.
const KINDS: usize = ObjectKind::Srq as usize + 1;

/// Counts and limits of a device.
#[derive(Debug)]
pub struct Quotas {
    most: u32,
    counts: [AtomicU32; KINDS],
}

impl Quotas {
    /// No objects, and at most `most` of each kind where that is fewer than [`ObjectKind::limit`].
    pub fn new(most: u32) -> Self {
        Self {
            most,
            counts: [const { AtomicU32::new(0) }; KINDS],
        }
    }

    /// The limit of a kind.
    pub fn limit(&self, kind: ObjectKind) -> u32 {
        kind.limit().min(self.most)
    }

    #[expect(clippy::indexing_slicing, reason = "there is a count for each")]
    fn count(&self, kind: ObjectKind) -> &AtomicU32 {
        &self.counts[kind as usize]
    }

    /// The count of a kind.
    pub fn used(&self, kind: ObjectKind) -> u32 {
        self.count(kind).load(Ordering::Relaxed)
    }
}

/// A permit for one object, returned when dropped.
#[derive(Debug)]
pub struct Permit<Q: Deref<Target = Quotas>> {
    quotas: Q,
    kind: ObjectKind,
}

impl<Q: Deref<Target = Quotas>> Permit<Q> {
    /// A permit for one more of `kind`, if the limit is not reached.
    pub fn take(quotas: Q, kind: ObjectKind) -> Option<Self> {
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
