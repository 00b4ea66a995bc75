// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::device::{
    Device,
    ObjectPermit,
    MAX_SRQ_WR, //
};
use super::pd::Domain;
use super::quota::Kind;
use crate::datapath::directory::DIRECTORY;
use crate::datapath::srq::{
    self,
    Srq, //
};
use crate::sys::ib::details::Details;
use crate::sys::ib::event::SrqUpcall;
use crate::sys::ib::srq::{
    Change,
    SharedReceiveQueue,
    Size, //
};
use crate::sys::ib::udata::Udata;
use crate::sys::ring::{
    Mapping,
    Ring, //
};
use crate::uabi::udata::{
    CreateSrqResp,
    RingMap, //
};
use crate::uabi::wqe::MAX_SGE;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    Mutex, //
};

/// A shared receive queue of a process.
pub struct UserSrq {
    srq: Arc<Srq>,
    /// The ring that it has now. The lock orders changes.
    mapped: Pin<KBox<Mutex<Mapped>>>,
    _permit: ObjectPermit,
}

/// A ring in the process.
struct Mapped {
    ring: Arc<Ring>,
    _mapping: Mapping,
}

impl UserSrq {
    /// The queue, as the data path uses it.
    pub fn srq(&self) -> &Arc<Srq> {
        &self.srq
    }
}

/// How many receives a queue gets that asks for `wanted`: at least that, or `EINVAL`.
fn granted(wanted: u32) -> Result<u32> {
    if wanted > MAX_SRQ_WR {
        return Err(EINVAL);
    }
    Ok(wanted.max(1).next_power_of_two())
}

/// A ring for so many receives, and where to map it.
fn mapped(size: Size, udata: &Udata<'_>) -> Result<(Mapped, RingMap)> {
    let context = udata.context()?;
    let ring = srq::ring(context, size.max_wr, size.max_sge)?;
    let (mapping, map) = Mapping::new(context, &ring)?;
    let mapped = Mapped {
        ring,
        _mapping: mapping,
    };
    Ok((mapped, map))
}

impl SharedReceiveQueue for UserSrq {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        upcall: SrqUpcall,
        wanted: Size,
        udata: &Udata<'_>,
    ) -> Result<(Self, Size)> {
        udata.no_request()?;
        if wanted.max_sge > MAX_SGE {
            return Err(EINVAL);
        }
        let size = Size {
            max_wr: granted(wanted.max_wr)?,
            max_sge: wanted.max_sge.max(1),
        };
        let permit = device.permit(Kind::Srq)?;
        let (mapped, map) = mapped(size, udata)?;
        udata.respond(&CreateSrqResp { srq: map })?;
        let srq = Srq::new(upcall, pd.id(), mapped.ring.clone(), size.max_sge)?;
        let srq = Self {
            srq,
            mapped: KBox::pin_init(new_mutex!(mapped), GFP_KERNEL_ACCOUNT)?,
            _permit: permit,
        };
        Ok((srq, size))
    }

    fn modify(&self, change: Change, udata: &Udata<'_>) -> Result {
        udata.no_request()?;
        let directory = {
            let rcu = rcu::read_lock();
            DIRECTORY.get_arc(&rcu).ok_or(ENODEV)?
        };
        let notifications = directory.notifications();
        let mut now = self.mapped.lock();
        match (change.max_wr, change.limit) {
            (Some(wanted), limit) => {
                let (max_wr, max_sge) = (granted(wanted)?, self.srq.max_sge());
                let (new, map) = mapped(Size { max_wr, max_sge }, udata)?;
                self.srq
                    .resize(&now.ring, new.ring.clone(), limit, notifications)?;
                // The command has no response.
                now.ring.succeed(&map);
                // What the process still maps of the old ring is only memory.
                *now = new;
                Ok(())
            }
            (None, Some(limit)) => self.srq.arm(limit, notifications),
            (None, None) => Ok(()),
        }
    }

    fn query(&self) -> (Size, u32) {
        let (max_wr, limit) = self.srq.size_and_limit();
        let max_sge = self.srq.max_sge();
        (Size { max_wr, max_sge }, limit)
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        let (max_wr, limit) = self.srq.size_and_limit();
        out.number(c"size", max_wr)?;
        out.number(c"max_sge", self.srq.max_sge())?;
        out.number(c"limit", limit)?;
        match self.srq.left() {
            Some(left) => out.number(c"left", left),
            None => out.word(c"state", c"broken"),
        }
    }
}
