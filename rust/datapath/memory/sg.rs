// SPDX-License-Identifier: GPL-2.0

//! Where the bytes of a message are, and how they get from one place to another.
//!
//! A message is copied once: from the memory regions of the sender into a packet and from there
//! into the regions of the receiver, or, on the local path, from regions to regions directly.
//! Every copy checks the keys again, so a region that is deregistered in the middle of a message
//! ends it with an error.

use super::region::{
    DomainId,
    Range,
    Region, //
};
use super::window::{
    BindError,
    QpId,
    User,
    WindowRange, //
};
use crate::datapath::port::{
    InPort,
    Port, //
};
use crate::datapath::wqe::{
    Data,
    KeyChange, //
};
use crate::sys::cursor::Cursor;
use crate::sys::ib::qp::Access;
use crate::sys::memory::{
    Fault,
    Word, //
};
use crate::transport::env::AccessError;
use crate::transport::operation::ATOMIC_SIZE;
use crate::uabi::wqe::{
    Sge,
    MAX_SGE, //
};
use kernel::sync::rcu;

impl From<Fault> for AccessError {
    fn from(_: Fault) -> Self {
        AccessError
    }
}

/// The regions that a QP may use.
#[derive(Clone, Copy)]
pub struct Regions<'a> {
    port: &'a Port,
    domain: DomainId,
    rcu: &'a rcu::Guard,
}

impl<'a> Regions<'a> {
    /// Those that are registered at `port` for QPs of `domain`, while `rcu` lives.
    pub fn new(port: &'a Port, domain: DomainId, rcu: &'a rcu::Guard) -> Self {
        Self { port, domain, rcu }
    }

    /// The range `va..va + len` of `region`, which `key` led to.
    #[inline]
    fn range(
        &self,
        region: &'a Region,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Result<Range<'a>, AccessError> {
        match region.check(key, self.domain, rights, va, len) {
            Some(range) => Ok(range),
            None => self.range_again(region, key, rights, va, len),
        }
    }

    /// As [`Self::range`], when `region` did not serve: it may have been registered again since it
    /// was found, and the key leads to what it is now.
    #[cold]
    fn range_again(
        &self,
        region: &Region,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Result<Range<'a>, AccessError> {
        let now = self.port.region(key, self.rcu).ok_or(AccessError)?;
        if core::ptr::eq(region, now) {
            return Err(AccessError);
        }
        now.check(key, self.domain, rights, va, len)
            .ok_or(AccessError)
    }

    /// Whether a peer may use a range: of a region or a window.
    pub fn permits(
        &self,
        qp: QpId,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        let permitted = match self.port.region(key, self.rcu) {
            Some(region) => region
                .permits(key, self.domain, rights, va, u64::from(len))
                .is_some(),
            None => self
                .port
                .window(key, self.rcu)
                .is_some_and(|window| window.permits(key, self.user(qp), rights, va, len)),
        };
        permitted.then_some(()).ok_or(AccessError)
    }

    /// What a peer uses of a region or a window, as the source of a READ.
    #[inline]
    pub fn source(
        &self,
        qp: QpId,
        key: u32,
        va: u64,
        len: u32,
    ) -> Result<Payload<'a>, AccessError> {
        match self.port.region(key, self.rcu) {
            Some(region) => self
                .range(region, key, Access::REMOTE_READ, va, len)
                .map(Payload::Range),
            None => self
                .window(qp, key, Access::REMOTE_READ, va, len)
                .map(Payload::Window),
        }
    }

    /// Writes the first `len` bytes of `payload` for a peer, to a region or a window.
    #[inline]
    pub fn write(
        &self,
        qp: QpId,
        key: u32,
        va: u64,
        len: u32,
        payload: &Payload<'_>,
    ) -> Result<(), AccessError> {
        match self.port.region(key, self.rcu) {
            Some(region) => {
                let to = self.range(region, key, Access::REMOTE_WRITE, va, len)?;
                payload.copy_to(0, &to, len)
            }
            None => {
                let to = self.window(qp, key, Access::REMOTE_WRITE, va, len)?;
                payload.copy_to(0, to.range(), len)
            }
        }
    }

    /// Uses a word of a region or a window for a peer.
    pub fn word<R>(
        &self,
        qp: QpId,
        key: u32,
        rights: u32,
        va: u64,
        what: impl FnOnce(Word<'_>) -> R,
    ) -> Result<R, AccessError> {
        match self.port.region(key, self.rcu) {
            Some(region) => {
                let range = self.range(region, key, rights, va, ATOMIC_SIZE)?;
                Ok(what(range.word()?))
            }
            None => {
                let window = self.window(qp, key, rights, va, ATOMIC_SIZE)?;
                Ok(what(window.range().word()?))
            }
        }
    }

    #[cold]
    fn window(
        &self,
        qp: QpId,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Result<WindowRange<'a>, AccessError> {
        self.port
            .window(key, self.rcu)
            .and_then(|window| window.check(&self.found(), key, self.user(qp), rights, va, len))
            .ok_or(AccessError)
    }

    /// Changes a key, as a work request of the QP says.
    #[cold]
    pub fn change(&self, qp: QpId, change: KeyChange) -> Result<(), BindError> {
        let key = match &change {
            KeyChange::Invalidate(key) => *key,
            KeyChange::Bind(binding) => binding.old_key,
            KeyChange::Register(registration) => registration.key,
        };
        let window = self.port.window(key, self.rcu).ok_or(BindError)?;
        match change {
            KeyChange::Invalidate(key) => window.invalidate(&self.found(), self.user(qp), key),
            KeyChange::Bind(wanted) => window.bind(&self.found(), self.user(qp), &wanted),
            KeyChange::Register(wanted) => window.register(self.user(qp), &wanted),
        }
    }

    fn user(&self, qp: QpId) -> User {
        User {
            qp,
            domain: self.domain,
        }
    }

    fn found(&self) -> InPort<'a> {
        InPort {
            port: self.port,
            rcu: self.rcu,
        }
    }

    /// Whether the region of `key` as a whole may be used so.
    pub fn permits_all(&self, key: u32, rights: u32) -> Result<(), AccessError> {
        let region = self.port.region(key, self.rcu).ok_or(AccessError)?;
        match region.permits_all(key, self.domain, rights) {
            true => Ok(()),
            false => Err(AccessError),
        }
    }

    /// The range of memory that the owner of the QP names: it may be of the null region, or of a
    /// fast registration.
    #[inline(always)]
    fn local(&self, key: u32, rights: u32, va: u64, len: u32) -> Result<Range<'a>, AccessError> {
        match self.port.region(key, self.rcu) {
            Some(region) => self.range(region, key, rights, va, len),
            None => self.own(key, rights, va, len),
        }
    }

    #[cold]
    fn own(&self, key: u32, rights: u32, va: u64, len: u32) -> Result<Range<'a>, AccessError> {
        let window = || self.port.window(key, self.rcu);
        let range = || window()?.own(key, self.domain, rights, va, len);
        let range = self.port.null().anywhere(key).or_else(range);
        range.ok_or(AccessError)
    }
}

/// A part of a piece of memory.
struct Part<'p, 'a> {
    range: &'p Range<'a>,
    /// Where it begins in `range`.
    at: u32,
    len: u32,
}

/// Local memory of a work request: a list of pieces, addressed as one run of bytes.
#[derive(Clone, Copy)]
pub struct SgList<'a> {
    sges: &'a [Sge],
    regions: Regions<'a>,
}

impl<'a> SgList<'a> {
    /// The pieces `sges`, copied from the ring, so that they do not change, of `regions`.
    pub fn new(sges: &'a [Sge], regions: Regions<'a>) -> Self {
        Self { sges, regions }
    }

    /// The range of `offset..offset + len`, if the list is one piece: as most are.
    #[inline(always)]
    fn one(&self, rights: u32, offset: u32, len: u32) -> Result<Option<Range<'a>>, AccessError> {
        let [sge] = self.sges else {
            return Ok(None);
        };
        if offset > sge.length || sge.length.wrapping_sub(offset) < len {
            return Err(AccessError);
        }
        let va = sge.addr.checked_add(u64::from(offset)).ok_or(AccessError)?;
        self.regions.local(sge.lkey, rights, va, len).map(Some)
    }

    /// Calls `piece` with each part of `offset..offset + len`, in order: the range, and its
    /// length.
    fn pieces(
        &self,
        rights: u32,
        offset: u32,
        len: u32,
        mut piece: impl FnMut(Range<'a>, u32) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let mut skip = offset;
        let mut left = len;
        for sge in self.sges {
            if left == 0 {
                break;
            }
            if skip >= sge.length {
                skip = skip.wrapping_sub(sge.length);
                continue;
            }
            let n = core::cmp::min(sge.length.wrapping_sub(skip), left);
            let va = sge.addr.checked_add(u64::from(skip)).ok_or(AccessError)?;
            piece(self.regions.local(sge.lkey, rights, va, n)?, n)?;
            skip = 0;
            left = left.wrapping_sub(n);
        }
        if left == 0 {
            Ok(())
        } else {
            Err(AccessError)
        }
    }

    /// Puts a part of `payload` at `offset`.
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

/// Ranges that were checked, one behind the other, with their lengths.
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

    /// Calls `copy` with each part of `len` bytes from the byte `at` on.
    fn parts(
        &self,
        at: u32,
        len: u32,
        mut copy: impl FnMut(Part<'_, 'a>) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let mut skip = at;
        let mut left = len;
        for (range, n) in self.pieces.iter().take(self.count).flatten() {
            if left == 0 {
                break;
            }
            if skip >= *n {
                skip = skip.wrapping_sub(*n);
                continue;
            }
            let len = n.wrapping_sub(skip).min(left);
            copy(Part {
                range,
                at: skip,
                len,
            })?;
            skip = 0;
            left = left.wrapping_sub(len);
        }
        if left == 0 {
            Ok(())
        } else {
            Err(AccessError)
        }
    }
}

/// The bytes of one segment, wherever they are.
pub enum Payload<'a> {
    /// In a packet, or in a work request (inline).
    Bytes(&'a [u8]),
    /// In local memory of a work request, from this offset of its message on.
    Local(SgList<'a>, u32),
    /// In ranges that were checked already.
    Checked(&'a Pieces<'a>),
    /// In one such range.
    Range(Range<'a>),
    /// In one such range of a window.
    Window(WindowRange<'a>),
}

impl<'a> Payload<'a> {
    /// What a request carries, from `offset` of its message on.
    #[inline]
    pub fn of(data: Data<'a>, offset: u32, regions: Regions<'a>) -> Self {
        match data {
            Data::Inline(bytes) => Payload::Bytes(bytes.get(offset as usize..).unwrap_or(&[])),
            Data::Pieces(sges) => Payload::Local(SgList::new(sges, regions), offset),
        }
    }

    /// The same bytes, the first `len` of the segment, looked up once: a failure here is one of the
    /// sender's memory, and whatever fails later is not. `pieces` is where they are noted.
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

    /// The payload of an ATOMIC WRITE, which stands in a packet or in a work request.
    pub fn word(&self) -> Option<[u8; 8]> {
        match self {
            Payload::Bytes(bytes) => bytes.first_chunk().copied(),
            _ => None,
        }
    }

    /// Copies `n` bytes, from the byte `at` of the segment on, to the beginning of a checked range.
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
            Payload::Checked(pieces) => pieces.parts(at, n, |part| {
                part.range.copy_to(part.at, to, to_at, part.len)?;
                to_at = to_at.wrapping_add(part.len);
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
            // Only packets are filled from here, and they have nothing to resolve before.
            Payload::Checked(_) => Err(AccessError),
        }
    }
}
