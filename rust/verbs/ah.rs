// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::device::{
    Device,
    ObjectPermit, //
};
use super::path;
use super::pd::Domain;
use super::quota::Kind;
use crate::datapath::handle::Handle;
use crate::datapath::port::Port;
use crate::datapath::way::Way;
use crate::sys::ib::ah::{
    AddressHandle,
    Context, //
};
use crate::sys::ib::path::{
    AddressVector,
    Path, //
};
use crate::sys::ib::udata::Udata;
use crate::sys::table::Published;
use crate::uabi::udata::CreateAhResp;
use kernel::prelude::*;
use kernel::sync::Arc;

/// An address handle. Datagrams name it by its number; when it is dropped none leaves by it any
/// more, but for those that were posted and are being sent.
pub struct UserAh {
    port: Arc<Port>,
    handle: Published<Handle>,
    vector: AddressVector,
    _permit: ObjectPermit,
}

impl UserAh {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.handle)
    }
}

impl AddressHandle for UserAh {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        init: Path,
        context: Context,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        path::check(device.underlay(), &init)?;
        let permit = device.permit(Kind::Ah)?;
        let port = device.port();
        let reserved = port.reserve_handle(context)?;
        let vector = init.vector;
        // One flow for each handle: what goes along it stays in order.
        let mut way = Way::new(port.resident(), reserved.number(), init).ok_or(EINVAL)?;
        if context == Context::Sleeps {
            // Without a route datagrams look for one, and are lost until there is one.
            let _ = way.find_route();
        }
        let handle = Arc::new(Handle::new(pd.id(), way), context.flags())?;
        let handle = Self {
            port: port.clone(),
            handle: reserved.publish(handle),
            vector,
            _permit: permit,
        };
        if let Some(udata) = udata {
            udata.respond(&CreateAhResp {
                number: handle.number(),
                reserved: 0,
            })?;
        }
        Ok(handle)
    }

    fn vector(&self) -> &AddressVector {
        &self.vector
    }
}

impl Drop for UserAh {
    fn drop(&mut self) {
        self.port.remove_handle(&mut self.handle);
    }
}
