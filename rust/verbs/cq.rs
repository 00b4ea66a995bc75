// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use crate::core::queue::cq_producer::{
    Moderation,
    OnOverrun, //
};
use crate::core::quota::ObjectKind;
use crate::core::uabi::ring::{
    ARM_NONE,
    ARM_SOLICITED, //
};
use crate::core::uabi::udata::CreateCqResp;
use crate::datapath::cq::{
    self,
    Cq, //
};
use crate::datapath::directory::DIRECTORY;
use crate::datapath::kernel::{
    MappedRing,
    RingUser, //
};
use crate::sys::ib::cq::{
    CompletionQueue,
    Completions,
    CqInit, //
};
use crate::sys::ib::event::CqUpcall;
use crate::sys::ib::process::{
    Details,
    Udata, //
};
use crate::sys::refusal::{
    within,
    EOPNOTSUPP, //
};
use crate::sys::table::Successor;
use crate::sys::work::{
    Deadline,
    Running, //
};
use crate::verbs::device::{
    Device,
    ObjectPermit,
    MAX_CQE, //
};
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc, //
};

/// A completion queue.
pub struct CqObject {
    /// The queue, as the data path uses it.
    pub(super) cq: Arc<Cq>,
    /// Its timer.
    _timer: Running<Cq>,
    consumer: RingUser,
    _permit: ObjectPermit,
}

/// The size of a CQ for `wanted` entries: at least that, or `EINVAL`.
fn granted(wanted: u32) -> Result<u32> {
    within("cqe", wanted, 1..=u64::from(MAX_CQE))?;
    Ok(wanted.next_power_of_two())
}

impl CompletionQueue for CqObject {
    type Device = Device;

    fn create(
        device: &Device,
        upcall: CqUpcall,
        init: CqInit,
        udata: Option<&Udata<'_>>,
    ) -> Result<(Self, u32)> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        let entries = granted(init.entries)?;
        let permit = device.permit(ObjectKind::Cq)?;
        let (consumer, ring) = RingUser::new(
            udata,
            |context| cq::ring(context, entries),
            |udata, cq| udata.respond(&CreateCqResp { cq }),
        )?;
        let overruns = if init.ignores_overruns {
            OnOverrun::Ignored
        } else {
            OnOverrun::Fatal
        };
        let cq = Cq::new(upcall, ring, init.timestamps, overruns)?;
        let cq = Self {
            _timer: Deadline::start(&cq)?,
            cq,
            consumer,
            _permit: permit,
        };
        Ok((cq, entries))
    }

    fn resize(&self, entries: u32, udata: &Udata<'_>) -> Result<u32> {
        udata.no_request()?;
        let entries = granted(entries)?;
        let mut now = self.consumer.mapped().ok_or_else(EOPNOTSUPP)?;
        let context = udata.context()?;
        let (new, cq) = MappedRing::new(context, cq::ring(Some(context), entries)?)?;
        udata.respond(&CreateCqResp { cq })?;
        self.cq
            .resize(&now.ring, Successor::new(new.ring.clone())?)?;
        // The old ring, if still mapped, is only memory.
        *now = new;
        Ok(entries)
    }

    fn poll(&self, into: &mut Completions) -> Result {
        self.consumer.of_kernel().ok_or_else(EOPNOTSUPP)?.poll(into)
    }

    fn arm(&self, wanted: u32) -> Result<bool> {
        let ring = self.consumer.of_kernel().ok_or_else(EOPNOTSUPP)?;
        Ok(ring.arm(wanted))
    }

    fn moderate(&self, count: u16, period_us: u16) -> Result {
        let rcu = rcu::read_lock();
        let directory = DIRECTORY.get(&rcu).ok_or(ENODEV)?;
        let moderation = Moderation::new(count, period_us);
        self.cq.moderate(moderation, directory.notifications());
        Ok(())
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        let now = self.cq.info(&rcu::read_lock());
        out.number(c"waiting", now.waiting)?;
        let arm = match now.arm {
            ARM_NONE => c"none",
            ARM_SOLICITED => c"solicited",
            _ => c"next",
        };
        out.word(c"armed", arm)?;
        out.number(c"overrun", now.overrun)?;
        out.number(c"timestamps", now.stamps)?;
        out.number(c"moderation_count", now.moderation_count)?;
        out.number(c"moderation_period_us", now.moderation_period_us)
    }
}
