// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Completions as the module writes them into a completion queue slot.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A completion: one cache line, the fields of `struct ibv_wc`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe {
    /// `wr_id` of the request.
    pub wr_id: u64,
    /// A number of `enum ibv_wc_status`; 0 is success. In error only `wr_id`, `status`, `qp_num`
    /// and `vendor_err` are valid.
    pub status: u32,
    /// A number of `enum ibv_wc_opcode`.
    pub opcode: u32,
    /// Bytes received, or read.
    pub byte_len: u32,
    /// Immediate data, big-endian, when `flags` has [`WC_WITH_IMM`].
    pub imm: u32,
    /// Number of the local QP.
    pub qp_num: u32,
    /// Number of the remote QP (datagrams).
    pub src_qp: u32,
    /// `WC_*` bits.
    pub flags: u32,
    /// What exactly went wrong, for a person who debugs; 0 on success.
    pub vendor_err: u32,
    /// 0 in version 1.
    pub reserved: [u64; 3],
}

/// Bytes of a completion queue slot.
pub const CQE_STRIDE: u32 = 64;

// The numbers are those of `enum ibv_wc_flags`.

/// A global routing header stands in the first 40 bytes of the buffer (datagrams).
pub const WC_GRH: u32 = 1 << 0;
/// The message had immediate data.
pub const WC_WITH_IMM: u32 = 1 << 1;

// The numbers are those of `enum ibv_wc_opcode`.

/// A SEND is complete.
pub const WC_SEND: u32 = 0;
/// An RDMA WRITE is complete.
pub const WC_RDMA_WRITE: u32 = 1;
/// An RDMA READ is complete.
pub const WC_RDMA_READ: u32 = 2;
/// A SEND was received.
pub const WC_RECV: u32 = 1 << 7;
/// An RDMA WRITE with immediate data was received.
pub const WC_RECV_RDMA_WITH_IMM: u32 = WC_RECV + 1;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Cqe>() == CQE_STRIDE as usize);
    assert!(offset_of!(Cqe, status) == 8 && offset_of!(Cqe, byte_len) == 16);
    assert!(offset_of!(Cqe, imm) == 20 && offset_of!(Cqe, qp_num) == 24);
    assert!(offset_of!(Cqe, flags) == 32 && offset_of!(Cqe, reserved) == 40);
};
