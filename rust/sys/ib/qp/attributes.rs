// SPDX-License-Identifier: GPL-2.0

//! The types and states of QPs, the sizes of their queues, and the result of `query_qp`.

use crate::sys::bindings;
use crate::sys::ib::ah::AhAttr;
use crate::sys::ib::limits;
use crate::sys::ib::mr::Access;

/// The attributes of a QP as `query_qp` reports them.
#[derive(Clone, Copy, Default)]
pub struct Attributes {
    /// Rights of the peer.
    pub access: Access,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Port of the device.
    pub port: u32,
    /// The Q_Key (datagrams).
    pub qkey: u32,
    /// Path MTU in bytes; 0 if it was never set.
    pub mtu: u32,
    /// Local ACK Timeout: 4.096 us times 2 to this power; 0 waits for ever.
    pub timeout: u8,
    /// Retries.
    pub retry_cnt: u8,
    /// RNR retries; 7 is for ever.
    pub rnr_retry: u8,
    /// First PSN that is expected.
    pub rq_psn: u32,
    /// First PSN that is sent.
    pub sq_psn: u32,
    /// RDMA READs outstanding at the peer.
    pub max_rd_atomic: u8,
    /// RDMA READs of the peer outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Code of the delay that RNR NAKs ask for.
    pub min_rnr_timer: u8,
    /// Number of the peer QP.
    pub dest_qpn: u32,
    /// Report when the send queue is drained.
    pub notify_drained: bool,
    /// The address vector.
    pub vector: AhAttr,
}

/// Sizes of the queues of a QP.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Inline bytes of a send request.
    pub max_inline: u32,
}

impl Capacity {
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Capacity {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline: raw.max_inline_data,
        }
    }

    pub(super) fn to_raw(self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline;
    }
}

impl Attributes {
    fn to_raw(self, raw: &mut bindings::ib_qp_attr) {
        raw.path_mtu = match self.mtu {
            // The enumeration has no value for none.
            0 => bindings::ib_mtu_IB_MTU_1024,
            bytes => limits::mtu(bytes),
        };
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.qkey = self.qkey;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qpn;
        raw.qp_access_flags = self.access.as_raw();
        raw.ah_attr = *self.vector.as_raw();
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.notify_drained.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}

/// Result of `query_qp`.
pub struct Report {
    /// The state.
    pub state: QpState,
    /// It is in SQD, and not drained yet.
    pub draining: bool,
    /// The attributes.
    pub attributes: Attributes,
    /// Sizes of its queues.
    pub capacity: Capacity,
    /// Every send request reports its completion.
    pub signal_all: bool,
}

impl Report {
    pub(super) fn to_raw(
        &self,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
    ) {
        // What is not set here must not be what the caller's memory held before.
        *attr = pin_init::zeroed();
        *init = pin_init::zeroed();
        attr.qp_state = self.state as u32;
        attr.cur_qp_state = self.state as u32;
        attr.sq_draining = self.draining.into();
        self.attributes.to_raw(attr);
        self.capacity.to_raw(&mut attr.cap);
        self.capacity.to_raw(&mut init.cap);
        init.sq_sig_type = if self.signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}

/// The type of a QP, a number of `enum ib_qp_type`; which of them are served is the driver's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IbQpType(bindings::ib_qp_type);

impl IbQpType {
    /// The receiving end of an extended reliable connection: shared by processes, so that it has
    /// no file, and is no QP of the kernel either.
    pub(super) const XRC_TARGET: Self = Self(bindings::ib_qp_type_IB_QPT_XRC_TGT);

    /// Whether it is the QP of management datagrams, of which each device has one.
    pub fn is_management(self) -> bool {
        self.0 == bindings::ib_qp_type_IB_QPT_GSI
    }

    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Self {
        Self(raw)
    }

    pub(super) fn as_raw(self) -> bindings::ib_qp_type {
        self.0
    }

    /// The number.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The states of a QP (IBTA 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Nothing is set up; nothing may be posted.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue finishes what it began.
    Sqd = 4,
    /// The send queue had an error (not RC).
    Sqe = 5,
    /// Everything is flushed.
    Err = 6,
}

impl QpState {
    /// From `enum ib_qp_state`.
    pub fn from_raw(raw: u32) -> Option<QpState> {
        Some(match raw {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            6 => QpState::Err,
            _ => return None,
        })
    }
}
