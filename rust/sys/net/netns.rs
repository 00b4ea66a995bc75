// SPDX-License-Identifier: GPL-2.0

//! Network namespaces that wait for us before they end.
//!
//! Kernel sockets and routes do not keep their namespace: whoever holds one must be gone before
//! the namespace is. A [`Resident`] is counted in the namespace, and its end waits for the count.
//! Nothing can wait in vain: residents enter through a registered net device, all net devices
//! leave a dying namespace first, and that takes down the link that holds the residents.

use super::{
    rtnl::Rtnl,
    NetDevice, //
};
use crate::sys::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Which namespace something is in. Only an identity: it does not keep the namespace.
///
/// It is meaningful while a [`Resident`] of that namespace exists; later the same value may come
/// to mean another namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NetNs(NonNull<bindings::net>);

// SAFETY: It is a number to compare.
unsafe impl Send for NetNs {}
// SAFETY: As above.
unsafe impl Sync for NetNs {}

impl NetNs {
    /// The namespace of a socket that is in use.
    ///
    /// # Safety
    ///
    /// `sk` must be a valid socket.
    pub(super) unsafe fn of_sock(sk: *const bindings::sock) -> Option<Self> {
        // SAFETY: By the requirement above.
        NonNull::new(unsafe { bindings::ferroce_netns_of_sock(sk) }).map(Self)
    }
}

/// Makes namespaces count residents and wait for them; needed before the first [`Resident`].
///
/// Dropping it waits until no resident is left anywhere.
pub struct Registration(());

impl Registration {
    /// Registers with every namespace, present and future. Only one may exist.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        // SAFETY: The module registers once; see the comment of the type.
        to_result(unsafe { bindings::ferroce_netns_register() })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::ferroce_netns_unregister() };
    }
}

/// Keeps a namespace from ending.
///
/// # Invariants
///
/// The namespace counts this value among its residents, hence is valid.
pub struct Resident(NonNull<bindings::net>);

// SAFETY: The count is atomic; the last resident may leave in any context.
unsafe impl Send for Resident {}
// SAFETY: As above.
unsafe impl Sync for Resident {}

impl Resident {
    /// Enters the namespace of `netdev`.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is not registered any more.
    pub fn enter(netdev: &NetDevice, _rtnl: &Rtnl) -> Result<Self> {
        // SAFETY: The device is valid and the RTNL is held.
        let net = unsafe { bindings::ferroce_netns_enter(netdev.as_ptr()) };

        // INVARIANT: A namespace that is returned has counted us.
        NonNull::new(net).map(Self).ok_or(ENODEV)
    }

    /// The identity of the namespace.
    pub fn netns(&self) -> NetNs {
        NetNs(self.0)
    }

    /// The C object, for the other files of `sys`.
    pub(in crate::sys) fn as_ptr(&self) -> *mut bindings::net {
        self.0.as_ptr()
    }
}

impl Clone for Resident {
    fn clone(&self) -> Self {
        // SAFETY: The namespace is valid by the type invariant, and so far from its end that one
        // more resident is in time.
        unsafe { bindings::ferroce_netns_stay(self.as_ptr()) };
        // INVARIANT: Counted just now.
        Self(self.0)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we are counted, and we are not used again.
        unsafe { bindings::ferroce_netns_leave(self.as_ptr()) };
    }
}

/// The net device below a link, and its namespace: what sockets and routes are made on.
#[derive(Clone)]
pub struct Underlay {
    netdev: NetDevice,
    resident: Resident,
}

impl Underlay {
    /// Takes `netdev` as it is registered now.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the device is not registered any more.
    pub fn new(netdev: &NetDevice, rtnl: &Rtnl) -> Result<Self> {
        Ok(Self {
            netdev: netdev.clone(),
            resident: Resident::enter(netdev, rtnl)?,
        })
    }

    /// The net device.
    pub fn netdev(&self) -> &NetDevice {
        &self.netdev
    }

    /// The namespace the net device was in when the link was made.
    pub fn netns(&self) -> NetNs {
        self.resident.netns()
    }

    /// The resident, to be cloned by what must not outlive the namespace.
    pub fn resident(&self) -> &Resident {
        &self.resident
    }
}
