// SPDX-License-Identifier: GPL-2.0

//! The way to a peer: addresses, the route, and which packets may be from it.
//!
//! A way knows nothing of queue pairs: what a connection needs besides is in [`super::qp`].

use crate::observe::counters::Counter;
use crate::sys::ib::qp::AddressVector;
use crate::sys::net::{
    Addresses,
    Flow,
    Resident,
    Route,
    RxPacket, //
};
use crate::wire::entropy::port_of_flow;
use crate::wire::gid::{
    ipv4,
    is_multicast, //
};

/// One way. Each half of a QP has its own, under its own lock.
#[derive(Clone)]
pub struct Path {
    av: AddressVector,
    flow: Flow,
    resident: Resident,
    /// Found when it is needed, and again whenever it has become invalid.
    route: Option<Route>,
}

/// How far a datagram to a group goes whose sender does not say (RFC 1112, 6.1).
const HOPS_TO_GROUP: u8 = 1;

impl Path {
    /// Along `av`, for packets of a netdev in the namespace of `resident`. Their UDP source port
    /// is that of the path's flow label, or of `flow` if it has none. `None` if the two GIDs are of
    /// different kinds.
    pub fn new(resident: &Resident, flow: u32, av: AddressVector) -> Option<Self> {
        let addresses = match (ipv4(&av.source), ipv4(&av.destination)) {
            (Some(src), Some(dst)) => Addresses::V4 { src, dst },
            (None, None) => Addresses::V6 {
                src: av.source,
                dst: av.destination,
            },
            _ => return None,
        };
        Some(Self {
            flow: Flow {
                addresses,
                traffic_class: av.traffic_class,
                hop_limit: match av.hop_limit {
                    0 if is_multicast(&av.destination) => HOPS_TO_GROUP,
                    hops => hops,
                },
                flow_label: av.flow_label,
                source_port: port_of_flow(match av.flow_label {
                    0 => flow,
                    label => label,
                }),
            },
            av,
            resident: resident.clone(),
            route: None,
        })
    }

    /// What packets say of it.
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Whether the destination is a GID of the same device.
    pub fn is_to_own_device(&self) -> bool {
        self.av.to_own_device
    }

    /// Whether `other` leads back from where this one leads to.
    pub fn is_reverse_of(&self, other: &Path) -> bool {
        self.av.source == other.av.destination && self.av.destination == other.av.source
    }

    /// The route, looked up anew if it is not valid any more.
    pub fn find_route(&mut self) -> Option<&Route> {
        if !self.route.as_ref().is_some_and(Route::is_valid) {
            self.route = Route::lookup(&self.resident, self.av.ifindex, &self.flow).ok();
        }
        self.route.as_ref()
    }

    /// The route that [`Self::find_route`] found last.
    pub fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Whether a packet that was received in our network namespace may be from the peer; if not,
    /// what to count.
    ///
    /// It must be from the peer's address to ours, and have come in by the netdev of our GID. What
    /// this host sends to itself comes in by `lo` instead (or by the VRF's netdev), where any local
    /// process can write anything, so that is accepted only if our own packets to the peer go
    /// there.
    ///
    /// The UDP source port says nothing: it is entropy for routers, which a sender may change with
    /// each packet (IBTA A17.3.1).
    #[inline]
    pub fn admits(&mut self, packet: &RxPacket<'_>) -> Result<(), Counter> {
        if packet.addresses() != Some(self.flow.addresses.reversed()) {
            return Err(Counter::DropAddress);
        }
        if packet.ifindex() == self.av.ifindex {
            return Ok(());
        }
        let comes_back = |route: &Route| route.is_loopback() && route.ifindex() == packet.ifindex();
        if self.find_route().is_some_and(comes_back) {
            Ok(())
        } else {
            Err(Counter::DropInterface)
        }
    }
}
