// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A completion of the module becomes one of libibverbs.

use crate::ffi::layout::IbvWc;
use ferroce_core::uabi::cqe::{Cqe, NETWORK_IPV4, NETWORK_IPV6, WC_PUBLIC, WC_WITH_NETWORK_HDR};

/// The fields of `struct ibv_wc`; fields that RoCE does not use (LIDs) are 0.
#[inline]
pub fn decode(cqe: &Cqe) -> IbvWc {
    IbvWc {
        wr_id: cqe.wr_id,
        status: cqe.status,
        opcode: cqe.opcode,
        vendor_err: cqe.vendor_err,
        byte_len: cqe.byte_len,
        imm_data: cqe.imm,
        qp_num: cqe.qp_num,
        src_qp: cqe.src_qp,
        wc_flags: public_flags(cqe),
        pkey_index: cqe.pkey_index,
        slid: 0,
        sl: service_level(cqe),
        dlid_path_bits: 0,
    }
}

/// The flags of a completion that libibverbs knows.
#[inline]
pub fn public_flags(cqe: &Cqe) -> u32 {
    cqe.flags & WC_PUBLIC
}

/// The service level. RoCE v2 has none, and libibverbs has no field for what a datagram's
/// completion has to tell instead, whether it came over IPv4 or IPv6 (IBTA A17.4.5.1). mlx5 tells
/// it here: 8 says that there was a UDP header, and the low bits are 1 for IPv6 and 2 for IPv4.
/// UCX reads that, from any device.
#[inline]
pub fn service_level(cqe: &Cqe) -> u8 {
    match (cqe.flags & WC_WITH_NETWORK_HDR, cqe.network_hdr) {
        (0, _) => cqe.sl,
        (_, NETWORK_IPV4) => 8 | 2,
        (_, NETWORK_IPV6) => 8 | 1,
        _ => cqe.sl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn the_service_level_tells_the_ip_version() {
        let came_over = |network_hdr| Cqe {
            flags: WC_WITH_NETWORK_HDR,
            network_hdr,
            ..Cqe::default()
        };
        assert_eq!(decode(&came_over(NETWORK_IPV4)).sl, 10);
        assert_eq!(decode(&came_over(NETWORK_IPV6)).sl, 9);
        assert_eq!(decode(&Cqe::default()).sl, 0);
    }

    #[test]
    fn every_field_arrives_where_libibverbs_has_it() {
        // The bytes of a slot as `uabi::cqe` lays them out, each field another number.
        let mut slot = [0u8; 64];
        slot[0..8].copy_from_slice(&0x0102_0304_0506_0708u64.to_ne_bytes());
        for (i, at) in (8..40).step_by(4).enumerate() {
            slot[at..at + 4].copy_from_slice(&(100 + i as u32).to_ne_bytes());
        }
        // Flags of the contract itself are not shown.
        slot[32..36].copy_from_slice(&(106u32 | (0xffff << 16)).to_ne_bytes());
        slot[48..50].copy_from_slice(&108u16.to_ne_bytes());
        slot[52] = 109;
        let wc = decode(&Cqe::read_from_bytes(&slot).unwrap());
        let want = IbvWc {
            wr_id: 0x0102_0304_0506_0708,
            status: 100,
            opcode: 101,
            byte_len: 102,
            imm_data: 103,
            qp_num: 104,
            src_qp: 105,
            wc_flags: 106,
            vendor_err: 107,
            pkey_index: 108,
            slid: 0,
            sl: 109,
            dlid_path_bits: 0,
        };
        assert_eq!(wc, want);
    }
}
