// SPDX-License-Identifier: GPL-2.0

//! Page lists of kernel memory, as ULPs map them for FRMRs.

use super::bindings;
use super::memory::Runs;
use core::marker::PhantomData;
use kernel::prelude::*;

/// The page lists that an FRMR accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListShape {
    /// Pages: only the first piece may start within a page, and only the last may end within one
    /// (`IB_MR_TYPE_MEM_REG`).
    Pages,
    /// Any pieces (`IB_MR_TYPE_SG_GAPS`).
    Gaps,
}

/// A scatter/gather list of a ULP, mapped for a device without DMA.
///
/// # Invariants
///
/// `first` is null, or points to a list of at least `count` entries that is valid for `'a`.
pub struct ScatterList<'a> {
    first: *mut bindings::scatterlist,
    count: usize,
    /// Bytes to skip in the first entry.
    skip: u64,
    list: PhantomData<&'a ()>,
}

/// The part of a list that was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedPart {
    /// Whole entries.
    pub entries: usize,
    /// Bytes of the next entry, including skipped ones.
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
        // INVARIANT: By the requirement.
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

/// Kernel memory in pieces.
///
/// # Invariants
///
/// Every run is part of a list that a ULP has mapped. The ULP vouches for the memory, as everywhere
/// in the kernel, and keeps it until it has invalidated its registration. The files that use this
/// type end all access by then; they are trusted with it, as with [`KernelMemory`].
///
/// [`KernelMemory`]: super::memory::KernelMemory
pub struct ListedMemory {
    runs: Runs,
    /// Capacity in pages or pieces.
    most: usize,
    shape: ListShape,
}

impl ListedMemory {
    /// An empty list with room for this many pages or pieces.
    pub fn new(most: usize, shape: ListShape) -> Result<Self> {
        Ok(Self {
            runs: Runs::with_capacity(most)?,
            most,
            shape,
        })
    }

    /// Maps as much of `list` as the shape and the room permit, replacing the previous content.
    /// Allocates nothing.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid list or page size; `ENOMEM` if nothing fits.
    pub fn map(&mut self, list: &ScatterList<'_>, page: u64) -> Result<MappedPart> {
        self.runs.clear();
        if !page.is_power_of_two() || page < bindings::PAGE_SIZE as u64 {
            return Err(EINVAL);
        }
        let mut room = Room {
            shape: self.shape,
            page,
            left: self.most as u64,
            behind: None,
        };
        let mut mapped: Option<MappedPart> = None;
        let mut skip = list.skip;
        for (start, all) in list.entries() {
            let len = all.checked_sub(skip).ok_or(EINVAL)?;
            let address = start.checked_add(skip).ok_or(EINVAL)?;
            let end = address.checked_add(len).ok_or(EINVAL)?;
            let now = mapped.get_or_insert(MappedPart {
                entries: 0,
                of_next: 0,
                address,
                len: 0,
            });
            let Some(fits) = room.take(address, end) else {
                break;
            };
            if fits != 0 {
                self.runs.add(address as usize, fits as usize)?;
                now.len = self.runs.size();
            }
            if fits < len {
                now.of_next = skip.wrapping_add(fits);
                break;
            }
            now.entries = now.entries.wrapping_add(1);
            skip = 0;
        }
        match mapped {
            None => Err(EINVAL),
            Some(MappedPart { len: 0, .. }) => Err(ENOMEM),
            Some(mapped) => Ok(mapped),
        }
    }

    /// Its bytes: of the list that was mapped last.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }
}

/// The room left in a list.
struct Room {
    shape: ListShape,
    /// Bytes of a page.
    page: u64,
    /// Pages, or pieces.
    left: u64,
    /// End of the last piece.
    behind: Option<u64>,
}

impl Room {
    /// How much of the piece from `address` to `end` fits; nothing after a gap that is not
    /// permitted.
    fn take(&mut self, address: u64, end: u64) -> Option<u64> {
        let len = end.wrapping_sub(address);
        let fits = match self.shape {
            ListShape::Gaps => {
                let needed = u64::from(len != 0);
                let has_room = needed <= self.left;
                self.left = self.left.saturating_sub(needed);
                if has_room {
                    len
                } else {
                    0
                }
            }
            ListShape::Pages => {
                let within = |address: u64| address & self.page.wrapping_sub(1);
                let page_of = |address: u64| address.wrapping_sub(within(address));
                // The first page to be added.
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
