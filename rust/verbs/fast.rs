// SPDX-License-Identifier: GPL-2.0

//! Memory regions of fast registration, of users in the kernel.

use super::device::{
    Device,
    ObjectPermit,
    MAX_FAST_PAGES, //
};
use super::pd::Domain;
use super::quota::Kind;
use crate::datapath::memory::lists::Lists;
use crate::datapath::memory::window::{
    Type,
    Window, //
};
use crate::datapath::port::Port;
use crate::sys::ib::details::Details;
use crate::sys::listed::{
    ScatterList,
    Shape,
    Taken, //
};
use crate::sys::table::Published;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A region of fast registration. When it is dropped nobody uses its memory any more.
pub struct FastMr {
    port: Arc<Port>,
    window: Published<Window>,
    key: u32,
    _permit: ObjectPermit,
}

impl FastMr {
    /// An empty one.
    pub fn allocate(device: &Device, pd: &Domain, most: u32, shape: Shape) -> Result<Self> {
        if most == 0 || most > MAX_FAST_PAGES {
            return Err(EINVAL);
        }
        let permit = device.permit(Kind::Mr)?;
        let lists = Lists::new(most as usize, shape)?;
        let port = device.port();
        let (reserved, key) = port.reserve_window_key()?;
        let window = Window::new(key, pd.id(), Type::Fast(lists))?;
        Ok(Self {
            port: port.clone(),
            window: reserved.publish(window),
            key,
            _permit: permit,
        })
    }

    /// Maps what is registered next.
    pub fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<Taken> {
        self.window.lists().ok_or(EINVAL)?.map(list, page)
    }

    /// The key that it was allocated with.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// What it tells of itself.
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
