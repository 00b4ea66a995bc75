// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys for peers to a part of a region, which their owner binds, invalidates and
//! binds again by work requests (IBTA 10.6.7.2); and the regions of fast registration, which users
//! in the kernel register, invalidate and register again so (IBTA 10.6.4.5).
//!
//! | | type 1 | type 2B | fast registration |
//! |---|---|---|---|
//! | who may use it | QPs of its domain | the QP that has bound it | QPs of its domain |
//! | bound to | a part of a region | a part of a region | a list of the kernel's memory |
//! | its new key | any, by the provider | its low byte, by the owner | the same |
//! | bound again | at any time | after it was invalidated | the same |
//! | unbound | by binding 0 bytes | by LOCAL_INV, or the SEND_WITH_INV of the peer | the same |
//!
//! A copy through a window is inside its gate (`sys::changeable`), and who changes the window shuts
//! that and waits for those inside, spinning: each is there for one copy of a packet, or on the
//! local path of a segment, waits for nothing there, and locks no half of a QP. So when a change is
//! complete, nothing goes on by the old key, and nobody has slept. Who came meanwhile finds the
//! window as the change has left it: one that keeps its key refuses nothing. Copies through the
//! keys of regions know nothing of it.

use super::listed::Grant;
use super::lists::Lists;
use super::region::{
    offset_in,
    DomainId,
    Range,
    Region, //
};
use crate::datapath::wqe;
use crate::sys::changeable::{
    Changeable,
    Reading, //
};
use crate::sys::ib::access::Access;
use core::sync::atomic::{
    AtomicU64,
    Ordering::Relaxed, //
};
use kernel::prelude::*;
use kernel::sync::Arc;

/// Identity of a queue pair; never used twice, as its number may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpId(u64);

impl QpId {
    /// A new one.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// The types.
pub enum Type {
    /// Type 1: bound by the verb.
    One,
    /// Type 2B: bound to a QP, by a work request.
    Two,
    /// A region of fast registration, bound to one of these.
    Fast(Lists),
}

/// Who uses a window, or changes one: a QP and its domain.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The QP.
    pub qp: QpId,
    /// Its domain.
    pub domain: DomainId,
}

/// What a window may be bound with.
const RIGHTS: u32 = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;

/// Whether peers may change the memory.
fn may_change(access: Access) -> bool {
    access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) != 0
}

/// How peers name what begins at `addr`: so, or by 0.
fn base(access: Access, addr: u64) -> u64 {
    if access.has(Access::ZERO_BASED) {
        0
    } else {
        addr
    }
}

/// What is below a window.
#[derive(Clone, Copy)]
enum Below {
    /// A region.
    Region {
        /// Its key, which stays as long as this.
        lkey: u32,
        /// Where in it the window begins.
        offset: u64,
    },
    /// What is registered of the lists.
    List,
}

/// What a window is bound to.
#[derive(Clone, Copy)]
struct Bound {
    below: Below,
    /// How peers name its first byte.
    base: u64,
    len: u64,
    access: Access,
    /// The QP that has bound it.
    qp: QpId,
}

struct State {
    key: u32,
    bound: Option<Bound>,
    /// Its owner has done with it. It may still be found for a while, and stays as it is.
    ended: bool,
}

/// A memory window.
#[pin_data]
pub struct Window {
    /// What of its key does not change.
    name: u32,
    domain: DomainId,
    kind: Type,
    #[pin]
    state: Changeable<State>,
}

/// A range of a window. While it lives nobody changes the window.
pub struct WindowRange<'a> {
    range: Range<'a>,
    _window: Reading<'a, State>,
}

impl<'a> WindowRange<'a> {
    /// The range of the region.
    #[inline]
    pub fn range(&self) -> &Range<'a> {
        &self.range
    }
}

impl State {
    /// The binding, and the offset of a range in it, if it may be used so.
    fn permits(
        &self,
        window: &Window,
        key: u32,
        user: User,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<(Bound, u64)> {
        let bound = self.bound?;
        if self.key != key || !window.is_for(user, &bound) || !bound.access.has(rights) {
            return None;
        }
        let at = offset_in(bound.base, bound.len, va, u64::from(len))?;
        Some((bound, at))
    }
}

/// Finds regions by their keys.
pub trait Find<'a> {
    /// The region that a key may be of.
    fn region(&self, key: u32) -> Option<&'a Region>;
}

/// The part of a region that a window is to be bound to, which is bound to it already.
fn part_of<'a>(
    regions: &impl Find<'a>,
    user: User,
    wanted: &wqe::Binding,
) -> Result<Bound, BindError> {
    let access = Access(wanted.access);
    let needs = if may_change(access) {
        Access::LOCAL_WRITE
    } else {
        0
    };
    let region = regions.region(wanted.lkey).ok_or(BindError)?;
    let offset = region
        .bind(wanted.lkey, user.domain, needs, wanted.addr, wanted.len)
        .ok_or(BindError)?;
    Ok(Bound {
        below: Below::Region {
            lkey: wanted.lkey,
            offset,
        },
        base: base(access, wanted.addr),
        len: wanted.len,
        access,
        qp: user.qp,
    })
}

impl Window {
    /// A window of this domain that is not bound.
    pub fn new(key: u32, domain: DomainId, kind: Type) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                name: Region::name_in(key),
                domain,
                kind,
                state <- Changeable::new(State { key, bound: None, ended: false }),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What of its key does not change.
    pub fn name(&self) -> u32 {
        self.name
    }

    /// Whether this user may use it as it is bound.
    fn is_for(&self, user: User, bound: &Bound) -> bool {
        self.domain == user.domain
            && match self.kind {
                Type::One | Type::Fast(_) => true,
                Type::Two => bound.qp == user.qp,
            }
    }

    /// The lists of a region of fast registration.
    pub fn lists(&self) -> Option<&Lists> {
        match &self.kind {
            Type::Fast(lists) => Some(lists),
            Type::One | Type::Two => None,
        }
    }

    /// Whether it is bound.
    pub fn is_bound(&self) -> bool {
        self.state.read().is_some_and(|state| state.bound.is_some())
    }

    /// Whether a range may be used so.
    pub fn permits(&self, key: u32, user: User, rights: u32, va: u64, len: u32) -> bool {
        self.state
            .read()
            .is_some_and(|state| state.permits(self, key, user, rights, va, len).is_some())
    }

    /// A range that [`Self::permits`] allows, to be used now.
    pub fn check<'a>(
        &'a self,
        regions: &impl Find<'a>,
        key: u32,
        user: User,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<WindowRange<'a>> {
        let state = self.state.read()?;
        let (bound, at) = state.permits(self, key, user, rights, va, len)?;
        let range = match bound.below {
            Below::Region { lkey, offset } => {
                regions.region(lkey)?.range_at(offset.wrapping_add(at))?
            }
            Below::List => self.lists()?.range_at(at)?,
        };
        Some(WindowRange {
            range,
            _window: state,
        })
    }

    /// A range of what is registered, for a work request of its owner. Without the gate, as he may
    /// be inside that of another window, or of this one.
    pub fn own(
        &self,
        key: u32,
        domain: DomainId,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<Range<'_>> {
        if self.domain != domain {
            return None;
        }
        self.lists()?.own(key, rights, va, u64::from(len))
    }

    /// Binds it for `user`, if that may be. The error is all that there is to say. Of the new key
    /// the low byte counts, as with mlx5 and rdma_rxe: the others stay.
    pub fn bind<'a>(
        &self,
        regions: &impl Find<'a>,
        user: User,
        wanted: &wqe::Binding,
    ) -> Result<(), BindError> {
        if self.domain != user.domain {
            return Err(BindError);
        }
        let new_key = Region::key_of(self.name, wanted.new_key);
        let access = Access(wanted.access);
        self.state.change(|state| {
            let (allowed, may) = match self.kind {
                Type::One => (
                    RIGHTS | Access::LOCAL_WRITE,
                    state.key == wanted.old_key, //
                ),
                Type::Two => (
                    RIGHTS | Access::LOCAL_WRITE | Access::ZERO_BASED,
                    state.bound.is_none() && wanted.len != 0,
                ),
                Type::Fast(_) => (0, false),
            };
            if !may || access.0 & !allowed != 0 || state.ended {
                return Err(BindError);
            }
            let bound = match wanted.len {
                0 => None,
                _ => Some(part_of(regions, user, wanted)?),
            };
            self.unbind(state, regions);
            (state.key, state.bound) = (new_key, bound);
            Ok(())
        })
    }

    /// Registers for `user` what is mapped, if that may be.
    pub fn register(&self, user: User, wanted: &wqe::Registration) -> Result<(), BindError> {
        let access = Access(wanted.access & !Access::OPTIONAL);
        let is_its_key = |key| Region::name_in(key) == self.name;
        let may = self.domain == user.domain
            && is_its_key(wanted.of)
            && is_its_key(wanted.key)
            && access.0 & !(RIGHTS | Access::LOCAL_WRITE) == 0
            && (access.has(Access::LOCAL_WRITE) || !may_change(access))
            && wanted.len != 0
            && wanted
                .addr
                .checked_add(wanted.len.wrapping_sub(1))
                .is_some();
        let lists = self.lists().filter(|_| may).ok_or(BindError)?;
        let grant = Grant {
            key: wanted.key,
            access,
            base: wanted.addr,
            len: wanted.len,
        };
        self.state.change(|state| {
            if state.bound.is_some() || state.ended || !lists.register(grant) {
                return Err(BindError);
            }
            state.key = wanted.key;
            state.bound = Some(Bound {
                below: Below::List,
                base: grant.base,
                len: grant.len,
                access,
                qp: user.qp,
            });
            Ok(())
        })
    }

    /// Unbinds it for `user`, by whom it was bound under `key`: type 1 does not know that. A region
    /// of fast registration need not be registered.
    pub fn invalidate<'a>(
        &self,
        regions: &impl Find<'a>,
        user: User,
        key: u32,
    ) -> Result<(), BindError> {
        if matches!(self.kind, Type::One) || self.domain != user.domain {
            return Err(BindError);
        }
        self.state.change(|state| {
            let may = match self.kind {
                // Also if it is not registered any more, as with other devices: both ends may do
                // it.
                Type::Fast(_) => true,
                Type::One | Type::Two => state.bound.is_some_and(|bound| self.is_for(user, &bound)),
            };
            if state.key != key || !may {
                return Err(BindError);
            }
            self.unbind(state, regions);
            Ok(())
        })
    }

    /// It is gone for its owner: no peer uses it any more when this returns, and nobody binds it.
    pub fn end<'a>(&self, regions: &impl Find<'a>) {
        self.state.change(|state| {
            self.unbind(state, regions);
            state.ended = true;
        });
    }

    fn unbind<'a>(&self, state: &mut State, regions: &impl Find<'a>) {
        match state.bound.take().map(|bound| bound.below) {
            None => {}
            // A region that windows are bound to stays.
            Some(Below::Region { lkey, .. }) => {
                if let Some(region) = regions.region(lkey) {
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

/// A window cannot be bound so, or not be invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError;
