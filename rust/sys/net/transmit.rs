// SPDX-License-Identifier: GPL-2.0

//! Packets to be sent: the route that a QP or an address handle keeps, one packet or a batch of one
//! flow, and the memory that they are made of.
//!
//! Everything here is for softirq and for process context with BH disabled, under any spinlock
//! that is not taken in hard interrupts. A sender may hold the lock of its queue: sending never
//! receives in the same stack, since whatever loops a packet back (`lo`, veth, macvlan, bridges, a
//! redirect of tc or BPF) queues it to the per-CPU backlog or a NAPI instance, which run when BHs
//! are enabled again, and an skb without a socket has no destructor call.
//!
//! C header: [`include/net/dst.h`](srctree/include/net/dst.h)

use crate::core::batch::{
    BatchShape,
    Limits, //
};
use crate::sys::bindings;
use crate::sys::memory::Cursor;
use crate::sys::net::Resident;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::slice;
use kernel::error::to_result;
use kernel::prelude::*;

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

/// Fate of sent packets. The protocol treats all but `Sent` as loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxResult {
    /// It was sent, as far as this host knows.
    Sent,
    /// It was sent, but its queue signals congestion.
    Congested,
    /// The stack has dropped it.
    Lost,
}

/// The origin of a packet, as far as a batch looks at it. It does not tell flows apart: all hosts
/// on a link, or behind a gateway, may have one `dst_entry`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BatchKey {
    dst: *mut bindings::dst_entry,
    headers_len: u32,
}

impl BatchKey {
    fn is(self, route: &Route) -> bool {
        self.dst == route.as_raw().dst
    }
}

/// A packet whose network headers are complete and whose InfiniBand bytes are yet to be written.
///
/// Its memory may have held another packet before: see [`Self::fill`].
///
/// # Invariants
///
/// `skb` is a linear skb that only we know; `headers` is valid for `origin.headers_len` bytes of
/// it, `ib` for writes of `ib_len` bytes, and they do not overlap. The headers are written.
pub struct TxPacket {
    skb: NonNull<bindings::sk_buff>,
    headers: NonNull<u8>,
    ib: NonNull<u8>,
    ib_len: u32,
    origin: BatchKey,
    place: u16,
}

// SAFETY: The skb is only known here.
unsafe impl Send for TxPacket {}

impl TxPacket {
    /// Makes a packet for `route` with room for `ib_len` bytes from the BTH to the ICRC. `place` is
    /// its place in a batch, from 0: see [`TxList`].
    ///
    /// `None` when there is no memory or the packet does not fit into an IP packet.
    #[inline]
    pub fn alloc(route: &Route, ib_len: usize, place: u16) -> Option<Self> {
        let mut raw = bindings::ferroce_tx::default();
        let len = u32::try_from(ib_len).ok()?;

        // SAFETY: The route is valid by its invariant.
        if unsafe { bindings::ferroce_tx_alloc(route.as_raw(), len, place, &mut raw) } != 0 {
            return None;
        }
        // INVARIANT: `ferroce_tx_alloc` has succeeded: it wrote the headers and made room for the
        // rest.
        Some(Self {
            skb: NonNull::new(raw.skb)?,
            headers: NonNull::new(raw.headers.cast_mut())?,
            ib: NonNull::new(raw.ib)?,
            ib_len: len,
            origin: BatchKey {
                dst: route.as_raw().dst,
                headers_len: raw.headers_len,
            },
            place,
        })
    }

    /// Lets `write` write the bytes from the BTH to the ICRC; what it leaves is zero.
    ///
    /// # Errors
    ///
    /// Those of `write`; the packet is freed then.
    #[inline]
    pub fn fill<E>(
        self,
        write: impl FnOnce(&mut Cursor<'_>) -> Result<(), E>,
    ) -> Result<FilledPacket, E> {
        // SAFETY: By the type invariant; `self` leads there, but is not used before the cursor is
        // gone.
        let mut cursor = unsafe { Cursor::new(self.ib.as_ptr(), self.ib_len as usize) };

        write(&mut cursor)?;
        // This many are left, so that there is no error.
        let _ = cursor.zeros(cursor.left());
        // INVARIANT: By the invariant of the cursor, which has no bytes left, all are written. It
        // is the one made above: no other has its lifetime, so `write` cannot have exchanged it.
        Ok(FilledPacket(self))
    }
}

impl Drop for TxPacket {
    fn drop(&mut self) {
        // SAFETY: The skb is ours and is not used again.
        unsafe { bindings::ferroce_tx_free(self.skb.as_ptr()) };
    }
}

/// A packet that has all its bytes.
///
/// # Invariants
///
/// All of the `ib_len` bytes are written.
pub struct FilledPacket(TxPacket);

impl FilledPacket {
    /// IP and UDP header, and the bytes from the BTH to the ICRC, which is computed from both.
    #[inline]
    pub fn parts_mut(&mut self) -> (&[u8], &mut [u8]) {
        let packet = &self.0;

        // SAFETY: By the type invariants the two are written and do not overlap; `self` is borrowed
        // mutably.
        unsafe {
            (
                slice::from_raw_parts(packet.headers.as_ptr(), packet.origin.headers_len as usize),
                slice::from_raw_parts_mut(packet.ib.as_ptr(), packet.ib_len as usize),
            )
        }
    }
}

/// Packets of one flow that go through the network stack together, as one GSO packet does. That
/// they are of one flow their maker sees to: where addresses or ports differ, segmentation in
/// software writes those of the first into all.
///
/// Segmentation numbers the packets in their IPv4 headers from that of the first, and the ICRC
/// covers the number: so the packet at place n is made with the number n.
///
/// # Invariants
///
/// `head` is an skb that only we know, with all skbs of `shape` but the first in its fragment list,
/// the last of which is `tail`; for a batch of one `tail` is `head`. All are of this `origin`.
pub struct TxList {
    head: NonNull<bindings::sk_buff>,
    tail: NonNull<bindings::sk_buff>,
    origin: BatchKey,
    shape: BatchShape,
}

// SAFETY: The skbs are only known here.
unsafe impl Send for TxList {}

impl TxList {
    /// A batch of one packet, made with place 0 for `route`. Made otherwise, it stays alone.
    pub fn new(first: FilledPacket, route: &Route) -> Self {
        let first = ManuallyDrop::new(first);
        let first = &first.0;
        let (mut bytes, mut packets) = (0, 0);

        if first.place == 0 && first.origin.is(route) {
            // SAFETY: The route is valid by its invariant.
            unsafe {
                bindings::ferroce_tx_batch_limits(route.as_raw(), &mut bytes, &mut packets);
            }
        }

        let limits = Limits {
            bytes,
            packets: u16::try_from(packets).unwrap_or(u16::MAX),
        };

        // INVARIANT: The packet is ours, and given to the batch.
        Self {
            head: first.skb,
            tail: first.skb,
            origin: first.origin,
            shape: BatchShape::new(first.origin.headers_len, first.ib_len, limits),
        }
    }

    /// How many packets it holds, which is the place of the next one.
    #[inline]
    pub fn count(&self) -> u16 {
        self.shape.packets()
    }

    /// Whether a packet of `ib_len` bytes from the BTH to the ICRC can be the next one.
    #[inline]
    pub fn takes(&self, ib_len: usize) -> bool {
        u32::try_from(ib_len).is_ok_and(|len| self.shape.takes(len))
    }

    /// Adds a packet that was made for the same route with the place [`Self::count`].
    ///
    /// # Errors
    ///
    /// The packet, if its origin or place is another, or the batch does not [take](Self::takes) it.
    pub fn push(&mut self, packet: FilledPacket) -> Result<(), FilledPacket> {
        if packet.0.origin != self.origin
            || packet.0.place != self.count()
            || !self.shape.add(packet.0.ib_len)
        {
            return Err(packet);
        }

        let packet = ManuallyDrop::new(packet);
        let packet = &packet.0;

        // INVARIANT: One more in the list, and it is the last.
        // SAFETY: By the type invariant all three are ours, and `tail` is the last of the list.
        unsafe {
            bindings::ferroce_tx_append(
                self.head.as_ptr(),
                self.tail.as_ptr(),
                packet.skb.as_ptr(),
            );
        }
        self.tail = packet.skb;
        Ok(())
    }

    /// Sends it by `route`, the one it was made for; by another way it is lost, for its headers are
    /// not that route's.
    pub fn send(self, route: &Route) -> TxResult {
        if !self.origin.is(route) {
            return TxResult::Lost;
        }

        let this = ManuallyDrop::new(self);

        if this.count() > 1 {
            // SAFETY: By the type invariant `head` is ours and has a list.
            unsafe { bindings::ferroce_tx_close(this.head.as_ptr(), this.count()) };
        }
        // SAFETY: The route is valid by its invariant, the skb is ours and given away here.
        let code = unsafe { bindings::ferroce_tx_send(route.as_raw(), this.head.as_ptr()) };

        match u32::try_from(code) {
            Ok(0) => TxResult::Sent,
            Ok(bindings::NET_XMIT_CN) => TxResult::Congested,
            _ => TxResult::Lost,
        }
    }
}

impl Drop for TxList {
    fn drop(&mut self) {
        // SAFETY: The skbs are ours and are not used again; the head frees its list.
        unsafe { bindings::ferroce_tx_free(self.head.as_ptr()) };
    }
}
