// SPDX-License-Identifier: GPL-2.0

//! Network namespaces that wait for us before they end.
//!
//! Kernel sockets and routes do not keep their namespace: their holders must be gone before
//! the namespace is. A [`Resident`] is counted in the namespace, and its end waits for the count.
//!
//! The wait is in the `exit` of `cleanup_net`, which holds `pernet_ops_rwsem` for reading, as all
//! its phases do; meanwhile no other namespace ends, and no module that has to do with namespaces
//! is loaded or unloaded. Namespaces are made as long as no such module waits, for `copy_net_ns`
//! takes the semaphore for reading too. There is no earlier place: `pre_exit` comes before the net
//! devices leave, which is what takes a link down. The wait ends because
//!
//! - no resident is added: that takes a registered net device, under the RTNL;
//! - every link of the namespace is being removed since its net device left: ib_core unregisters
//!   it in a worker of its own, which destroys the objects of all users, and waits for no peer and
//!   no timer of the protocol;
//! - of processes it waits for those that are in the middle of a command, as with every driver:
//!   `uverbs_destroy_ufile_hw` takes `hw_destroy_rwsem` for writing, which a command that makes an
//!   object holds to its end. One that pins pages of a file whose server does not answer lasts
//!   until the server does, or the process is killed;
//! - none of this takes `pernet_ops_rwsem`, nor waits for code that does: the RTNL is taken
//!   inside of it, never around it, and is not held during `exit`.
//!
//! So it lasts as long as the commands in progress, and the destruction of what the users of the
//! link have made.

use crate::sys::bindings;
use crate::sys::net::NetDevice;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Full, //
};
use kernel::types::NotThreadSafe;

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
    /// A number to hash: equal for the same namespace.
    pub fn id(self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The namespace of `netdev` at this moment.
    pub fn of(netdev: &NetDevice) -> Option<Self> {
        // SAFETY: The device is valid.
        let net = unsafe { bindings::ferroce_netns_of_netdev(netdev.as_ptr()) };

        NonNull::new(net.cast_mut()).map(Self)
    }

    /// The namespace of a socket that is in use.
    ///
    /// # Safety
    ///
    /// `sk` must be a valid socket.
    pub(super) unsafe fn of_sock(sk: *const bindings::sock) -> Option<Self> {
        // SAFETY: By the requirement above.
        NonNull::new(unsafe { bindings::ferroce_netns_of_sock(sk) }).map(Self)
    }

    /// The namespace of the net device by which a packet came in.
    ///
    /// # Safety
    ///
    /// `skb` must be valid and hold its net device.
    pub(super) unsafe fn of_deferred(skb: *const bindings::sk_buff) -> Option<Self> {
        // SAFETY: By the requirement above.
        let net = unsafe { bindings::ferroce_rx_deferred_netns(skb) };
        NonNull::new(net.cast_mut()).map(Self)
    }
}

static IS_REGISTERED: Atomic<bool> = Atomic::new(false);

/// Makes namespaces count residents and wait for them, and keeps memory for packets at hand on
/// every CPU. Without that memory they are made of memory from the kernel's allocator, which costs
/// more.
///
/// Dropping it waits until no resident is left anywhere, and gives the memory back, that of packets
/// in flight when they are freed.
pub struct NetRegistration(());

impl NetRegistration {
    /// Registers with every namespace, present and future. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is a registration already, `ENOMEM`.
    pub fn new() -> Result<Self> {
        if IS_REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: `IS_REGISTERED` was false, so that this is the only registration.
        to_result(unsafe { bindings::ferroce_net_open() })
            .inspect_err(|_| {
                IS_REGISTERED.xchg(false, Full);
            })
            .map(|()| Self(()))
    }
}

impl Drop for NetRegistration {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::ferroce_net_close() };
        IS_REGISTERED.xchg(false, Full);
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
    /// `ENODEV` when the device is no longer registered.
    pub fn enter(
        netdev: &NetDevice,
        _rtnl: &Rtnl,
        _registration: &NetRegistration,
    ) -> Result<Self> {
        // SAFETY: The device is valid, the RTNL is held, and namespaces count their residents.
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
    /// `ENODEV` when the device is no longer registered.
    pub fn new(netdev: &NetDevice, rtnl: &Rtnl, registration: &NetRegistration) -> Result<Self> {
        Ok(Self {
            netdev: netdev.clone(),
            resident: Resident::enter(netdev, rtnl, registration)?,
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

/// Holds the RTNL until dropped.
///
/// Under it no net device is registered, unregistered or moved to another namespace.
pub struct Rtnl(NotThreadSafe);

/// Takes the RTNL; it sleeps.
pub fn lock_rtnl() -> Rtnl {
    // SAFETY: This has no precondition but a context that may sleep.
    unsafe { bindings::rtnl_lock() };
    Rtnl(NotThreadSafe)
}

impl Drop for Rtnl {
    fn drop(&mut self) {
        // SAFETY: It was made by taking the lock, on this thread.
        unsafe { bindings::rtnl_unlock() };
    }
}
