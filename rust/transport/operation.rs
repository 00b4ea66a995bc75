// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The operations of the send queue: what a work request is, and how it is answered.
//!
//! Another operation is another variant here, a row for its packets in [`crate::wire::opcode`], a
//! builder in [`super::segment::RequestSegment`] and a handler in the responder.

use crate::uabi::cqe;
use crate::uabi::wqe;

/// What a work request of the send queue does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate data.
    SendImm,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data.
    WriteImm,
    /// RDMA READ.
    Read,
    /// SEND that invalidates a key of the peer.
    SendInv,
    /// Invalidation of a key of this side.
    LocalInv,
    /// Binding of a memory window.
    BindMw,
}

/// How a request is answered, which decides what completes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not at all, as on unreliable services: it is complete when it has left.
    None,
    /// By an acknowledgement, which may be one for many.
    Ack,
    /// By a response with data, for which the responder holds a resource; it carries no payload
    /// itself.
    Response,
    /// It asks no peer, but changes a key on this side.
    Here,
}

impl Operation {
    /// The operation with this number in a send WQE ([`wqe`]), or `None` if it is not served.
    #[inline]
    pub const fn from_wqe(opcode: u8) -> Option<Self> {
        match opcode {
            wqe::OP_SEND => Some(Operation::Send),
            wqe::OP_SEND_WITH_IMM => Some(Operation::SendImm),
            wqe::OP_RDMA_WRITE => Some(Operation::Write),
            wqe::OP_RDMA_WRITE_WITH_IMM => Some(Operation::WriteImm),
            wqe::OP_RDMA_READ => Some(Operation::Read),
            wqe::OP_SEND_WITH_INV => Some(Operation::SendInv),
            wqe::OP_LOCAL_INV => Some(Operation::LocalInv),
            wqe::OP_BIND_MW => Some(Operation::BindMw),
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
        }
    }

    /// Whether immediate data travels with the message.
    #[inline]
    pub const fn has_imm(self) -> bool {
        matches!(self, Operation::SendImm | Operation::WriteImm)
    }

    /// How it is answered.
    #[inline]
    pub const fn answer(self) -> Answer {
        match self {
            Operation::Send
            | Operation::SendImm
            | Operation::SendInv
            | Operation::Write
            | Operation::WriteImm => Answer::Ack,
            Operation::Read => Answer::Response,
            Operation::LocalInv | Operation::BindMw => Answer::Here,
        }
    }
}

/// What the extended headers of a request are filled from: fields of the private copy of the work
/// request. The operation says which of them mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The remote virtual address.
    pub remote_addr: u64,
    /// The key of the remote region.
    pub rkey: u32,
    /// Immediate data in the order of the wire.
    pub imm: [u8; 4],
    /// The key to be invalidated.
    pub invalidated: u32,
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_operation)
)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_work_requests() {
        let mut served = 0;
        for number in 0..=u8::MAX {
            let Some(op) = Operation::from_wqe(number) else {
                assert!(!matches!(number, 0..=4 | 7..=9));
                continue;
            };
            served += 1;
            let imm = number == wqe::OP_SEND_WITH_IMM || number == wqe::OP_RDMA_WRITE_WITH_IMM;
            assert_eq!(op.has_imm(), imm);
            let is_read = number == wqe::OP_RDMA_READ;
            let answered_with_data = op.answer() == Answer::Response;
            assert_eq!(answered_with_data, is_read);
            let here = number == wqe::OP_LOCAL_INV || number == wqe::OP_BIND_MW;
            assert_eq!(op.answer() == Answer::Here, here);
            let code = match number {
                wqe::OP_SEND | wqe::OP_SEND_WITH_IMM | wqe::OP_SEND_WITH_INV => cqe::WC_SEND,
                wqe::OP_RDMA_READ => cqe::WC_RDMA_READ,
                wqe::OP_LOCAL_INV => cqe::WC_LOCAL_INV,
                wqe::OP_BIND_MW => cqe::WC_BIND_MW,
                _ => cqe::WC_RDMA_WRITE,
            };
            assert_eq!(op.wc_opcode(), code);
        }
        assert_eq!(served, 8);
    }
}
