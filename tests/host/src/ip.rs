// SPDX-License-Identifier: GPL-2.0

//! The IP and UDP headers in front of a BTH, as the kernel writes them for the module.
//!
//! Annex A17 fixes what matters to RoCE: IPv4 has no options and its packets are not fragmented
//! (DF set; then the identification says nothing and is 0, RFC 6864), the UDP destination port is
//! [`UDP_PORT`], the source port tells flows apart, and the UDP checksum is 0, since the ICRC
//! covers more than it would.

use etherparse::{ip_number, Ipv4Dscp, Ipv4Ecn, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};
use ferroce_core::wire::UDP_PORT;

/// The UDP header, and its length together with all that is behind it.
fn udp(source_port: u16, roce_len: usize) -> ([u8; 8], u16) {
    let length = u16::try_from(UdpHeader::LEN + roce_len).expect("it fits a datagram");
    let header = UdpHeader {
        source_port,
        destination_port: UDP_PORT,
        length,
        checksum: 0,
    };
    (header.to_bytes(), length)
}

/// The headers of an IPv4 packet in front of `roce_len` bytes, from BTH to ICRC. `tos` is DSCP and
/// ECN.
pub fn ipv4(from: [u8; 4], to: [u8; 4], tos: u8, ttl: u8, port: u16, roce_len: usize) -> Vec<u8> {
    let (udp, length) = udp(port, roce_len);
    let header = Ipv4Header::new(length, ttl, ip_number::UDP, from, to);
    let mut header = header.expect("it fits a packet");
    header.dscp = Ipv4Dscp::try_new(tos >> 2).expect("six bits");
    header.ecn = Ipv4Ecn::try_new(tos & 3).expect("two bits");
    header.header_checksum = header.calc_header_checksum();
    [&header.to_bytes()[..], &udp].concat()
}

/// The same for IPv6; of `flow` the low 20 bits count.
pub fn ipv6(
    from: [u8; 16],
    to: [u8; 16],
    (traffic_class, flow): (u8, u32),
    hop_limit: u8,
    port: u16,
    roce_len: usize,
) -> Vec<u8> {
    let (udp, payload_length) = udp(port, roce_len);
    let header = Ipv6Header {
        traffic_class,
        flow_label: Ipv6FlowLabel::try_new(flow & 0x000f_ffff).expect("twenty bits"),
        payload_length,
        next_header: ip_number::UDP,
        hop_limit,
        source: from,
        destination: to,
    };
    [&header.to_bytes()[..], &udp].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_packet_has_its_checksum_and_is_not_fragmented() {
        let bytes = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 0x02, 64, 0xc001, 20);
        let ip = [
            0x45, 2, 0, 48, 0, 0, 0x40, 0, 64, 17, 0x26, 0xb9, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        assert_eq!(bytes[..20], ip);
        assert_eq!(bytes[20..], [0xc0, 0x01, 0x12, 0xb7, 0, 28, 0, 0]);
    }
}
