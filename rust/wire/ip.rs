// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The IP and UDP headers in front of a BTH, as we emit them.
//!
//! Annex A17 fixes what matters to RoCE: IPv4 has no options and its packets are not fragmented
//! (DF set; then the identification says nothing and is 0, RFC 6864), the UDP destination port is
//! [`UDP_PORT`], the source port tells flows apart, and the UDP checksum is 0, since the ICRC
//! covers more than it would.

use super::UDP_PORT;
use zerocopy::byteorder::{BigEndian, U16, U32};
use zerocopy::transmute;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Version 4, header of five words: the only first byte of an IPv4 packet that we can check.
pub const IPV4_VERSION_IHL: u8 = 0x45;

/// IPv4 header without options, 20 bytes (RFC 791).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Ipv4 {
    version_ihl: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of the packet, this header included.
    pub total_len: U16<BigEndian>,
    id: U16<BigEndian>,
    flags_fragment: U16<BigEndian>,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: U16<BigEndian>,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4 {
    const DONT_FRAGMENT: u16 = 0x4000;

    /// The header of an unfragmented UDP packet, its checksum filled in.
    ///
    /// `udp_len` is [`Udp::datagram_len`]: UDP header, payload and ICRC. `None` if the packet would be
    /// longer than IPv4 can say.
    #[inline]
    pub fn udp(
        source: [u8; 4],
        destination: [u8; 4],
        tos: u8,
        ttl: u8,
        udp_len: u16,
    ) -> Option<Self> {
        let total_len = udp_len.checked_add(size_of::<Self>() as u16)?;
        let mut header = Self {
            version_ihl: IPV4_VERSION_IHL,
            tos,
            total_len: U16::new(total_len),
            id: U16::new(0),
            flags_fragment: U16::new(Self::DONT_FRAGMENT),
            ttl,
            protocol: PROTOCOL_UDP,
            checksum: U16::new(0),
            source,
            destination,
        };
        header.checksum = U16::new(header.computed_checksum());
        Some(header)
    }

    /// The header as it goes out.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 20] {
        transmute!(self)
    }

    /// The checksum that the header ought to have; what stands in its field does not matter.
    pub fn computed_checksum(&self) -> u16 {
        let [s0, s1, s2, s3] = self.source;
        let [d0, d1, d2, d3] = self.destination;
        let words = [
            u16::from_be_bytes([self.version_ihl, self.tos]),
            self.total_len.get(),
            self.id.get(),
            self.flags_fragment.get(),
            u16::from_be_bytes([self.ttl, self.protocol]),
            u16::from_be_bytes([s0, s1]),
            u16::from_be_bytes([s2, s3]),
            u16::from_be_bytes([d0, d1]),
            u16::from_be_bytes([d2, d3]),
        ];
        !words.iter().fold(0, |sum, word| ones_add(sum, *word))
    }
}

/// Addition in ones' complement (RFC 1071).
#[inline]
const fn ones_add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum.wrapping_add(carry as u16)
}

/// IPv6 header, 40 bytes (RFC 8200).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Ipv6 {
    /// Version (4 bits), traffic class (8), flow label (20).
    version_class_flow: U32<BigEndian>,
    /// Bytes behind this header.
    pub payload_len: U16<BigEndian>,
    /// Protocol of the payload.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6 {
    /// The header of a UDP packet; of `flow_label` the low 20 bits count.
    ///
    /// `udp_len` is [`Udp::datagram_len`]: UDP header, payload and ICRC.
    #[inline]
    pub const fn udp(
        source: [u8; 16],
        destination: [u8; 16],
        traffic_class: u8,
        flow_label: u32,
        hop_limit: u8,
        udp_len: u16,
    ) -> Self {
        let word = (6 << 28) | ((traffic_class as u32) << 20) | (flow_label & 0x000f_ffff);
        Self {
            version_class_flow: U32::new(word),
            payload_len: U16::new(udp_len),
            next_header: PROTOCOL_UDP,
            hop_limit,
            source,
            destination,
        }
    }

    /// The header as it goes out.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 40] {
        transmute!(self)
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        let [a, b, _, _] = self.version_class_flow.get().to_be_bytes();
        (a << 4) | (b >> 4)
    }

    /// Flow label, below 2^20.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0x000f_ffff
    }
}

/// UDP header, 8 bytes (RFC 768).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Udp {
    /// Source port.
    pub source: U16<BigEndian>,
    /// Destination port.
    pub destination: U16<BigEndian>,
    len: U16<BigEndian>,
    checksum: U16<BigEndian>,
}

impl Udp {
    /// The header of a RoCEv2 packet, without a checksum.
    ///
    /// `payload_len` is everything behind it: BTH, extended headers, payload, padding and ICRC.
    /// `None` if that is longer than UDP can say.
    #[inline]
    pub fn roce(source_port: u16, payload_len: usize) -> Option<Self> {
        let len = payload_len.checked_add(size_of::<Self>())?;
        Some(Self {
            source: U16::new(source_port),
            destination: U16::new(UDP_PORT),
            len: U16::new(u16::try_from(len).ok()?),
            checksum: U16::new(0),
        })
    }

    /// The header as it goes out.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 8] {
        transmute!(self)
    }

    /// Bytes of the datagram, this header included, as the header says.
    #[inline]
    pub fn datagram_len(&self) -> u16 {
        self.len.get()
    }
}

const _: () = {
    assert!(size_of::<Ipv4>() == 20 && size_of::<Ipv6>() == 40 && size_of::<Udp>() == 8);
};

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_ip))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_bytes_and_checksum() {
        let ip = Ipv4::udp([10, 0, 0, 1], [10, 0, 0, 2], 0x02, 64, 28).unwrap();
        // By hand: the other words add up to 0xd946.
        assert_eq!(
            ip.to_bytes(),
            [0x45, 0x02, 0, 48, 0, 0, 0x40, 0, 64, 17, 0x26, 0xb9, 10, 0, 0, 1, 10, 0, 0, 2]
        );
        assert_eq!(ip.computed_checksum(), ip.checksum.get());
    }

    #[test]
    fn ipv4_longest() {
        let longest = u16::MAX - 20;
        assert!(Ipv4::udp([0; 4], [0; 4], 0, 1, longest).is_some());
        assert!(Ipv4::udp([0; 4], [0; 4], 0, 1, longest + 1).is_none());
    }

    #[test]
    fn ones_complement_folds_the_carry() {
        assert_eq!(ones_add(0xffff, 0xffff), 0xffff);
        assert_eq!(ones_add(0xfffe, 3), 2);
        assert_eq!(ones_add(1, 2), 3);
    }

    #[test]
    fn ipv6_bytes() {
        let ip = Ipv6::udp([1; 16], [2; 16], 0xab, 0xfff1_2345, 7, 0x0102);
        assert_eq!(
            ip.to_bytes()[..8],
            [0x6a, 0xb1, 0x23, 0x45, 0x01, 0x02, 17, 7]
        );
        assert_eq!(ip.to_bytes()[8..24], [1; 16]);
        assert_eq!(ip.to_bytes()[24..], [2; 16]);
        assert_eq!(ip.traffic_class(), 0xab);
        assert_eq!(ip.flow_label(), 0x1_2345);
    }

    #[test]
    fn udp_bytes_and_longest() {
        let udp = Udp::roce(0xc001, 16).unwrap();
        assert_eq!(udp.to_bytes(), [0xc0, 0x01, 0x12, 0xb7, 0, 24, 0, 0]);
        assert_eq!(udp.datagram_len(), 24);
        assert!(Udp::roce(0, 65527).is_some());
        assert!(Udp::roce(0, 65528).is_none());
        assert!(Udp::roce(0, usize::MAX).is_none());
    }
}
