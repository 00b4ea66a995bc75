// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and who may use them how.

use crate::sys::cursor::Cursor;
use crate::sys::ib::qp::Access;
use crate::sys::memory::{
    Fault,
    UserMemory, //
};
use crate::sys::revocable::{
    self,
    Revocable, //
};
use crate::sys::table::Named;
// Those of the kernel crate are calls of C functions, and a key is read for every copy.
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering::Relaxed, //
};

/// Identity of a protection domain; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainId(u64);

impl DomainId {
    /// A new one.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// What a region consists of.
pub enum Kind {
    /// Pinned pages of a process.
    User(UserMemory),
}

/// A registered memory region.
pub struct Region {
    /// Local and remote key: 24 bits of a permuted index, then 8 bits that may change.
    key: AtomicU32,
    /// The domain whose QPs may use it.
    domain: DomainId,
    /// What may be done to it.
    access: Access,
    /// Address of its first byte, as work requests and peers name it.
    iova: u64,
    /// How many bytes it has.
    len: u64,
    /// Its bytes, which may be taken away while the region can still be found.
    kind: Revocable<Kind>,
}

/// A range of a region that was checked. While it lives the bytes stay, and whoever deregisters the
/// region waits: it is for one copy.
pub struct Range<'a> {
    kind: revocable::Access<'a, Kind>,
    /// Offset of the first byte.
    offset: u64,
}

impl Region {
    /// A region of `memory`, which begins at the address `iova`.
    pub fn new(key: u32, domain: DomainId, access: Access, iova: u64, memory: UserMemory) -> Self {
        Self {
            key: AtomicU32::new(key),
            domain,
            access,
            iova,
            len: memory.size(),
            kind: Revocable::new(Kind::User(memory)),
        }
    }

    /// The key as it is now.
    pub fn key(&self) -> u32 {
        self.key.load(Relaxed)
    }

    /// Changes the low byte of the key; the old key leads nowhere from now on. Callers serialise
    /// among themselves.
    pub fn set_key_byte(&self, byte: u8) {
        self.key
            .store(self.key() & !0xff | u32::from(byte), Relaxed);
    }

    /// What of a key stays when its low byte changes.
    #[inline]
    pub const fn name_in(key: u32) -> u32 {
        key >> 8
    }

    /// The offset of the range `va..va + len`, if the key is right, the range lies within the
    /// region, and all of `rights` are granted to QPs of `domain`.
    #[inline]
    pub fn permits(
        &self,
        key: u32,
        domain: DomainId,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<u64> {
        if self.key() != key || self.domain != domain || !self.access.has(rights) {
            return None;
        }
        let offset = va.checked_sub(self.iova)?;
        let end = offset.checked_add(u64::from(len))?;
        (end <= self.len).then_some(offset)
    }

    /// A range that [`Self::permits`] allows, to be used now.
    #[inline]
    pub fn check(
        &self,
        key: u32,
        domain: DomainId,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<Range<'_>> {
        let offset = self.permits(key, domain, rights, va, len)?;
        let kind = self.kind.access()?;
        Some(Range { kind, offset })
    }

    /// Ends every access: when this returns no copy is running and none will begin. The memory is
    /// given back. May sleep.
    pub fn revoke(&self) {
        drop(self.kind.revoke());
    }
}

impl Named for Region {
    #[inline]
    fn name(&self) -> u32 {
        Self::name_in(self.key())
    }
}

impl Range<'_> {
    /// Copies `bytes` to the byte `at` of the range.
    pub fn write(&self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let Kind::User(memory) = &*self.kind;
        memory.write(self.offset.wrapping_add(u64::from(at)), bytes)
    }

    /// Appends `len` bytes from the byte `at` of the range on to `out`.
    pub fn append(&self, at: u32, len: u32, out: &mut Cursor<'_>) -> Result<(), Fault> {
        let Kind::User(memory) = &*self.kind;
        memory.append(self.offset.wrapping_add(u64::from(at)), len as usize, out)
    }

    /// Copies `len` bytes from the byte `at` of the range to the byte `to_at` of `to`.
    pub fn copy_to(&self, at: u32, to: &Range<'_>, to_at: u32, len: u32) -> Result<(), Fault> {
        let Kind::User(from) = &*self.kind;
        let Kind::User(into) = &*to.kind;
        from.copy_to(
            self.offset.wrapping_add(u64::from(at)),
            into,
            to.offset.wrapping_add(u64::from(to_at)),
            len as usize,
        )
    }
}
