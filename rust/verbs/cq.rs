// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::device::{
    Device,
    ObjectPermit,
    MAX_CQE, //
};
use super::quota::Kind;
use crate::datapath::cq::Cq;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::cq::{
    CompletionQueue,
    Init, //
};
use crate::sys::ib::event::CqUpcall;
use crate::sys::ib::udata::Udata;
use crate::sys::ring::Mapping;
use crate::uabi::udata::CreateCqResp;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A completion queue of a process.
pub struct UserCq {
    cq: Arc<Cq>,
    _mapping: Mapping,
    _permit: ObjectPermit,
}

impl UserCq {
    /// The queue, as the data path uses it.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }
}

impl CompletionQueue for UserCq {
    type Device = Device;

    fn create(
        device: &Device,
        upcall: CqUpcall,
        init: Init,
        udata: &Udata<'_>,
    ) -> Result<(Self, u32)> {
        udata.no_request()?;
        if init.flags != 0 {
            return Err(EOPNOTSUPP());
        }
        if init.entries == 0 || init.entries > MAX_CQE {
            return Err(EINVAL);
        }
        let permit = device.permit(Kind::Cq)?;
        let entries = init.entries.next_power_of_two();
        let context = udata.context()?;
        let cq = Cq::new(upcall, context, entries)?;
        let (mapping, map) = Mapping::new(context, cq.ring())?;
        udata.respond(&CreateCqResp { cq: map })?;
        let cq = Self {
            cq,
            _mapping: mapping,
            _permit: permit,
        };
        Ok((cq, entries))
    }
}
