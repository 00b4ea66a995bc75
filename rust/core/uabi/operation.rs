// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The operations of a send queue: their numbers, and which parts of a request each uses.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

// The numbers are those of `enum ib_uverbs_wr_opcode`, and of `enum ibv_wr_opcode` as far as that
// goes. 10 to 13 are operations that ferroce will not have (TSO, masked atomics).

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
/// Atomic compare and swap.
pub const OP_ATOMIC_CMP_AND_SWP: u8 = 5;
/// Atomic fetch and add.
pub const OP_ATOMIC_FETCH_AND_ADD: u8 = 6;
/// Invalidation of a local key.
pub const OP_LOCAL_INV: u8 = 7;
/// Binding of a memory window.
pub const OP_BIND_MW: u8 = 8;
/// SEND that invalidates a key of the peer.
pub const OP_SEND_WITH_INV: u8 = 9;
/// FLUSH.
pub const OP_FLUSH: u8 = 14;
/// ATOMIC WRITE.
pub const OP_ATOMIC_WRITE: u8 = 15;
/// From here on numbers belong to requests of the kernel: in a user's queue they are no operation.
pub const OP_KERNEL: u8 = 0x20;
/// Fast registration.
pub const OP_REG_MR: u8 = OP_KERNEL;
/// No operation has such a number or a greater one.
pub const OPERATIONS: u8 = OP_REG_MR + 1;

/// Parts of a send request's header ([`super::wqe::SendWqe`]), by their offsets in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// None of them.
    pub const NONE: Parts = Parts(0);
    /// 12..16: number of the SRQ at the peer (XRC).
    pub const SRQN: Parts = Parts(1 << 0);
    /// 16..24: remote address, QPN and Q_Key of a datagram's destination, or address to bind.
    pub const TARGET: Parts = Parts(1 << 1);
    /// 24..28: R_Key of the peer, number of an address handle, or new key of a window or region.
    pub const KEY: Parts = Parts(1 << 2);
    /// 28..32: immediate data, R_Key to invalidate, or old key of a window or region.
    pub const EXTRA: Parts = Parts(1 << 3);
    /// 32..48: [`Atomic`], [`Flush`], [`Bind`], or the 8 bytes of an ATOMIC WRITE and 8 of zero.
    pub const OPERANDS: Parts = Parts(1 << 4);

    /// What [`OP_SEND`], [`OP_SEND_WITH_IMM`] and [`OP_SEND_WITH_INV`] use beside [`Parts::of`] on
    /// a QP of datagrams. On an XRC QP every operation uses [`Parts::SRQN`] too.
    pub const DATAGRAM: Parts = Parts::TARGET.and(Parts::KEY);

    /// These and those.
    pub const fn and(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Parts) -> bool {
        self.0 & other.0 == other.0
    }

    /// What an operation uses on a connected QP; `None` for a number that is no operation of a send
    /// queue.
    #[expect(clippy::indexing_slicing, reason = "the length was looked at")]
    pub const fn of(opcode: u8) -> Option<Parts> {
        if opcode as usize >= USED.len() {
            return None;
        }
        USED[opcode as usize]
    }

    /// Like [`Self::of`], by a chain of comparisons.
    const fn used_by(opcode: u8) -> Option<Parts> {
        const RDMA: Parts = Parts::TARGET.and(Parts::KEY);
        Some(match opcode {
            OP_SEND => Parts::NONE,
            OP_SEND_WITH_IMM | OP_SEND_WITH_INV | OP_LOCAL_INV => Parts::EXTRA,
            OP_RDMA_WRITE | OP_RDMA_READ => RDMA,
            OP_RDMA_WRITE_WITH_IMM => RDMA.and(Parts::EXTRA),
            OP_ATOMIC_CMP_AND_SWP | OP_ATOMIC_FETCH_AND_ADD | OP_FLUSH | OP_ATOMIC_WRITE => {
                RDMA.and(Parts::OPERANDS)
            }
            OP_BIND_MW => RDMA.and(Parts::EXTRA).and(Parts::OPERANDS),
            OP_REG_MR => RDMA.and(Parts::OPERANDS),
            _ => return None,
        })
    }
}

/// The parts by the operation's number, so that finding them is a load: the kernel is built without
/// jump tables.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a bad index is an error of the build"
)]
static USED: [Option<Parts>; OPERATIONS as usize] = {
    let mut parts = [None; OPERATIONS as usize];
    let mut number = 0u8;
    while number < OPERATIONS {
        parts[number as usize] = Parts::used_by(number);
        number += 1;
    }
    parts
};

/// Operands of [`OP_ATOMIC_CMP_AND_SWP`] and [`OP_ATOMIC_FETCH_AND_ADD`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Atomic {
    /// Value to compare with, or to add.
    pub compare_add: u64,
    /// Value to write if equal; 0 for an addition.
    pub swap: u64,
}

/// Operands of [`OP_FLUSH`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Flush {
    /// Bytes to flush.
    pub length: u32,
    /// Bits of `enum ibv_placement_type`.
    pub placement: u8,
    /// One of `enum ibv_selectivity_level`.
    pub selectivity: u8,
    /// Must be 0.
    pub reserved: [u16; 5],
}

/// Operands of [`OP_BIND_MW`]: the address is the target, the new key of the window the key, its
/// old one the extra. And of [`OP_REG_MR`], likewise; its key as it was is the key below.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Bind {
    /// Bytes of the window.
    pub length: u64,
    /// Local key of the region below.
    pub lkey: u32,
    /// Bits of `enum ibv_access_flags`.
    pub access: u32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Atomic>() == 16 && size_of::<Flush>() == 16 && size_of::<Bind>() == 16);
    assert!(offset_of!(Flush, placement) == 4 && offset_of!(Flush, selectivity) == 5);
    assert!(offset_of!(Bind, lkey) == 8 && offset_of!(Bind, access) == 12);
    assert!(OP_ATOMIC_WRITE < OP_KERNEL);
};

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_uabi_operation)
)]
mod tests {
    use super::*;

    /// Operations have their parts, other numbers have none; those of user space come first.
    #[test]
    fn numbers_that_are_no_operation() {
        for number in 0..=u8::MAX {
            let known = matches!(number, 0..=9 | 14 | 15);
            assert_eq!(Parts::of(number).is_some(), known || number == OP_REG_MR);
            assert!(!known || number < OP_KERNEL);
        }
        assert_eq!(Parts::of(OP_SEND), Some(Parts::NONE));
        let imm = Parts::TARGET.and(Parts::KEY).and(Parts::EXTRA);
        assert_eq!(Parts::of(OP_RDMA_WRITE_WITH_IMM), Some(imm));
    }
}
