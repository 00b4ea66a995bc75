// SPDX-License-Identifier: GPL-2.0

//! Names of counters, as ib_core shows them (`rdma statistic`, `hw_counters` in sysfs).

use crate::sys::bindings;
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
