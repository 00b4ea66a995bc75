// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::device::{
    Device,
    MAX_CQE, //
};
use crate::datapath::cq::Cq;
use crate::sys::ib::object::CqRef;
use crate::sys::ib::udata::Udata;
use crate::sys::ring::Mapping;
use crate::uabi::udata::CreateCqResp;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A completion queue of a process.
pub struct UserCq {
    cq: Arc<Cq>,
    _mapping: Mapping,
}

impl UserCq {
    /// Creates a queue of at least `entries`; returns how many it has.
    pub fn new(
        _device: &Arc<Device>,
        core: CqRef<'_>,
        entries: u32,
        udata: &Udata<'_>,
    ) -> Result<(Self, u32)> {
        udata.no_request()?;
        if entries == 0 || entries > MAX_CQE {
            return Err(EINVAL);
        }
        let entries = entries.next_power_of_two();
        let cq = Cq::new(core, entries)?;
        let (mapping, map) = Mapping::new(udata.context(), cq.ring())?;
        udata.respond(&CreateCqResp { cq: map })?;
        Ok((
            Self {
                cq,
                _mapping: mapping,
            },
            entries,
        ))
    }

    /// The queue, as the data path uses it.
    pub fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Destroys it. No QP uses it any more.
    pub fn destroy(self) {
        self.cq.upcall.detach();
    }
}
