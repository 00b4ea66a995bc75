// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The UDP source port, by which routers choose among ways (annex A17.3.1), as all drivers of Linux
//! compute it: so tools that predict a path are right about ours too.

/// First of the ports that RoCEv2 senders use.
const FIRST_SOURCE_PORT: u16 = 0xc000;

/// The port that a 20-bit flow label stands for.
pub const fn port_of_flow(flow_label: u32) -> u16 {
    let label = flow_label & 0xf_ffff;
    // The upper six bits are folded into the lower fourteen.
    let folded = (label & 0x3fff) ^ label.wrapping_shr(14);
    FIRST_SOURCE_PORT | folded as u16
}

/// The label that stands for a connection whose user has given none: the same at both ends.
pub const fn flow_of_connection(qpn: u32, peer: u32) -> u32 {
    // Two numbers of 24 bits.
    let product = (qpn as u64).wrapping_mul(peer as u64);
    let folded = product ^ product.wrapping_shr(20);
    let folded = folded ^ folded.wrapping_shr(40);
    (folded & 0xf_ffff) as u32
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_entropy))]
mod tests {
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
