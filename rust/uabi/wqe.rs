// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Work requests as the provider writes them into a send or receive queue slot.
//!
//! A slot begins with a header; behind it stand the scatter/gather entries, or the bytes of an
//! inline message. The stride of a slot is a multiple of [`SLOT_ALIGN`] that holds the largest
//! request the queue was created for: [`send_stride`], [`recv_stride`].

use super::ring::SLOT_ALIGN;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Header of a send queue slot: 48 bytes, then `num_sge` times [`Sge`] or `inline_len` bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// One of `OP_*`.
    pub opcode: u8,
    /// `SEND_*` bits.
    pub flags: u8,
    /// Number of [`Sge`] behind the header; 0 with [`SEND_INLINE`].
    pub num_sge: u16,
    /// Number of bytes behind the header with [`SEND_INLINE`], else 0.
    pub inline_len: u32,
    /// RDMA operations: the remote virtual address.
    pub remote_addr: u64,
    /// RDMA operations: the key of the remote region.
    pub rkey: u32,
    /// Immediate data, big-endian, for the `_WITH_IMM` operations.
    pub imm: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// Header of a receive queue slot: 16 bytes, then `num_sge` times [`Sge`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Number of [`Sge`] behind the header.
    pub num_sge: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// A piece of local memory. A length of 0 is a piece of 0 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Sge {
    /// Virtual address, within the region of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

// The numbers are those of `enum ibv_wr_opcode`.

/// RDMA WRITE.
pub const OP_RDMA_WRITE: u8 = 0;
/// RDMA WRITE with immediate data.
pub const OP_RDMA_WRITE_WITH_IMM: u8 = 1;
/// SEND.
pub const OP_SEND: u8 = 2;
/// SEND with immediate data.
pub const OP_SEND_WITH_IMM: u8 = 3;
/// RDMA READ.
pub const OP_RDMA_READ: u8 = 4;

// The numbers are those of `enum ibv_send_flags`.

/// Wait until the RDMA READs before this request are complete.
pub const SEND_FENCE: u8 = 1 << 0;
/// Report a successful completion too.
pub const SEND_SIGNALED: u8 = 1 << 1;
/// Raise a solicited event at the receiver.
pub const SEND_SOLICITED: u8 = 1 << 2;
/// The message stands in the slot itself.
pub const SEND_INLINE: u8 = 1 << 3;
/// All that version 1 knows.
pub const SEND_ALL: u8 = SEND_FENCE | SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE;

/// Most scatter/gather entries of one request.
pub const MAX_SGE: u32 = 32;
/// Most inline bytes of one request.
pub const MAX_INLINE: u32 = 512;

const fn round_up(bytes: usize) -> u32 {
    (bytes.div_ceil(SLOT_ALIGN) * SLOT_ALIGN) as u32
}

/// Stride of a send queue whose requests have up to `max_sge` entries or `max_inline` bytes.
///
/// The arguments are at most [`MAX_SGE`] and [`MAX_INLINE`].
pub const fn send_stride(max_sge: u32, max_inline: u32) -> u32 {
    let sge = max_sge as usize * size_of::<Sge>();
    let inline = max_inline as usize;
    round_up(size_of::<SendWqe>() + if sge > inline { sge } else { inline })
}

/// Stride of a receive queue whose requests have up to `max_sge` (at most [`MAX_SGE`]) entries.
pub const fn recv_stride(max_sge: u32) -> u32 {
    round_up(size_of::<RecvWqe>() + max_sge as usize * size_of::<Sge>())
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SendWqe>() == 48 && size_of::<RecvWqe>() == 16 && size_of::<Sge>() == 16);
    assert!(offset_of!(SendWqe, opcode) == 8 && offset_of!(SendWqe, inline_len) == 12);
    assert!(offset_of!(SendWqe, remote_addr) == 16 && offset_of!(SendWqe, imm) == 28);
    assert!(send_stride(1, 0) == 64 && send_stride(MAX_SGE, MAX_INLINE) == 576);
    assert!(recv_stride(3) == 64 && recv_stride(MAX_SGE) == 576);
};

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_uabi_wqe))]
mod tests {
    use super::*;
    use zerocopy::FromBytes;
    use zerocopy::IntoBytes;

    /// A stride holds what it was asked for, is made of granules, and wastes less than one.
    #[test]
    fn strides_fit_and_waste_little() {
        let align = SLOT_ALIGN as u32;
        for max_sge in 0..=MAX_SGE {
            for max_inline in 0..=MAX_INLINE {
                let needs = 48 + (max_sge * 16).max(max_inline);
                let stride = send_stride(max_sge, max_inline);
                assert!(stride % align == 0 && stride >= needs && stride - needs < align);
            }
            let needs = 16 + max_sge * 16;
            let stride = recv_stride(max_sge);
            assert!(stride % align == 0 && stride >= needs && stride - needs < align);
        }
    }

    #[test]
    fn a_request_is_its_bytes() {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&0x0102_0304_0506_0708u64.to_ne_bytes());
        bytes[8..10].copy_from_slice(&[OP_RDMA_WRITE_WITH_IMM, SEND_SIGNALED | SEND_FENCE]);
        bytes[10..12].copy_from_slice(&3u16.to_ne_bytes());
        bytes[16..24].copy_from_slice(&0x7f00_0000_1000u64.to_ne_bytes());
        bytes[24..28].copy_from_slice(&0xabcdu32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&[1, 2, 3, 4]);
        let wqe = SendWqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(wqe.wr_id, 0x0102_0304_0506_0708);
        assert_eq!((wqe.opcode, wqe.flags, wqe.num_sge), (1, 3, 3));
        assert_eq!((wqe.inline_len, wqe.remote_addr), (0, 0x7f00_0000_1000));
        assert_eq!((wqe.rkey, wqe.imm.to_ne_bytes()), (0xabcd, [1, 2, 3, 4]));
        assert_eq!(wqe.as_bytes(), bytes);
    }
}
