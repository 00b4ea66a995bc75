// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::device::{
    Device,
    ObjectPermit, //
};
use super::path;
use super::quota::Kind;
use crate::sys::ib::ah::AddressHandle;
use crate::sys::ib::path::Path;
use kernel::prelude::*;

/// An address handle. Only datagrams use them, and there are none yet: its path is checked, and
/// nothing of it is kept.
pub struct UserAh {
    _permit: ObjectPermit,
}

impl AddressHandle for UserAh {
    type Device = Device;

    fn create(device: &Device, init: Path) -> Result<Self> {
        path::check(device.underlay(), &init)?;
        Ok(Self {
            _permit: device.permit(Kind::Ah)?,
        })
    }
}
