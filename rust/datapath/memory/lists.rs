// SPDX-License-Identifier: GPL-2.0

//! Memory of FRMRs: a ULP maps a page list, then registers it by a WR.
//!
//! A ULP maps the next list while the previous one is still registered; the WRs that change the
//! registration are posted later. So there are two lists, used in turn. Only the registered one can
//! be accessed.
//!
//! Peers access it through the window ([`super::window`]), whose gate ends their accesses. Local
//! WRs of the owner do not: no code inside a window waits for another window. They hold the gate of
//! the list, which only deregistration waits for. A killed list refuses them, and is not mapped
//! again while they use it.

use crate::core::memory::Span;
use crate::datapath::memory::region::{
    Grant,
    Listed,
    Range,
    RegionKind, //
};
use crate::sys::listed::{
    ListShape,
    ListedMemory,
    MappedPart,
    ScatterList, //
};
use crate::sys::sync::Revocable;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use kernel::prelude::*;

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
