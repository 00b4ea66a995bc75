// SPDX-License-Identifier: GPL-2.0

//! Which net devices can carry a link.

use crate::sys::{
    errno,
    net::NetDevice, //
};
use kernel::prelude::*;

/// Checks that `netdev` can carry a link; the reason why not goes to the log.
///
/// # Errors
///
/// `EPERM` for a VLAN, `EOPNOTSUPP` for what is neither Ethernet nor `lo`.
pub(super) fn check(name: &CStr, netdev: &NetDevice) -> Result {
    if netdev.is_vlan() {
        pr_info!(
            "{}: {} is a VLAN; add the link to the device below it and use the GIDs of the VLAN\n",
            name,
            netdev.name()
        );
        return Err(EPERM);
    }
    if !netdev.is_ethernet() {
        pr_info!(
            "{}: {} is no Ethernet device, which RoCE needs\n",
            name,
            netdev.name()
        );
        return Err(errno::EOPNOTSUPP());
    }
    Ok(())
}
