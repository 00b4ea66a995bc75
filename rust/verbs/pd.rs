// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::device::{
    Device,
    ObjectPermit, //
};
use crate::core::quota::ObjectKind;
use crate::datapath::memory::region::DomainId;
use crate::sys::ib::mr::ProtectionDomain;
use kernel::prelude::*;

/// A protection domain.
pub struct Domain {
    id: DomainId,
    _permit: ObjectPermit,
}

impl Domain {
    /// Its identity, as the data path compares it.
    pub fn id(&self) -> DomainId {
        self.id
    }
}

impl ProtectionDomain for Domain {
    type Device = Device;

    fn create(device: &Device) -> Result<Self> {
        let permit = device.permit(ObjectKind::Pd)?;
        Ok(Self {
            id: DomainId::next(),
            _permit: permit,
        })
    }
}
