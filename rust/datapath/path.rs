// SPDX-License-Identifier: GPL-2.0

//! The path to a peer: an address vector, a cached route, and the check of the source of a packet.
//!
//! A path knows nothing of QPs. The connection is in [`super::qp`]. An address handle
//! ([`Ah`]) is a path that datagrams name by number.

use crate::core::wire::gid::{
    ipv4,
    is_multicast,
    port_of_flow, //
};
use crate::datapath::memory::region::DomainId;
use crate::observe::counters::Counter;
use crate::sys::ib::qp::AddressVector;
use crate::sys::net::{
    Addresses,
    Flow,
    Resident,
    Route,
    RxPacket, //
};

/// A path. Each queue of a QP has its own, under its own lock.
#[derive(Clone)]
pub struct Path {
    flow: Flow,
    /// Index of the netdev of the source GID.
    ifindex: i32,
    /// The destination is a GID of the same device.
    to_own_device: bool,
    resident: Resident,
    /// Looked up on first use, and again when it is no longer valid.
    route: Option<Route>,
}

/// The ECN bits of a traffic class (RFC 3168). Those of an address vector do not leave.
const ECN_MASK: u8 = 0b11;

/// ECT(0): the sender slows down when packets are marked.
const ECT_0: u8 = 0b10;

/// Hop limit of a multicast datagram that gives none (RFC 1112, 6.1).
const HOPS_TO_GROUP: u8 = 1;

impl Path {
    /// Path along `av`, for packets of a netdev in the namespace of `resident`. The flow label of
    /// the address vector chooses the UDP source port, or `flow` if the label is 0. Returns `None`
    /// if one GID is IPv4 and the other IPv6.
    pub fn new(resident: &Resident, flow: u32, av: &AddressVector) -> Option<Self> {
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
                traffic_class: av.traffic_class & !ECN_MASK,
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
            ifindex: av.ifindex,
            to_own_device: av.to_own_device,
            resident: resident.clone(),
            route: None,
        })
    }

    /// Lets the network mark its packets in place of dropping them: their sender reacts to what the
    /// peer tells of marks.
    pub fn let_mark(&mut self) {
        self.flow.traffic_class |= ECT_0;
    }

    /// Whether the network may mark its packets.
    pub fn may_be_marked(&self) -> bool {
        self.flow.traffic_class & ECN_MASK != 0
    }

    /// Addresses and header fields of its packets.
    pub(super) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Whether the destination is a GID of the same device.
    pub fn is_to_own_device(&self) -> bool {
        self.to_own_device
    }

    /// Whether `other` is the reverse of this path.
    pub fn is_reverse_of(&self, other: &Path) -> bool {
        self.flow.addresses == other.flow.addresses.reversed()
    }

    /// The route, looked up again if it is no longer valid.
    pub fn find_route(&mut self) -> Option<&Route> {
        if !self.route.as_ref().is_some_and(Route::is_valid) {
            self.route = Route::lookup(&self.resident, self.ifindex, &self.flow).ok();
        }
        self.route.as_ref()
    }

    /// The route that [`Self::find_route`] found last.
    pub fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Whether a packet received in this network namespace may be from the peer. The error is the
    /// counter of the drop reason.
    ///
    /// The packet must carry the peer's source address and our destination address, and must have
    /// arrived by the netdev of the source GID. A packet that this host sends to itself arrives by
    /// `lo` (or the VRF netdev) instead, where any local process can send anything. It is accepted
    /// only if our own packets to the peer are routed there.
    ///
    /// The UDP source port is not checked: it is entropy for routers, and a sender may change it
    /// with each packet (IBTA A17.3.1).
    #[inline]
    pub fn admits(&mut self, packet: &RxPacket<'_>) -> Result<(), Counter> {
        if packet.addresses() != Some(self.flow.addresses.reversed()) {
            return Err(Counter::DropAddress);
        }
        if packet.ifindex() == self.ifindex {
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

/// An address handle. It is immutable: each sender copies its path and looks up a route of its own.
pub struct Ah {
    domain: DomainId,
    path: Path,
}

impl Ah {
    /// An address handle for QPs of the protection domain `domain`.
    pub fn new(domain: DomainId, path: Path) -> Self {
        Self { domain, path }
    }

    /// The protection domain whose QPs may use it.
    pub(super) fn domain(&self) -> DomainId {
        self.domain
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
