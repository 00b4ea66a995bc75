// SPDX-License-Identifier: GPL-2.0

//! Membership of a net device in a multicast group, as IGMP and MLD tell of it.
//!
//! It is a membership like that of sockets, and counted: a group is left when no user on this host
//! is left. The net device gets its filter of addresses from it, and switches that snoop
//! learn of it.
//!
//! C header: [`include/linux/igmp.h`](srctree/include/linux/igmp.h)

use super::{
    rtnl,
    NetDevice,
    Underlay, //
};
use crate::sys::bindings;
use kernel::{
    error::to_result,
    prelude::*, //
};

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
        let _rtnl = rtnl::lock();

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
        let _rtnl = rtnl::lock();

        // SAFETY: By the type invariant, and the RTNL is held; it is not used again.
        unsafe { bindings::ferroce_membership_leave(self.netdev.as_ptr(), &self.raw) };
    }
}
