// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

mod attributes;
mod change;

pub use self::{
    attributes::{
        Attributes,
        Capacity,
        IbQpType,
        QpState,
        Report, //
    },
    change::QpChange, //
};
pub use super::ah::{
    AddressVector,
    Gid, //
};
pub use super::mr::Access;

use self::change::ModifyAttr;
use super::call::{
    operations,
    Argument,
    BadWr,
    IgnoredArgument,
    Reference,
    WorkRequests, //
};
use super::event::QpUpcall;
use super::object::{
    self,
    Object, //
};
use super::udata::{
    Details,
    NlMessage,
    NoUdata,
    Udata, //
};
use super::wr::{
    RecvWrs,
    SendWrs, //
};
use crate::sys::bindings;
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
