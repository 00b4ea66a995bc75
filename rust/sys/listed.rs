// SPDX-License-Identifier: GPL-2.0

//! Lists of pieces of the kernel's memory, as users in the kernel map them for a fast registration.

use super::bindings;
use super::memory::{
    pieces_of,
    Fault,
    Memory,
    Run, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// What lists a region takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Pages: only the first piece may begin, and only the last may end, within one
    /// (`IB_MR_TYPE_MEM_REG`).
    Pages,
    /// Any pieces (`IB_MR_TYPE_SG_GAPS`).
    Gaps,
}

/// A scatter/gather list of a user in the kernel, which was mapped for a device that has no DMA.
///
/// # Invariants
///
/// `first` is null, or leads to a list of at least `count` entries that is valid for `'a`.
pub struct ScatterList<'a> {
    first: *mut bindings::scatterlist,
    count: usize,
    /// What is left out of the first entry.
    skip: u64,
    list: PhantomData<&'a ()>,
}

/// How much of a list was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Entries, as a whole.
    pub entries: usize,
    /// Bytes of the entry behind them, also those that were left out.
    pub of_next: u64,
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl ScatterList<'_> {
    /// # Safety
    ///
    /// `first` must be null or lead to `count` entries that outlive the result.
    pub(super) unsafe fn new(first: *mut bindings::scatterlist, count: usize, skip: u64) -> Self {
        // INVARIANT: The requirement.
        Self {
            first,
            count,
            skip,
            list: PhantomData,
        }
    }

    /// Address and length of each entry.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = self.first;
        (0..self.count).map_while(move |_| {
            if at.is_null() {
                return None;
            }
            // SAFETY: By the type invariant; one follows the other.
            let (address, len, next) = unsafe {
                (
                    bindings::sg_dma_address(at),
                    bindings::sg_dma_len(at),
                    bindings::sg_next(at),
                )
            };
            at = next;
            Some((address, u64::from(len)))
        })
    }
}

/// Memory of the kernel in pieces.
///
/// # Invariants
///
/// `runs` is sorted, without gaps from 0 on, and has `len` bytes; every run is part of a list that
/// a user in the kernel has mapped. He says what memory is his, as everywhere in the kernel, and
/// that it stays until he has invalidated what he registers of it. The files that use it see that
/// nobody does after that; they are trusted with it, as with [`KernelMemory`].
///
/// [`KernelMemory`]: super::memory::KernelMemory
pub struct ListedMemory {
    runs: KVec<Run>,
    len: u64,
    /// Pages, or pieces, that it has room for.
    most: usize,
    shape: Shape,
}

// SAFETY: The memory is only accessed by copies through raw pointers.
unsafe impl Send for ListedMemory {}
// SAFETY: As above.
unsafe impl Sync for ListedMemory {}

impl ListedMemory {
    /// An empty list, with room for so many pages or pieces.
    pub fn new(most: usize, shape: Shape) -> Result<Self> {
        Ok(Self {
            runs: KVec::with_capacity(most, GFP_KERNEL)?,
            len: 0,
            most,
            shape,
        })
    }

    /// Takes as much of `list` as the shape admits and there is room for, in place of what there
    /// was. Allocates nothing.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a list, or a size of pages, that cannot be; `ENOMEM` if nothing has room.
    pub fn map(&mut self, list: &ScatterList<'_>, page: u64) -> Result<Taken> {
        self.runs.clear();
        self.len = 0;
        if !page.is_power_of_two() || page < bindings::PAGE_SIZE as u64 {
            return Err(EINVAL);
        }
        let mut room = Room {
            shape: self.shape,
            page,
            left: self.most as u64,
            behind: None,
        };
        let mut taken: Option<Taken> = None;
        let mut skip = list.skip;
        for (start, all) in list.entries() {
            let len = all.checked_sub(skip).ok_or(EINVAL)?;
            let address = start.checked_add(skip).ok_or(EINVAL)?;
            let end = address.checked_add(len).ok_or(EINVAL)?;
            let now = taken.get_or_insert(Taken {
                entries: 0,
                of_next: 0,
                address,
                len: 0,
            });
            let Some(fits) = room.take(address, end) else {
                break;
            };
            if fits != 0 {
                self.push(address, fits)?;
                now.len = self.len;
            }
            if fits < len {
                now.of_next = skip.wrapping_add(fits);
                break;
            }
            now.entries = now.entries.wrapping_add(1);
            skip = 0;
        }
        match taken {
            None => Err(EINVAL),
            Some(Taken { len: 0, .. }) => Err(ENOMEM),
            Some(taken) => Ok(taken),
        }
    }

    fn push(&mut self, address: u64, len: u64) -> Result {
        let (address, bytes) = (address as usize, len as usize);
        match self.runs.last_mut() {
            Some(last) if last.address.wrapping_add(last.len) == address => {
                last.len = last.len.wrapping_add(bytes);
            }
            _ => self
                .runs
                .push_within_capacity(Run {
                    offset: self.len,
                    address,
                    len: bytes,
                })
                .map_err(|_| ENOMEM)?,
        }
        self.len = self.len.checked_add(len).ok_or(EINVAL)?;
        Ok(())
    }
}

/// What a list has room for still.
struct Room {
    shape: Shape,
    /// Bytes of a page.
    page: u64,
    /// Pages, or pieces.
    left: u64,
    /// Where the last piece ends.
    behind: Option<u64>,
}

impl Room {
    /// How much of the piece from `address` to `end` fits; nothing of it if there is a gap before
    /// it that may not be.
    fn take(&mut self, address: u64, end: u64) -> Option<u64> {
        let len = end.wrapping_sub(address);
        let fits = match self.shape {
            Shape::Gaps => {
                let needed = u64::from(len != 0);
                let has_room = needed <= self.left;
                self.left = self.left.saturating_sub(needed);
                if has_room {
                    len
                } else {
                    0
                }
            }
            Shape::Pages => {
                let within = |address: u64| address & self.page.wrapping_sub(1);
                let page_of = |address: u64| address.wrapping_sub(within(address));
                // The page that is the first to be added.
                let first = match self.behind {
                    None => page_of(address),
                    Some(behind) if within(behind) | within(address) == 0 => address,
                    Some(behind) if behind == address => page_of(address).checked_add(self.page)?,
                    Some(_) => return None,
                };
                let needed = end.saturating_sub(first).div_ceil(self.page);
                if needed <= self.left {
                    self.left = self.left.wrapping_sub(needed);
                    len
                } else {
                    let room = self.left.checked_mul(self.page)?;
                    self.left = 0;
                    first.checked_add(room)?.saturating_sub(address)
                }
            }
        };
        self.behind = Some(end);
        Some(fits)
    }
}

// SAFETY: By the type invariant; pieces are parts of runs within the range.
unsafe impl Memory for ListedMemory {
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        piece: impl FnMut(*mut u8, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !self.contains(offset, len as u64) {
            return Err(Fault);
        }
        pieces_of(&self.runs, offset, len, piece)
    }

    fn size(&self) -> u64 {
        self.len
    }
}
