// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Completions of both queues, and their statuses.

use super::operation::Operation;
use crate::core::uabi::cqe;
use crate::core::uabi::cqe::Cqe;
use crate::core::wire::headers::NakCode;

/// How a work request ended; the numbers are those of `enum ibv_wc_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It did what it should.
    #[default]
    Success = 0,
    /// The message does not fit: into the receive, or into what a QP can send.
    LocLenErr = 1,
    /// The work request, or the QP's use of it, is not consistent.
    LocQpOpErr = 2,
    /// A scatter/gather entry names memory that may not be used.
    LocProtErr = 4,
    /// The QP was in error before the work request was done.
    WrFlushErr = 5,
    /// A window could not be bound so, or a key not be invalidated.
    MwBindErr = 6,
    /// The responder answered with a packet that does not belong there.
    BadRespErr = 7,
    /// An RDMA WRITE with immediate data took the receive, and may not write where it wants.
    LocAccessErr = 8,
    /// The responder found the request invalid.
    RemInvReqErr = 9,
    /// The responder does not permit the access.
    RemAccessErr = 10,
    /// The responder could not do it.
    RemOpErr = 11,
    /// No answer, however often it was sent.
    RetryExcErr = 12,
    /// The responder had no receive, however often it was sent.
    RnrRetryExcErr = 13,
    /// Anything else.
    GeneralErr = 21,
}

impl Status {
    /// The number of `enum ibv_wc_status`.
    #[inline]
    pub const fn as_u32(self) -> u32 {
        self as u32
    }

    /// How a work request with this status ends when its queue is flushed, and its `vendor_err`:
    /// one that failed before keeps its status.
    pub const fn when_flushed(self) -> (Self, u32) {
        match self {
            Status::Success | Status::WrFlushErr => (Status::WrFlushErr, vendor::FLUSHED),
            failed => (failed, vendor::LOCAL),
        }
    }

    /// Whether nothing went wrong.
    #[inline]
    pub const fn is_success(self) -> bool {
        matches!(self, Status::Success)
    }
}

/// `vendor_err`: which cause of a status it was; values keep their meaning. 0 is success.
///
/// The low byte of a NAK is its AETH syndrome.
pub mod vendor {
    use super::NakCode;

    /// The work request was malformed, or its memory not accessible.
    pub const LOCAL: u32 = 1;
    /// Flushed.
    pub const FLUSHED: u32 = 2;
    /// No ACK within the timeout, or NAKs for a packet retransmitted and again.
    pub const RETRY: u32 = 3;
    /// RNR NAKs, more than `rnr_retry`.
    pub const RNR: u32 = 4;
    /// A response with data for a request that asked for none, or for something else.
    pub const RESPONSE_TO_NO_READ: u32 = 5;
    /// A READ response with another place in the message than the PSN says.
    pub const RESPONSE_PLACE: u32 = 6;
    /// A READ response with a wrong length.
    pub const RESPONSE_LENGTH: u32 = 7;
    /// The message is longer than the receive.
    pub const RECEIVE_TOO_SHORT: u32 = 8;
    /// The receive's memory is not accessible.
    pub const RECEIVE_MEMORY: u32 = 9;
    /// The receive was malformed.
    pub const RECEIVE_MALFORMED: u32 = 10;
    /// The RDMA WRITE that took the receive may not write there.
    pub const RECEIVE_ACCESS: u32 = 11;
    /// A NAK of the peer: this, plus the AETH syndrome.
    pub const NAK: u32 = 0x100;

    /// A NAK with this code.
    #[inline]
    pub const fn nak(code: NakCode) -> u32 {
        let syndrome = crate::core::wire::headers::AethSyndrome::Nak(code).encode();
        NAK | syndrome as u32
    }
}

/// The end of a work request of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCompletion {
    /// Free-running index behind the work request: its slot, and all before it, are free when the
    /// completion is seen. A consumer that polls it may post at once.
    pub retired: u32,
    /// Of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What it did.
    pub op: Operation,
    /// Bytes of the message.
    pub byte_len: u32,
    /// One of [`vendor`].
    pub vendor_err: u32,
}

impl SendCompletion {
    /// The CQE. `qp_num` is the number of the QP.
    #[inline(always)]
    pub fn cqe(&self, qp_num: u32) -> Cqe {
        Cqe {
            wr_id: self.wr_id,
            status: self.status.as_u32(),
            opcode: self.op.wc_opcode(),
            byte_len: self.byte_len,
            qp_num,
            vendor_err: self.vendor_err,
            ..Cqe::default()
        }
    }
}

/// What took a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvOp {
    /// A SEND: the data is in the receive's memory.
    Send,
    /// An RDMA WRITE with immediate data: the data is where the peer wrote it.
    WriteImm,
}

impl RecvOp {
    /// The opcode of the completion ([`cqe`]).
    #[inline]
    pub const fn wc_opcode(self) -> u32 {
        match self {
            RecvOp::Send => cqe::WC_RECV,
            RecvOp::WriteImm => cqe::WC_RECV_RDMA_WITH_IMM,
        }
    }
}

/// What a message brings to its receive besides data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carried {
    /// Nothing.
    #[default]
    Nothing,
    /// Immediate data in the order of the wire.
    Imm([u8; 4]),
    /// It has invalidated this key.
    Invalidated(u32),
}

impl From<Option<[u8; 4]>> for Carried {
    fn from(imm: Option<[u8; 4]>) -> Self {
        imm.map_or(Carried::Nothing, Carried::Imm)
    }
}

/// The end of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCompletion {
    /// Of the receive.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What took it.
    pub op: RecvOp,
    /// Bytes of the message.
    pub byte_len: u32,
    /// What came with the data.
    pub carried: Carried,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// One of [`vendor`].
    pub vendor_err: u32,
}

impl RecvCompletion {
    /// Of a receive that is flushed.
    pub const fn flushed(wr_id: u64, op: RecvOp) -> Self {
        Self {
            wr_id,
            status: Status::WrFlushErr,
            op,
            byte_len: 0,
            carried: Carried::Nothing,
            solicited: false,
            vendor_err: vendor::FLUSHED,
        }
    }

    /// The CQE. `qp_num` is the number of the QP.
    #[inline(always)]
    pub fn cqe(&self, qp_num: u32) -> Cqe {
        let (imm, flags) = match self.carried {
            Carried::Nothing => (0, 0),
            // Both are big-endian.
            Carried::Imm(imm) => (u32::from_ne_bytes(imm), cqe::WC_WITH_IMM),
            Carried::Invalidated(key) => (key, cqe::WC_WITH_INV),
        };
        Cqe {
            wr_id: self.wr_id,
            status: self.status.as_u32(),
            opcode: self.op.wc_opcode(),
            byte_len: self.byte_len,
            imm,
            flags,
            qp_num,
            vendor_err: self.vendor_err,
            ..Cqe::default()
        }
    }
}

/// Where a datagram came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// Number of the QP.
    pub qp: u32,
    /// It came over IPv6.
    pub is_v6: bool,
    /// VLAN id, if it came by a VLAN.
    pub vlan: Option<u16>,
    /// Source MAC address, if the netdev has such addresses.
    pub mac: Option<[u8; 6]>,
}

impl DatagramSource {
    /// Adds it to the CQE of the datagram, whose receive has the GRH in front.
    pub fn add_to(&self, cqe: Cqe) -> Cqe {
        let mut flags = cqe.flags | cqe::WC_GRH | cqe::WC_WITH_NETWORK_HDR;
        if self.vlan.is_some() {
            flags |= cqe::WC_WITH_VLAN;
        }
        if self.mac.is_some() {
            flags |= cqe::WC_WITH_SMAC;
        }
        Cqe {
            src_qp: self.qp,
            flags,
            network_hdr: match self.is_v6 {
                true => cqe::NETWORK_IPV6,
                false => cqe::NETWORK_IPV4,
            },
            vlan: self.vlan.unwrap_or(0),
            smac: self.mac.unwrap_or_default(),
            ..cqe
        }
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_completion)
)]
mod tests {
    use super::*;

    /// The numbers of `enum ibv_wc_status`, which user space prints by.
    #[test]
    fn statuses_are_those_of_libibverbs() {
        let statuses = [
            (Status::Success, 0),
            (Status::LocLenErr, 1),
            (Status::LocQpOpErr, 2),
            (Status::LocProtErr, 4),
            (Status::WrFlushErr, 5),
            (Status::MwBindErr, 6),
            (Status::BadRespErr, 7),
            (Status::LocAccessErr, 8),
            (Status::RemInvReqErr, 9),
            (Status::RemAccessErr, 10),
            (Status::RemOpErr, 11),
            (Status::RetryExcErr, 12),
            (Status::RnrRetryExcErr, 13),
            (Status::GeneralErr, 21),
        ];
        for (status, number) in statuses {
            assert_eq!(status.as_u32(), number);
            assert_eq!(status.is_success(), number == 0);
        }
    }

    #[test]
    fn a_flush_is_one_whenever_it_was_posted() {
        let flushed = (Status::WrFlushErr, vendor::FLUSHED);
        assert_eq!(Status::Success.when_flushed(), flushed);
        assert_eq!(Status::WrFlushErr.when_flushed(), flushed);
        let failed = (Status::LocProtErr, vendor::LOCAL);
        assert_eq!(Status::LocProtErr.when_flushed(), failed);
    }

    #[test]
    fn a_cqe_says_what_came() {
        let mut done = RecvCompletion {
            wr_id: 7,
            status: Status::Success,
            op: RecvOp::WriteImm,
            byte_len: 5,
            carried: Carried::Imm([1, 2, 3, 4]),
            solicited: true,
            vendor_err: 0,
        };
        let cqe = done.cqe(0x123);
        assert_eq!((cqe.wr_id, cqe.qp_num, cqe.byte_len), (7, 0x123, 5));
        assert_eq!(cqe.opcode, cqe::WC_RECV_RDMA_WITH_IMM);
        assert_eq!(
            (cqe.imm.to_ne_bytes(), cqe.flags),
            ([1, 2, 3, 4], cqe::WC_WITH_IMM)
        );
        done.carried = Carried::Invalidated(9);
        let cqe = done.cqe(1);
        assert_eq!((cqe.imm, cqe.flags), (9, cqe::WC_WITH_INV));
        done.carried = Carried::Nothing;
        assert_eq!(done.cqe(1).flags, 0);
    }

    #[test]
    fn a_datagram_says_where_it_came_from() {
        let mut source = DatagramSource {
            qp: 0x456,
            is_v6: true,
            vlan: None,
            mac: None,
        };
        let cqe = Cqe {
            flags: cqe::WC_WITH_IMM,
            ..Cqe::default()
        };
        let always = cqe::WC_WITH_IMM | cqe::WC_GRH | cqe::WC_WITH_NETWORK_HDR;
        let bare = source.add_to(cqe);
        assert_eq!((bare.src_qp, bare.flags), (0x456, always));
        assert_eq!(bare.network_hdr, cqe::NETWORK_IPV6);
        (source.is_v6, source.vlan, source.mac) = (false, Some(5), Some([6; 6]));
        let full = source.add_to(cqe);
        assert_eq!(full.flags, always | cqe::WC_WITH_VLAN | cqe::WC_WITH_SMAC);
        assert_eq!(
            (full.network_hdr, full.vlan, full.smac),
            (cqe::NETWORK_IPV4, 5, [6; 6])
        );
    }

    #[test]
    fn a_nak_keeps_its_syndrome() {
        assert_eq!(vendor::nak(NakCode::RemoteAccess), 0x100 | 0x62);
    }
}
