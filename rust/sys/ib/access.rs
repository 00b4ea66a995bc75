// SPDX-License-Identifier: GPL-2.0

//! Rights to memory.

use crate::sys::bindings;

/// What may be done to memory through a QP or a region (`enum ib_access_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(pub u32);

impl Access {
    /// Local writes: receives and READ responses may be placed here.
    pub const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// Remote WRITE.
    pub const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// Remote READ.
    pub const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// Remote atomics.
    pub const REMOTE_ATOMIC: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// FLUSH, so that what was written is visible to all.
    pub const FLUSH_GLOBAL: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL;
    /// FLUSH, so that what was written is persistent.
    pub const FLUSH_PERSISTENT: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT;
    /// Flags that ask for nothing that must be honoured (relaxed ordering, for one).
    pub const OPTIONAL: u32 = bindings::ib_access_flags_IB_ACCESS_OPTIONAL;
    /// Addresses are offsets from the beginning.
    pub const ZERO_BASED: u32 = bindings::ib_access_flags_IB_ZERO_BASED;
    /// A window may be bound to the region.
    pub const MW_BIND: u32 = bindings::ib_access_flags_IB_ACCESS_MW_BIND;

    /// Whether all these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether the pages below must be writable (`ib_access_writable`).
    pub fn needs_writable(self) -> bool {
        let writes = Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_ATOMIC | Self::MW_BIND;
        self.0 & writes != 0
    }

    /// As ib_core wants it.
    pub fn as_raw(self) -> i32 {
        self.0 as i32
    }
}
