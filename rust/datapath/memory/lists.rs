// SPDX-License-Identifier: GPL-2.0

//! The memory of fast registrations: what a user in the kernel maps, then registers by a work
//! request.
//!
//! The next list is mapped while the one before is registered still: the work requests that change
//! that are posted later. So there are two, and they take turns. Only one that is registered can be
//! used.
//!
//! Peers come by the window ([`super::window`]), whose gate ends what they do. Its owner, who names
//! the region in his own work requests, does not: nobody inside a window waits for another one. He
//! is inside the gate of the list, for which nobody waits before the region ends: a list that is
//! shut sends him away, and is not mapped anew while he is there.

use super::listed::{
    Grant,
    Listed, //
};
use super::region::{
    offset_in,
    Kind,
    Range, //
};
use crate::sys::listed::{
    ListedMemory,
    ScatterList,
    Shape,
    Taken, //
};
use crate::sys::memory::Memory;
use crate::sys::revocable::Revocable;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::prelude::*;

/// No list.
const NONE: usize = usize::MAX;

/// The two lists of a region.
pub struct Lists {
    lists: [Revocable<Kind>; 2],
    /// Which was mapped last. It stays so when it was registered and invalidated: users register
    /// it once more without mapping it again (the server of RTRS does).
    mapped: AtomicUsize,
    /// Which was registered last.
    registered: AtomicUsize,
}

impl Lists {
    /// Lists with room for so many pages or pieces.
    pub fn new(most: usize, shape: Shape) -> Result<Self> {
        let list = || -> Result<Revocable<Kind>> {
            let listed = Listed {
                memory: ListedMemory::new(most, shape)?,
                grant: Grant::default(),
            };
            Ok(Revocable::denied(Kind::Listed(KBox::new(
                listed, GFP_KERNEL,
            )?)))
        };
        Ok(Self {
            lists: [list()?, list()?],
            mapped: AtomicUsize::new(NONE),
            registered: AtomicUsize::new(0),
        })
    }

    fn registered(&self) -> Option<&Revocable<Kind>> {
        self.lists.get(self.registered.load(Relaxed))
    }

    /// Maps what is registered next, in place of what was mapped and not registered. In any
    /// context.
    ///
    /// # Errors
    ///
    /// Those of [`ListedMemory::map`]; `EBUSY` while work requests of its owner use the list that
    /// was invalidated two registrations ago.
    pub fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<Taken> {
        let next = self.registered.load(Relaxed) ^ 1;
        self.mapped.store(NONE, Relaxed);
        let taken = self
            .lists
            .get(next)
            .and_then(|next| {
                next.change(|kind| match kind {
                    Kind::Listed(listed) => listed.memory.map(list, page),
                    _ => Err(EINVAL),
                })
            })
            .ok_or(EBUSY)??;
        self.mapped.store(next, Relaxed);
        Ok(taken)
    }

    /// Registers what was mapped last; tells whether that has so many bytes. Callers serialise
    /// among themselves, and with [`Self::invalidate`].
    pub(super) fn register(&self, grant: Grant) -> bool {
        let next = self.mapped.load(Relaxed);
        let Some(list) = self.lists.get(next) else {
            return false;
        };
        let registered = list.allow(|kind| match kind {
            Kind::Listed(listed) => {
                listed.grant = grant;
                grant.len <= listed.memory.size()
            }
            _ => false,
        });
        if registered {
            self.registered.store(next, Relaxed);
        }
        registered
    }

    /// Nobody uses by it what is registered from now on; work requests of the owner that do, go on.
    pub(super) fn invalidate(&self) {
        if let Some(list) = self.registered() {
            list.deny();
        }
    }

    /// The range that begins at the byte `offset` of what is registered, which was checked.
    pub(super) fn range_at(&self, offset: u64) -> Option<Range<'_>> {
        Some(Range::listed(self.registered()?.access()?, offset))
    }

    /// A range for the owner.
    pub(super) fn own(&self, key: u32, rights: u32, va: u64, len: u64) -> Option<Range<'_>> {
        let kind = self.registered()?.access()?;
        let Kind::Listed(listed) = &*kind else {
            return None;
        };
        let grant = listed.grant;
        if grant.key != key || !grant.access.has(rights) {
            return None;
        }
        let offset = offset_in(grant.base, grant.len, va, len)?;
        Some(Range::listed(kind, offset))
    }

    /// Waits for the owner's work requests that use a list; nothing is registered any more. May
    /// sleep.
    pub fn end(&self) {
        for list in &self.lists {
            drop(list.revoke());
        }
    }
}
