// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: their types, states and attributes, how they are made and changed.

pub use crate::sys::ib::ah::{
    AddressVector,
    Gid, //
};
pub use crate::sys::ib::mr::Access;

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
use crate::sys::ib::ah::AhAttr;
use crate::sys::ib::event::QpUpcall;
use crate::sys::ib::object::{
    self,
    Object, //
};
use crate::sys::ib::process::{
    Details,
    NlMessage,
    NoUdata,
    Udata, //
};
use crate::sys::ib::wr::{
    RecvWrs,
    SendWrs, //
};
use crate::sys::ib::{
    operations,
    query,
    Argument,
    BadWr,
    IgnoredArgument,
    Reference,
    WorkRequests, //
};
use crate::sys::refusal::refuse;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A queue pair of a driver. Dropping it destroys it.
pub trait QueuePair: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;
    /// The completion queue type.
    type Cq: Send + Sync + 'static;
    /// The shared receive queue type.
    type Srq: Send + Sync + 'static;
    /// The address handle type.
    type Ah: Send + Sync + 'static;

    /// Creates a QP in RESET.
    fn create(
        device: &Self::Device,
        upcall: QpUpcall,
        init: QpInit<'_, Self::Pd, Self::Cq, Self::Srq>,
    ) -> Result<(Self, Created)>
    where
        Self: Sized;

    /// Changes state and attributes, all or nothing. ib_core has checked nothing but the ranges of
    /// the types.
    fn modify(&self, change: QpChange) -> Result;

    /// Current attributes.
    fn query(&self) -> Report;

    /// Lets a QP of type UD receive what is sent to a multicast GID: ib_core has checked both. May
    /// sleep.
    fn attach(&self, group: &Gid) -> Result;

    /// Ends that. It fails only if the QP is not in the group. May sleep.
    fn detach(&self, group: &Gid) -> Result;

    /// The process has put send requests into the ring.
    fn send_doorbell(&self) -> Result;

    /// The process has put receive requests into the ring.
    fn recv_doorbell(&self) -> Result;

    /// Details for `rdma resource show`.
    fn details(&self, out: &mut Details<'_>) -> Result;

    /// A ULP posts send WRs. Any context.
    fn post_send(&self, requests: SendWrs<'_, Self::Ah>) -> Result;

    /// A ULP posts receive WRs. Any context.
    fn post_recv(&self, requests: RecvWrs) -> Result;
}

/// The owner of a new QP.
pub enum Owner<'a> {
    /// A process.
    Process(Udata<'a>),
    /// Processes, in common, through an XRC domain. ib_core hands a driver neither udata nor PD
    /// nor CQs of such a QP, which is not to be taken for one of the kernel.
    Shared,
    /// A ULP.
    Kernel,
}

/// Attributes of a new QP.
pub struct QpInit<'a, P, C, S> {
    /// Its type.
    pub kind: IbQpType,
    /// The owner.
    pub owner: Owner<'a>,
    /// Whose regions it may use.
    pub pd: Option<&'a P>,
    /// CQ of the send queue.
    pub send_cq: Option<&'a C>,
    /// CQ of the receive queue.
    pub recv_cq: Option<&'a C>,
    /// The SRQ, if it has no receive queue of its own.
    pub srq: Option<&'a S>,
    /// `enum ib_qp_create_flags`.
    pub flags: u32,
    /// The requested sizes, unchecked by ib_core.
    pub capacity: Capacity,
    /// Every send request reports its completion.
    pub signal_all: bool,
}

/// Result of creating a QP.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// Its number.
    pub number: u32,
    /// Its sizes, at least as requested.
    pub capacity: Capacity,
}

/// The attributes that are the argument of `create_qp`.
///
/// # Invariants
///
/// The CQs and the SRQ in it are null or complete, and outlive `'a`.
struct InitAttr<'a>(&'a mut bindings::ib_qp_init_attr);

impl Argument for InitAttr<'_> {
    type Raw = *mut bindings::ib_qp_init_attr;

    unsafe fn from_raw(raw: *mut bindings::ib_qp_init_attr) -> Result<Self> {
        // SAFETY: By the requirement the structure is ours while the operation runs.
        // INVARIANT: ib_core holds them during the call.
        Ok(Self(unsafe { raw.as_mut() }.ok_or(EINVAL)?))
    }
}

/// The group that is the argument of `attach_mcast`.
struct GroupGid(Gid);

impl Argument for GroupGid {
    type Raw = *mut bindings::ib_gid;

    unsafe fn from_raw(raw: *mut bindings::ib_gid) -> Result<Self> {
        // SAFETY: By the requirement the structure is valid while the operation runs. Any bytes are
        // a GID.
        Ok(Self(unsafe { raw.as_ref().ok_or(EINVAL)?.raw }))
    }
}

type New<'a, Q> = object::New<'a, bindings::ib_qp, Q, <Q as QueuePair>::Device>;
type Live<'a, Q> = object::Live<'a, bindings::ib_qp, Q>;
type Gone<'a, Q> = object::Gone<'a, bindings::ib_qp, Q>;

impl<'a, Q: QueuePair> New<'a, Q> {
    fn init(
        &self,
        attr: &InitAttr<'a>,
        udata: Option<Udata<'a>>,
    ) -> QpInit<'a, Q::Pd, Q::Cq, Q::Srq> {
        let qp = self.as_raw();
        let attr = &attr.0;
        let kind = IbQpType::from_raw(attr.qp_type);
        // SAFETY: By the invariants of both the CQs, the SRQ and the PD are null or complete; their
        // drivers' parts are of the types that the table of operations names.
        let (pd, send_cq, recv_cq, srq) = unsafe {
            (
                NonNull::new((*qp).pd).map(|pd| Object::private(pd)),
                NonNull::new(attr.send_cq).map(|cq| Object::private(cq)),
                NonNull::new(attr.recv_cq).map(|cq| Object::private(cq)),
                NonNull::new(attr.srq).map(|srq| Object::private(srq)),
            )
        };
        QpInit {
            kind,
            owner: match udata {
                Some(udata) => Owner::Process(udata),
                None if kind == IbQpType::XRC_TARGET => Owner::Shared,
                None => Owner::Kernel,
            },
            pd,
            send_cq,
            recv_cq,
            srq,
            flags: attr.create_flags,
            capacity: Capacity::from_raw(&attr.cap),
            signal_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
        }
    }
}

impl Reference<'_, bindings::ib_qp> {
    fn kind(self) -> bindings::ib_qp_type {
        // SAFETY: By the type invariant; the type does not change while the QP exists.
        unsafe { (*self.as_raw()).qp_type }
    }

    fn set_number(self, number: u32) {
        // SAFETY: By the type invariant; the QP is being created, so that nobody reads it yet.
        unsafe { (*self.as_raw()).qp_num = number };
    }

    /// Fills in what ib_core itself knows of a QP.
    fn describe(self, init: &mut bindings::ib_qp_init_attr) {
        // SAFETY: By the type invariant; these fields do not change while the QP exists.
        unsafe {
            let qp = self.as_raw();
            init.event_handler = (*qp).event_handler;
            init.qp_context = (*qp).qp_context;
            init.send_cq = (*qp).send_cq;
            init.recv_cq = (*qp).recv_cq;
            init.srq = (*qp).srq;
            init.qp_type = (*qp).qp_type;
        }
    }
}

operations! {
    install<'a, Q: QueuePair>

    create_qp(qp: New<'a, Q>, attr: InitAttr<'a>, udata: Option<Udata<'a>>) -> Result {
        let init = qp.init(&attr, udata);
        let (qp, created) = qp.create(|device, upcall| Q::create(device, upcall, init))?;
        qp.set_number(created.number);
        created.capacity.to_raw(&mut attr.0.cap);
        Ok(())
    }

    modify_qp(qp: Live<'a, Q>, wanted: ModifyAttr<'a>, mask: c_int, _udata: NoUdata) -> Result {
        qp.modify(wanted.under(mask as u32)?)
    }

    query_qp(
        qp: Live<'a, Q>,
        attr: &'a mut bindings::ib_qp_attr,
        _mask: c_int,
        init: &'a mut bindings::ib_qp_init_attr,
    ) -> Result {
        qp.query().to_raw(attr, init);
        qp.reference().describe(init);
        Ok(())
    }

    attach_mcast(qp: Live<'a, Q>, group: GroupGid, _lid: u16) -> Result {
        qp.attach(&group.0)
    }

    detach_mcast(qp: Live<'a, Q>, group: GroupGid, _lid: u16) -> Result {
        qp.detach(&group.0)
    }

    fill_res_qp_entry(message: NlMessage<'a>, qp: Live<'a, Q>) -> Result {
        message.details(|out| qp.details(out))
    }

    destroy_qp(qp: Gone<'a, Q>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        qp.destroy();
        Ok(())
    }

    post_send(
        qp: Live<'a, Q>,
        list: WorkRequests<bindings::ib_send_wr>,
        refused: BadWr<bindings::ib_send_wr>,
    ) -> Result {
        if list.is_empty() {
            return qp.send_doorbell();
        }
        qp.post_send(SendWrs::new(list, refused, qp.reference().kind()))
    }

    post_recv(
        qp: Live<'a, Q>,
        list: WorkRequests<bindings::ib_recv_wr>,
        refused: BadWr<bindings::ib_recv_wr>,
    ) -> Result {
        if list.is_empty() {
            return qp.recv_doorbell();
        }
        qp.post_recv(RecvWrs::new(list, refused))
    }
}

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
            bytes => query::mtu(bytes),
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
            query::mtu_bytes(raw).ok_or_else(|| refuse(EINVAL, "enum ib_mtu path_mtu", raw, known))
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
        let kind = kind.number();
        if kind >= bindings::ib_qp_type_IB_QPT_MAX {
            return false;
        }
        // SAFETY: ib_core looks the states and the type up in a table, which has them.
        unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, kind, self.mask) }
    }
}
