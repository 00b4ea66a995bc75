// SPDX-License-Identifier: GPL-2.0

//! Memory windows of processes.

use super::device::{
    Device,
    ObjectPermit, //
};
use super::pd::Domain;
use crate::core::quota::ObjectKind;
use crate::datapath::memory::window::{
    Mw,
    Type, //
};
use crate::datapath::port::Port;
use crate::sys::ib::mr::MemoryWindow;
use crate::sys::table::Published;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A memory window. When it is dropped, no access through it is left.
pub struct UserMw {
    port: Arc<Port>,
    window: Published<Mw>,
    _permit: ObjectPermit,
}

impl MemoryWindow for UserMw {
    type Device = Device;
    type Pd = Domain;

    fn allocate(device: &Device, pd: &Domain, is_type_2: bool) -> Result<(Self, u32)> {
        let permit = device.permit(ObjectKind::Mw)?;
        let kind = if is_type_2 { Type::Two } else { Type::One };
        let port = device.port();
        let (reserved, key) = port.reserve_window_key()?;
        let window = Mw::new(key, pd.id(), kind)?;
        let window = Self {
            port: port.clone(),
            window: reserved.publish(window),
            _permit: permit,
        };
        Ok((window, key))
    }
}

impl Drop for UserMw {
    fn drop(&mut self) {
        self.port.remove_window(&mut self.window);
    }
}
