// SPDX-License-Identifier: GPL-2.0

//! The lock of the network configuration.

use crate::sys::bindings;
use kernel::types::NotThreadSafe;

/// Proof that this thread holds the RTNL.
///
/// Under it no net device is registered, unregistered or moved to another namespace.
pub struct Rtnl(NotThreadSafe);

impl Rtnl {
    /// # Safety
    ///
    /// The current thread must hold the RTNL as long as the value is used.
    pub(super) unsafe fn assume_held() -> Self {
        Self(NotThreadSafe)
    }
}

/// Holds the RTNL until dropped.
pub struct RtnlGuard(Rtnl);

/// Takes the RTNL; it sleeps.
pub fn lock() -> RtnlGuard {
    // SAFETY: This has no precondition but a context that may sleep.
    unsafe { bindings::rtnl_lock() };
    // SAFETY: It was taken just now and the guard releases it last.
    RtnlGuard(unsafe { Rtnl::assume_held() })
}

impl core::ops::Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.0
    }
}

impl Drop for RtnlGuard {
    fn drop(&mut self) {
        // SAFETY: The guard was made by taking the lock, on this thread.
        unsafe { bindings::rtnl_unlock() };
    }
}
