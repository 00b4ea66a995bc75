// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and who may use them how.

use crate::sys::ib::qp::Access;
use crate::sys::memory::UserMemory;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Identity of a protection domain; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainId(u64);

impl DomainId {
    /// A new one.
    pub fn next() -> Self {
        static NEXT: Atomic<u64> = Atomic::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// A registered memory region.
pub struct Region {
    /// Local and remote key: 24 bits of a permuted index, then 8 random bits.
    pub key: u32,
    /// The domain whose QPs may use it.
    pub domain: DomainId,
    /// What may be done to it.
    pub access: Access,
    /// Address of its first byte, as work requests and peers name it.
    pub iova: u64,
    /// Its bytes.
    pub memory: UserMemory,
}

/// A range of a region that was checked.
#[derive(Clone, Copy)]
pub struct Range<'a> {
    /// Where the bytes are.
    pub memory: &'a UserMemory,
    /// Offset of the first one in `memory`.
    pub offset: u64,
}

impl Region {
    /// The range `va..va + len`, if it lies within the region and all of `rights` are granted to
    /// QPs of `domain`.
    pub fn check(&self, domain: DomainId, rights: u32, va: u64, len: u32) -> Option<Range<'_>> {
        let offset = va.checked_sub(self.iova)?;
        (self.domain == domain
            && self.access.has(rights)
            && self.memory.contains(offset, u64::from(len)))
        .then_some(Range {
            memory: &self.memory,
            offset,
        })
    }
}
