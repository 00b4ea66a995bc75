// SPDX-License-Identifier: GPL-2.0

//! Counters, as ib_core shows them (`rdma statistic`, `hw_counters` in sysfs): names and values.

use super::call::Argument;
use crate::sys::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;

/// The name of a counter, as C wants it.
#[repr(transparent)]
pub struct CounterName(bindings::rdma_stat_desc);

// SAFETY: The pointers in it lead to constants.
unsafe impl Sync for CounterName {}

impl CounterName {
    /// From a C string constant.
    pub const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}

/// Allocates the values that go with the names; ib_core frees them.
pub(super) fn allocate(
    names: &'static [CounterName],
    lifespan_ms: u32,
) -> *mut bindings::rdma_hw_stats {
    // SAFETY: The names are constants; `CounterName` is a transparent `rdma_stat_desc`.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(
            names.as_ptr().cast::<bindings::rdma_stat_desc>(),
            names.len() as c_int,
            lifespan_ms as usize,
        )
    }
}

/// The values of counters.
///
/// # Invariants
///
/// It was allocated by [`allocate`], and nobody else uses it.
pub(super) struct Values<'a>(NonNull<bindings::rdma_hw_stats>, PhantomData<&'a mut ()>);

impl Argument for Values<'_> {
    type Raw = *mut bindings::rdma_hw_stats;

    unsafe fn from_raw(raw: *mut bindings::rdma_hw_stats) -> Result<Self> {
        // INVARIANT: By the requirement; ib_core serialises the calls.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
    }
}

impl Values<'_> {
    /// Lets `fill` fill them; returns how many there are.
    pub(super) fn fill(self, fill: impl FnOnce(&mut [u64])) -> c_int {
        // SAFETY: By the type invariant there are so many values behind it.
        let (values, count) = unsafe {
            let count = (*self.0.as_ptr()).num_counters;
            let values = (*self.0.as_ptr()).value.as_mut_ptr();
            (
                core::slice::from_raw_parts_mut(values, count as usize),
                count,
            )
        };
        fill(values);
        count
    }
}
