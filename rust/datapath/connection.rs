// SPDX-License-Identifier: GPL-2.0

//! The way to the peer of a connected QP: addresses, and packets sent along them, many at once.

use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::ib::qp::{
    Gid,
    Path, //
};
use crate::sys::net::{
    crc32_le,
    Addresses,
    Flow,
    Resident,
    Route,
    RxPacket,
    TxBatch,
    TxPacket,
    TxResult, //
};
use crate::transport::responder::AccessError;
use crate::wire::icrc::{
    self,
    Crc32, //
};
use crate::wire::packet::{
    pad_for,
    Headers, //
};
use crate::wire::ICRC_LEN;

/// The CRC of the kernel, which uses what the processor offers.
pub struct KernelCrc32;

impl Crc32 for KernelCrc32 {
    #[inline]
    fn update(&self, crc: u32, bytes: &[u8]) -> u32 {
        crc32_le(crc, bytes)
    }
}

/// First of the UDP ports that RoCEv2 senders use (IBTA A17.3.1: entropy for ECMP).
const FIRST_SOURCE_PORT: u16 = 0xc000;

/// One half's way to the peer. Each half of a QP has its own, under its own lock.
pub struct Connection {
    /// Number of the peer QP.
    pub dest_qpn: u32,
    path: Path,
    flow: Flow,
    resident: Resident,
    /// Found when the first packet leaves, and again whenever it has become invalid.
    route: Option<Route>,
    /// Packets that are complete and leave together, by `route`, with the next [`Self::flush`].
    batch: Option<TxBatch>,
    /// Bytes of these packets, from the BTH to the ICRC.
    batch_bytes: usize,
}

/// The IPv4 address in a GID, if it is one (`::ffff:a.b.c.d`).
fn mapped_ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk::<4>()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*address)
}

impl Connection {
    /// From the local QP `qpn` along `path`. `None` if the two GIDs are of different kinds.
    pub fn new(resident: &Resident, qpn: u32, dest_qpn: u32, path: Path) -> Option<Self> {
        let addresses = match (mapped_ipv4(&path.source), mapped_ipv4(&path.destination)) {
            (Some(src), Some(dst)) => Addresses::V4 { src, dst },
            (None, None) => Addresses::V6 {
                src: path.source,
                dst: path.destination,
            },
            _ => return None,
        };
        // The packets of a connection keep one port, connections differ.
        let mix = (qpn ^ dest_qpn.rotate_left(12)).wrapping_mul(0x9e37_79b1) >> 18;
        Some(Self {
            dest_qpn,
            flow: Flow {
                addresses,
                traffic_class: path.traffic_class,
                hop_limit: path.hop_limit,
                flow_label: path.flow_label,
                source_port: FIRST_SOURCE_PORT | (mix as u16),
            },
            path,
            resident: resident.clone(),
            route: None,
            batch: None,
            batch_bytes: 0,
        })
    }

    /// The way as the user described it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a packet, received in the namespace of the QP, is from the peer's address to ours.
    ///
    /// The UDP source port says nothing: it is entropy for routers, which a sender may change with
    /// each packet (IBTA A17.3.1), and no secret.
    pub fn is_from_peer(&self, packet: &RxPacket<'_>) -> bool {
        packet.addresses() == Some(self.flow.addresses.reversed())
    }

    /// Whether this way of a QP leads back to the QP `qpn`, whose way is `other`.
    pub fn is_reverse_of(&self, qpn: u32, other: &Connection) -> bool {
        self.dest_qpn == qpn
            && self.path.source == other.path.destination
            && self.path.destination == other.path.source
    }

    /// Makes one packet with `len` bytes of payload, which `fill` writes, all of them. It leaves
    /// with the next [`Self::flush`], if not before. A packet that cannot leave is lost, as on any
    /// network, and counted. An error is one of `fill`.
    pub fn send(
        &mut self,
        counters: &Counters,
        headers: &Headers,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
    ) -> Result<(), AccessError> {
        let len = len as usize;
        let mut headers = *headers;
        headers.pad = pad_for(len);
        let total = headers
            .headers_len()
            .wrapping_add(len)
            .wrapping_add(headers.pad as usize)
            .wrapping_add(ICRC_LEN);
        if self.batch.as_ref().is_some_and(|batch| !batch.takes(total)) {
            self.flush(counters);
        }
        // A batch has one route.
        if self.batch.is_none() && !self.route.as_ref().is_some_and(Route::is_valid) {
            self.route = Route::lookup(&self.resident, self.path.ifindex, &self.flow).ok();
        }
        let place = self.batch.as_ref().map_or(0, TxBatch::count);
        let made = match &self.route {
            Some(route) => make(route, &headers, len, total, place, fill)?.zip(Some(route)),
            None => None,
        };
        match (made, &mut self.batch) {
            (Some((packet, _)), Some(batch)) => batch.push(packet),
            (Some((packet, route)), batch) => *batch = Some(TxBatch::new(packet, route)),
            (None, _) => {
                counters.inc(Counter::SendLost);
                return Ok(());
            }
        }
        self.batch_bytes = self.batch_bytes.wrapping_add(total);
        Ok(())
    }

    /// Sends what was made. To be called before the lock is given back.
    pub fn flush(&mut self, counters: &Counters) {
        let (Some(batch), Some(route)) = (self.batch.take(), &self.route) else {
            return;
        };
        let count = u64::from(batch.count());
        match batch.send(route) {
            TxResult::Sent | TxResult::Congested => {
                counters.add(Counter::SentPackets, count);
                counters.add(Counter::SentBytes, self.batch_bytes as u64);
            }
            TxResult::Lost => counters.add(Counter::SendLost, count),
        }
        self.batch_bytes = 0;
    }
}

/// A whole packet of `total` bytes from the BTH to the ICRC, `len` of them payload, at `place` of a
/// batch. `None` if there is no memory for it, or it does not fit into an IP packet.
fn make(
    route: &Route,
    headers: &Headers,
    len: usize,
    total: usize,
    place: u16,
    fill: impl FnOnce(&mut [u8]) -> Result<(), AccessError>,
) -> Result<Option<TxPacket>, AccessError> {
    let Some(mut packet) = TxPacket::alloc(route, total, place) else {
        return Ok(None);
    };
    let bytes = packet.ib_bytes_mut();
    if headers.emit(bytes).is_none() {
        return Ok(None);
    }
    let Some(rest) = bytes.get_mut(headers.headers_len()..) else {
        return Ok(None);
    };
    let Some((payload, trailer)) = rest.split_at_mut_checked(len) else {
        return Ok(None);
    };
    fill(payload)?;
    trailer.fill(0);
    let (network, bytes) = packet.parts_mut();
    let Some(icrc) = icrc_of(network, &[], bytes) else {
        return Ok(None);
    };
    if let Some(end) = bytes.last_chunk_mut::<ICRC_LEN>() {
        *end = icrc;
    }
    Ok(Some(packet))
}

/// The ICRC of a packet: its IP and UDP headers, which may stand in one piece (`ip`, with an empty
/// `udp`) or in two, and the bytes from the BTH to the ICRC, which is not looked at. `None` if
/// there are too few bytes.
pub fn icrc_of(ip: &[u8], udp: &[u8], ib: &[u8]) -> Option<[u8; ICRC_LEN]> {
    let (body, _) = ib.split_last_chunk::<ICRC_LEN>()?;
    let (bth, rest) = body.split_first_chunk::<12>()?;
    let (ip, udp) = match udp.first_chunk::<8>() {
        Some(udp) => (ip, udp),
        None => ip.split_last_chunk::<8>()?,
    };
    let crc = if let Ok(ip) = <&[u8; 20]>::try_from(ip) {
        KernelCrc32.update(icrc::SEED, &icrc::masked_prefix_v4(ip, udp, bth))
    } else {
        let ip = <&[u8; 40]>::try_from(ip).ok()?;
        KernelCrc32.update(icrc::SEED, &icrc::masked_prefix_v6(ip, udp, bth))
    };
    Some(icrc::finish(KernelCrc32.update(crc, rest)))
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ferroce_datapath_connection)]
mod tests {
    use super::*;
    use crate::wire::icrc::SoftCrc32;

    /// Whatever the processor offers, the length and the alignment: it is the CRC of the pure code.
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
                assert_eq!(KernelCrc32.update(seed, part), SoftCrc32.update(seed, part));
            }
        }
    }
}
