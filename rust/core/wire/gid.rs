// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The address in a GID, which is an IPv6 address or, as `::ffff:a.b.c.d`, an IPv4 address (annex
//! A17); and the UDP source port, by which routers spread flows over equal paths (annex A17.3.1).
//! Flow labels and ports are computed as by the other RoCEv2 drivers of Linux, so tools that
//! predict a path from them predict it for ferroce too.

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

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_gid))]
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
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_entropy))]
mod entropy_tests {
    use super::*;

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
}
