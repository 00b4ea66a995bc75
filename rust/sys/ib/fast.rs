// SPDX-License-Identifier: GPL-2.0

//! Memory regions of fast registration: allocated empty, mapped by a verb, registered by a work
//! request. Only ULPs have them.

use super::call::{
    operations,
    Argument, //
};
use super::mr::MemoryRegion;
use super::object;
use super::reference::Reference;
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::listed::{
    ListShape,
    ScatterList,
    Taken, //
};
use core::ptr::NonNull;
use kernel::prelude::*;

/// A [`MemoryRegion`] that may be one of fast registration.
pub trait FastRegion: MemoryRegion {
    /// Allocates an empty one, for lists of so many pages or pieces.
    fn allocate(device: &Self::Device, pd: &Self::Pd, most: u32, shape: ListShape) -> Result<Self>
    where
        Self: Sized;

    /// Takes as much of a list as it can, in pages of `page` bytes. Any context.
    fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<Taken>;
}

type Pd<'a, M> =
    object::Live<'a, bindings::ib_pd, <M as MemoryRegion>::Pd, <M as MemoryRegion>::Device>;
type Live<'a, M> = object::Live<'a, bindings::ib_mr, M>;

/// The list that is the argument of `map_mr_sg`.
struct First(*mut bindings::scatterlist);

impl Argument for First {
    type Raw = *mut bindings::scatterlist;

    unsafe fn from_raw(raw: Self::Raw) -> Result<Self> {
        Ok(Self(raw))
    }
}

/// Where to begin in its first entry, and to say where to go on; it may be nowhere.
///
/// # Invariants
///
/// The place may be read and written while the operation runs.
struct Offset(Option<NonNull<c_uint>>);

impl Argument for Offset {
    type Raw = *mut c_uint;

    unsafe fn from_raw(raw: Self::Raw) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(NonNull::new(raw)))
    }
}

impl Offset {
    fn get(&self) -> u64 {
        // SAFETY: By the type invariant.
        self.0.map_or(0, |place| u64::from(unsafe { place.read() }))
    }

    fn set(&self, offset: u64) {
        if let Some(place) = self.0 {
            // SAFETY: By the type invariant. It lies within an entry, whose length is a `u32`.
            unsafe { place.write(offset as c_uint) };
        }
    }
}

impl Reference<'_, bindings::ib_mr> {
    /// The size of pages that its user has chosen.
    fn page_size(self) -> u64 {
        // SAFETY: By the type invariant; `ib_map_mr_sg` has just set it.
        u64::from(unsafe { (*self.as_raw()).page_size })
    }

    /// Where its user finds what is mapped.
    fn set_mapped(self, address: u64, len: u64) {
        // SAFETY: By the type invariant; only the mapping ULP accesses these fields.
        unsafe {
            (*self.as_raw()).iova = address;
            (*self.as_raw()).length = len;
        }
    }
}

operations! {
    <'a, M: FastRegion>

    alloc_mr(
        pd: Pd<'a, M>,
        kind: bindings::ib_mr_type,
        most: u32,
    ) -> Result<*mut bindings::ib_mr> {
        let shape = match kind {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => ListShape::Pages,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => ListShape::Gaps,
            _ => return Err(EOPNOTSUPP()),
        };
        let region = M::allocate(pd.device()?, &pd, most, shape)?;
        let key = region.key();
        let mr = object::allocate(region)?;
        mr.set_key(key);
        Ok(mr.as_raw())
    }

    map_mr_sg(mr: Live<'a, M>, first: First, count: c_int, offset: Offset) -> Result<c_int> {
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        // SAFETY: The ULP vouches for the number of entries.
        let list = unsafe { ScatterList::new(first.0, count, offset.get()) };
        let taken = mr.map(&list, mr.reference().page_size())?;
        mr.reference().set_mapped(taken.address, taken.len);
        offset.set(taken.of_next);
        // There are no more than `count`.
        Ok(taken.entries as c_int)
    }
}
