// SPDX-License-Identifier: GPL-2.0

//! A route as a queue pair or an address handle keeps it.
//!
//! C header: [`include/net/dst.h`](srctree/include/net/dst.h)

use super::Resident;
use crate::sys::bindings;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The two ends of a packet, as bytes in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source.
        src: [u8; 4],
        /// Destination.
        dst: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// Source.
        src: [u8; 16],
        /// Destination.
        dst: [u8; 16],
    },
}

impl Addresses {
    /// The same destination, from nowhere.
    pub fn destination_only(self) -> Self {
        match self {
            Self::V4 { dst, .. } => Self::V4 { src: [0; 4], dst },
            Self::V6 { dst, .. } => Self::V6 { src: [0; 16], dst },
        }
    }

    /// Destination.
    fn destination(&self) -> &[u8] {
        match self {
            Self::V4 { dst, .. } => dst,
            Self::V6 { dst, .. } => dst,
        }
    }

    /// The other direction.
    pub fn reversed(self) -> Self {
        match self {
            Self::V4 { src, dst } => Self::V4 { src: dst, dst: src },
            Self::V6 { src, dst } => Self::V6 { src: dst, dst: src },
        }
    }
}

/// Why a packet is not for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// Its destination is no address of the port.
    Address,
    /// It came in elsewhere.
    Interface,
}

/// Whether a packet to an address of this host is for a device on the net device `port`: that, or a
/// VLAN on it, has the address, and it came in there, or from this host itself.
pub fn arrived(
    resident: &Resident,
    port: i32,
    ifindex: i32,
    addresses: &Addresses,
) -> core::result::Result<(), Astray> {
    let is_v6 = matches!(addresses, Addresses::V6 { .. });
    let address = addresses.destination();
    // SAFETY: The namespace is valid by the invariant of `Resident`; the address is as long as its
    // family has it.
    match unsafe {
        bindings::ferroce_arrival(resident.as_ptr(), port, ifindex, is_v6, address.as_ptr())
    } {
        bindings::ferroce_arrival_FERROCE_ARRIVED => Ok(()),
        bindings::ferroce_arrival_FERROCE_WRONG_DEVICE => Err(Astray::Interface),
        _ => Err(Astray::Address),
    }
}

/// Fields of the network headers of a flow, which select its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Both ends; the source must be an address of this machine.
    pub addresses: Addresses,
    /// IPv4 type of service or IPv6 traffic class, with the ECN bits that leave.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit; 0 for that of the route.
    pub hop_limit: u8,
    /// The low 20 bits go into an IPv6 header.
    pub flow_label: u32,
    /// UDP source port.
    pub source_port: u16,
}

/// A route and the headers that go with it.
///
/// It may be made, used and dropped in softirq.
///
/// # Invariants
///
/// `raw.dst` is a `dst_entry` that we hold a reference of, of the family `raw.flow` says, in the
/// namespace `raw.net`, which is that of `_resident`.
pub struct Route {
    raw: bindings::ferroce_route,
    _resident: Resident,
}

// SAFETY: A `dst_entry` is counted atomically and not changed by us.
unsafe impl Send for Route {}
// SAFETY: As above.
unsafe impl Sync for Route {}

impl Route {
    /// Looks up how packets of `flow` leave the namespace of `resident` by the net device of index
    /// `ifindex`.
    ///
    /// When the destination is an address of that net device itself, the route goes by `lo`. An
    /// IPv4 destination that no route leads to is taken to be on the wire of the net device.
    ///
    /// # Errors
    ///
    /// The error of the routing lookup: `ENETUNREACH` (also when an IPv4 source is not an address
    /// of this machine), `EADDRNOTAVAIL` when an IPv6 source is no address of the net device or, if
    /// it is not link-local, of another one in the same VRF or outside of any, `EHOSTUNREACH`,
    /// `EAFNOSUPPORT` without IPv6, `ENOMEM`.
    pub fn lookup(resident: &Resident, ifindex: i32, flow: &Flow) -> Result<Self> {
        let resident = resident.clone();
        let mut description = bindings::ferroce_flow {
            traffic_class: flow.traffic_class,
            hop_limit: flow.hop_limit,
            flow_label: flow.flow_label,
            sport: flow.source_port,
            oif: ifindex,
            ..Default::default()
        };

        match flow.addresses {
            Addresses::V4 { src, dst } => {
                put(&mut description.saddr, &src);
                put(&mut description.daddr, &dst);
            }
            Addresses::V6 { src, dst } => {
                description.is_v6 = true;
                put(&mut description.saddr, &src);
                put(&mut description.daddr, &dst);
            }
        }

        let mut raw = bindings::ferroce_route::default();

        // SAFETY: The namespace is valid by the invariant of `Resident`.
        to_result(unsafe {
            bindings::ferroce_route_lookup(resident.as_ptr(), &description, &mut raw)
        })?;
        // INVARIANT: The lookup succeeded, and gave us the reference.
        Ok(Self {
            raw,
            _resident: resident,
        })
    }

    /// Whether the route still holds; otherwise look it up anew. It is cheap.
    #[inline]
    pub fn is_valid(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_route_is_valid(&self.raw) }
    }

    /// Whether it leads back to this machine, by `lo` or the VRF that stands for it.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_route_is_loopback(&self.raw) }
    }

    /// The index of the net device it leads by, 0 when that has gone. What is sent on a loopback
    /// route is received by this device.
    #[inline]
    pub fn ifindex(&self) -> i32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_route_ifindex(&self.raw) }
    }

    /// The C object, for the transmit path.
    pub(super) fn as_raw(&self) -> &bindings::ferroce_route {
        &self.raw
    }
}

impl Clone for Route {
    fn clone(&self) -> Self {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_route_hold(&self.raw) };
        // INVARIANT: Held just now; the rest is the same.
        Self {
            raw: self.raw,
            _resident: self._resident.clone(),
        }
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we hold a reference, given up here.
        unsafe { bindings::ferroce_route_release(&mut self.raw) };
    }
}

fn put<const N: usize>(to: &mut [u8; 16], from: &[u8; N]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
