// SPDX-License-Identifier: GPL-2.0

//! Open device files.

use super::device::{
    Device,
    ObjectPermit, //
};
use crate::core::quota::ObjectKind;
use crate::core::uabi::udata::{
    AllocUcontextReq,
    AllocUcontextResp,
    CLOCK,
    NULL_LKEY,
    SIGNATURE, //
};
use crate::sys::ib::context::Context;
use crate::sys::ib::udata::{
    Request,
    Udata, //
};
use kernel::prelude::*;

/// A process that has opened the device.
pub struct UserContext {
    _permit: ObjectPermit,
}

impl Request for AllocUcontextReq {
    const FIRST_LENGTH: usize = 8;
}

impl Context for UserContext {
    type Device = Device;

    fn open(device: &Device, udata: &Udata<'_>) -> Result<Self> {
        let permit = device.permit(ObjectKind::Context)?;
        // No feature is defined yet; a newer provider works without.
        let _request: AllocUcontextReq = udata.request()?;
        udata.respond(&AllocUcontextResp {
            signature: SIGNATURE,
            null_lkey: NULL_LKEY,
            clock: CLOCK,
            ..AllocUcontextResp::default()
        })?;
        Ok(Self { _permit: permit })
    }
}
