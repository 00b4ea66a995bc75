// SPDX-License-Identifier: GPL-2.0

//! Which net devices can carry a link, and what ib_core knows of them by itself.

use crate::sys::{
    net::{
        Framing,
        NetDevice, //
    },
    refusal, //
};
use kernel::prelude::*;

/// Checks that `netdev` can carry a link; the reason why not goes to the log.
///
/// # Errors
///
/// `EPERM` for a VLAN, `EOPNOTSUPP` for what is neither Ethernet nor `lo`, and does not take IP
/// packets as they are either.
pub(super) fn check(name: &CStr, netdev: &NetDevice) -> Result {
    if netdev.is_vlan() {
        pr_info!(
            "{}: {} is a VLAN; add the link to the device below it and use the GIDs of the VLAN\n",
            name,
            netdev.name()
        );
        return Err(EPERM);
    }
    match netdev.framing() {
        Framing::Ethernet | Framing::Loopback | Framing::Tunnel => Ok(()),
        Framing::Other => {
            pr_info!(
                "{}: {} is no Ethernet device and no tunnel of IP packets, which RoCE v2 needs\n",
                name,
                netdev.name()
            );
            Err(refusal::EOPNOTSUPP())
        }
    }
}

/// Whether ib_core looks at the addresses of `netdev` as they come and go.
pub(super) fn is_followed(netdev: &NetDevice) -> bool {
    netdev.framing() == Framing::Ethernet
}
