// SPDX-License-Identifier: GPL-2.0

//! A page list of the kernel, and its registration.

use crate::sys::ib::mr::Access;
use crate::sys::listed::ListedMemory;

/// Rights of a registration.
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

/// A page list and its registration.
pub struct Listed {
    /// Its bytes.
    pub memory: ListedMemory,
    /// The rights granted while it is registered.
    pub grant: Grant,
}
