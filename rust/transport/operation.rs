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
            _ => None,
        }
    }

    /// The opcode of the completion ([`cqe`]).
    #[inline]
    pub const fn wc_opcode(self) -> u32 {
        match self {
            Operation::Send | Operation::SendImm => cqe::WC_SEND,
            Operation::Write | Operation::WriteImm => cqe::WC_RDMA_WRITE,
            Operation::Read => cqe::WC_RDMA_READ,
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
            Operation::Send | Operation::SendImm | Operation::Write | Operation::WriteImm => {
                Answer::Ack
            }
            Operation::Read => Answer::Response,
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
                assert!(number > wqe::OP_RDMA_READ);
                continue;
            };
            served += 1;
            let imm = number == wqe::OP_SEND_WITH_IMM || number == wqe::OP_RDMA_WRITE_WITH_IMM;
            assert_eq!(op.has_imm(), imm);
            let is_read = number == wqe::OP_RDMA_READ;
            let answered_with_data = op.answer() == Answer::Response;
            assert_eq!(answered_with_data, is_read);
            let send = number == wqe::OP_SEND || number == wqe::OP_SEND_WITH_IMM;
            let code = match (send, is_read) {
                (true, _) => cqe::WC_SEND,
                (_, true) => cqe::WC_RDMA_READ,
                _ => cqe::WC_RDMA_WRITE,
            };
            assert_eq!(op.wc_opcode(), code);
        }
        assert_eq!(served, 5);
    }
}
