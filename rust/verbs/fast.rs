// SPDX-License-Identifier: GPL-2.0

//! FRMRs of ULPs.

use super::device::{
    Device,
    ObjectPermit,
    MAX_FAST_PAGES, //
};
use super::pd::Domain;
use crate::core::quota::ObjectKind;
use crate::datapath::memory::lists::Lists;
use crate::datapath::memory::window::{
    Mw,
    Type, //
};
use crate::datapath::port::Port;
use crate::sys::ib::udata::Details;
use crate::sys::listed::{
    ListShape,
    ScatterList,
    Taken, //
};
use crate::sys::table::Published;
use kernel::prelude::*;
use kernel::sync::Arc;

/// An FRMR. When it is dropped, no access to its memory is left.
pub struct FastMr {
    port: Arc<Port>,
    window: Published<Mw>,
    key: u32,
    _permit: ObjectPermit,
}

impl FastMr {
    /// An FRMR without a mapped list.
    pub fn allocate(device: &Device, pd: &Domain, most: u32, shape: ListShape) -> Result<Self> {
        if most == 0 || most > MAX_FAST_PAGES {
            return Err(EINVAL);
        }
        let permit = device.permit(ObjectKind::Mr)?;
        let lists = Lists::new(most as usize, shape)?;
        let port = device.port();
        let (reserved, key) = port.reserve_window_key()?;
        let window = Mw::new(key, pd.id(), Type::Fast(lists))?;
        Ok(Self {
            port: port.clone(),
            window: reserved.publish(window),
            key,
            _permit: permit,
        })
    }

    /// Maps the list to be registered next.
    pub fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<Taken> {
        self.window.lists().ok_or(EINVAL)?.map(list, page)
    }

    /// The key at allocation.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Details for `rdma resource show`.
    pub fn details(&self, out: &mut Details<'_>) -> Result {
        out.word(c"addresses", c"fast")?;
        out.number(c"registered", self.window.is_bound())
    }
}

impl Drop for FastMr {
    fn drop(&mut self) {
        self.port.remove_window(&mut self.window);
    }
}
