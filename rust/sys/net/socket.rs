// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets on which a namespace receives RoCEv2, and multicast groups.
//!
//! The sockets are those of the kernel: they have lock classes of their own (`af_kern_*`), and are
//! locked only to be opened and closed, so lockdep needs no help.
//!
//! A [`Membership`] is that of a net device, as IGMP and MLD tell of it. It is counted as that of
//! sockets is: a group is left when no user on this host is left. The net device gets its filter of
//! addresses from it, and switches that snoop learn of it.
//!
//! C headers: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h) and
//! [`include/linux/igmp.h`](srctree/include/linux/igmp.h).

use crate::sys::bindings;
use crate::sys::net::{
    netns,
    receive,
    NetDevice,
    Receiver,
    Resident,
    Underlay, //
};
use core::marker::PhantomData;
use kernel::error::to_result;
use kernel::prelude::*;

/// UDP port 4791 for IPv4 and, unless the kernel has no IPv6, for IPv6.
///
/// # Invariants
///
/// The sockets belong to the namespace of `_resident`, which therefore outlives them.
pub struct SocketPair<R: Receiver> {
    sockets: bindings::ferroce_sockets,
    _resident: Resident,
    _receiver: PhantomData<R>,
}

// SAFETY: The pointers are only used to close the sockets, which any thread may do.
unsafe impl<R: Receiver> Send for SocketPair<R> {}
// SAFETY: As above.
unsafe impl<R: Receiver> Sync for SocketPair<R> {}

impl<R: Receiver> SocketPair<R> {
    /// Opens the sockets; what they receive goes to `R` from now on. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when another socket has the port in this namespace.
    pub fn open(resident: &Resident) -> Result<Self> {
        let mut sockets = bindings::ferroce_sockets::default();

        // SAFETY: The namespace is valid by the invariant of `Resident`, and the receive function
        // has the contract of an `encap_rcv`; it stays as long as the module, which is longer
        // than the sockets.
        to_result(unsafe {
            bindings::ferroce_sockets_open(
                resident.as_ptr(),
                Some(receive::encap_rcv::<R>),
                &mut sockets,
            )
        })?;
        // INVARIANT: They were opened in the namespace of the resident that is kept here.
        Ok(Self {
            sockets,
            _resident: resident.clone(),
            _receiver: PhantomData,
        })
    }
}

impl<R: Receiver> Drop for SocketPair<R> {
    /// Closes the sockets and waits for receivers in progress, and for what they have deferred.
    /// Sleeps.
    fn drop(&mut self) {
        // SAFETY: The sockets were opened by `open` and are closed only here.
        unsafe { bindings::ferroce_sockets_close(&mut self.sockets) };
        R::settle();
    }
}

/// The address of a group.
#[derive(Clone, Copy, Debug)]
pub enum GroupAddress {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

/// One membership, from when it is made until it is dropped, both of which may sleep.
///
/// # Invariants
///
/// `ferroce_membership_join` has made `raw` for `netdev`.
pub struct Membership {
    netdev: NetDevice,
    raw: bindings::ferroce_membership,
}

// SAFETY: The kernel's part of it is only touched under the RTNL.
unsafe impl Send for Membership {}
// SAFETY: As above.
unsafe impl Sync for Membership {}

impl Membership {
    /// Joins a group with the net device of a link. It takes the RTNL.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the net device has gone, or has no such addresses (IPv6 is off there),
    /// `ENOMEM`.
    pub fn join(underlay: &Underlay, group: GroupAddress) -> Result<Self> {
        let (is_v6, address): (_, &[u8]) = match &group {
            GroupAddress::V4(address) => (false, address),
            GroupAddress::V6(address) => (true, address),
        };
        let netdev = underlay.netdev().clone();
        let mut raw = bindings::ferroce_membership::default();
        let _rtnl = netns::lock_rtnl();

        // SAFETY: The net device is valid, the RTNL is held, the namespace is that of a resident,
        // and the address is as long as its family has it.
        to_result(unsafe {
            bindings::ferroce_membership_join(
                underlay.resident().as_ptr(),
                netdev.as_ptr(),
                is_v6,
                address.as_ptr(),
                &mut raw,
            )
        })?;
        // INVARIANT: It has.
        Ok(Self { netdev, raw })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let _rtnl = netns::lock_rtnl();

        // SAFETY: By the type invariant, and the RTNL is held; it is not used again.
        unsafe { bindings::ferroce_membership_leave(self.netdev.as_ptr(), &self.raw) };
    }
}
