// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use crate::core::quota::ObjectKind;
use crate::core::uabi::udata::CreateSrqResp;
use crate::core::uabi::wqe::MAX_SGE;
use crate::datapath::directory::Directory;
use crate::datapath::kernel::{
    MappedRing,
    RingUser, //
};
use crate::datapath::srq::{
    self,
    Srq, //
};
use crate::sys::ib::event::SrqUpcall;
use crate::sys::ib::process::{
    Details,
    Udata, //
};
use crate::sys::ib::srq::{
    SharedReceiveQueue,
    Size,
    SrqChange, //
};
use crate::sys::ib::wr::RecvWrs;
use crate::sys::refusal::{
    within,
    EOPNOTSUPP, //
};
use crate::verbs::device::{
    Device,
    Domain,
    ObjectPermit,
    MAX_SRQ_WR, //
};
use kernel::prelude::*;
use kernel::sync::Arc;

/// A shared receive queue.
pub struct SrqObject {
    /// The queue, as the data path uses it.
    pub(super) srq: Arc<Srq>,
    poster: RingUser,
    _permit: ObjectPermit,
}

/// How many receives a queue gets that asks for `wanted`: at least that, or `EINVAL`.
fn granted(wanted: u32) -> Result<u32> {
    within("max_wr of an SRQ", wanted, 0..=u64::from(MAX_SRQ_WR))?;
    Ok(wanted.max(1).next_power_of_two())
}

impl SharedReceiveQueue for SrqObject {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        upcall: SrqUpcall,
        wanted: Size,
        udata: Option<&Udata<'_>>,
    ) -> Result<(Self, Size)> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        within("max_sge of an SRQ", wanted.max_sge, 0..=u64::from(MAX_SGE))?;
        let size = Size {
            max_wr: granted(wanted.max_wr)?,
            max_sge: wanted.max_sge.max(1),
        };
        let permit = device.permit(ObjectKind::Srq)?;
        let (poster, ring) = RingUser::new(
            udata,
            |context| srq::ring(context, size.max_wr, size.max_sge),
            |udata, srq| udata.respond(&CreateSrqResp { srq }),
        )?;
        let srq = Srq::new(upcall, pd.id, ring, size.max_sge)?;
        let srq = Self {
            srq,
            poster,
            _permit: permit,
        };
        Ok((srq, size))
    }

    fn modify(&self, change: SrqChange, udata: Option<&Udata<'_>>) -> Result {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        let directory = Directory::current()?;
        let notifications = directory.notifications();
        match (change.max_wr, change.limit) {
            (Some(wanted), limit) => {
                let (Some(mut now), Some(udata)) = (self.poster.mapped(), udata) else {
                    return Err(EOPNOTSUPP());
                };
                let (max_wr, max_sge) = (granted(wanted)?, self.srq.max_sge);
                let context = udata.context()?;
                let ring = srq::ring(Some(context), max_wr, max_sge)?;
                let (new, map) = MappedRing::new(context, ring)?;
                self.srq
                    .resize(&now.ring, new.ring.clone(), limit, notifications)?;
                // The command has no response.
                now.ring.succeed(&map);
                // What the process still maps of the old ring is only memory.
                *now = new;
                Ok(())
            }
            (None, Some(limit)) => {
                // A resize in progress has checked that its ring can hold the limit that is armed.
                let _no_resize = self.poster.mapped();
                self.srq.arm(limit, notifications)
            }
            (None, None) => Ok(()),
        }
    }

    fn post_recv(&self, requests: RecvWrs) -> Result {
        match self.poster.of_kernel() {
            Some(ring) => ring.post_receives(self.srq.max_sge, requests),
            // The receives of a process are in its ring.
            None => requests.refuse(EINVAL),
        }
    }

    fn query(&self) -> (Size, u32) {
        let (max_wr, limit) = self.srq.size_and_limit();
        let max_sge = self.srq.max_sge;
        (Size { max_wr, max_sge }, limit)
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        let (max_wr, limit) = self.srq.size_and_limit();
        out.number(c"size", max_wr)?;
        out.number(c"max_sge", self.srq.max_sge)?;
        out.number(c"limit", limit)?;
        match self.srq.left() {
            Some(left) => out.number(c"left", left),
            None => out.word(c"state", c"broken"),
        }
    }
}
