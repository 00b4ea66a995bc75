// SPDX-License-Identifier: GPL-2.0

//! Which address vectors a device can serve.

use super::reach;
use crate::sys::errno::EADDRNOTAVAIL;
use crate::sys::ib::address_vector::AddressVector;
use crate::sys::net::Underlay;
use crate::sys::refusal::within;
use crate::wire::gid::is_multicast;
use kernel::prelude::*;

/// Checks that packets can travel by the netdev of the source GID.
///
/// ib_core offers the addresses of a VLAN also when it lives in another network namespace than the
/// netdev below. Our sockets and routes are those of the link's namespace: what comes in through
/// such a VLAN finds no socket of ours, so there is no use in sending by it.
///
/// # Errors
///
/// `EADDRNOTAVAIL`.
pub fn check(underlay: &Underlay, av: &AddressVector) -> Result {
    if av.netns != underlay.netns() {
        return Err(EADDRNOTAVAIL());
    }
    Ok(())
}

/// As [`check`], for a connection, which has a single peer.
///
/// # Errors
///
/// `EADDRNOTAVAIL`, and `EINVAL` if the destination is a group.
pub fn check_connection(underlay: &Underlay, av: &AddressVector) -> Result {
    within(
        "whether the destination is a group",
        is_multicast(&av.destination),
        0..=0,
    )?;
    check(underlay, av)
}

/// Checks that packets of this path MTU fit: through the netdev of the source GID, and through the
/// one of the link, below it.
///
/// It is checked only here, when the user sets up a connection. If somebody lowers the MTU of a
/// netdev afterwards, packets that do not fit any more are lost, as with hardware.
///
/// # Errors
///
/// `EINVAL`.
pub fn check_mtu(underlay: &Underlay, av: &AddressVector, mtu: u32) -> Result {
    let netdev_mtu = av.netdev_mtu.min(underlay.netdev().mtu());
    within("path_mtu", mtu, 0..=u64::from(reach::path_mtu(netdev_mtu)))
}
