// SPDX-License-Identifier: GPL-2.0

//! Where the bytes of a message are, and how they get from one place to another.
//!
//! A message is copied once: from the memory regions of the sender into a packet and from there
//! into the regions of the receiver, or, on the local path, from regions to regions directly.
//! Every copy checks the keys again, so a region that is deregistered in the middle of a message
//! ends it with an error.

use super::port::Port;
use super::region::{
    DomainId,
    Range, //
};
use crate::sys::ib::qp::Access;
use crate::transport::responder::AccessError;
use crate::uabi::wqe::{
    Sge,
    MAX_SGE, //
};
use kernel::sync::rcu;

/// The regions that a QP may use.
#[derive(Clone, Copy)]
pub struct Regions<'a> {
    /// Where they are registered.
    pub port: &'a Port,
    /// The domain of the QP.
    pub domain: DomainId,
    /// They stay while this lives.
    pub rcu: &'a rcu::Guard,
}

impl<'a> Regions<'a> {
    /// The range `va..va + len` of the region of `key`.
    pub fn check(
        &self,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Result<Range<'a>, AccessError> {
        self.port
            .check(self.rcu, self.domain, key, rights, va, len)
            .ok_or(AccessError)
    }
}

/// Local memory of a work request: a list of pieces, addressed as one run of bytes.
#[derive(Clone, Copy)]
pub struct SgList<'a> {
    /// The pieces; they were copied from the ring and do not change.
    pub sges: &'a [Sge],
    /// The regions they name.
    pub regions: Regions<'a>,
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

    /// Calls `piece` with each part of `len` bytes from the byte `at` on.
    fn part(
        &self,
        at: u32,
        len: u32,
        mut piece: impl FnMut(Range<'a>, u32) -> Result<(), AccessError>,
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
            let now = n.wrapping_sub(skip).min(left);
            let offset = range.offset.wrapping_add(u64::from(skip));
            piece(Range { offset, ..*range }, now)?;
            skip = 0;
            left = left.wrapping_sub(now);
        }
        if left == 0 {
            Ok(())
        } else {
            Err(AccessError)
        }
    }
}

impl<'a> SgList<'a> {
    /// The range of `offset..offset + len`, if the list is one piece: as most are.
    fn one(&self, rights: u32, offset: u32, len: u32) -> Result<Option<Range<'a>>, AccessError> {
        let [sge] = self.sges else {
            return Ok(None);
        };
        if offset > sge.length || sge.length.wrapping_sub(offset) < len {
            return Err(AccessError);
        }
        let va = sge.addr.checked_add(u64::from(offset)).ok_or(AccessError)?;
        self.regions.check(sge.lkey, rights, va, len).map(Some)
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
            piece(self.regions.check(sge.lkey, rights, va, n)?, n)?;
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
        let mut at = 0u32;
        self.pieces(Access::LOCAL_WRITE, offset, len, |to, n| {
            payload.copy_to(at, to, n)?;
            at = at.wrapping_add(n);
            Ok(())
        })
    }
}

/// The bytes of one segment, wherever they are.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// In a packet, or in a work request (inline).
    Bytes(&'a [u8]),
    /// In local memory of a work request, from this offset of its message on.
    Local(SgList<'a>, u32),
    /// In ranges that were checked already.
    Checked(&'a Pieces<'a>),
    /// In one such range.
    Range(Range<'a>),
}

impl<'a> Payload<'a> {
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
            pieces: [None; MAX_SGE as usize],
            count: 0,
        });
        list.pieces(0, offset, len, |range, n| pieces.push(range, n))?;
        Ok(Payload::Checked(pieces))
    }

    /// Copies `n` bytes, from the byte `at` of the segment on, into a checked range.
    pub fn copy_to(&self, at: u32, to: Range<'_>, n: u32) -> Result<(), AccessError> {
        match self {
            Payload::Bytes(bytes) => {
                let end = at.checked_add(n).ok_or(AccessError)?;
                let part = bytes.get(at as usize..end as usize).ok_or(AccessError)?;
                to.memory.write(to.offset, part).map_err(|_| AccessError)
            }
            Payload::Local(list, offset) => {
                let mut to_offset = to.offset;
                let from = offset.checked_add(at).ok_or(AccessError)?;
                list.pieces(0, from, n, |from, n| {
                    from.memory
                        .copy_to(from.offset, to.memory, to_offset, n as usize)
                        .map_err(|_| AccessError)?;
                    to_offset = to_offset.wrapping_add(u64::from(n));
                    Ok(())
                })
            }
            Payload::Checked(pieces) => {
                let mut to_offset = to.offset;
                pieces.part(at, n, |from, n| {
                    from.memory
                        .copy_to(from.offset, to.memory, to_offset, n as usize)
                        .map_err(|_| AccessError)?;
                    to_offset = to_offset.wrapping_add(u64::from(n));
                    Ok(())
                })
            }
            Payload::Range(from) => {
                let offset = from.offset.checked_add(u64::from(at)).ok_or(AccessError)?;
                from.memory
                    .copy_to(offset, to.memory, to.offset, n as usize)
                    .map_err(|_| AccessError)
            }
        }
    }

    /// Copies the first `out.len()` bytes of the segment into a packet.
    pub fn read(&self, out: &mut [u8]) -> Result<(), AccessError> {
        let len = u32::try_from(out.len()).map_err(|_| AccessError)?;
        match self {
            Payload::Bytes(bytes) => {
                let part = bytes.get(..out.len()).ok_or(AccessError)?;
                out.copy_from_slice(part);
                Ok(())
            }
            Payload::Local(list, offset) => {
                let mut rest = out;
                list.pieces(0, *offset, len, |from, n| {
                    let (now, later) = core::mem::take(&mut rest)
                        .split_at_mut_checked(n as usize)
                        .ok_or(AccessError)?;
                    rest = later;
                    from.memory.read(from.offset, now).map_err(|_| AccessError)
                })
            }
            Payload::Range(from) => from.memory.read(from.offset, out).map_err(|_| AccessError),
            // Only packets are filled from here, and they have nothing to resolve before.
            Payload::Checked(_) => Err(AccessError),
        }
    }
}
