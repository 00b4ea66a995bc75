// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The types of QPs: the one table of what each is composed of.
//!
//! A QP is a requester, a responder and a source of receives, not a reliable connection with
//! exceptions. To serve another type: write the requester and responder of its row, as modules
//! beside [`super::rc`], add them to the enums of `datapath::protocol`, and set `served`.

use super::operation::Operation;
use crate::core::wire::opcode;

/// A type of QP. The numbers are those of `enum ib_qp_type`.
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
    /// Extended reliable connection, sending side.
    XrcIni = 9,
    /// Extended reliable connection, receiving side.
    XrcTgt = 10,
}

/// The protocol of a requester or responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// It has none.
    None,
    /// Acknowledged, retransmitted and in order: [`super::rc`].
    Reliable,
    /// In order and never retransmitted, a message with a gap is dropped: [`super::uc`].
    Unreliable,
    /// One packet a message, each to or from a peer of its own: [`super::ud`].
    Datagram,
}

/// Where a message that takes a receive finds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// Nowhere: it receives nothing.
    None,
    /// In the RQ of the QP, or the SRQ that it was created with.
    Queue,
    /// In the SRQ that each packet names (XRCETH).
    NamedByPacket,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Such a QP can be created.
    pub served: bool,
    /// The packets of its messages.
    pub opcodes: opcode::OpcodeService,
    /// The operations of its send queue.
    pub operations: &'static [Operation],
    /// Its requester.
    pub requester: Protocol,
    /// Its responder.
    pub responder: Protocol,
    /// Where its receives are.
    pub receives: Receives,
}

impl Service {
    /// Whether a WQE of its send queue may be `op`.
    #[inline]
    pub fn has(&self, op: Operation) -> bool {
        self.operations.contains(&op)
    }

    /// The same for a ULP.
    pub fn of_kernel(self) -> Self {
        match self.requester {
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
    /// The type with this number of `enum ib_qp_type`.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(QpType::Gsi),
            2 => Some(QpType::Rc),
            3 => Some(QpType::Uc),
            4 => Some(QpType::Ud),
            9 => Some(QpType::XrcIni),
            10 => Some(QpType::XrcTgt),
            _ => None,
        }
    }

    /// Its row.
    #[rustfmt::skip]
    pub fn service(self) -> Service {
        let row = |served, opcodes, operations, requester, responder, receives| Service {
            served, opcodes, operations, requester, responder, receives,
        };
        use opcode::OpcodeService::{Rc, Uc, Ud};
        use Protocol::{Datagram, None, Reliable, Unreliable};
        use Receives::{NamedByPacket, Queue};
        match self {
            //                    served opcodes operations requester   responder       receives
            QpType::Rc     => row(true,  Rc, ALL,    Reliable,       Reliable,       Queue),
            QpType::Uc     => row(true,  Uc, WRITES, Unreliable,     Unreliable,     Queue),
            QpType::Ud     => row(true,  Ud, SENDS,  Datagram,       Datagram,       Queue),
            QpType::Gsi    => row(true,  Ud, SENDS,  Datagram,       Datagram,       Queue),
            // Their packets have opcodes of their own, which are not in the table yet.
            QpType::XrcIni => row(false, Rc, ALL,    Reliable,       None,     Receives::None),
            QpType::XrcTgt => row(false, Rc, &[],    None,           Reliable, NamedByPacket),
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_service))]
mod tests {
    use super::*;

    #[test]
    fn the_types_are_those_of_ib_core() {
        let mut known = 0;
        for raw in 0..256 {
            let Some(qp_type) = QpType::from_raw(raw) else {
                continue;
            };
            assert_eq!(qp_type as u32, raw);
            known += 1;
            let service = qp_type.service();
            // A type that does not send has no operations; one that does not receive has no
            // receives.
            assert_eq!(
                service.operations.is_empty(),
                service.requester == Protocol::None
            );
            let receives = service.receives != Receives::None;
            let responds = service.responder != Protocol::None;
            assert_eq!(receives, responds);
        }
        assert_eq!(known, 6);
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
            let registers = service.requester == Protocol::Reliable;
            assert_eq!(kernel.has(Operation::RegMr), registers);
            assert_eq!(more, usize::from(registers));
        }
    }

    #[test]
    fn the_types_that_are_served() {
        for raw in 0..256 {
            let served = QpType::from_raw(raw).is_some_and(|t| t.service().served);
            assert_eq!(served, matches!(raw, 1..=4));
        }
    }
}
