// SPDX-License-Identifier: GPL-2.0

//! Reception: the UDP sockets on which a namespace receives RoCEv2, one packet at a time in
//! softirq, packets that are executed later on another CPU, and multicast groups.
//!
//! The sockets are those of the kernel: they have lock classes of their own (`af_kern_*`), and are
//! locked only to be opened and closed, so lockdep needs no help.
//!
//! Deferred packets are linked through the packets themselves, so nothing is allocated. Each is
//! held with its net device, which therefore may be unregistered, but is not freed before they are
//! executed.
//!
//! A [`Membership`] is that of a net device, as IGMP and MLD tell of it. It is counted as that of
//! sockets is: a group is left when no user on this host is left. The net device gets its filter of
//! addresses from it, and switches that snoop learn of it.
//!
//! C headers: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h) and
//! [`include/linux/igmp.h`](srctree/include/linux/igmp.h).

use crate::sys::bindings;
use crate::sys::net::{
    netns,
    Addresses,
    NetDevice,
    NetNs,
    Resident,
    Underlay, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;
use kernel::error::to_result;
use kernel::prelude::*;

/// The receiver of the packets of the sockets.
pub trait Receiver: 'static {
    /// Called in softirq (BH disabled) inside an RCU read-side section: it must not sleep.
    ///
    /// `netns` is the namespace of the socket. The UDP checksum has been checked if there is one.
    fn receive(netns: NetNs, packet: &RxPacket<'_>) -> Verdict;

    /// Called in the same way for a packet that was dropped before it could become an
    /// [`RxPacket`]; it came in by the net device `ifindex`.
    fn unreadable(netns: NetNs, ifindex: i32, why: Unreadable<'_>);

    /// Called when sockets have been closed, or a net device has left, and all calls for their
    /// packets have returned: of what was deferred, nothing waits for more to come. May sleep, and
    /// must not wait for anything that takes the RTNL.
    fn settle();
}

/// Why a packet to our port cannot become an [`RxPacket`].
pub enum Unreadable<'a> {
    /// There are IPv4 options or IPv6 extension headers, or it came in IP fragments; RoCEv2 has
    /// none of these.
    IpHeader,
    /// No memory to linearize it. The payload of this one is what was linear.
    NoMemory(RxPacket<'a>),
}

/// Fate of a packet; only drop monitors notice the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Consumed.
    Consumed,
    /// It was not.
    Dropped,
}

/// Contents of an Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader {
    /// Source address; none on a net device that has no such ones.
    pub mac: Option<[u8; 6]>,
    /// VLAN id, if it came by a VLAN.
    pub vlan: Option<u16>,
}

/// A UDP packet to port 4791, in one piece, behind an IP header without options.
///
/// # Invariants
///
/// `raw` describes the skb `raw.skb`, which is not written for `'a`: `ip` is valid for `ip_len`
/// bytes (20 or 40, as `is_v6` says), `udp` for 8, `payload` for `payload_len`. `next` is null or,
/// for `'a`, valid for `FERROCE_RX_NEXT_LEN` bytes that nobody writes.
pub struct RxPacket<'a> {
    raw: bindings::ferroce_rx,
    _skb: PhantomData<&'a bindings::sk_buff>,
}

impl<'a> RxPacket<'a> {
    /// The IP header: 20 bytes of IPv4 or 40 of IPv6.
    pub fn ip_header(&self) -> &'a [u8] {
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(self.raw.ip, self.raw.ip_len as usize) }
    }

    /// The UDP header: 8 bytes.
    pub fn udp_header(&self) -> &'a [u8] {
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(self.raw.udp, 8) }
    }

    /// The UDP payload, from the BTH to the ICRC.
    pub fn head(&self) -> &'a [u8] {
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(self.raw.payload, self.raw.payload_len as usize) }
    }

    /// Source and destination; `None` cannot happen.
    pub fn addresses(&self) -> Option<Addresses> {
        let ip = self.ip_header();

        Some(if self.raw.is_v6 {
            Addresses::V6 {
                src: *ip.get(8..)?.first_chunk()?,
                dst: *ip.get(24..)?.first_chunk()?,
            }
        } else {
            Addresses::V4 {
                src: *ip.get(12..)?.first_chunk()?,
                dst: *ip.get(16..)?.first_chunk()?,
            }
        })
    }

    /// The UDP source port.
    pub fn source_port(&self) -> u16 {
        match self.udp_header().first_chunk() {
            Some(port) => u16::from_be_bytes(*port),
            None => 0,
        }
    }

    /// The IPv4 type of service or the IPv6 traffic class: DSCP and, in the low two bits, ECN.
    pub fn traffic_class(&self) -> u8 {
        match self.ip_header() {
            [first, second, ..] if self.raw.is_v6 => (first << 4) | (second >> 4),
            [_, tos, ..] => *tos,
            _ => 0,
        }
    }

    /// Whether a router or qdisc on the way has marked it (CE, RFC 3168): packets wait there.
    #[inline]
    pub fn is_marked(&self) -> bool {
        let both = if self.raw.is_v6 { 0x30 } else { 0x03 };
        // SAFETY: By the type invariant there are more bytes. In the second one lie the low bits of
        // the type of service, or of the traffic class in front of the flow label.
        unsafe { *self.raw.ip.add(1) & both == both }
    }

    /// The index of the net device it came in by, which is the one below a VRF if there is a VRF.
    /// For packets from this machine itself it is `lo`, or the VRF.
    pub fn ifindex(&self) -> i32 {
        self.raw.ifindex
    }

    /// The same, or, if that is a VLAN, the net device below it.
    pub fn real_ifindex(&self) -> i32 {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_rx_real_ifindex(&self.raw) }
    }

    /// Whether this host sent it to itself: it came in by `lo`, or by a VRF.
    pub fn is_own(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_rx_is_own(&self.raw) }
    }

    /// Contents of its Ethernet header.
    pub fn link(&self) -> LinkHeader {
        let mut info = bindings::ferroce_link_info::default();
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_rx_link(&self.raw, &mut info) };
        LinkHeader {
            mac: info.has_mac.then_some(info.mac),
            vlan: info.has_vlan.then_some(info.vlan),
        }
    }

    /// The first bytes, those of a BTH, of the packet that is received next, if this is one of a
    /// batch and not its last. They are not checked, and the packet may be dropped before it comes.
    #[inline]
    pub fn next(&self) -> Option<&'a [u8]> {
        let len = bindings::FERROCE_RX_NEXT_LEN as usize;
        // SAFETY: By the type invariant.
        (!self.raw.next.is_null()).then(|| unsafe { slice::from_raw_parts(self.raw.next, len) })
    }

    /// About how many bytes this packet and those that follow it in its batch have, headers
    /// included. `None` if none follows.
    #[inline]
    pub fn batch_len(&self) -> Option<u32> {
        // SAFETY: By the type invariant. The list of the caller ends where its batch does.
        (!self.raw.next.is_null()).then(|| unsafe { bindings::ferroce_rx_batch_len(self.raw.skb) })
    }

    /// The skb, which nobody else looks at while it is received.
    pub(super) fn skb(&self) -> *mut bindings::sk_buff {
        self.raw.skb.cast_mut()
    }

    /// Keeps it, and tells how much memory that takes. `None` cannot happen.
    pub fn keep(&self) -> Option<(KeptPacket, usize)> {
        let skb = NonNull::new(self.raw.skb.cast_mut())?;
        let head = NonNull::new(self.raw.payload.cast_mut())?;
        // SAFETY: By the type invariant; nobody else has a reference yet, or looks at what this
        // clears.
        let bytes = unsafe { bindings::ferroce_rx_keep(skb.as_ptr()) };
        // INVARIANT: That was a reference, and holders of other references do not write the data.
        let packet = KeptPacket {
            skb,
            head,
            len: self.raw.payload_len,
        };
        Some((packet, bytes as usize))
    }

    /// Whether it came in pieces and was copied into one.
    pub fn was_copied(&self) -> bool {
        self.raw.copied
    }
}

/// A packet that is kept for later.
///
/// # Invariants
///
/// A reference of the skb is owned. `head` is in its data, valid for `len` bytes and not written.
pub struct KeptPacket {
    skb: NonNull<bindings::sk_buff>,
    head: NonNull<u8>,
    len: u32,
}

// SAFETY: The reference of an skb belongs to no thread, and its data is only read.
unsafe impl Send for KeptPacket {}

// SAFETY: As above.
unsafe impl Sync for KeptPacket {}

impl KeptPacket {
    /// The UDP payload, from the BTH to the ICRC.
    pub fn head(&self) -> &[u8] {
        // SAFETY: By the type invariant.
        unsafe { slice::from_raw_parts(self.head.as_ptr(), self.len as usize) }
    }
}

impl Drop for KeptPacket {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is owned, and it is not used again.
        unsafe { bindings::ferroce_rx_end(self.skb.as_ptr(), false) }
    }
}

/// Describes an skb as a packet; or the index of its net device, and why it cannot.
///
/// # Safety
///
/// The skb is the caller's, stays for `'a`, and its data begins with the UDP header. What it is
/// linked to, if anything, is valid for as long.
#[inline(always)]
pub(super) unsafe fn open<'a>(
    skb: *mut bindings::sk_buff,
) -> Result<RxPacket<'a>, (i32, Unreadable<'a>)> {
    let mut raw = bindings::ferroce_rx::default();
    // SAFETY: By the requirement above.
    let err = unsafe { bindings::ferroce_rx_open(skb, &mut raw) };
    let is_scarce = err == ENOMEM.to_errno();
    if err != 0 && !is_scarce {
        // A packet shorter than a UDP header does not come here.
        return Err((raw.ifindex, Unreadable::IpHeader));
    }
    // INVARIANT: `ferroce_rx_open` has described the skb, or its linear part. The data may be
    // shared with clones, which do not write to it either.
    let packet = RxPacket {
        raw,
        _skb: PhantomData,
    };
    match is_scarce {
        true => Err((packet.ifindex(), Unreadable::NoMemory(packet))),
        false => Ok(packet),
    }
}

/// The `encap_rcv` of our sockets.
///
/// # Safety
///
/// Only for the UDP layer: `sk` is the socket, `skb` is ours from here on, its data begins with
/// the UDP header, and the call is in softirq under the RCU read lock.
pub(super) unsafe extern "C" fn encap_rcv<R: Receiver>(
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: By the requirement above the skb is ours, and freed after the packet is gone. The
    // next one is in the list of our caller, which hands it over after this one.
    let packet = unsafe { open(skb) };
    // SAFETY: By the requirement above the socket is valid.
    let netns = unsafe { NetNs::of_sock(sk) };
    let verdict = match (netns, packet) {
        (Some(netns), Ok(packet)) => R::receive(netns, &packet),
        (Some(netns), Err((ifindex, why))) => {
            R::unreadable(netns, ifindex, why);
            Verdict::Dropped
        }
        (None, _) => Verdict::Dropped,
    };

    // SAFETY: The skb is ours and is not used again.
    unsafe { bindings::ferroce_rx_end(skb, verdict == Verdict::Dropped) };
    0
}

/// UDP port 4791 for IPv4 and, unless the kernel has no IPv6, for IPv6.
///
/// # Invariants
///
/// The sockets belong to the namespace of `_resident`, which therefore outlives them.
pub struct SocketPair<R: Receiver> {
    sockets: bindings::ferroce_sockets,
    _resident: Resident,
    _receiver: PhantomData<R>,
}

// SAFETY: The pointers are only used to close the sockets, which any thread may do.
unsafe impl<R: Receiver> Send for SocketPair<R> {}
// SAFETY: As above.
unsafe impl<R: Receiver> Sync for SocketPair<R> {}

impl<R: Receiver> SocketPair<R> {
    /// Opens the sockets; what they receive goes to `R` from now on. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when another socket has the port in this namespace.
    pub fn open(resident: &Resident) -> Result<Self> {
        let mut sockets = bindings::ferroce_sockets::default();

        // SAFETY: The namespace is valid by the invariant of `Resident`, and the receive function
        // has the contract of an `encap_rcv`; it stays as long as the module, which is longer
        // than the sockets.
        to_result(unsafe {
            bindings::ferroce_sockets_open(resident.as_ptr(), Some(encap_rcv::<R>), &mut sockets)
        })?;
        // INVARIANT: They were opened in the namespace of the resident that is kept here.
        Ok(Self {
            sockets,
            _resident: resident.clone(),
            _receiver: PhantomData,
        })
    }
}

impl<R: Receiver> Drop for SocketPair<R> {
    /// Closes the sockets and waits for receivers in progress. What they have deferred has its turn
    /// soon. Sleeps.
    fn drop(&mut self) {
        // SAFETY: The sockets were opened by `open` and are closed only here.
        unsafe { bindings::ferroce_sockets_close(&mut self.sockets) };
        R::settle();
    }
}

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
        let _rtnl = netns::lock_rtnl();

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
        let _rtnl = netns::lock_rtnl();

        // SAFETY: By the type invariant, and the RTNL is held; it is not used again.
        unsafe { bindings::ferroce_membership_leave(self.netdev.as_ptr(), &self.raw) };
    }
}

/// Packets that arrived one after the other.
///
/// # Invariants
///
/// `raw` lists packets that are owned, each with a reference of its net device. None was freed.
#[derive(Default)]
pub struct RxBatch {
    raw: bindings::ferroce_rx_batch,
    packets: u32,
}

// SAFETY: Packets and references of net devices belong to no thread.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Adds a packet, whose receiver consumes it next. Returns whether it is in: one without a net
    /// device is not, nor one that is kept, or in a batch already.
    pub fn defer(&mut self, packet: &RxPacket<'_>) -> bool {
        // SAFETY: By the type invariants the list is intact, and the skb is valid. The callee
        // refuses one of which somebody else has a reference, so nobody looks at what it clears and
        // links.
        let is_in = unsafe { bindings::ferroce_rx_defer(&mut self.raw, packet.skb()) };
        // INVARIANT: The list has got a reference of its own.
        self.packets = self.packets.wrapping_add(is_in.into());
        is_in
    }

    /// The number of packets.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Hands over one packet after the other, with the namespace that its net device is in.
    /// Returns how many there were.
    pub fn each(mut self, mut receive: impl FnMut(NetNs, &RxPacket<'_>) -> Verdict) -> u32 {
        let mut packets = 0_u32;
        while let Some(skb) = self.take() {
            packets = packets.wrapping_add(1);
            // SAFETY: By the type invariant the skb was owned by the list, with its net device.
            let netns = unsafe { NetNs::of_deferred(skb.as_ptr()) };
            // SAFETY: The skb is ours. Its data began with the UDP header when it was received,
            // and nobody has moved it since. What follows it is in the list behind it.
            let packet = unsafe { open(skb.as_ptr()) };
            let verdict = match (netns, packet) {
                (Some(netns), Ok(packet)) => receive(netns, &packet),
                // Cannot happen: it could be read when it was received.
                _ => Verdict::Dropped,
            };
            end(skb, verdict);
        }
        packets
    }

    /// The first packet, which leaves the list and is still linked to the next one.
    fn take(&mut self) -> Option<NonNull<bindings::sk_buff>> {
        let first = NonNull::new(self.raw.first)?;
        // SAFETY: By the type invariant.
        self.raw.first = unsafe { bindings::ferroce_rx_deferred_next(first.as_ptr()) };
        Some(first)
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        while let Some(skb) = self.take() {
            end(skb, Verdict::Dropped);
        }
    }
}

/// Frees a packet that a list has owned, and the reference of its net device.
fn end(skb: NonNull<bindings::sk_buff>, verdict: Verdict) {
    // SAFETY: By the invariant of the list that it was taken from, both are owned, and neither is
    // used again.
    unsafe { bindings::ferroce_rx_deferred_end(skb.as_ptr(), verdict == Verdict::Dropped) }
}

/// Batches in the order in which they arrived.
///
/// # Invariants
///
/// `raw` lists the first packets of batches that are owned, as those of [`RxBatch`] are. None is
/// empty.
#[derive(Default)]
pub struct RxBatches {
    raw: bindings::ferroce_rx_batch,
}

// SAFETY: As for `RxBatch`.
unsafe impl Send for RxBatches {}

impl RxBatches {
    /// Adds a batch at the end.
    pub fn push(&mut self, mut batch: RxBatch) {
        let first = core::mem::take(&mut batch.raw).first;
        if !first.is_null() {
            // INVARIANT: The batch was the owner, and has been emptied.
            // SAFETY: By the type invariants of both.
            unsafe { bindings::ferroce_rx_batches_add(&mut self.raw, first) }
        }
    }

    /// Takes the first batch.
    pub fn take(&mut self) -> Option<RxBatch> {
        // SAFETY: By the type invariant.
        let first = unsafe { bindings::ferroce_rx_batches_take(&mut self.raw) };
        // INVARIANT: The list was the owner. Nothing is added to this one, so its end is not
        // looked for.
        (!first.is_null()).then(|| RxBatch {
            raw: bindings::ferroce_rx_batch {
                first,
                ..Default::default()
            },
            packets: 0,
        })
    }
}

impl Drop for RxBatches {
    fn drop(&mut self) {
        while let Some(batch) = self.take() {
            drop(batch);
        }
    }
}
