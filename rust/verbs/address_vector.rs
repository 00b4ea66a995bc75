// SPDX-License-Identifier: GPL-2.0

//! Validation of address vectors.

use crate::core::reach;
use crate::core::wire::gid::is_multicast;
use crate::sys::ib::ah::AddressVector;
use crate::sys::net::Underlay;
use crate::sys::refusal::{
    within,
    EADDRNOTAVAIL, //
};
use kernel::prelude::*;

/// Checks that packets can leave by the netdev of the source GID.
///
/// ib_core offers the addresses of a VLAN even if the VLAN is in another network namespace than the
/// netdev below. Our sockets and routes are those of the link's namespace: packets that arrive by
/// such a VLAN find no socket of ours, so sending by it is pointless.
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

/// Like [`check`], for a connection, which has a single peer.
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

/// Checks that packets of this path MTU fit through the netdev of the source GID and through that
/// of the link below it.
///
/// It is checked only when the user sets up a connection. If the MTU of a netdev is lowered
/// afterwards, packets that no longer fit are lost, as with hardware.
///
/// # Errors
///
/// `EINVAL`.
pub fn check_mtu(underlay: &Underlay, av: &AddressVector, mtu: u32) -> Result {
    let netdev_mtu = av.netdev_mtu.min(underlay.netdev().mtu());
    within("path_mtu", mtu, 0..=u64::from(reach::path_mtu(netdev_mtu)))
}
