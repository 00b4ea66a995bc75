// SPDX-License-Identifier: GPL-2.0

//! Memory regions of processes.

use super::device::Device;
use crate::datapath::port::Port;
use crate::datapath::region::{
    DomainId,
    Region, //
};
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::object::PdRef;
use crate::sys::ib::qp::Access;
use crate::sys::memory::UserMemory;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A registered region, to be deregistered.
pub struct UserMr {
    port: Arc<Port>,
    key: u32,
}

/// The rights that can be granted. What else is asked for and is not optional is refused.
const SUPPORTED: u32 =
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::OPTIONAL;

/// Registers `len` bytes at `start` of the calling process as `iova..iova + len`.
pub fn register(
    device: &Arc<Device>,
    pd: PdRef<'_>,
    domain: DomainId,
    start: u64,
    len: u64,
    iova: u64,
    access: Access,
) -> Result<(UserMr, u32)> {
    if access.0 & !SUPPORTED != 0 {
        return Err(EOPNOTSUPP());
    }
    // The last byte of a region may be the last one of the address space, not beyond.
    if len == 0 || iova.checked_add(len.wrapping_sub(1)).is_none() {
        return Err(EINVAL);
    }
    let memory = UserMemory::pin(pd, start, len, access.as_raw())?;
    let port = device.port.clone();
    let (reserved, key) = device.port.reserve_key()?;
    let region = Arc::new(
        Region {
            key,
            domain,
            access,
            iova,
            memory,
        },
        GFP_KERNEL,
    )?;
    reserved.publish(region);
    Ok((UserMr { port, key }, key))
}

impl UserMr {
    /// Deregisters the region and unpins its memory.
    pub fn deregister(self) {
        self.port.remove_region(self.key);
    }
}
