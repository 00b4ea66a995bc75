// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use crate::sys::bindings;
use crate::sys::ib::event::SrqUpcall;
use crate::sys::ib::object::{
    self,
    Object, //
};
use crate::sys::ib::process::{
    Details,
    NlMessage,
    Udata, //
};
use crate::sys::ib::wr::RecvWrs;
use crate::sys::ib::{
    operations,
    BadWr,
    IgnoredArgument,
    WorkRequests, //
};
use crate::sys::refusal::EOPNOTSUPP;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A shared receive queue of a driver. Dropping it destroys it; no QP uses it any more.
pub trait SharedReceiveQueue: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Creates an empty queue, of a process or without `udata` of a ULP. Also returns how large it
    /// is.
    fn create(
        device: &Self::Device,
        pd: &Self::Pd,
        upcall: SrqUpcall,
        wanted: Size,
        udata: Option<&Udata<'_>>,
    ) -> Result<(Self, Size)>
    where
        Self: Sized;

    /// Changes what is there, all or nothing.
    fn modify(&self, change: SrqChange, udata: Option<&Udata<'_>>) -> Result;

    /// A ULP posts receive WRs. Any context.
    fn post_recv(&self, requests: RecvWrs) -> Result;

    /// Its size, and the armed limit; 0 is none.
    fn query(&self) -> (Size, u32);

    /// Details for `rdma resource show`.
    fn details(&self, out: &mut Details<'_>) -> Result;
}

/// Sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Receives.
    pub max_wr: u32,
    /// Scatter/gather entries of each.
    pub max_sge: u32,
}

/// Changes of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct SrqChange {
    /// It must hold at least so many receives.
    pub max_wr: Option<u32>,
    /// The limit is armed, or with 0 disarmed.
    pub limit: Option<u32>,
}

type New<'a, S> = object::New<'a, bindings::ib_srq, S, <S as SharedReceiveQueue>::Device>;
type Live<'a, S> = object::Live<'a, bindings::ib_srq, S>;
type Gone<'a, S> = object::Gone<'a, bindings::ib_srq, S>;

impl<'a, S: SharedReceiveQueue> New<'a, S> {
    fn pd(&self) -> Result<&'a S::Pd> {
        // SAFETY: By the type invariant; ib_core has filled in the PD, which outlives the queue.
        unsafe {
            let pd = NonNull::new((*self.as_raw()).pd).ok_or(EINVAL)?;
            Ok(Object::private(pd))
        }
    }
}

impl SrqChange {
    fn from_raw(attr: &bindings::ib_srq_attr, mask: u32) -> Result<Self> {
        const MAX_WR: u32 = bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR;
        const LIMIT: u32 = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
        if mask & !(MAX_WR | LIMIT) != 0 {
            return Err(EINVAL);
        }
        Ok(Self {
            max_wr: (mask & MAX_WR != 0).then_some(attr.max_wr),
            limit: (mask & LIMIT != 0).then_some(attr.srq_limit),
        })
    }
}

operations! {
    install<'a, S: SharedReceiveQueue>

    create_srq(
        srq: New<'a, S>,
        init: &'a mut bindings::ib_srq_init_attr,
        udata: Option<Udata<'a>>,
    ) -> Result {
        if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
            return Err(EOPNOTSUPP());
        }
        let wanted = Size { max_wr: init.attr.max_wr, max_sge: init.attr.max_sge };
        let pd = srq.pd()?;
        let udata = udata.as_ref();
        let (_, size) = srq.create(|device, upcall| S::create(device, pd, upcall, wanted, udata))?;
        init.attr.max_wr = size.max_wr;
        init.attr.max_sge = size.max_sge;
        Ok(())
    }

    modify_srq(
        srq: Live<'a, S>,
        attr: &'a mut bindings::ib_srq_attr,
        mask: u32,
        udata: Option<Udata<'a>>,
    ) -> Result {
        srq.modify(SrqChange::from_raw(attr, mask)?, udata.as_ref())
    }

    post_srq_recv(
        srq: Live<'a, S>,
        list: WorkRequests<bindings::ib_recv_wr>,
        refused: BadWr<bindings::ib_recv_wr>,
    ) -> Result {
        srq.post_recv(RecvWrs::new(list, refused))
    }

    query_srq(srq: Live<'a, S>, attr: &'a mut bindings::ib_srq_attr) -> Result {
        let (size, limit) = srq.query();
        attr.max_wr = size.max_wr;
        attr.max_sge = size.max_sge;
        attr.srq_limit = limit;
        Ok(())
    }

    fill_res_srq_entry(message: NlMessage<'a>, srq: Live<'a, S>) -> Result {
        message.details(|out| srq.details(out))
    }

    destroy_srq(srq: Gone<'a, S>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        srq.destroy();
        Ok(())
    }
}
