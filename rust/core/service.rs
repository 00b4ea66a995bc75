// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The types of QPs: the one table of what each is composed of.
//!
//! A QP is what its row says, not a reliable connection with exceptions. To serve another type:
//! give it a variant and a row here, write its requester and responder as modules beside
//! [`super::rc`], and add them to the enums of `datapath::protocol`.

use super::operation::Operation;
use crate::core::wire::opcode;

/// A type of QP that is served. The numbers are those of `enum ib_qp_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QpType {
    /// General services: the QP of management datagrams, number 1 on the wire.
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
}

/// The protocol of requester and responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Acknowledged, retransmitted and in order: [`super::rc`].
    Reliable,
    /// In order and never retransmitted, a message with a gap is dropped: [`super::uc`].
    Unreliable,
    /// One packet a message, each to or from a peer of its own: [`super::ud`].
    Datagram,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The packets of its messages.
    pub opcodes: opcode::OpcodeService,
    /// The operations of its send queue.
    pub operations: &'static [Operation],
    /// Its requester and responder.
    pub protocol: Protocol,
}

impl Service {
    /// Whether a WQE of its send queue may be `op`.
    #[inline]
    pub fn has(&self, op: Operation) -> bool {
        self.operations.contains(&op)
    }

    /// The same for a ULP.
    pub fn of_kernel(self) -> Self {
        match self.protocol {
            Protocol::Reliable => Self {
                operations: KERNEL,
                ..self
            },
            _ => self,
        }
    }
}

const SENDS: &[Operation] = &[Operation::Send, Operation::SendImm];
const WRITES: &[Operation] = &[
    Operation::Send,
    Operation::SendImm,
    Operation::Write,
    Operation::WriteImm,
];
/// The operations of ULPs on reliable connections.
const KERNEL: &[Operation] = &[
    Operation::Send,
    Operation::SendImm,
    Operation::Write,
    Operation::WriteImm,
    Operation::Read,
    Operation::SendInv,
    Operation::LocalInv,
    Operation::BindMw,
    Operation::CompareSwap,
    Operation::FetchAdd,
    Operation::AtomicWrite,
    Operation::Flush,
    Operation::RegMr,
];
/// The same for processes, without the last, registration.
const ALL: &[Operation] = match KERNEL.split_last() {
    Some((Operation::RegMr, others)) => others,
    _ => &[],
};

impl QpType {
    /// The type with this number of `enum ib_qp_type`; `None` if such QPs are not served.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(QpType::Gsi),
            2 => Some(QpType::Rc),
            3 => Some(QpType::Uc),
            4 => Some(QpType::Ud),
            _ => None,
        }
    }

    /// Its row.
    #[rustfmt::skip]
    pub fn service(self) -> Service {
        let row = |opcodes, operations, protocol| Service { opcodes, operations, protocol };
        use opcode::OpcodeService::{Rc, Uc, Ud};
        match self {
            //                          opcodes operations protocol
            QpType::Rc               => row(Rc, ALL,      Protocol::Reliable),
            QpType::Uc               => row(Uc, WRITES,   Protocol::Unreliable),
            QpType::Ud | QpType::Gsi => row(Ud, SENDS,    Protocol::Datagram),
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_service))]
mod tests {
    use super::*;

    #[test]
    fn the_types_are_those_of_ib_core() {
        for raw in 0..256 {
            let number = QpType::from_raw(raw).map(|qp_type| qp_type as u32);
            assert_eq!(number, matches!(raw, 1..=4).then_some(raw));
        }
    }

    /// ULPs may do what processes may, and on reliable connections register.
    #[test]
    fn only_ulps_register() {
        for raw in 0..256 {
            let Some(service) = QpType::from_raw(raw).map(QpType::service) else {
                continue;
            };
            let kernel = service.of_kernel();
            assert!(!service.has(Operation::RegMr));
            assert!(service.operations.iter().all(|op| kernel.has(*op)));
            let more = kernel.operations.len() - service.operations.len();
            let registers = service.protocol == Protocol::Reliable;
            assert_eq!(kernel.has(Operation::RegMr), registers);
            assert_eq!(more, usize::from(registers));
        }
    }
}
