// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The GRH before a received datagram: 40 bytes that tell where it came from (IBTA 11.4.2.1, annex
//! A17.4.5.1).
//!
//! Over IPv6 they are the IPv6 header, which has the fields of a GRH at the same places. Over IPv4
//! the first 20 bytes are undefined, here zero, and the IPv4 header is the rest. Its checksum must
//! be right: by that a reader knows the one from the other.

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
pub fn of_packet(ip: &[u8]) -> Option<Grh> {
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
pub fn made_v4(fields: IpFields, source: [u8; 4], destination: [u8; 4]) -> Grh {
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
pub fn made_v6(fields: IpFields, source: [u8; 16], destination: [u8; 16]) -> Grh {
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
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_grh))]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;

    const MADE: IpFields = IpFields {
        traffic_class: 0x20,
        hop_limit: 63,
        flow_label: 0xfff_abcde,
        length: 0x60,
    };

    #[test]
    fn an_ipv4_header_stands_at_20_with_its_checksum() {
        let grh = made_v4(MADE, [192, 168, 0, 1], [192, 168, 0, 199]);
        assert_eq!(grh[..20], [0; 20]);
        let want = [
            0x45, 0x20, 0, 0x74, 0, 0, 0x40, 0, 63, 17, 0xb9, 0x42, 192, 168, 0, 1, 192, 168, 0,
            199,
        ];
        assert_eq!(grh[20..30], want[..10]);
        assert_eq!(grh[32..], want[12..]);
        let header: [u8; 20] = grh[20..].try_into().unwrap();
        assert_eq!(checksum(&header), 0);
        assert_eq!(of_packet(&header), Some(grh));
        // The usual example of a checksum as RFC 1071 computes it.
        let known = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 17, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199,
        ];
        assert_eq!(checksum(&known), 0xb861);
    }

    #[test]
    fn an_ipv6_header_is_all_of_it() {
        let grh = made_v6(MADE, [1; 16], [2; 16]);
        assert_eq!(grh[..8], [0x62, 0x0a, 0xbc, 0xde, 0, 0x60, 17, 63]);
        assert_eq!((&grh[8..24], &grh[24..]), (&[1; 16][..], &[2; 16][..]));
        assert_eq!(of_packet(&grh), Some(grh));
        assert_eq!(of_packet(&grh[..39]), None);
        assert_eq!(of_packet(&[]), None);
    }
}
