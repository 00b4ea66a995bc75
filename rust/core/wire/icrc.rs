// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The invariant CRC: what a packet must keep from end to end.
//!
//! The ICRC (IBTA 7.8.1, for RoCEv2 A17.3.3) is the CRC-32 of Ethernet over everything from the
//! routing headers to the padding. Fields that a switch or router may change on the way are taken
//! as all ones, so the value stays right without being computed again:
//!
//! | field taken as ones | why it varies |
//! |---|---|
//! | 8 bytes in front of the IP header | stand for the LRH of InfiniBand, which Ethernet has not |
//! | IPv4: type of service; IPv6: traffic class | DSCP may be remarked, ECN marks congestion |
//! | IPv4: time to live; IPv6: hop limit | every router counts it down |
//! | IPv4: header checksum | follows the two above |
//! | IPv6: flow label | may be rewritten on the path |
//! | UDP: checksum | follows the addresses, may be filled in on the path |
//! | BTH: byte 4 (FECN, BECN, reserved) | congestion is marked there |
//!
//! The Ethernet header is no part of it. The extended headers, the payload and the padding count
//! as they are: a sender does [`masked_prefix_v4`] or [`masked_prefix_v6`], updates the CRC over
//! the prefix and over the rest, and appends [`finish`].

use super::ICRC_LEN;
use zerocopy::transmute;
use zerocopy_derive::{Immutable, IntoBytes};

/// The CRC-32 of Ethernet (polynomial 0x04c11db7, reflected) as a running value.
///
/// It is "raw": neither the start value nor the result is inverted, as in the kernel's
/// `crc32_le`. So `update(update(c, a), b)` is `update(c, a and b together)`.
pub trait Crc32 {
    /// Continues `crc` over `bytes`.
    fn update(&self, crc: u32, bytes: &[u8]) -> u32;
}

/// The running value to begin with.
pub const SEED: u32 = 0xffff_ffff;

/// Length of [`masked_prefix_v4`].
pub const PREFIX_V4_LEN: usize = LRH_LEN + 20 + 8 + 12;
/// Length of [`masked_prefix_v6`].
pub const PREFIX_V6_LEN: usize = LRH_LEN + 40 + 8 + 12;

/// Bytes that stand for the local routing header of InfiniBand.
const LRH_LEN: usize = 8;
/// A byte of a field that varies.
const ONES: u8 = 0xff;

/// Whether an IPv4 header that begins with this byte has no options, which is the only kind that
/// [`masked_prefix_v4`] can take and that RoCEv2 has.
#[inline]
pub const fn is_plain_ipv4(version_ihl: u8) -> bool {
    version_ihl == 0x45
}

/// The first bytes that the ICRC of a packet over IPv4 covers: LRH, IP, UDP and BTH, masked.
///
/// The IP header must be without options: [`is_plain_ipv4`].
#[inline]
pub const fn masked_prefix_v4(ip: &[u8; 20], udp: &[u8; 8], bth: &[u8; 12]) -> [u8; PREFIX_V4_LEN] {
    let mut ip = *ip;
    // Type of service.
    ip[1] = ONES;
    // Time to live.
    ip[8] = ONES;
    // Header checksum.
    ip[10] = ONES;
    ip[11] = ONES;
    transmute!(PrefixV4 {
        lrh: [ONES; LRH_LEN],
        ip,
        udp: masked_udp(udp),
        bth: masked_bth(bth),
    })
}

/// The first bytes that the ICRC of a packet over IPv6 covers: LRH, IP, UDP and BTH, masked.
///
/// There must be no extension header between the IP and the UDP header.
#[inline]
pub const fn masked_prefix_v6(ip: &[u8; 40], udp: &[u8; 8], bth: &[u8; 12]) -> [u8; PREFIX_V6_LEN] {
    let mut ip = *ip;
    // The upper half of the first byte is the version; traffic class and flow label fill the
    // other 28 bits of the first word.
    ip[0] |= 0x0f;
    ip[1] = ONES;
    ip[2] = ONES;
    ip[3] = ONES;
    // Hop limit.
    ip[7] = ONES;
    transmute!(PrefixV6 {
        lrh: [ONES; LRH_LEN],
        ip,
        udp: masked_udp(udp),
        bth: masked_bth(bth),
    })
}

/// A UDP header without what varies.
#[inline]
const fn masked_udp(udp: &[u8; 8]) -> [u8; 8] {
    let mut udp = *udp;
    // Checksum.
    udp[6] = ONES;
    udp[7] = ONES;
    udp
}

/// A BTH without what varies.
#[inline]
const fn masked_bth(bth: &[u8; 12]) -> [u8; 12] {
    let mut bth = *bth;
    // FECN, BECN and six reserved bits.
    bth[4] = ONES;
    bth
}

/// The layout of [`masked_prefix_v4`].
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct PrefixV4 {
    lrh: [u8; LRH_LEN],
    ip: [u8; 20],
    udp: [u8; 8],
    bth: [u8; 12],
}

/// The layout of [`masked_prefix_v6`].
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct PrefixV6 {
    lrh: [u8; LRH_LEN],
    ip: [u8; 40],
    udp: [u8; 8],
    bth: [u8; 12],
}

/// The four bytes behind the padding, for the running value over all that is in front of them.
///
/// The ICRC goes out as the CRC of Ethernet does: inverted, the lowest byte first.
#[inline]
pub const fn finish(crc: u32) -> [u8; ICRC_LEN] {
    (!crc).to_le_bytes()
}

/// A CRC-32 for hosts, one table look-up a byte. The kernel has much faster ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftCrc32;

impl SoftCrc32 {
    /// What each value of the lowest byte does to the running value.
    const TABLE: [u32; 256] = Self::table();

    /// Divides each byte by the polynomial.
    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated at compile time, where a bad index is an error of the build"
    )]
    const fn table() -> [u32; 256] {
        // 0x04c11db7 with the order of its bits reversed.
        const POLYNOMIAL: u32 = 0xedb8_8320;
        let mut table = [0; 256];
        let mut byte: u8 = 0;
        loop {
            let mut crc = byte as u32;
            let mut bit = 0u32;
            while bit < 8 {
                crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
                bit = bit.wrapping_add(1);
            }
            table[byte as usize] = crc;
            if byte == u8::MAX {
                return table;
            }
            byte = byte.wrapping_add(1);
        }
    }
}

impl Crc32 for SoftCrc32 {
    fn update(&self, crc: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(crc, |crc, byte| {
            let [low, ..] = crc.to_le_bytes();
            let entry = Self::TABLE.get(usize::from(low ^ byte)).copied();
            // A byte is always within the table.
            (crc >> 8) ^ entry.unwrap_or(0)
        })
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_wire_icrc))]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string() {
        let crc = SoftCrc32.update(SEED, b"123456789");
        assert_eq!(!crc, 0xcbf4_3926);
        assert_eq!(finish(crc), [0x26, 0x39, 0xf4, 0xcb]);
    }

    #[test]
    fn crc_continues() {
        let whole = SoftCrc32.update(SEED, b"123456789");
        let part = SoftCrc32.update(SEED, b"1234");
        assert_eq!(SoftCrc32.update(part, b"56789"), whole);
        assert_eq!(SoftCrc32.update(whole, b""), whole);
    }

    /// An RDMA WRITE of 5 bytes as scapy builds it.
    #[test]
    fn the_icrc_of_another_implementation() {
        let ip = [
            0x45, 0x00, 0x00, 0x44, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x4e, 0x72, 0xc0, 0x00,
            0x02, 0x01, 0xc6, 0x33, 0x64, 0x02,
        ];
        let udp = [0xc0, 0xde, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00];
        let bth = [
            0x0a, 0x70, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x03, 0x45,
        ];
        let rest = [
            0x00, 0x00, 0x7f, 0x01, 0x23, 0x45, 0x67, 0x89, 0xa1, 0xb2, 0xc3, 0xd4, 0x00, 0x01,
            0x11, 0x70, 0x0d, 0xb4, 0x5b, 0x02, 0xa9, 0x00, 0x00, 0x00,
        ];
        let crc = SoftCrc32.update(SEED, &masked_prefix_v4(&ip, &udp, &bth));
        let icrc = finish(SoftCrc32.update(crc, &rest));
        assert_eq!(icrc, [0x48, 0xdb, 0xdd, 0xc0]);

        let ip = [
            0x60, 0x00, 0x00, 0x00, 0x00, 0x30, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x0d, 0xb8,
            0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
        ];
        let udp = [0xc0, 0xde, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00];
        let bth = [
            0x0a, 0x70, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x03, 0x45,
        ];
        let rest = [
            0x00, 0x00, 0x7f, 0x01, 0x23, 0x45, 0x67, 0x89, 0xa1, 0xb2, 0xc3, 0xd4, 0x00, 0x01,
            0x11, 0x70, 0x0d, 0xb4, 0x5b, 0x02, 0xa9, 0x00, 0x00, 0x00,
        ];
        let crc = SoftCrc32.update(SEED, &masked_prefix_v6(&ip, &udp, &bth));
        let icrc = finish(SoftCrc32.update(crc, &rest));
        assert_eq!(icrc, [0x4b, 0xf8, 0x6f, 0x40]);
    }

    #[test]
    fn v4_masks_the_variant_fields_and_nothing_else() {
        let zeros = masked_prefix_v4(&[0; 20], &[0; 8], &[0; 12]);
        let ones = masked_prefix_v4(&[ONES; 20], &[ONES; 8], &[ONES; 12]);
        let mut expected = [0; PREFIX_V4_LEN];
        expected[..8].fill(ONES);
        for at in [8 + 1, 8 + 8, 8 + 10, 8 + 11, 28 + 6, 28 + 7, 36 + 4] {
            expected[at] = ONES;
        }
        assert_eq!(zeros, expected);
        assert_eq!(ones, [ONES; PREFIX_V4_LEN]);
    }

    #[test]
    fn v6_masks_the_variant_fields_and_nothing_else() {
        let zeros = masked_prefix_v6(&[0; 40], &[0; 8], &[0; 12]);
        let ones = masked_prefix_v6(&[ONES; 40], &[ONES; 8], &[ONES; 12]);
        let mut expected = [0; PREFIX_V6_LEN];
        expected[..8].fill(ONES);
        expected[8] = 0x0f;
        for at in [8 + 1, 8 + 2, 8 + 3, 8 + 7, 48 + 6, 48 + 7, 56 + 4] {
            expected[at] = ONES;
        }
        assert_eq!(zeros, expected);
        assert_eq!(ones, [ONES; PREFIX_V6_LEN]);
    }

    #[test]
    fn unmasked_bytes_stay_in_order() {
        let bytes: [u8; 40] = core::array::from_fn(|i| i as u8);
        let prefix = masked_prefix_v4(bytes.first_chunk().unwrap(), &[0x50; 8], &[0x60; 12]);
        assert_eq!(prefix[8..17], [0, ONES, 2, 3, 4, 5, 6, 7, ONES]);
        assert_eq!(prefix[20..28], bytes[12..20]);
        assert_eq!(prefix[28..34], [0x50; 6]);
        assert_eq!(prefix[36..40], [0x60; 4]);
        let prefix = masked_prefix_v6(&bytes, &[0x50; 8], &[0x60; 12]);
        assert_eq!(prefix[12..16], [4, 5, 6, ONES]);
        assert_eq!(prefix[16..48], bytes[8..]);
        assert_eq!(prefix[61..], [0x60; 7]);
    }

    #[test]
    fn only_a_header_of_five_words_is_plain() {
        assert!(is_plain_ipv4(0x45));
        assert!(!is_plain_ipv4(0x46) && !is_plain_ipv4(0x44) && !is_plain_ipv4(0x65));
    }
}
