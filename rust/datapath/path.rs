// SPDX-License-Identifier: GPL-2.0

//! The path to a peer: an address vector, a cached route, and the check of the source of a packet;
//! and the packets that leave by it, built one by one and sent in batches, each with its ICRC.
//!
//! A path knows nothing of QPs. The connection is in [`super::qp`]. An address handle
//! ([`Ah`]) is a path that datagrams name by number.

use crate::core::env::AccessError;
use crate::core::wire::gid::{
    ipv4,
    is_multicast,
    port_of_flow, //
};
use crate::core::wire::packet::{
    packet_len,
    pad_for,
    Headers, //
};
use crate::core::wire::{
    icrc,
    ICRC_LEN, //
};
use crate::datapath::memory::region::DomainId;
use crate::datapath::traced::{
    self,
    Origin, //
};
use crate::observe::{
    Counter,
    Counters, //
};
use crate::sys::ib::qp::AddressVector;
use crate::sys::memory::Cursor;
use crate::sys::net::{
    crc32_le,
    Addresses,
    FilledPacket,
    Flow,
    Resident,
    Route,
    RxPacket,
    TxList,
    TxPacket,
    TxResult, //
};
use crate::sys::trace;

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

/// Complete packets that are sent together. Each carries a mark that tells the sender where to
/// resume after a failure.
pub struct TxBatch<M> {
    open: Option<OpenBatch<M>>,
}

struct OpenBatch<M> {
    packets: TxList,
    /// Bytes from the BTHs to the ICRCs.
    bytes: u32,
    /// Mark of the first packet.
    mark: M,
}

impl<M> Default for TxBatch<M> {
    fn default() -> Self {
        Self { open: None }
    }
}

/// The packets from this mark on were not sent: there is no route or no memory, or the stack
/// dropped them. They are counted.
#[derive(Debug)]
pub struct TxRefused<M>(pub M);

/// The reason why a packet was not added.
#[derive(Debug)]
pub enum TxError<M> {
    /// Its payload is not readable.
    Access,
    /// See [`TxRefused`]. The mark is the first that was not sent, which may belong to an earlier
    /// packet.
    Refused(M),
}

impl<M> From<AccessError> for TxError<M> {
    fn from(_: AccessError) -> Self {
        TxError::Access
    }
}

impl<M> TxBatch<M> {
    /// Builds one packet with `len` bytes of payload, all written by `fill`. [`Self::flush`] sends
    /// it at the latest.
    // A structure of some of them would be in memory for each packet.
    #[allow(clippy::too_many_arguments)]
    pub fn add(
        &mut self,
        path: &mut Path,
        counters: &Counters,
        origin: Origin,
        headers: &Headers,
        len: u32,
        mark: M,
        fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
    ) -> Result<(), TxError<M>> {
        let len = len as usize;
        let mut headers = *headers;
        headers.pad = pad_for(len);
        let total = packet_len(headers.opcode, len);
        let full = |open: &OpenBatch<M>| !open.packets.takes(total);
        if self.open.as_ref().is_some_and(full) {
            if let Err(TxRefused(first)) = self.flush(path, counters) {
                return Err(TxError::Refused(first));
            }
        }
        // All packets of a batch have one route.
        let route = match &self.open {
            Some(_) => path.route(),
            None => path.find_route(),
        };
        let place = self.open.as_ref().map_or(0, |open| open.packets.count());
        let made = match route {
            Some(route) => make(route, origin, &headers, total, place, fill)?.zip(Some(route)),
            None => None,
        };
        match (made, &mut self.open) {
            (Some((packet, _)), Some(open)) => {
                if open.packets.push(packet).is_err() {
                    // Cannot happen: the batch has just said that it takes the packet.
                    counters.inc(Counter::SendLost);
                    return Err(TxError::Refused(mark));
                }
                open.bytes = open.bytes.wrapping_add(total as u32);
            }
            (Some((packet, route)), open) => {
                *open = Some(OpenBatch {
                    packets: TxList::new(packet, route),
                    bytes: total as u32,
                    mark,
                });
            }
            (None, _) => {
                counters.inc(Counter::SendLost);
                // Earlier packets go first.
                let first = match self.flush(path, counters) {
                    Ok(()) => mark,
                    Err(TxRefused(first)) => first,
                };
                return Err(TxError::Refused(first));
            }
        }
        Ok(())
    }

    /// Sends the batch. Call it before the queue lock is released.
    pub fn flush(&mut self, path: &Path, counters: &Counters) -> Result<(), TxRefused<M>> {
        let (Some(open), Some(route)) = (self.open.take(), path.route()) else {
            return Ok(());
        };
        let count = u64::from(open.packets.count());
        match open.packets.send(route) {
            // A congested queue has dropped something, not necessarily these packets. If it did,
            // the peer sees the gap, or the tail-loss probe finds it.
            TxResult::Sent | TxResult::Congested => {
                counters.add(Counter::SentPackets, count);
                counters.add(Counter::SentBytes, open.bytes.into());
                Ok(())
            }
            TxResult::Lost => {
                counters.add(Counter::SendLost, count);
                Err(TxRefused(open.mark))
            }
        }
    }
}

/// Builds a whole packet of `total` bytes from the BTH to the ICRC, at `place` of a batch. `None`
/// without memory, or if it does not fit into an IP packet.
fn make(
    route: &Route,
    origin: Origin,
    headers: &Headers,
    total: usize,
    place: u16,
    fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
) -> Result<Option<FilledPacket>, AccessError> {
    let Some(packet) = TxPacket::alloc(route, total, place) else {
        return Ok(None);
    };
    // The padding and a zero ICRC follow the payload.
    let mut packet = packet.fill(|out| {
        let front = out.zeros(headers.headers_len()).map_err(|_| AccessError)?;
        headers.emit(front).ok_or(AccessError)?;
        fill(out)
    })?;
    let (network, bytes) = packet.parts_mut();
    let made = &*bytes;
    trace::tx(move || traced::made(origin, made));
    let Some(icrc) = icrc_of(network, &[], bytes) else {
        return Ok(None);
    };
    if let Some(end) = bytes.last_chunk_mut::<ICRC_LEN>() {
        *end = icrc;
    }
    Ok(Some(packet))
}

/// The ICRC of a packet. The IP and UDP headers may be in one piece (`ip`, with an empty `udp`) or
/// in two; the bytes from the BTH to the ICRC follow, the ICRC itself is ignored. `None` if there
/// are too few bytes.
pub fn icrc_of(ip: &[u8], udp: &[u8], ib: &[u8]) -> Option<[u8; ICRC_LEN]> {
    let (body, _) = ib.split_last_chunk::<ICRC_LEN>()?;
    let (bth, rest) = body.split_first_chunk::<12>()?;
    let (ip, udp) = match udp.first_chunk::<8>() {
        Some(udp) => (ip, udp),
        None => ip.split_last_chunk::<8>()?,
    };
    let crc = if let Ok(ip) = <&[u8; 20]>::try_from(ip) {
        crc32_le(icrc::SEED, &icrc::masked_prefix_v4(ip, udp, bth), rest)
    } else {
        let ip = <&[u8; 40]>::try_from(ip).ok()?;
        crc32_le(icrc::SEED, &icrc::masked_prefix_v6(ip, udp, bth), rest)
    };
    Some(icrc::finish(crc))
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ferroce_datapath_icrc)]
mod tests {
    use super::*;
    use crate::core::wire::icrc::{
        Crc32,
        SoftCrc32, //
    };

    /// For every length and alignment it equals the CRC of the pure code, in one piece or two.
    #[test]
    fn the_kernels_crc_is_the_same() {
        let mut bytes = [0u8; 300];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at * at + 3 * at) as u8;
        }
        for from in 0..16 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                let seed = icrc::SEED ^ to as u32;
                let expected = SoftCrc32.update(seed, part);
                assert_eq!(crc32_le(seed, part, &[]), expected);
                let (head, rest) = part.split_at(part.len() / 3);
                assert_eq!(crc32_le(seed, head, rest), expected);
            }
        }
    }
}
