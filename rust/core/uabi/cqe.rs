// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Completions as the module writes them into a completion queue slot.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A completion: one cache line. First the fields of `struct ibv_wc`, then those of the extended
/// interface and of `struct ib_wc`.
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
    /// Immediate data, big-endian, with [`WC_WITH_IMM`]; the key that was invalidated, with
    /// [`WC_WITH_INV`].
    pub imm: u32,
    /// Number of the local QP.
    pub qp_num: u32,
    /// Number of the remote QP (datagrams).
    pub src_qp: u32,
    /// `WC_*` bits.
    pub flags: u32,
    /// Details of an error, for debugging; 0 on success.
    pub vendor_err: u32,
    /// When it was completed, in nanoseconds of the clock that `alloc_ucontext` names; 0 unless
    /// the queue was created with timestamps.
    pub timestamp: u64,
    /// Index of the partition key (datagrams).
    pub pkey_index: u16,
    /// VLAN id, with [`WC_WITH_VLAN`].
    pub vlan: u16,
    /// Service level (datagrams). RoCE v2 has none: 0.
    pub sl: u8,
    /// A number of the kernel's `enum rdma_network_type`, with [`WC_WITH_NETWORK_HDR`].
    pub network_hdr: u8,
    /// Source MAC address, with [`WC_WITH_SMAC`].
    pub smac: [u8; 6],
    /// 0.
    pub reserved: u32,
}

/// Bytes of a completion queue slot.
pub const CQE_STRIDE: u32 = 64;

// The bits below 16 are those of `enum ibv_wc_flags`.

/// The first 40 bytes of the receive are a GRH (datagrams).
pub const WC_GRH: u32 = 1 << 0;
/// The message had immediate data.
pub const WC_WITH_IMM: u32 = 1 << 1;
/// The message invalidated a key.
pub const WC_WITH_INV: u32 = 1 << 3;
/// The bits that `struct ibv_wc` shows.
pub const WC_PUBLIC: u32 = 0xffff;

// The bits from 16 on are of this contract: they say which later fields are valid.

/// [`Cqe::vlan`] is valid.
pub const WC_WITH_VLAN: u32 = 1 << 16;
/// [`Cqe::smac`] is valid.
pub const WC_WITH_SMAC: u32 = 1 << 17;
/// [`Cqe::network_hdr`] is valid.
pub const WC_WITH_NETWORK_HDR: u32 = 1 << 18;

// The numbers are those of the kernel's `enum rdma_network_type`.

/// The message came over IPv4.
pub const NETWORK_IPV4: u8 = 2;
/// The message came over IPv6.
pub const NETWORK_IPV6: u8 = 3;

// The numbers are those of `enum ibv_wc_opcode`.

/// A SEND is complete.
pub const WC_SEND: u32 = 0;
/// An RDMA WRITE is complete.
pub const WC_RDMA_WRITE: u32 = 1;
/// An RDMA READ is complete.
pub const WC_RDMA_READ: u32 = 2;
/// A compare and swap is complete.
pub const WC_COMP_SWAP: u32 = 3;
/// A fetch and add is complete.
pub const WC_FETCH_ADD: u32 = 4;
/// A memory window is bound.
pub const WC_BIND_MW: u32 = 5;
/// A local key is invalid.
pub const WC_LOCAL_INV: u32 = 6;
/// A FLUSH is complete.
pub const WC_FLUSH: u32 = 8;
/// An ATOMIC WRITE is complete.
pub const WC_ATOMIC_WRITE: u32 = 9;
/// A REG_MR of a ULP is complete (`enum ib_wc_opcode`).
pub const WC_REG_MR: u32 = 10;
/// A SEND was received.
pub const WC_RECV: u32 = 1 << 7;
/// An RDMA WRITE with immediate data was received.
pub const WC_RECV_RDMA_WITH_IMM: u32 = WC_RECV + 1;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Cqe>() == CQE_STRIDE as usize);
    assert!(offset_of!(Cqe, status) == 8 && offset_of!(Cqe, byte_len) == 16);
    assert!(offset_of!(Cqe, imm) == 20 && offset_of!(Cqe, qp_num) == 24);
    assert!(offset_of!(Cqe, flags) == 32 && offset_of!(Cqe, timestamp) == 40);
    assert!(offset_of!(Cqe, pkey_index) == 48 && offset_of!(Cqe, vlan) == 50);
    assert!(offset_of!(Cqe, sl) == 52 && offset_of!(Cqe, network_hdr) == 53);
    assert!(offset_of!(Cqe, smac) == 54 && offset_of!(Cqe, reserved) == 60);
    assert!((WC_WITH_VLAN | WC_WITH_SMAC | WC_WITH_NETWORK_HDR) & WC_PUBLIC == 0);
};
