// SPDX-License-Identifier: GPL-2.0

//! Address handles, and the validation of address vectors.

use crate::core::message::Mtu;
use crate::core::quota::ObjectKind;
use crate::core::uabi::udata::CreateAhResp;
use crate::core::wire::gid::is_multicast;
use crate::datapath::path::{
    Ah,
    Path, //
};
use crate::datapath::port::Port;
use crate::sys::ib::ah::{
    AddressHandle,
    AddressVector,
    AhAttr,
    AllocContext, //
};
use crate::sys::ib::process::Udata;
use crate::sys::net::Underlay;
use crate::sys::refusal::{
    invalid,
    within,
    EADDRNOTAVAIL, //
};
use crate::sys::table::Published;
use crate::verbs::device::{
    Device,
    Domain,
    ObjectPermit, //
};
use kernel::prelude::*;
use kernel::sync::Arc;

/// An address handle. Datagrams name it by its number; after it is dropped no datagram uses it,
/// except those in progress.
pub struct AhObject {
    port: Arc<Port>,
    ah: Published<Ah>,
    vector: AhAttr,
    _permit: ObjectPermit,
}

impl AhObject {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.ah)
    }
}

impl AddressHandle for AhObject {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        init: AddressVector,
        context: AllocContext,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        check(device.underlay(), &init)?;
        let permit = device.permit(ObjectKind::Ah)?;
        let port = device.port();
        let reserved = port.reserve_ah(context)?;
        let vector = init.vector;
        // One flow per handle: its datagrams stay in order.
        let mut path = Path::new(port.resident(), reserved.number(), &init).ok_or(EINVAL)?;
        if context == AllocContext::Sleeps {
            // Without a route datagrams look it up themselves, and are lost until there is one.
            let _ = path.find_route();
        }
        let ah = Arc::new(Ah::new(pd.id(), path), context.flags())?;
        let ah = Self {
            port: port.clone(),
            ah: reserved.publish(ah),
            vector,
            _permit: permit,
        };
        if let Some(udata) = udata {
            udata.respond(&CreateAhResp {
                number: ah.number(),
                reserved: 0,
            })?;
        }
        Ok(ah)
    }

    fn vector(&self) -> &AhAttr {
        &self.vector
    }
}

impl Drop for AhObject {
    fn drop(&mut self) {
        self.port.remove_ah(&mut self.ah);
    }
}

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
    if is_multicast(&av.destination) {
        return Err(invalid("the peer of a connection is a multicast group"));
    }
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
    let longest = Mtu::of_netdev(netdev_mtu).bytes();
    within("path_mtu", mtu, 0..=u64::from(longest))
}
