// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys for peers to a part of an MR, which the owner binds, invalidates and binds
//! again by WRs (IBTA 10.6.7.2). And FRMRs, which ULPs register, invalidate and register again in
//! the same way (IBTA 10.6.4.5).
//!
//! | | type 1 | type 2B | FRMR |
//! |---|---|---|---|
//! | usable by | QPs of its domain | the QP that bound it | QPs of its domain |
//! | bound to | a part of an MR | a part of an MR | a page list of the kernel |
//! | new key | any, by the provider | its low byte, by the owner | the same |
//! | bound again | at any time | after it was invalidated | the same |
//! | unbound | by binding 0 bytes | by LOCAL_INV, or the peer's SEND_WITH_INV | the same |
//!
//! A copy through a window holds its gate (`sys::sync`). A change of the window kills the
//! gate and spins until the holders are gone. Each holder is there for one copy of a packet or of a
//! segment of the local path, waits for nothing, and takes no queue lock. So when a change is
//! complete, no access by the old key is in progress, and nobody has slept. An access that came
//! meanwhile sees the changed window: a window that keeps its key refuses nothing. Copies through
//! the keys of MRs are not affected.

use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::queue::wqe;
use crate::datapath::memory::region::{
    DomainId,
    Grant,
    Lists,
    Range,
    Region, //
};
use crate::sys::ib::mr::Access;
use crate::sys::sync::{
    Changeable,
    Reading, //
};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Identity of a QP; never reused, as its number may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpId(u64);

impl QpId {
    /// A new identity.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// What a window is.
pub enum MwKind {
    /// Type 1: bound by a verb, which the provider makes a WR of.
    One,
    /// Type 2B: bound to a QP, by a WR.
    Two,
    /// FRMR, bound to one of these page lists.
    Fast(Lists),
}

/// The user of a window: a QP and its domain.
#[derive(Clone, Copy, Debug)]
pub struct WindowUser {
    /// The QP.
    pub qp: QpId,
    /// Its domain.
    pub domain: DomainId,
}

/// The rights that a window may grant.
const RIGHTS: u32 = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;

/// Whether peers may change the memory.
fn may_change(access: Access) -> bool {
    access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) != 0
}

/// The address by which peers name `addr`: `addr` itself, or 0.
fn base(access: Access, addr: u64) -> u64 {
    if access.has(Access::ZERO_BASED) {
        0
    } else {
        addr
    }
}

/// The memory below a window.
#[derive(Clone, Copy)]
enum Below {
    /// An MR.
    Region {
        /// Its key, constant while bound.
        lkey: MemoryKey,
        /// Offset of the window in the MR.
        offset: u64,
    },
    /// The registered page list.
    List,
}

/// A binding.
#[derive(Clone, Copy)]
struct Bound {
    below: Below,
    /// The address by which peers name its first byte.
    base: u64,
    len: u64,
    access: Access,
    /// The QP that bound it.
    qp: QpId,
}

struct WindowState {
    key: MemoryKey,
    bound: Option<Bound>,
    /// Deallocated by its owner. It may still be found for a while, and stays as it is.
    ended: bool,
}

/// A memory window, or an FRMR.
#[pin_data]
pub struct Mw {
    /// The part of its key that does not change.
    name: u32,
    domain: DomainId,
    kind: MwKind,
    #[pin]
    state: Changeable<WindowState>,
}

/// A range of a window. The window does not change while it lives.
pub struct WindowRange<'a> {
    range: Range<'a>,
    _window: Reading<'a, WindowState>,
}

impl<'a> WindowRange<'a> {
    /// The range of the MR.
    #[inline]
    pub fn range(&self) -> &Range<'a> {
        &self.range
    }
}

impl WindowState {
    /// The binding, and the offset of a range in it, if the rights permit it.
    fn permits(
        &self,
        window: &Mw,
        user: WindowUser,
        rights: u32,
        span: &Span,
    ) -> Option<(Bound, u64)> {
        let bound = self.bound?;
        if self.key != span.key || !window.is_for(user, &bound) || !bound.access.has(rights) {
            return None;
        }
        let at = span.offset_in(bound.base, bound.len)?;
        Some((bound, at))
    }
}

/// The part of an MR to bind to; the binding is counted already.
fn part_of<'a>(
    region_of: &impl Fn(MemoryKey) -> Option<&'a Region>,
    user: WindowUser,
    wanted: &wqe::Binding,
) -> Result<Bound, BindError> {
    let access = Access(wanted.access);
    let needs = if may_change(access) {
        Access::LOCAL_WRITE
    } else {
        0
    };
    let region = region_of(wanted.span.key).ok_or(BindError)?;
    let offset = region
        .bind(user.domain, needs, &wanted.span)
        .ok_or(BindError)?;
    Ok(Bound {
        below: Below::Region {
            lkey: wanted.span.key,
            offset,
        },
        base: base(access, wanted.span.va),
        len: wanted.span.len,
        access,
        qp: user.qp,
    })
}

impl Mw {
    /// An unbound window of this domain.
    pub fn new(key: MemoryKey, domain: DomainId, kind: MwKind) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                name: key.name(),
                domain,
                kind,
                state <- Changeable::new(WindowState { key, bound: None, ended: false }),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether this user may use it as it is bound.
    fn is_for(&self, user: WindowUser, bound: &Bound) -> bool {
        self.domain == user.domain
            && match self.kind {
                MwKind::One | MwKind::Fast(_) => true,
                MwKind::Two => bound.qp == user.qp,
            }
    }

    /// The page lists of an FRMR.
    pub fn lists(&self) -> Option<&Lists> {
        match &self.kind {
            MwKind::Fast(lists) => Some(lists),
            MwKind::One | MwKind::Two => None,
        }
    }

    /// Whether it is bound.
    pub fn is_bound(&self) -> bool {
        self.state.read().is_some_and(|state| state.bound.is_some())
    }

    /// Whether a range may be accessed with these rights.
    pub fn permits(&self, user: WindowUser, rights: u32, span: &Span) -> bool {
        self.state
            .read()
            .is_some_and(|state| state.permits(self, user, rights, span).is_some())
    }

    /// A range that [`Self::permits`] allows, for immediate use. `region_of` looks up an MR by its
    /// key, here and below.
    pub fn check<'a>(
        &'a self,
        region_of: &impl Fn(MemoryKey) -> Option<&'a Region>,
        user: WindowUser,
        rights: u32,
        span: &Span,
    ) -> Option<WindowRange<'a>> {
        let state = self.state.read()?;
        let (bound, at) = state.permits(self, user, rights, span)?;
        let range = match bound.below {
            Below::Region { lkey, offset } => region_of(lkey)?.range_at(offset.wrapping_add(at))?,
            Below::List => self.lists()?.range_at(at)?,
        };
        Some(WindowRange {
            range,
            _window: state,
        })
    }

    /// A range of the registered page list, for a local WR of its owner. Does not take the gate:
    /// the caller may hold the gate of another window, or of this one.
    pub fn own(&self, domain: DomainId, rights: u32, span: &Span) -> Option<Range<'_>> {
        if self.domain != domain {
            return None;
        }
        self.lists()?.own(rights, span)
    }

    /// Binds it for `user`, if permitted. The one error covers all causes. Only the low byte of the
    /// new key counts, as with mlx5 and rdma_rxe.
    pub fn bind<'a>(
        &self,
        region_of: &impl Fn(MemoryKey) -> Option<&'a Region>,
        user: WindowUser,
        wanted: &wqe::Binding,
    ) -> Result<(), BindError> {
        if self.domain != user.domain {
            return Err(BindError);
        }
        let new_key = wanted.new_key.with_name(self.name);
        let access = Access(wanted.access);
        self.state.change(|state| {
            let (allowed, may) = match self.kind {
                MwKind::One => (
                    RIGHTS | Access::LOCAL_WRITE,
                    state.key == wanted.old_key, //
                ),
                MwKind::Two => (
                    RIGHTS | Access::LOCAL_WRITE | Access::ZERO_BASED,
                    state.bound.is_none() && wanted.span.len != 0,
                ),
                MwKind::Fast(_) => (0, false),
            };
            if !may || access.0 & !allowed != 0 || state.ended {
                return Err(BindError);
            }
            let bound = match wanted.span.len {
                0 => None,
                _ => Some(part_of(region_of, user, wanted)?),
            };
            self.unbind(state, region_of);
            (state.key, state.bound) = (new_key, bound);
            Ok(())
        })
    }

    /// Registers the mapped page list for `user`, if permitted.
    pub fn register(
        &self,
        user: WindowUser,
        wanted: &wqe::FastRegistration,
    ) -> Result<(), BindError> {
        let access = Access(wanted.access & !Access::OPTIONAL);
        let is_its_key = |key: MemoryKey| key.name() == self.name;
        let may = self.domain == user.domain
            && is_its_key(wanted.of)
            && is_its_key(wanted.span.key)
            && access.0 & !(RIGHTS | Access::LOCAL_WRITE) == 0
            && (access.has(Access::LOCAL_WRITE) || !may_change(access))
            && wanted.span.len != 0
            && wanted
                .span
                .va
                .checked_add(wanted.span.len.wrapping_sub(1))
                .is_some();
        let lists = self.lists().filter(|_| may).ok_or(BindError)?;
        let span = wanted.span;
        let grant = Grant { span, access };
        self.state.change(|state| {
            if state.bound.is_some() || state.ended || !lists.register(grant) {
                return Err(BindError);
            }
            state.key = span.key;
            state.bound = Some(Bound {
                below: Below::List,
                base: span.va,
                len: span.len,
                access,
                qp: user.qp,
            });
            Ok(())
        })
    }

    /// Unbinds it for `user`, who bound it under `key`. Type 1 does not support this. An FRMR need
    /// not be registered.
    pub fn invalidate<'a>(
        &self,
        region_of: &impl Fn(MemoryKey) -> Option<&'a Region>,
        user: WindowUser,
        key: MemoryKey,
    ) -> Result<(), BindError> {
        if matches!(self.kind, MwKind::One) || self.domain != user.domain {
            return Err(BindError);
        }
        self.state.change(|state| {
            let may = match self.kind {
                // Also if it is no longer registered, as with other devices: both ends may
                // invalidate it.
                MwKind::Fast(_) => true,
                MwKind::One | MwKind::Two => {
                    state.bound.is_some_and(|bound| self.is_for(user, &bound))
                }
            };
            if state.key != key || !may {
                return Err(BindError);
            }
            self.unbind(state, region_of);
            Ok(())
        })
    }

    /// Ends it for its owner: when this returns, no peer accesses it, and it cannot be bound again.
    pub fn end<'a>(&self, region_of: &impl Fn(MemoryKey) -> Option<&'a Region>) {
        self.state.change(|state| {
            self.unbind(state, region_of);
            state.ended = true;
        });
    }

    fn unbind<'a>(
        &self,
        state: &mut WindowState,
        region_of: &impl Fn(MemoryKey) -> Option<&'a Region>,
    ) {
        match state.bound.take().map(|bound| bound.below) {
            None => {}
            // An MR stays while MWs are bound to it.
            Some(Below::Region { lkey, .. }) => {
                if let Some(region) = region_of(lkey) {
                    region.unbind();
                }
            }
            Some(Below::List) => {
                if let Some(lists) = self.lists() {
                    lists.invalidate();
                }
            }
        }
    }
}

/// A window cannot be bound or invalidated as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError;
