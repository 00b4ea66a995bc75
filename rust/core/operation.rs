// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The operations of the send queue, and the replies to them.
//!
//! A new operation is a variant here, a row for its packets in [`super::wire::opcode`], a builder
//! in [`super::segment::RequestSegment`] and a handler in the responder.

use crate::core::uabi::{
    cqe,
    wqe, //
};

/// The operation of a send WQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    // Operations with the same reply stand together: a `match` is a search in the kernel, which is
    // built without jump tables.
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate data.
    SendImm,
    /// SEND that invalidates a key of the peer.
    SendInv,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteImm,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// Invalidation of a local key.
    LocalInv,
    /// Binding of a memory window.
    BindMw,
    /// Registration of an FRMR.
    RegMr,
}

/// Operand size of an atomic operation in bytes.
pub const ATOMIC_SIZE: u32 = 8;

/// The reply to a request on a reliable connection, which decides what completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An acknowledgement, perhaps one for many.
    Ack,
    /// A response, for which the responder holds a resource. Of these only an ATOMIC WRITE carries
    /// payload itself.
    Response,
    /// A local operation: no peer is involved.
    Local,
}

/// The payload of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brings {
    /// Data of an RDMA READ; none for an ATOMIC WRITE and a FLUSH.
    Data,
    /// The original value of an atomic operation.
    Original,
}

/// The operations by their numbers in send WQEs, so that finding one is a load.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a bad index is an error of the build"
)]
static NUMBERED: [Option<Operation>; wqe::OPERATIONS as usize] = {
    let mut operations = [None; wqe::OPERATIONS as usize];
    let mut number = 0u8;
    while number < wqe::OPERATIONS {
        operations[number as usize] = Operation::numbered(number);
        number += 1;
    }
    operations
};

impl Operation {
    /// The operation with this number in a send WQE ([`wqe`]), or `None` if it is not supported.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the length was looked at")]
    pub const fn from_wqe(opcode: u8) -> Option<Self> {
        if opcode as usize >= NUMBERED.len() {
            return None;
        }
        NUMBERED[opcode as usize]
    }

    /// Like [`Self::from_wqe`], by a chain of comparisons.
    const fn numbered(opcode: u8) -> Option<Self> {
        match opcode {
            wqe::OP_SEND => Some(Operation::Send),
            wqe::OP_SEND_WITH_IMM => Some(Operation::SendImm),
            wqe::OP_RDMA_WRITE => Some(Operation::Write),
            wqe::OP_RDMA_WRITE_WITH_IMM => Some(Operation::WriteImm),
            wqe::OP_RDMA_READ => Some(Operation::Read),
            wqe::OP_SEND_WITH_INV => Some(Operation::SendInv),
            wqe::OP_LOCAL_INV => Some(Operation::LocalInv),
            wqe::OP_BIND_MW => Some(Operation::BindMw),
            wqe::OP_ATOMIC_CMP_AND_SWP => Some(Operation::CompareSwap),
            wqe::OP_ATOMIC_FETCH_AND_ADD => Some(Operation::FetchAdd),
            wqe::OP_ATOMIC_WRITE => Some(Operation::AtomicWrite),
            wqe::OP_FLUSH => Some(Operation::Flush),
            wqe::OP_REG_MR => Some(Operation::RegMr),
            _ => None,
        }
    }

    /// The opcode of the completion ([`cqe`]).
    #[inline]
    pub const fn wc_opcode(self) -> u32 {
        match self {
            Operation::Send | Operation::SendImm | Operation::SendInv => cqe::WC_SEND,
            Operation::Write | Operation::WriteImm => cqe::WC_RDMA_WRITE,
            Operation::Read => cqe::WC_RDMA_READ,
            Operation::LocalInv => cqe::WC_LOCAL_INV,
            Operation::BindMw => cqe::WC_BIND_MW,
            Operation::CompareSwap => cqe::WC_COMP_SWAP,
            Operation::FetchAdd => cqe::WC_FETCH_ADD,
            Operation::AtomicWrite => cqe::WC_ATOMIC_WRITE,
            Operation::Flush => cqe::WC_FLUSH,
            Operation::RegMr => cqe::WC_REG_MR,
        }
    }

    /// Whether the last packet may request a solicited event (IBTA 9.2.2.2): only an operation that
    /// takes a receive leads to such a completion. Otherwise the flag is ignored.
    #[inline]
    pub const fn may_solicit(self) -> bool {
        matches!(
            self,
            Operation::Send | Operation::SendImm | Operation::SendInv | Operation::WriteImm
        )
    }

    /// Whether a list of `length` bytes fits this operation. The largest message, common to all, is
    /// not checked. The operand of an ATOMIC WRITE is in no list.
    #[inline]
    pub const fn has_length(self, length: u32) -> bool {
        match self {
            Operation::CompareSwap | Operation::FetchAdd => length == ATOMIC_SIZE,
            Operation::AtomicWrite | Operation::Flush => length == 0,
            _ => true,
        }
    }

    /// Whether immediate data travels with the message.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self, Operation::SendImm | Operation::WriteImm)
    }

    /// The payload of the response, if there is one.
    #[inline]
    pub const fn brings(self) -> Brings {
        match self {
            Operation::CompareSwap | Operation::FetchAdd => Brings::Original,
            _ => Brings::Data,
        }
    }

    /// Its reply.
    #[inline]
    pub const fn reply(self) -> Reply {
        match self {
            Operation::Send
            | Operation::SendImm
            | Operation::SendInv
            | Operation::Write
            | Operation::WriteImm => Reply::Ack,
            Operation::Read
            | Operation::CompareSwap
            | Operation::FetchAdd
            | Operation::AtomicWrite
            | Operation::Flush => Reply::Response,
            Operation::LocalInv | Operation::BindMw | Operation::RegMr => Reply::Local,
        }
    }
}

/// Operands for the extended headers of a request: fields of the private copy of the WQE. The
/// operation says which are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The remote virtual address.
    pub remote_addr: u64,
    /// The key of the remote region.
    pub rkey: u32,
    /// Immediate data in the order of the wire.
    pub imm: [u8; 4],
    /// The key to invalidate.
    pub invalidated: u32,
    /// As in the WQE; the operation defines their meaning.
    pub operands: [u64; 2],
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_operation)
)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_work_requests() {
        let mut served = 0;
        for number in 0..=u8::MAX {
            let Some(op) = Operation::from_wqe(number) else {
                let is_known = matches!(
                    number,
                    0..=9 | wqe::OP_FLUSH | wqe::OP_ATOMIC_WRITE | wqe::OP_REG_MR
                );
                assert!(!is_known);
                continue;
            };
            served += 1;
            if matches!(number, 5 | 6 | wqe::OP_FLUSH | wqe::OP_ATOMIC_WRITE) {
                let most = if number > wqe::OP_ATOMIC_FETCH_AND_ADD {
                    0
                } else {
                    8
                };
                assert_eq!(op.reply(), Reply::Response);
                assert!(!op.has_imm());
                for length in [0, 7, 8, 9] {
                    assert_eq!(op.has_length(length), length == most);
                }
                continue;
            }
            assert!(op.has_length(0) && op.has_length(9));
            let imm = number == wqe::OP_SEND_WITH_IMM || number == wqe::OP_RDMA_WRITE_WITH_IMM;
            assert_eq!(op.has_imm(), imm);
            let is_read = number == wqe::OP_RDMA_READ;
            let answered_with_data = op.reply() == Reply::Response;
            assert_eq!(answered_with_data, is_read);
            let local = matches!(number, wqe::OP_LOCAL_INV | wqe::OP_BIND_MW | wqe::OP_REG_MR);
            let is_local = op.reply() == Reply::Local;
            assert_eq!(is_local, local);
            let code = match number {
                wqe::OP_SEND | wqe::OP_SEND_WITH_IMM | wqe::OP_SEND_WITH_INV => cqe::WC_SEND,
                wqe::OP_RDMA_READ => cqe::WC_RDMA_READ,
                wqe::OP_LOCAL_INV => cqe::WC_LOCAL_INV,
                wqe::OP_BIND_MW => cqe::WC_BIND_MW,
                wqe::OP_REG_MR => cqe::WC_REG_MR,
                _ => cqe::WC_RDMA_WRITE,
            };
            assert_eq!(op.wc_opcode(), code);
        }
        assert_eq!(served, 13);
        let code = |number| Operation::from_wqe(number).map(Operation::wc_opcode);
        assert_eq!(code(wqe::OP_ATOMIC_CMP_AND_SWP), Some(cqe::WC_COMP_SWAP));
        assert_eq!(code(wqe::OP_ATOMIC_FETCH_AND_ADD), Some(cqe::WC_FETCH_ADD));
        assert_eq!(code(wqe::OP_ATOMIC_WRITE), Some(cqe::WC_ATOMIC_WRITE));
        assert_eq!(code(wqe::OP_FLUSH), Some(cqe::WC_FLUSH));
    }
}
