// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A completion of the module becomes one of libibverbs.

use crate::ffi::layout::IbvWc;
use ferroce_core::uabi::cqe::{Cqe, WC_PUBLIC};

/// The fields of `struct ibv_wc`; what RoCE has no use for (LIDs) is 0.
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
        sl: cqe.sl,
        dlid_path_bits: 0,
    }
}

/// The flags of a completion that libibverbs knows.
#[inline]
pub fn public_flags(cqe: &Cqe) -> u32 {
    cqe.flags & WC_PUBLIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

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
