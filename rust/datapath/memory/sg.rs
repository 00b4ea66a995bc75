// SPDX-License-Identifier: GPL-2.0

//! The bytes of a message, and copies from one place to another.
//!
//! A message is copied once: from the sender's MRs into a packet and from the packet into the
//! receiver's MRs or, on the local path, from MRs to MRs. Every copy checks the keys again:
//! deregistering an MR in the middle of a message ends the message with an error.

use crate::core::env::AccessError;
use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::queue::wqe::{
    Data,
    KeyChange, //
};
use crate::core::uabi::wqe::{
    Sge,
    MAX_SGE, //
};
use crate::datapath::memory::region::{
    DomainId,
    Range,
    Region, //
};
use crate::datapath::memory::window::{
    BindError,
    QpId,
    WindowRange,
    WindowUser, //
};
use crate::datapath::memory::KeyTable;
use crate::sys::ib::qp::Access;
use crate::sys::memory::{
    Cursor,
    Fault,
    MemoryWord, //
};
use crate::sys::trace::{
    self,
    KeyAction, //
};
use kernel::sync::rcu;

impl From<Fault> for AccessError {
    fn from(_: Fault) -> Self {
        AccessError
    }
}

/// The MRs that a QP may use.
#[derive(Clone, Copy)]
pub struct Regions<'a> {
    keys: &'a KeyTable,
    domain: DomainId,
    rcu: &'a rcu::Guard,
}

impl<'a> Regions<'a> {
    /// The MRs of `keys` for QPs of `domain`, while `rcu` lives.
    pub fn new(keys: &'a KeyTable, domain: DomainId, rcu: &'a rcu::Guard) -> Self {
        Self { keys, domain, rcu }
    }

    /// The range of `region` that `span` names, whose key led to it.
    #[inline]
    fn range(
        &self,
        region: &'a Region,
        rights: u32,
        span: &Span,
    ) -> Result<Range<'a>, AccessError> {
        match region.check(self.domain, rights, span) {
            Some(range) => Ok(range),
            None => self.range_slow(region, rights, *span),
        }
    }

    /// Like [`Self::range`], after `region` refused: it may have been reregistered since the
    /// lookup, and the key leads to its successor.
    #[cold]
    fn range_slow(
        &self,
        region: &Region,
        rights: u32,
        span: Span,
    ) -> Result<Range<'a>, AccessError> {
        let now = self.keys.region(span.key, self.rcu).ok_or(AccessError)?;
        if core::ptr::eq(region, now) {
            return Err(AccessError);
        }
        now.check(self.domain, rights, &span).ok_or(AccessError)
    }

    /// Whether a peer may access a range of an MR or MW.
    pub fn permits(&self, qp: QpId, rights: u32, span: Span) -> Result<(), AccessError> {
        let permitted = match self.keys.region(span.key, self.rcu) {
            Some(region) => region.permits(self.domain, rights, &span).is_some(),
            None => self
                .keys
                .window(span.key, self.rcu)
                .is_some_and(|window| window.permits(self.user(qp), rights, &span)),
        };
        permitted.then_some(()).ok_or(AccessError)
    }

    /// The source of a READ by a peer: a range of an MR or MW.
    #[inline]
    pub fn source(&self, qp: QpId, span: Span) -> Result<Payload<'a>, AccessError> {
        match self.keys.region(span.key, self.rcu) {
            Some(region) => self
                .range(region, Access::REMOTE_READ, &span)
                .map(Payload::Range),
            None => self
                .window(qp, Access::REMOTE_READ, &span)
                .map(Payload::Window),
        }
    }

    /// Writes the beginning of `payload` to a range of an MR or MW on behalf of a peer.
    #[inline]
    pub fn write(&self, qp: QpId, span: Span, payload: &Payload<'_>) -> Result<(), AccessError> {
        // A segment is no longer than a message.
        let len = span.len as u32;
        match self.keys.region(span.key, self.rcu) {
            Some(region) => {
                let to = self.range(region, Access::REMOTE_WRITE, &span)?;
                payload.copy_to(0, &to, len)
            }
            None => {
                let to = self.window(qp, Access::REMOTE_WRITE, &span)?;
                payload.copy_to(0, to.range(), len)
            }
        }
    }

    /// Accesses a word of an MR or MW, the bytes of `span`, on behalf of a peer.
    pub fn word<R>(
        &self,
        qp: QpId,
        rights: u32,
        span: Span,
        what: impl FnOnce(MemoryWord<'_>) -> R,
    ) -> Result<R, AccessError> {
        match self.keys.region(span.key, self.rcu) {
            Some(region) => {
                let range = self.range(region, rights, &span)?;
                Ok(what(range.word()?))
            }
            None => {
                let window = self.window(qp, rights, &span)?;
                Ok(what(window.range().word()?))
            }
        }
    }

    #[cold]
    fn window(&self, qp: QpId, rights: u32, span: &Span) -> Result<WindowRange<'a>, AccessError> {
        self.keys
            .window(span.key, self.rcu)
            .and_then(|window| window.check(&self.region_of(), self.user(qp), rights, span))
            .ok_or(AccessError)
    }

    /// Carries out a local operation of the QP.
    #[cold]
    pub fn change(&self, qp: QpId, change: KeyChange) -> Result<(), BindError> {
        let key = match &change {
            KeyChange::Invalidate(key) => *key,
            KeyChange::Bind(binding) => binding.old_key,
            KeyChange::Register(registration) => registration.span.key,
        };
        let done = match (self.keys.window(key, self.rcu), change) {
            (None, _) => Err(BindError),
            (Some(window), KeyChange::Invalidate(key)) => {
                window.invalidate(&self.region_of(), self.user(qp), key)
            }
            (Some(window), KeyChange::Bind(wanted)) => {
                window.bind(&self.region_of(), self.user(qp), &wanted)
            }
            (Some(window), KeyChange::Register(wanted)) => window.register(self.user(qp), &wanted),
        };
        trace::key(|| changed(&change, done.is_ok()));
        done
    }

    fn user(&self, qp: QpId) -> WindowUser {
        WindowUser {
            qp,
            domain: self.domain,
        }
    }

    /// The lookup of MRs that changes of a window need.
    fn region_of(&self) -> impl Fn(MemoryKey) -> Option<&'a Region> + use<'a> {
        let Self { keys, rcu, .. } = *self;
        move |key| keys.region(key, rcu)
    }

    /// Whether the MR of `key` as a whole grants the rights.
    pub fn permits_all(&self, key: MemoryKey, rights: u32) -> Result<(), AccessError> {
        let region = self.keys.region(key, self.rcu).ok_or(AccessError)?;
        match region.permits_all(key, self.domain, rights) {
            true => Ok(()),
            false => Err(AccessError),
        }
    }

    /// The local memory that a WR names: of an MR, the null MR, or an FRMR.
    #[inline(always)]
    fn local(&self, rights: u32, span: Span) -> Result<Range<'a>, AccessError> {
        match self.keys.region(span.key, self.rcu) {
            Some(region) => self.range(region, rights, &span),
            None => self.own(rights, &span),
        }
    }

    #[cold]
    fn own(&self, rights: u32, span: &Span) -> Result<Range<'a>, AccessError> {
        let window = || self.keys.window(span.key, self.rcu);
        let range = || window()?.own(self.domain, rights, span);
        let range = self.keys.null.anywhere(span.key).or_else(range);
        range.ok_or(AccessError)
    }
}

/// What a work request does to a key, and whether it may.
#[cold]
fn changed(change: &KeyChange, done: bool) -> trace::Key {
    let (what, key, len, access) = match change {
        KeyChange::Invalidate(key) => (KeyAction::Invalidate, *key, 0, 0),
        KeyChange::Bind(wanted) => (
            KeyAction::Bind,
            wanted.new_key,
            wanted.span.len,
            wanted.access,
        ),
        KeyChange::Register(wanted) => (
            KeyAction::Fast,
            wanted.span.key,
            wanted.span.len,
            wanted.access,
        ),
    };
    trace::Key {
        key: key.get(),
        what: what as u32,
        len,
        access,
        pieces: 0,
        done,
    }
}

/// Calls `part` with each of `items` that has bytes of `offset..offset + len`, in order: with it,
/// the offset in it, and how many bytes. An item comes with its length.
#[inline(always)]
fn walk<T>(
    items: impl Iterator<Item = (T, u32)>,
    offset: u32,
    len: u32,
    mut part: impl FnMut(T, u32, u32) -> Result<(), AccessError>,
) -> Result<(), AccessError> {
    let mut skip = offset;
    let mut left = len;
    for (item, length) in items {
        if left == 0 {
            break;
        }
        if skip >= length {
            skip = skip.wrapping_sub(length);
            continue;
        }
        let n = length.wrapping_sub(skip).min(left);
        part(item, skip, n)?;
        skip = 0;
        left = left.wrapping_sub(n);
    }
    if left == 0 {
        Ok(())
    } else {
        Err(AccessError)
    }
}

/// The scatter/gather list of a WQE, addressed as one run of bytes.
#[derive(Clone, Copy)]
pub struct SgList<'a> {
    sges: &'a [Sge],
    regions: Regions<'a>,
}

impl<'a> SgList<'a> {
    /// The entries `sges`, a private copy, of `regions`.
    pub fn new(sges: &'a [Sge], regions: Regions<'a>) -> Self {
        Self { sges, regions }
    }

    /// The range of `offset..offset + len`, if the list has one entry, as most have.
    #[inline(always)]
    fn one(&self, rights: u32, offset: u32, len: u32) -> Result<Option<Range<'a>>, AccessError> {
        let [sge] = self.sges else {
            return Ok(None);
        };
        if offset > sge.length || sge.length.wrapping_sub(offset) < len {
            return Err(AccessError);
        }
        let va = sge.addr.checked_add(u64::from(offset)).ok_or(AccessError)?;
        self.regions
            .local(rights, Span::new(sge.lkey, va, len))
            .map(Some)
    }

    /// Calls `piece` with each part of `offset..offset + len`, in order: the range and its length.
    fn pieces(
        &self,
        rights: u32,
        offset: u32,
        len: u32,
        mut piece: impl FnMut(Range<'a>, u32) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let sges = self.sges.iter().map(|sge| (sge, sge.length));
        walk(sges, offset, len, |sge, at, n| {
            let va = sge.addr.checked_add(u64::from(at)).ok_or(AccessError)?;
            let span = Span::new(sge.lkey, va, n);
            piece(self.regions.local(rights, span)?, n)
        })
    }

    /// Writes a part of `payload` at `offset`.
    pub fn scatter(&self, offset: u32, len: u32, payload: &Payload<'_>) -> Result<(), AccessError> {
        if len == 0 {
            return Ok(());
        }
        if let Some(to) = self.one(Access::LOCAL_WRITE, offset, len)? {
            return payload.copy_to(0, &to, len);
        }
        let mut at = 0u32;
        self.pieces(Access::LOCAL_WRITE, offset, len, |to, n| {
            payload.copy_to(at, &to, n)?;
            at = at.wrapping_add(n);
            Ok(())
        })
    }
}

/// Checked ranges in sequence, with their lengths.
pub struct Pieces<'a> {
    pieces: [Option<(Range<'a>, u32)>; MAX_SGE as usize],
    count: usize,
}

impl<'a> Pieces<'a> {
    fn push(&mut self, range: Range<'a>, len: u32) -> Result<(), AccessError> {
        *self.pieces.get_mut(self.count).ok_or(AccessError)? = Some((range, len));
        self.count = self.count.wrapping_add(1);
        Ok(())
    }

    /// The ranges with their lengths.
    fn ranges(&self) -> impl Iterator<Item = (&Range<'a>, u32)> {
        let pieces = self.pieces.iter().take(self.count).flatten();
        pieces.map(|(range, len)| (range, *len))
    }
}

/// The bytes of one segment.
pub enum Payload<'a> {
    /// In a packet, or inline in a WQE.
    Bytes(&'a [u8]),
    /// In local memory of a WQE, from this offset of its message.
    Local(SgList<'a>, u32),
    /// In checked ranges.
    Checked(&'a Pieces<'a>),
    /// In one checked range.
    Range(Range<'a>),
    /// In one checked range of an MW.
    Window(WindowRange<'a>),
}

impl<'a> Payload<'a> {
    /// Payload of a WQE from `offset` of its message.
    #[inline]
    pub fn of(data: Data<'a>, offset: u32, regions: Regions<'a>) -> Self {
        match data {
            Data::Inline(bytes) => Payload::Bytes(bytes.get(offset as usize..).unwrap_or(&[])),
            Data::Sges(sges) => Payload::Local(SgList::new(sges, regions), offset),
        }
    }

    /// The first `len` bytes, looked up once. A failure here is one of the sender's memory; a later
    /// failure is not. `pieces` is the storage.
    pub fn resolve<'p>(
        self,
        len: u32,
        pieces: &'p mut Option<Pieces<'a>>,
    ) -> Result<Payload<'p>, AccessError>
    where
        'a: 'p,
    {
        let Payload::Local(list, offset) = self else {
            return Ok(self);
        };
        if len == 0 {
            return Ok(Payload::Bytes(&[]));
        }
        if let Some(range) = list.one(0, offset, len)? {
            return Ok(Payload::Range(range));
        }
        let pieces = pieces.insert(Pieces {
            pieces: [const { None }; MAX_SGE as usize],
            count: 0,
        });
        list.pieces(0, offset, len, |range, n| pieces.push(range, n))?;
        Ok(Payload::Checked(pieces))
    }

    /// The payload of an ATOMIC WRITE, in a packet or in a WQE.
    pub fn word(&self) -> Option<[u8; 8]> {
        match self {
            Payload::Bytes(bytes) => bytes.first_chunk().copied(),
            _ => None,
        }
    }

    /// Copies `n` bytes from the byte `at` of the segment to the start of a checked range.
    pub fn copy_to(&self, at: u32, to: &Range<'_>, n: u32) -> Result<(), AccessError> {
        let mut to_at = 0u32;
        match self {
            Payload::Bytes(bytes) => {
                let end = at.checked_add(n).ok_or(AccessError)?;
                let part = bytes.get(at as usize..end as usize).ok_or(AccessError)?;
                to.write(0, part)?;
                Ok(())
            }
            Payload::Local(list, offset) => {
                let from = offset.checked_add(at).ok_or(AccessError)?;
                list.pieces(0, from, n, |from, n| {
                    from.copy_to(0, to, to_at, n)?;
                    to_at = to_at.wrapping_add(n);
                    Ok(())
                })
            }
            Payload::Checked(pieces) => walk(pieces.ranges(), at, n, |from, at, n| {
                from.copy_to(at, to, to_at, n)?;
                to_at = to_at.wrapping_add(n);
                Ok(())
            }),
            Payload::Range(from) => {
                from.copy_to(at, to, 0, n)?;
                Ok(())
            }
            Payload::Window(from) => {
                from.range().copy_to(at, to, 0, n)?;
                Ok(())
            }
        }
    }

    /// Copies the first `len` bytes of the segment into a packet.
    pub fn read(&self, len: u32, out: &mut Cursor<'_>) -> Result<(), AccessError> {
        match self {
            Payload::Bytes(bytes) => {
                let part = bytes.get(..len as usize).ok_or(AccessError)?;
                out.put(part).map_err(|_| AccessError)
            }
            Payload::Local(list, offset) => list.pieces(0, *offset, len, |from, n| {
                from.append(0, n, out)?;
                Ok(())
            }),
            Payload::Range(from) => {
                from.append(0, len, out)?;
                Ok(())
            }
            Payload::Window(from) => {
                from.range().append(0, len, out)?;
                Ok(())
            }
            // Only packets are filled from here; nothing was resolved before.
            Payload::Checked(_) => Err(AccessError),
        }
    }
}
