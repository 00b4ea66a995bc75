// SPDX-License-Identifier: GPL-2.0

//! A list of the kernel's memory, and what it is registered as.

use crate::sys::ib::access::Access;
use crate::sys::listed::ListedMemory;

/// What a registration grants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grant {
    /// The key.
    pub key: u32,
    /// What may be done.
    pub access: Access,
    /// The address of the first byte.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// One list, and what it is registered as.
pub struct Listed {
    /// Its bytes.
    pub memory: ListedMemory,
    /// What of them is granted while it is registered.
    pub grant: Grant,
}
