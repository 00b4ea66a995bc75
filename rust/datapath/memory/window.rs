// SPDX-License-Identifier: GPL-2.0

//! Memory windows: keys for peers to a part of a region, which their owner binds, invalidates and
//! binds again by work requests (IBTA 10.6.7.2).
//!
//! | | type 1 | type 2B |
//! |---|---|---|
//! | who may use it | QPs of its domain | the QP that has bound it |
//! | its new key | any, by the provider | its low byte, by the owner |
//! | bound again | at any time | after it was invalidated |
//! | unbound | by binding 0 bytes | by LOCAL_INV, or the SEND_WITH_INV of the peer |
//!
//! Copies through a window hold its lock for reading, and whoever changes it holds that for
//! writing. So when a change is complete, nothing goes on by the old key, and nobody has slept.
//! Copies through the keys of regions know nothing of it.

use super::region::{
    DomainId,
    Range,
    Region, //
};
use crate::datapath::wqe;
use crate::sys::ib::access::Access;
use crate::sys::lock::{
    Reading,
    RwLockBh, //
};
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

/// The two types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Type 1: bound by the verb.
    One,
    /// Type 2B: bound to a QP, by a work request.
    Two,
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

/// What a window is bound to.
#[derive(Clone, Copy)]
struct Bound {
    /// The key of the region, which stays as long as this.
    lkey: u32,
    /// Where in the region it begins.
    offset: u64,
    /// How peers name that place: an address, or 0.
    base: u64,
    len: u64,
    access: Access,
    /// The QP that has bound it.
    qp: QpId,
}

struct State {
    key: u32,
    bound: Option<Bound>,
}

/// A memory window.
#[pin_data]
pub struct Window {
    /// What of its key does not change.
    name: u32,
    domain: DomainId,
    kind: Type,
    #[pin]
    state: RwLockBh<State>,
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
    /// The binding, and the offset of a range in the region, if it may be used so.
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
        let is_for = window.domain == user.domain
            && (window.kind == Type::One || bound.qp == user.qp)
            && bound.access.has(rights);
        if self.key != key || !is_for {
            return None;
        }
        let at = va.checked_sub(bound.base)?;
        let end = at.checked_add(u64::from(len))?;
        (end <= bound.len).then_some((bound, bound.offset.wrapping_add(at)))
    }
}

/// Finds regions by their keys.
pub trait Find<'a> {
    /// The region that a key may be of.
    fn region(&self, key: u32) -> Option<&'a Region>;
}

impl Window {
    /// A window of this domain that is not bound.
    pub fn new(key: u32, domain: DomainId, kind: Type) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                name: Region::name_in(key),
                domain,
                kind,
                state <- RwLockBh::new(State { key, bound: None }),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What of its key does not change.
    pub fn name(&self) -> u32 {
        self.name
    }

    /// Whether a range may be used so.
    pub fn permits(&self, key: u32, user: User, rights: u32, va: u64, len: u32) -> bool {
        let state = self.state.read();
        state.permits(self, key, user, rights, va, len).is_some()
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
        let state = self.state.read();
        let (bound, offset) = state.permits(self, key, user, rights, va, len)?;
        let range = regions.region(bound.lkey)?.range_at(offset)?;
        Some(WindowRange {
            range,
            _window: state,
        })
    }

    /// Binds it for `user`, if that may be. The error is all that there is to say.
    pub fn bind<'a>(
        &self,
        regions: &impl Find<'a>,
        user: User,
        wanted: &wqe::Binding,
    ) -> Result<(), BindError> {
        let allowed = match self.kind {
            Type::One => RIGHTS | Access::LOCAL_WRITE,
            Type::Two => RIGHTS | Access::LOCAL_WRITE | Access::ZERO_BASED,
        };
        if self.domain != user.domain
            || Region::name_in(wanted.new_key) != self.name
            || wanted.access & !allowed != 0
        {
            return Err(BindError);
        }
        let mut state = self.state.write();
        let may = match self.kind {
            Type::One => state.key == wanted.old_key,
            Type::Two => state.bound.is_none() && wanted.len != 0,
        };
        if !may {
            return Err(BindError);
        }
        let access = Access(wanted.access);
        let bound = if wanted.len == 0 {
            None
        } else {
            let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let needs = if access.0 & writes != 0 {
                Access::LOCAL_WRITE
            } else {
                0
            };
            let offset = regions
                .region(wanted.lkey)
                .and_then(|region| {
                    region.bind(wanted.lkey, user.domain, needs, wanted.addr, wanted.len)
                })
                .ok_or(BindError)?;
            Some(Bound {
                lkey: wanted.lkey,
                offset,
                base: if access.has(Access::ZERO_BASED) {
                    0
                } else {
                    wanted.addr
                },
                len: wanted.len,
                access,
                qp: user.qp,
            })
        };
        state.unbind(regions);
        (state.key, state.bound) = (wanted.new_key, bound);
        Ok(())
    }

    /// Unbinds it for `user`, by whom it was bound under `key`: only type 2B knows that.
    pub fn invalidate<'a>(
        &self,
        regions: &impl Find<'a>,
        user: User,
        key: u32,
    ) -> Result<(), BindError> {
        let mut state = self.state.write();
        let is_his = state.bound.is_some_and(|bound| bound.qp == user.qp);
        if self.kind != Type::Two || state.key != key || self.domain != user.domain || !is_his {
            return Err(BindError);
        }
        state.unbind(regions);
        Ok(())
    }

    /// It is gone for its owner: nobody uses it any more when this returns.
    pub fn end<'a>(&self, regions: &impl Find<'a>) {
        self.state.write().unbind(regions);
    }
}

impl State {
    fn unbind<'a>(&mut self, regions: &impl Find<'a>) {
        // A region that windows are bound to stays.
        let lkey = self.bound.take().map(|bound| bound.lkey);
        if let Some(region) = lkey.and_then(|lkey| regions.region(lkey)) {
            region.unbind();
        }
    }
}

/// A window cannot be bound so, or not be invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError;
