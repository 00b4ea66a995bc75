// SPDX-License-Identifier: GPL-2.0

//! Memory regions of processes.

use super::device::{
    Device,
    ObjectPermit, //
};
use super::pd::Domain;
use super::quota::Kind;
use crate::datapath::memory::region::Region;
use crate::datapath::port::Port;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::access::Access;
use crate::sys::ib::mr::{
    MemoryRegion,
    UserRange, //
};
use crate::sys::ib::reference::PdRef;
use crate::sys::memory::UserMemory;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A registered region. Dropping it deregisters the region and unpins its memory.
pub struct UserMr {
    port: Arc<Port>,
    region: Arc<Region>,
    _permit: ObjectPermit,
}

/// The rights that can be granted; what else is asked for and is not optional is refused. There are
/// no atomics and no windows yet, so that nobody makes use of two of them: programs that register
/// memory with all rights there are (UCX) need not know.
const SUPPORTED: u32 = Access::LOCAL_WRITE
    | Access::REMOTE_READ
    | Access::REMOTE_WRITE
    | Access::REMOTE_ATOMIC
    | Access::MW_BIND
    | Access::OPTIONAL;

impl MemoryRegion for UserMr {
    type Device = Device;
    type Pd = Domain;

    fn register(
        device: &Device,
        pd: &Domain,
        core_pd: PdRef<'_>,
        range: UserRange,
    ) -> Result<Self> {
        if range.access.0 & !SUPPORTED != 0 {
            return Err(EOPNOTSUPP());
        }
        // The last byte of a region may be the last one of the address space, not beyond.
        if range.len == 0 || range.iova.checked_add(range.len.wrapping_sub(1)).is_none() {
            return Err(EINVAL);
        }
        let permit = device.permit(Kind::Mr)?;
        let memory = UserMemory::pin(core_pd, range.start, range.len, range.access.as_raw())?;
        let port = device.port();
        let (reserved, key) = port.reserve_key()?;
        let region = Arc::new(
            Region::new(key, pd.id(), range.access, range.iova, memory),
            GFP_KERNEL_ACCOUNT,
        )?;
        port.publish_region(reserved, region.clone());
        Ok(Self {
            port: port.clone(),
            region,
            _permit: permit,
        })
    }

    fn key(&self) -> u32 {
        self.region.key()
    }
}

impl Drop for UserMr {
    fn drop(&mut self) {
        self.port.remove_region(&self.region);
    }
}
