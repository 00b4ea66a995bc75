// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Addresses of packets. The one in a GID is an IPv6 address or, as `::ffff:a.b.c.d`, an IPv4
//! address (annex A17). By the UDP source port routers spread flows over equal paths (A17.3.1).
//! Flow labels and ports are computed as by the other RoCEv2 drivers of Linux, so tools that
//! predict a path from them predict it for ferroce too. Last the GRH, which tells a receiver of
//! datagrams the addresses.

/// A GID, as it lies in a header.
pub type Gid = [u8; 16];

/// Prefix of an IPv4 address.
const IPV4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// The destination QPN of multicast datagrams (IBTA 10.5).
pub const GROUP_QPN: u32 = 0xff_ffff;

/// The IPv4 address in a GID, if it is one.
pub fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk::<4>()?;
    (prefix == IPV4_PREFIX).then_some(*address)
}

/// The GID of an IPv4 address.
pub fn of_ipv4([a, b, c, d]: [u8; 4]) -> Gid {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Whether it is a multicast address (`ff00::/8`, or `224.0.0.0/4`).
pub fn is_multicast(gid: &Gid) -> bool {
    match ipv4(gid) {
        Some([first, ..]) => first & 0xf0 == 0xe0,
        None => matches!(gid, [0xff, ..]),
    }
}

/// First of the ports that RoCEv2 senders use.
const FIRST_SOURCE_PORT: u16 = 0xc000;

/// The source port for a 20-bit flow label.
pub const fn port_of_flow(flow_label: u32) -> u16 {
    let label = flow_label & 0xf_ffff;
    // The upper six bits are folded into the lower fourteen.
    let folded = (label & 0x3fff) ^ label.wrapping_shr(14);
    FIRST_SOURCE_PORT | folded as u16
}

/// The flow label of a connection whose user has given none: the same at both ends.
pub const fn flow_of_connection(qpn: u32, peer: u32) -> u32 {
    // Two numbers of 24 bits.
    let product = (qpn as u64).wrapping_mul(peer as u64);
    let folded = product ^ product.wrapping_shr(20);
    let folded = folded ^ folded.wrapping_shr(40);
    (folded & 0xf_ffff) as u32
}

// The GRH before a received datagram: 40 bytes that tell where it came from (IBTA 11.4.2.1, annex
// A17.4.5.1).
//
// Over IPv6 they are the IPv6 header, which has the fields of a GRH at the same places. Over IPv4
// the first 20 bytes are undefined, here zero, and the IPv4 header is the rest. Its checksum must
// be right: by that a reader knows the one from the other.

/// How many bytes it has.
pub const GRH_LEN: u32 = 40;

/// The bytes.
pub type Grh = [u8; GRH_LEN as usize];

/// Protocol number of UDP.
const UDP: u8 = 17;

/// Bytes of a UDP header.
pub const UDP_HEADER: u16 = 8;

/// Fields of the IP header that a packet would have had, for a datagram on the local path.
#[derive(Clone, Copy, Debug)]
pub struct IpFields {
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// 20-bit flow label.
    pub flow_label: u32,
    /// Bytes behind the IP header, UDP header included.
    pub length: u16,
}

/// The header of a packet that came: 20 bytes of IPv4 or 40 of IPv6. `None` for any other length.
#[inline]
pub fn grh_of_packet(ip: &[u8]) -> Option<Grh> {
    if let Ok(v6) = ip.try_into() {
        return Some(v6);
    }
    let v4: &[u8; 20] = ip.try_into().ok()?;
    Some(behind_zeros(v4))
}

fn behind_zeros(v4: &[u8; 20]) -> Grh {
    let mut grh = [0; GRH_LEN as usize];
    let (_, place) = grh.split_at_mut(20);
    place.copy_from_slice(v4);
    grh
}

/// The header that an IPv4 packet would have had.
pub fn made_grh_v4(fields: IpFields, source: [u8; 4], destination: [u8; 4]) -> Grh {
    let [a, b, c, d] = source;
    let [e, f, g, h] = destination;
    let [high, low] = fields.length.saturating_add(20).to_be_bytes();
    let (tos, ttl) = (fields.traffic_class, fields.hop_limit);
    // Don't Fragment, as in every packet of ferroce.
    let header = |[x, y]: [u8; 2]| {
        [
            0x45, tos, high, low, 0, 0, 0x40, 0, ttl, UDP, x, y, a, b, c, d, e, f, g, h,
        ]
    };
    let checksum = checksum(&header([0, 0]));
    behind_zeros(&header(checksum.to_be_bytes()))
}

/// The header that an IPv6 packet would have had.
pub fn made_grh_v6(fields: IpFields, source: [u8; 16], destination: [u8; 16]) -> Grh {
    let first =
        (6 << 28) | (u32::from(fields.traffic_class) << 20) | (fields.flow_label & 0xf_ffff);
    let [high, low] = fields.length.to_be_bytes();
    let mut grh = [0; GRH_LEN as usize];
    let front = first.to_be_bytes();
    let middle = [high, low, UDP, fields.hop_limit];
    let bytes = front
        .iter()
        .chain(&middle)
        .chain(&source)
        .chain(&destination);
    for (to, from) in grh.iter_mut().zip(bytes) {
        *to = *from;
    }
    grh
}

/// The checksum of an IPv4 header (RFC 791); 0 over one with its checksum in it.
fn checksum(header: &[u8; 20]) -> u16 {
    let mut sum = 0u32;
    for pair in header.chunks_exact(2) {
        let word = pair
            .iter()
            .fold(0u32, |word, byte| (word << 8) | u32::from(*byte));
        // Ten words of 16 bits.
        sum = sum.wrapping_add(word);
    }
    let folded = (sum & 0xffff).wrapping_add(sum >> 16);
    let folded = (folded & 0xffff).wrapping_add(folded >> 16);
    !(folded as u16)
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_gid))]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_ipv4_and_of_ipv6() {
        for first in [224, 231, 239] {
            assert!(is_multicast(&of_ipv4([first, 0, 0, 1])));
        }
        for first in [10, 127, 192, 223, 240, 255] {
            assert!(!is_multicast(&of_ipv4([first, 0, 0, 1])));
        }
        let v6 = |first| [first, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert!(is_multicast(&v6(0xff)));
        for first in [0, 0x20, 0xe0, 0xfe] {
            assert!(!is_multicast(&v6(first)));
        }
        // It says an IPv4 address, but not as a GID does.
        let mut compatible = of_ipv4([224, 0, 0, 1]);
        compatible[10] = 0;
        assert!(!is_multicast(&compatible) && ipv4(&compatible).is_none());
        assert_eq!(ipv4(&of_ipv4([224, 0, 0, 1])), Some([224, 0, 0, 1]));
    }

    #[test]
    fn ports_are_those_of_the_other_drivers() {
        assert_eq!(port_of_flow(0), 0xc000);
        assert_eq!(port_of_flow(1 << 20), 0xc000);
        assert_eq!(port_of_flow(1), 0xc001);
        assert_eq!(port_of_flow(0x3fff), 0xffff);
        assert_eq!(port_of_flow(0x4000), 0xc001);
        assert_eq!(port_of_flow(0xf_ffff), 0xc000 | (0x3fff ^ 0x3f));
    }

    #[test]
    fn a_connection_has_one_label_at_both_ends() {
        assert_eq!(flow_of_connection(17, 18), 306);
        assert_eq!(flow_of_connection(0x12_3456, 0xab_cdef), 0xa_c3e3);
        assert_eq!(flow_of_connection(0xab_cdef, 0x12_3456), 0xa_c3e3);
        assert_eq!(flow_of_connection(0, 0xff_ffff), 0);
    }

    const MADE: IpFields = IpFields {
        traffic_class: 0x20,
        hop_limit: 63,
        flow_label: 0xfff_abcde,
        length: 0x60,
    };

    #[test]
    fn an_ipv4_header_stands_at_20_with_its_checksum() {
        let grh = made_grh_v4(MADE, [192, 168, 0, 1], [192, 168, 0, 199]);
        assert_eq!(grh[..20], [0; 20]);
        let want = [
            0x45, 0x20, 0, 0x74, 0, 0, 0x40, 0, 63, 17, 0xb9, 0x42, 192, 168, 0, 1, 192, 168, 0,
            199,
        ];
        assert_eq!(grh[20..30], want[..10]);
        assert_eq!(grh[32..], want[12..]);
        let header: [u8; 20] = grh[20..].try_into().unwrap();
        assert_eq!(checksum(&header), 0);
        assert_eq!(grh_of_packet(&header), Some(grh));
        // The usual example of a checksum as RFC 1071 computes it.
        let known = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 17, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199,
        ];
        assert_eq!(checksum(&known), 0xb861);
    }

    #[test]
    fn an_ipv6_header_is_all_of_it() {
        let grh = made_grh_v6(MADE, [1; 16], [2; 16]);
        assert_eq!(grh[..8], [0x62, 0x0a, 0xbc, 0xde, 0, 0x60, 17, 63]);
        assert_eq!((&grh[8..24], &grh[24..]), (&[1; 16][..], &[2; 16][..]));
        assert_eq!(grh_of_packet(&grh), Some(grh));
        assert_eq!(grh_of_packet(&grh[..39]), None);
        assert_eq!(grh_of_packet(&[]), None);
    }
}
