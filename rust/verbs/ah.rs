// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::address_vector;
use super::device::{
    Device,
    ObjectPermit, //
};
use super::pd::Domain;
use crate::core::quota::ObjectKind;
use crate::core::uabi::udata::CreateAhResp;
use crate::datapath::ah::Ah;
use crate::datapath::path::Path;
use crate::datapath::port::Port;
use crate::sys::ib::ah::{
    AddressHandle,
    AddressVector,
    AhAttr,
    AllocContext, //
};
use crate::sys::ib::udata::Udata;
use crate::sys::table::Published;
use kernel::prelude::*;
use kernel::sync::Arc;

/// An address handle. Datagrams name it by its number; after it is dropped no datagram uses it,
/// except those in progress.
pub struct UserAh {
    port: Arc<Port>,
    ah: Published<Ah>,
    vector: AhAttr,
    _permit: ObjectPermit,
}

impl UserAh {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.ah)
    }
}

impl AddressHandle for UserAh {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        init: AddressVector,
        context: AllocContext,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        address_vector::check(device.underlay(), &init)?;
        let permit = device.permit(ObjectKind::Ah)?;
        let port = device.port();
        let reserved = port.reserve_ah(context)?;
        let vector = init.vector;
        // One flow per handle: its datagrams stay in order.
        let mut path = Path::new(port.resident(), reserved.number(), init).ok_or(EINVAL)?;
        if context == AllocContext::Sleeps {
            // Without a route datagrams look it up themselves, and are lost until there is one.
            let _ = path.find_route();
        }
        let ah = Arc::new(Ah::new(pd.id(), path), context.flags())?;
        let ah = Self {
            port: port.clone(),
            ah: reserved.publish(ah),
            vector,
            _permit: permit,
        };
        if let Some(udata) = udata {
            udata.respond(&CreateAhResp {
                number: ah.number(),
                reserved: 0,
            })?;
        }
        Ok(ah)
    }

    fn vector(&self) -> &AhAttr {
        &self.vector
    }
}

impl Drop for UserAh {
    fn drop(&mut self) {
        self.port.remove_ah(&mut self.ah);
    }
}
