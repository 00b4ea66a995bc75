// SPDX-License-Identifier: GPL-2.0

//! Memory regions, and who may use them how.

use super::listed::Listed;
use crate::sys::cursor::{
    Cursor,
    NoRoom, //
};
use crate::sys::ib::qp::Access;
use crate::sys::memory::{
    Fault,
    KernelMemory,
    Memory,
    UserMemory,
    Word, //
};
use crate::sys::revocable::{
    self,
    Revocable, //
};
use crate::sys::table::Named;
use crate::uabi::udata::NULL_LKEY;
use kernel::prelude::KBox;
// Those of the kernel crate are calls of C functions.
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering::Acquire,
    Ordering::Relaxed,
    Ordering::Release, //
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
    /// All memory of the kernel, for the work requests of its users.
    Kernel(KernelMemory),
    /// Nothing: it reads as zeros and swallows what is written.
    Null,
    /// What a user in the kernel has listed, for a fast registration.
    Listed(KBox<Listed>),
}

/// No window may be bound to the region any more.
const CLOSED: u32 = 1 << 31;

/// A registered memory region.
pub struct Region {
    /// Local and remote key: 24 bits of a permuted index, then 8 random ones.
    key: u32,
    /// The domain whose QPs may use it.
    domain: DomainId,
    /// What may be done to it.
    access: Access,
    /// Address of its first byte, as work requests and peers name it.
    iova: u64,
    /// How many bytes it has.
    len: u64,
    /// How many windows are bound to it; [`CLOSED`] when it ends or becomes another, which it
    /// does not while there are any.
    windows: AtomicU32,
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
            key,
            domain,
            access,
            iova,
            len: memory.size(),
            windows: AtomicU32::new(0),
            kind: Revocable::new(Kind::User(memory)),
        }
    }

    /// All memory of the kernel, for QPs of `domain`, which is one of the kernel. Peers have no
    /// rights to it.
    pub fn of_kernel(key: u32, domain: DomainId, access: Access, memory: KernelMemory) -> Self {
        Self {
            key,
            domain,
            access,
            iova: 0,
            len: u64::MAX,
            windows: AtomicU32::new(0),
            kind: Revocable::new(Kind::Kernel(memory)),
        }
    }

    /// The region of [`NULL_LKEY`], which is in no table: a key that leads nowhere may be its.
    pub fn null() -> Self {
        Self {
            key: NULL_LKEY,
            domain: DomainId::next(),
            access: Access::default(),
            iova: 0,
            len: 0,
            windows: AtomicU32::new(CLOSED),
            kind: Revocable::new(Kind::Null),
        }
    }

    /// Any range of [`Self::null`].
    #[cold]
    pub fn anywhere(&self, key: u32) -> Option<Range<'_>> {
        if key != self.key() {
            return None;
        }
        let kind = self.kind.access()?;
        Some(Range { kind, offset: 0 })
    }

    /// Its key.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The domain whose QPs may use it.
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// What of a key stays when its low byte changes.
    #[inline]
    pub const fn name_in(key: u32) -> u32 {
        key >> 8
    }

    /// The key of this name with the low byte of `key`.
    pub(super) const fn key_of(name: u32, key: u32) -> u32 {
        name << 8 | key & 0xff
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
        len: u64,
    ) -> Option<u64> {
        if self.key() != key || self.domain != domain || !self.access.has(rights) {
            return None;
        }
        offset_in(self.iova, self.len, va, len)
    }

    /// Whether the key is right, and all of `rights` are granted to QPs of `domain`.
    pub fn permits_all(&self, key: u32, domain: DomainId, rights: u32) -> bool {
        self.key() == key && self.domain == domain && self.access.has(rights)
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
        let offset = self.permits(key, domain, rights, va, u64::from(len))?;
        let kind = self.kind.access()?;
        Some(Range { kind, offset })
    }

    /// The range that begins at the byte `offset`, which was checked when a window was bound.
    pub fn range_at(&self, offset: u64) -> Option<Range<'_>> {
        let kind = self.kind.access()?;
        Some(Range { kind, offset })
    }

    /// One more window is bound to it, if `rights` are granted and the addresses are not offsets:
    /// where in it `va` is. The lock of the window is held.
    pub fn bind(&self, key: u32, domain: DomainId, rights: u32, va: u64, len: u64) -> Option<u64> {
        if self.access.has(Access::ZERO_BASED) {
            return None;
        }
        let offset = self.permits(key, domain, rights | Access::MW_BIND, va, len)?;
        let one_more = |windows: u32| (windows < CLOSED).then_some(windows.wrapping_add(1));
        self.windows
            .fetch_update(Relaxed, Relaxed, one_more)
            .is_ok()
            .then_some(offset)
    }

    /// One window less is bound to it.
    pub fn unbind(&self) {
        self.windows.fetch_sub(1, Release);
    }

    /// How many windows are bound to it.
    pub fn windows(&self) -> u32 {
        match self.windows.load(Relaxed) {
            CLOSED => 0,
            windows => windows,
        }
    }

    /// Lets no window be bound to it any more; tells whether there was none.
    pub fn close(&self) -> bool {
        self.windows
            .compare_exchange(0, CLOSED, Acquire, Relaxed)
            .is_ok()
    }

    /// Undoes [`Self::close`]: it stays after all.
    pub fn open(&self) {
        self.windows.store(0, Relaxed);
    }

    /// Ends every access: when this returns no copy is running and none will begin. The memory is
    /// the first caller's. May sleep.
    pub fn revoke(&self) -> Option<UserMemory> {
        match self.kind.revoke() {
            Some(Kind::User(memory)) => Some(memory),
            Some(Kind::Kernel(_) | Kind::Null | Kind::Listed(_)) | None => None,
        }
    }

    /// What its memory says, unless it was revoked.
    pub fn ask<R>(&self, what: impl FnOnce(&UserMemory) -> R) -> Option<R> {
        match &*self.kind.access()? {
            Kind::User(memory) => Some(what(memory)),
            Kind::Kernel(_) | Kind::Null | Kind::Listed(_) => None,
        }
    }
}

impl Named for Region {
    #[inline]
    fn name(&self) -> u32 {
        Self::name_in(self.key())
    }
}

/// Where in the `size` bytes that begin at the address `base` a range lies, if it does.
#[inline(always)]
pub(super) fn offset_in(base: u64, size: u64, va: u64, len: u64) -> Option<u64> {
    let offset = va.checked_sub(base)?;
    let end = offset.checked_add(len)?;
    (end <= size).then_some(offset)
}

impl<'a> Range<'a> {
    /// The range of a list that begins at the byte `offset`, which was checked.
    pub(super) fn listed(kind: revocable::Access<'a, Kind>, offset: u64) -> Self {
        Self { kind, offset }
    }
}

impl Range<'_> {
    /// Copies `bytes` to the byte `at` of the range.
    #[inline]
    pub fn write(&self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.offset.wrapping_add(u64::from(at));
        match &*self.kind {
            Kind::User(memory) => memory.write(at, bytes),
            Kind::Kernel(memory) => memory.write(at, bytes),
            Kind::Null => Ok(()),
            Kind::Listed(listed) => listed.memory.write(at, bytes),
        }
    }

    /// Appends `len` bytes from the byte `at` of the range on to `out`.
    #[inline]
    pub fn append(&self, at: u32, len: u32, out: &mut Cursor<'_>) -> Result<(), Fault> {
        let (at, len) = (self.offset.wrapping_add(u64::from(at)), len as usize);
        match &*self.kind {
            Kind::User(memory) => memory.append(at, len, out),
            Kind::Kernel(memory) => memory.append(at, len, out),
            Kind::Null => out.zeros(len).map(|_| ()).map_err(|NoRoom| Fault),
            Kind::Listed(listed) => listed.memory.append(at, len, out),
        }
    }

    /// The first 8 bytes of the range, to be changed as one.
    pub fn word(&self) -> Result<Word<'_>, Fault> {
        match &*self.kind {
            Kind::User(memory) => memory.word(self.offset),
            Kind::Listed(listed) => listed.memory.word(self.offset),
            // Peers cannot name them.
            Kind::Kernel(_) | Kind::Null => Err(Fault),
        }
    }

    /// Copies `len` bytes from the byte `at` of the range to the byte `to_at` of `to`.
    pub fn copy_to(&self, at: u32, to: &Range<'_>, to_at: u32, len: u32) -> Result<(), Fault> {
        let (from_at, into_at) = (
            self.offset.wrapping_add(u64::from(at)),
            to.offset.wrapping_add(u64::from(to_at)),
        );
        let n = len as usize;
        match (&*self.kind, &*to.kind) {
            (Kind::User(from), Kind::User(into)) => from.copy_to(from_at, into, into_at, n),
            (Kind::User(from), Kind::Kernel(into)) => from.copy_to(from_at, into, into_at, n),
            (Kind::Kernel(from), Kind::User(into)) => from.copy_to(from_at, into, into_at, n),
            (Kind::Kernel(from), Kind::Kernel(into)) => from.copy_to(from_at, into, into_at, n),
            (_, Kind::Null) => Ok(()),
            (Kind::Null, _) => to.clear(to_at, len),
            (from, into) => copy_listed(from, from_at, into, into_at, n),
        }
    }

    /// Writes zeros to `len` bytes from the byte `at` on.
    #[cold]
    fn clear(&self, mut at: u32, len: u32) -> Result<(), Fault> {
        const ZEROS: [u8; 1024] = [0; 1024];
        let mut left = len as usize;
        while left != 0 {
            let part = ZEROS.get(..left).unwrap_or(&ZEROS);
            self.write(at, part)?;
            // At most 1024.
            at = at.wrapping_add(part.len() as u32);
            left = left.wrapping_sub(part.len());
        }
        Ok(())
    }
}

/// Copies `n` bytes where one of the two is a list.
#[cold]
fn copy_listed(
    from: &Kind,
    from_at: u64,
    into: &Kind,
    into_at: u64,
    n: usize,
) -> Result<(), Fault> {
    match (from, into) {
        (Kind::User(from), Kind::Listed(into)) => from.copy_to(from_at, &into.memory, into_at, n),
        (Kind::Kernel(from), Kind::Listed(into)) => from.copy_to(from_at, &into.memory, into_at, n),
        (Kind::Listed(from), Kind::User(into)) => from.memory.copy_to(from_at, into, into_at, n),
        (Kind::Listed(from), Kind::Kernel(into)) => from.memory.copy_to(from_at, into, into_at, n),
        (Kind::Listed(from), Kind::Listed(into)) => {
            from.memory.copy_to(from_at, &into.memory, into_at, n)
        }
        // Neither is.
        _ => Err(Fault),
    }
}
