// SPDX-License-Identifier: GPL-2.0

//! Memory regions and their access rights, and memory of FRMRs: a ULP maps a page list, then
//! registers it by a WR.
//!
//! A ULP maps the next list while the previous one is still registered; the WRs that change the
//! registration are posted later. So there are two lists, used in turn ([`Lists`]). Only the
//! registered one can be accessed.
//!
//! Peers access it through the window ([`super::window`]), whose gate ends their accesses. Local
//! WRs of the owner do not: no code inside a window waits for another window. They hold the gate of
//! the list, which only deregistration waits for. A killed list refuses them, and is not mapped
//! again while they use it.

use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::uabi::udata::NULL_LKEY;
use crate::sys::ib::mr::Access;
use crate::sys::listed::{
    ListShape,
    ListedMemory,
    MappedPart,
    ScatterList, //
};
use crate::sys::memory::{
    Cursor,
    Fault,
    KernelMemory,
    MemoryWord,
    NoRoom,
    Runs,
    UserMemory, //
};
use crate::sys::sync::{
    self,
    Revocable, //
};
use crate::sys::table::Named;
use core::sync::atomic::Ordering::{
    Acquire,
    Relaxed,
    Release, //
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    AtomicUsize, //
};
use kernel::prelude::*;

// The kernel crate's atomics are calls of C functions.

/// Identity of a protection domain; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DomainId(u64);

impl DomainId {
    /// A new identity.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// Memory of an MR.
pub enum RegionKind {
    /// Pinned pages of a process.
    User(UserMemory),
    /// All memory of the kernel, for WRs of ULPs (`local_dma_lkey`).
    Kernel(KernelMemory),
    /// The null MR: reads as zeros, discards writes.
    Null,
    /// The page list of an FRMR.
    Listed(KBox<Listed>),
}

/// No MW may be bound to the MR any more.
const CLOSED: u32 = 1 << 31;

/// A memory region.
pub struct Region {
    /// lkey and rkey: 24 bits of a permuted index, then 8 random bits.
    pub key: MemoryKey,
    /// The protection domain whose QPs may use it.
    pub domain: DomainId,
    /// Access rights.
    access: Access,
    /// Address of its first byte, as WRs and peers name it.
    iova: u64,
    /// Length in bytes.
    len: u64,
    /// Number of MWs bound to it. [`CLOSED`] when it is deregistered or reregistered, which fails
    /// while MWs are bound.
    windows: AtomicU32,
    /// Its memory, which may be revoked while the MR can still be found.
    kind: Revocable<RegionKind>,
}

/// A checked range of an MR. Its memory stays while it lives, and deregistration waits for it: hold
/// it for one copy.
pub struct Range<'a> {
    kind: sync::RevocableGuard<'a, RegionKind>,
    /// Offset of the first byte.
    offset: u64,
}

impl Region {
    /// An MR of `memory`, which begins at the address `iova`.
    pub fn new(
        key: MemoryKey,
        domain: DomainId,
        access: Access,
        iova: u64,
        memory: UserMemory,
    ) -> Self {
        Self {
            key,
            domain,
            access,
            iova,
            len: memory.runs().size(),
            windows: AtomicU32::new(0),
            kind: Revocable::new(RegionKind::User(memory)),
        }
    }

    /// All memory of the kernel, for QPs of `domain`, a domain of a ULP. Peers have no rights.
    pub fn of_kernel(
        key: MemoryKey,
        domain: DomainId,
        access: Access,
        memory: KernelMemory,
    ) -> Self {
        Self {
            key,
            domain,
            access,
            iova: 0,
            len: u64::MAX,
            windows: AtomicU32::new(0),
            kind: Revocable::new(RegionKind::Kernel(memory)),
        }
    }

    /// The MR of [`NULL_LKEY`], which is in no table: looked up when a key leads nowhere.
    pub fn null() -> Self {
        Self {
            key: MemoryKey::new(NULL_LKEY),
            domain: DomainId::next(),
            access: Access::default(),
            iova: 0,
            len: 0,
            windows: AtomicU32::new(CLOSED),
            kind: Revocable::new(RegionKind::Null),
        }
    }

    /// Any range of [`Self::null`].
    #[cold]
    pub fn anywhere(&self, key: MemoryKey) -> Option<Range<'_>> {
        if key != self.key {
            return None;
        }
        let kind = self.kind.access()?;
        Some(Range { kind, offset: 0 })
    }

    /// The offset of `span`, if the key matches, it lies within the MR, and all of `rights` are
    /// granted to QPs of `domain`.
    #[inline]
    pub fn permits(&self, domain: DomainId, rights: u32, span: &Span) -> Option<u64> {
        if !self.permits_all(span.key, domain, rights) {
            return None;
        }
        span.offset_in(self.iova, self.len)
    }

    /// Whether the key matches, and all of `rights` are granted to QPs of `domain`.
    #[inline]
    pub fn permits_all(&self, key: MemoryKey, domain: DomainId, rights: u32) -> bool {
        self.key == key && self.domain == domain && self.access.has(rights)
    }

    /// A range that [`Self::permits`] allows, for immediate use.
    #[inline]
    pub fn check(&self, domain: DomainId, rights: u32, span: &Span) -> Option<Range<'_>> {
        let offset = self.permits(domain, rights, span)?;
        self.range_at(offset)
    }

    /// The range from the byte `offset`, which was checked when an MW was bound.
    #[inline]
    pub fn range_at(&self, offset: u64) -> Option<Range<'_>> {
        let kind = self.kind.access()?;
        Some(Range { kind, offset })
    }

    /// Counts one more MW, if `rights` are granted and the MR is not zero-based. Returns the offset
    /// of `span`. The lock of the MW is held.
    pub fn bind(&self, domain: DomainId, rights: u32, span: &Span) -> Option<u64> {
        if self.access.has(Access::ZERO_BASED) {
            return None;
        }
        let offset = self.permits(domain, rights | Access::MW_BIND, span)?;
        let one_more = |windows: u32| (windows < CLOSED).then_some(windows.wrapping_add(1));
        self.windows
            .fetch_update(Relaxed, Relaxed, one_more)
            .is_ok()
            .then_some(offset)
    }

    /// Counts one MW less.
    pub fn unbind(&self) {
        self.windows.fetch_sub(1, Release);
    }

    /// Number of MWs bound to it.
    pub fn windows(&self) -> u32 {
        match self.windows.load(Relaxed) {
            CLOSED => 0,
            windows => windows,
        }
    }

    /// Permits no more bindings. Returns whether none exists.
    pub fn close(&self) -> bool {
        self.windows
            .compare_exchange(0, CLOSED, Acquire, Relaxed)
            .is_ok()
    }

    /// Undoes [`Self::close`].
    pub fn open(&self) {
        self.windows.store(0, Relaxed);
    }

    /// Ends all accesses: when this returns, none is in progress and none will begin. The first
    /// caller gets the memory. May sleep.
    pub fn revoke(&self) -> Option<UserMemory> {
        match self.kind.revoke() {
            Some(RegionKind::User(memory)) => Some(memory),
            Some(RegionKind::Kernel(_) | RegionKind::Null | RegionKind::Listed(_)) | None => None,
        }
    }

    /// The kind of its memory, unless it was revoked.
    pub fn inspect<R>(&self, what: impl FnOnce(&UserMemory) -> R) -> Option<R> {
        match &*self.kind.access()? {
            RegionKind::User(memory) => Some(what(memory)),
            RegionKind::Kernel(_) | RegionKind::Null | RegionKind::Listed(_) => None,
        }
    }
}

impl Named for Region {
    #[inline]
    fn name(&self) -> u32 {
        self.key.name()
    }
}

impl<'a> Range<'a> {
    /// The range of a page list from the byte `offset`, which was checked.
    pub(super) fn listed(kind: sync::RevocableGuard<'a, RegionKind>, offset: u64) -> Self {
        Self { kind, offset }
    }
}

impl Range<'_> {
    /// The memory that it is in; None for the null MR, which reads as zeros and discards writes.
    #[inline]
    fn runs(&self) -> Option<&Runs> {
        match &*self.kind {
            RegionKind::User(memory) => Some(memory.runs()),
            RegionKind::Kernel(memory) => Some(memory.runs()),
            RegionKind::Null => None,
            RegionKind::Listed(listed) => Some(listed.memory.runs()),
        }
    }

    /// Copies `bytes` to the byte `at` of the range.
    #[inline]
    pub fn write(&self, at: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.offset.wrapping_add(u64::from(at));
        self.runs().map_or(Ok(()), |runs| runs.write(at, bytes))
    }

    /// Appends `len` bytes from the byte `at` of the range to `out`.
    #[inline]
    pub fn append(&self, at: u32, len: u32, out: &mut Cursor<'_>) -> Result<(), Fault> {
        let (at, len) = (self.offset.wrapping_add(u64::from(at)), len as usize);
        match self.runs() {
            Some(runs) => runs.append(at, len, out),
            None => out.zeros(len).map(|_| ()).map_err(|NoRoom| Fault),
        }
    }

    /// The first 8 bytes of the range, for an atomic access by a peer: not of the kernel's memory
    /// and the null MR, which peers cannot name.
    pub fn word(&self) -> Result<MemoryWord<'_>, Fault> {
        match (&*self.kind, self.runs()) {
            (RegionKind::User(_) | RegionKind::Listed(_), Some(runs)) => runs.word(self.offset),
            _ => Err(Fault),
        }
    }

    /// Copies `len` bytes from the byte `at` of the range to the byte `to_at` of `to`.
    #[inline]
    pub fn copy_to(&self, at: u32, to: &Range<'_>, to_at: u32, len: u32) -> Result<(), Fault> {
        let from_at = self.offset.wrapping_add(u64::from(at));
        let into_at = to.offset.wrapping_add(u64::from(to_at));
        match (self.runs(), to.runs()) {
            (Some(from), Some(into)) => from.copy_to(from_at, into, into_at, len as usize),
            (_, None) => Ok(()),
            (None, Some(_)) => to.clear(to_at, len),
        }
    }

    /// Writes zeros to `len` bytes from the byte `at`.
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

/// Rights of a registration.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// What is registered.
    pub span: Span,
    /// What may be done.
    pub access: Access,
}

/// A page list and its registration.
pub struct Listed {
    /// Its bytes.
    pub memory: ListedMemory,
    /// The rights granted while it is registered; None before the first time.
    pub grant: Option<Grant>,
}

/// No list.
const NONE: usize = usize::MAX;

/// The two lists of an FRMR.
pub struct Lists {
    lists: [Revocable<RegionKind>; 2],
    /// The list mapped last. It keeps its role after registration and invalidation: ULPs register
    /// it again without mapping it again (the RTRS server does).
    mapped: AtomicUsize,
    /// The list registered last.
    registered: AtomicUsize,
}

impl Lists {
    /// Lists with room for this many pages or pieces.
    pub fn new(most: usize, shape: ListShape) -> Result<Self> {
        let list = || -> Result<Revocable<RegionKind>> {
            let listed = Listed {
                memory: ListedMemory::new(most, shape)?,
                grant: None,
            };
            Ok(Revocable::denied(RegionKind::Listed(KBox::new(
                listed, GFP_KERNEL,
            )?)))
        };
        Ok(Self {
            lists: [list()?, list()?],
            mapped: AtomicUsize::new(NONE),
            registered: AtomicUsize::new(0),
        })
    }

    fn registered(&self) -> Option<&Revocable<RegionKind>> {
        self.lists.get(self.registered.load(Relaxed))
    }

    /// Maps the next list to register, replacing one that was mapped and not registered. Any
    /// context.
    ///
    /// # Errors
    ///
    /// Those of [`ListedMemory::map`]; `EBUSY` while WRs of the owner still use the list that was
    /// invalidated two registrations ago.
    pub fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<MappedPart> {
        let next = self.registered.load(Relaxed) ^ 1;
        self.mapped.store(NONE, Relaxed);
        let mapped = self
            .lists
            .get(next)
            .and_then(|next| {
                next.change(|kind| match kind {
                    RegionKind::Listed(listed) => listed.memory.map(list, page),
                    _ => Err(EINVAL),
                })
            })
            .ok_or(EBUSY)??;
        self.mapped.store(next, Relaxed);
        Ok(mapped)
    }

    /// Registers the list mapped last. Returns whether it has enough bytes. Callers serialise this
    /// and [`Self::invalidate`].
    pub(super) fn register(&self, grant: Grant) -> bool {
        let next = self.mapped.load(Relaxed);
        let Some(list) = self.lists.get(next) else {
            return false;
        };
        let registered = list.allow(|kind| match kind {
            RegionKind::Listed(listed) => {
                listed.grant = Some(grant);
                grant.span.len <= listed.memory.runs().size()
            }
            _ => false,
        });
        if registered {
            self.registered.store(next, Relaxed);
        }
        registered
    }

    /// Revokes remote access; local WRs in flight complete.
    pub(super) fn invalidate(&self) {
        if let Some(list) = self.registered() {
            list.deny();
        }
    }

    /// The range from the byte `offset` of the registered list, which was checked.
    pub(super) fn range_at(&self, offset: u64) -> Option<Range<'_>> {
        Some(Range::listed(self.registered()?.access()?, offset))
    }

    /// A range for a local WR of the owner.
    pub(super) fn own(&self, rights: u32, span: &Span) -> Option<Range<'_>> {
        let kind = self.registered()?.access()?;
        let RegionKind::Listed(listed) = &*kind else {
            return None;
        };
        let Grant { span: all, access } = listed.grant?;
        if all.key != span.key || !access.has(rights) {
            return None;
        }
        let offset = span.offset_in(all.va, all.len)?;
        Some(Range::listed(kind, offset))
    }

    /// Waits for local WRs that use a list, and ends both lists. May sleep.
    pub fn end(&self) {
        for list in &self.lists {
            drop(list.revoke());
        }
    }
}
