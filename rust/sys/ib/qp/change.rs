// SPDX-License-Identifier: GPL-2.0

//! The arguments of `modify_qp`, as plain values.

use super::attributes::{
    IbQpType,
    QpState, //
};
use crate::sys::bindings::{
    self,
    ib_qp_attr_mask_IB_QP_ACCESS_FLAGS as ACCESS_FLAGS,
    ib_qp_attr_mask_IB_QP_AV as AV,
    ib_qp_attr_mask_IB_QP_CUR_STATE as CUR_STATE,
    ib_qp_attr_mask_IB_QP_DEST_QPN as DEST_QPN,
    ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY as EN_SQD_ASYNC_NOTIFY,
    ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC as MAX_DEST_RD_ATOMIC,
    ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC as MAX_QP_RD_ATOMIC,
    ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER as MIN_RNR_TIMER,
    ib_qp_attr_mask_IB_QP_PATH_MIG_STATE as PATH_MIG_STATE,
    ib_qp_attr_mask_IB_QP_PATH_MTU as PATH_MTU,
    ib_qp_attr_mask_IB_QP_PKEY_INDEX as PKEY_INDEX,
    ib_qp_attr_mask_IB_QP_PORT as PORT,
    ib_qp_attr_mask_IB_QP_QKEY as QKEY,
    ib_qp_attr_mask_IB_QP_RETRY_CNT as RETRY_CNT,
    ib_qp_attr_mask_IB_QP_RNR_RETRY as RNR_RETRY,
    ib_qp_attr_mask_IB_QP_RQ_PSN as RQ_PSN,
    ib_qp_attr_mask_IB_QP_SQ_PSN as SQ_PSN,
    ib_qp_attr_mask_IB_QP_STATE as STATE,
    ib_qp_attr_mask_IB_QP_TIMEOUT as TIMEOUT, //
};
use crate::sys::ib::ah::AddressVector;
use crate::sys::ib::call::Argument;
use crate::sys::ib::limits;
use crate::sys::ib::mr::Access;
use crate::sys::refusal::refuse;
use kernel::prelude::*;

/// The arguments of `modify_qp`: what is `Some` is in the attribute mask.
#[derive(Default)]
pub struct QpChange {
    /// The attribute mask itself (`enum ib_qp_attr_mask`).
    pub mask: u32,
    /// State to go to.
    pub state: Option<QpState>,
    /// State that the user believes the QP to be in.
    pub current: Option<QpState>,
    /// State of path migration (`enum ib_mig_state`).
    pub path_mig_state: Option<u32>,
    /// Rights of the peer.
    pub access: Option<Access>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// Port of the device.
    pub port: Option<u32>,
    /// The Q_Key (datagrams).
    pub qkey: Option<u32>,
    /// Destination of the connection.
    pub av: Option<AddressVector>,
    /// Path MTU in bytes.
    pub mtu: Option<u32>,
    /// ACK timeout exponent.
    pub timeout: Option<u8>,
    /// Retries.
    pub retry_cnt: Option<u8>,
    /// RNR retries; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// First PSN that is expected.
    pub rq_psn: Option<u32>,
    /// First PSN that is sent.
    pub sq_psn: Option<u32>,
    /// RDMA READs outstanding at the peer.
    pub max_rd_atomic: Option<u8>,
    /// RDMA READs of the peer outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// Code of the delay that RNR NAKs ask for.
    pub min_rnr_timer: Option<u8>,
    /// Number of the peer QP.
    pub dest_qpn: Option<u32>,
    /// Report when the send queue is drained.
    pub notify_drained: Option<bool>,
}

/// The attributes that are the argument of `modify_qp`.
///
/// # Invariants
///
/// The source GIDs in it, if any, are referenced.
pub(super) struct ModifyAttr<'a>(&'a bindings::ib_qp_attr);

impl Argument for ModifyAttr<'_> {
    type Raw = *mut bindings::ib_qp_attr;

    unsafe fn from_raw(raw: *mut bindings::ib_qp_attr) -> Result<Self> {
        // SAFETY: By the requirement the structure is valid while the operation runs.
        // INVARIANT: ib_core has filled in the source GIDs and holds them during the call.
        Ok(Self(unsafe { raw.as_ref() }.ok_or(EINVAL)?))
    }
}

impl ModifyAttr<'_> {
    /// Takes out of the attributes what `mask` says is there.
    ///
    /// # Errors
    ///
    /// `EINVAL` for values that no QP can have.
    pub(super) fn under(&self, mask: u32) -> Result<QpChange> {
        let attr = self.0;
        fn when<T>(mask: u32, bit: bindings::ib_qp_attr_mask, value: T) -> Option<T> {
            (mask & bit != 0).then_some(value)
        }
        let known = |raw| QpState::from_raw(raw).ok_or(EINVAL);
        let state = when(mask, STATE, attr.qp_state).map(known).transpose()?;
        let current = when(mask, CUR_STATE, attr.cur_qp_state)
            .map(known)
            .transpose()?;
        let av = when(mask, AV, &attr.ah_attr)
            // SAFETY: By the type invariant.
            .map(|raw| unsafe { AddressVector::from_raw(raw) })
            .transpose()?;
        let bytes = |raw| {
            let known =
                u64::from(bindings::ib_mtu_IB_MTU_256)..=bindings::ib_mtu_IB_MTU_4096.into();
            limits::mtu_bytes(raw).ok_or_else(|| refuse(EINVAL, "enum ib_mtu path_mtu", raw, known))
        };
        let mtu = when(mask, PATH_MTU, attr.path_mtu).map(bytes).transpose()?;
        Ok(QpChange {
            mask,
            state,
            current,
            av,
            mtu,
            path_mig_state: when(mask, PATH_MIG_STATE, attr.path_mig_state),
            access: when(mask, ACCESS_FLAGS, attr.qp_access_flags as u32).map(Access),
            pkey_index: when(mask, PKEY_INDEX, attr.pkey_index),
            port: when(mask, PORT, attr.port_num),
            qkey: when(mask, QKEY, attr.qkey),
            timeout: when(mask, TIMEOUT, attr.timeout),
            retry_cnt: when(mask, RETRY_CNT, attr.retry_cnt),
            rnr_retry: when(mask, RNR_RETRY, attr.rnr_retry),
            rq_psn: when(mask, RQ_PSN, attr.rq_psn),
            sq_psn: when(mask, SQ_PSN, attr.sq_psn),
            max_rd_atomic: when(mask, MAX_QP_RD_ATOMIC, attr.max_rd_atomic),
            max_dest_rd_atomic: when(mask, MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic),
            min_rnr_timer: when(mask, MIN_RNR_TIMER, attr.min_rnr_timer),
            dest_qpn: when(mask, DEST_QPN, attr.dest_qp_num),
            notify_drained: when(mask, EN_SQD_ASYNC_NOTIFY, attr.en_sqd_async_notify != 0),
        })
    }
}

impl QpChange {
    /// Whether a QP of this type may go from `from` to `to` with this attribute mask
    /// (IBTA 11.2.5.2).
    pub fn allowed(&self, kind: IbQpType, from: QpState, to: QpState) -> bool {
        // SAFETY: No requirements; the states are in range, and so is the type of a QP that exists.
        unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, kind.as_raw(), self.mask) }
    }
}
