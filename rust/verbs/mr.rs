// SPDX-License-Identifier: GPL-2.0

//! Memory regions: of processes, of all memory of the kernel, and which is which.

use super::device::{
    Device,
    ObjectPermit, //
};
use super::fast::FastMr;
use super::pd::Domain;
use super::quota::Kind;
use crate::datapath::memory::region::{
    DomainId,
    Region, //
};
use crate::datapath::port::Port;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::access::Access;
use crate::sys::ib::details::Details;
use crate::sys::ib::fast::FastRegion;
use crate::sys::ib::mr::{
    Change,
    MemoryRegion,
    UserRange, //
};
use crate::sys::ib::reference::PdRef;
use crate::sys::listed::{
    ScatterList,
    Shape,
    Taken, //
};
use crate::sys::memory::{
    KernelMemory,
    UserMemory, //
};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    Mutex,
    UniqueArc, //
};

/// What ib_core calls a memory region. Dropping it ends all access.
pub enum Mr {
    /// Registered by a verb.
    Verb(UserMr),
    /// Registered by work requests.
    Fast(FastMr),
}

impl MemoryRegion for Mr {
    type Device = Device;
    type Pd = Domain;

    fn register(
        device: &Device,
        pd: &Domain,
        core_pd: PdRef<'_>,
        range: UserRange,
    ) -> Result<Self> {
        UserMr::register(device, pd, core_pd, range).map(Self::Verb)
    }

    fn of_kernel(
        device: &Device,
        pd: &Domain,
        memory: KernelMemory,
        access: Access,
    ) -> Result<Self> {
        UserMr::of_kernel(device, pd, memory, access).map(Self::Verb)
    }

    fn register_again(&self, core_pd: PdRef<'_>, change: Change<'_, Domain>) -> Result {
        match self {
            Self::Verb(region) => region.register_again(core_pd, change),
            Self::Fast(_) => Err(EINVAL),
        }
    }

    fn close(&self) -> Result {
        match self {
            Self::Verb(region) => region.close(),
            // What is registered ends with it.
            Self::Fast(_) => Ok(()),
        }
    }

    fn key(&self) -> u32 {
        match self {
            Self::Verb(region) => region.key,
            Self::Fast(region) => region.key(),
        }
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        match self {
            Self::Verb(region) => region.details(out),
            Self::Fast(region) => region.details(out),
        }
    }
}

impl FastRegion for Mr {
    fn allocate(device: &Device, pd: &Domain, most: u32, shape: Shape) -> Result<Self> {
        FastMr::allocate(device, pd, most, shape).map(Self::Fast)
    }

    fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<Taken> {
        match self {
            Self::Verb(_) => Err(EINVAL),
            Self::Fast(region) => region.map(list, page),
        }
    }
}

/// A registered region. Dropping it deregisters the region and unpins its memory.
pub struct UserMr {
    port: Arc<Port>,
    /// As it is now. The lock orders registrations and is held while they wait.
    current: Pin<KBox<Mutex<Current>>>,
    key: u32,
    _permit: ObjectPermit,
}

/// What can be registered again.
struct Current {
    region: Arc<Region>,
    domain: DomainId,
    range: UserRange,
}

/// The rights that can be granted; what else is asked for and is not optional is refused.
const SUPPORTED: u32 = Access::LOCAL_WRITE
    | Access::REMOTE_READ
    | Access::REMOTE_WRITE
    | Access::REMOTE_ATOMIC
    | Access::MW_BIND
    | Access::ZERO_BASED
    | Access::FLUSH_GLOBAL
    | Access::OPTIONAL;

/// What a range that a process names is: with the addresses that work requests use.
fn checked(mut range: UserRange) -> Result<UserRange> {
    if range.access.0 & !SUPPORTED != 0 {
        return Err(EOPNOTSUPP());
    }
    if range.access.has(Access::ZERO_BASED) {
        // `ibv_reg_mr` names the address all the same, `ibv_reg_mr_iova` may name any.
        if range.iova != range.start && range.iova != 0 {
            return Err(EINVAL);
        }
        range.iova = 0;
    }
    // The last byte of a region may be the last one of the address space, not beyond.
    if range.len == 0 || range.iova.checked_add(range.len.wrapping_sub(1)).is_none() {
        return Err(EINVAL);
    }
    Ok(range)
}

fn pin(pd: PdRef<'_>, range: &UserRange) -> Result<UserMemory> {
    UserMemory::pin(pd, range.start, range.len, range.access.as_raw())
}

impl UserMr {
    fn register(
        device: &Device,
        pd: &Domain,
        core_pd: PdRef<'_>,
        range: UserRange,
    ) -> Result<Self> {
        let range = checked(range)?;
        let permit = device.permit(Kind::Mr)?;
        let memory = pin(core_pd, &range)?;
        let port = device.port();
        let (reserved, key) = port.reserve_key()?;
        let region = Region::new(key, pd.id(), range.access, range.iova, memory);
        let region = Arc::new(region, GFP_KERNEL_ACCOUNT)?;
        let current = Current {
            region: region.clone(),
            domain: pd.id(),
            range,
        };
        let current = KBox::pin_init(new_mutex!(current), GFP_KERNEL_ACCOUNT)?;
        port.publish_region(reserved, region);
        Ok(Self {
            port: port.clone(),
            current,
            key,
            _permit: permit,
        })
    }

    fn of_kernel(
        device: &Device,
        pd: &Domain,
        memory: KernelMemory,
        access: Access,
    ) -> Result<Self> {
        let permit = device.permit(Kind::Mr)?;
        let port = device.port();
        let (reserved, key) = port.reserve_key()?;
        let region = Region::of_kernel(key, pd.id(), access, memory);
        let region = Arc::new(region, GFP_KERNEL)?;
        let current = Current {
            region: region.clone(),
            domain: pd.id(),
            // Users in the kernel do not register again.
            range: UserRange {
                start: 0,
                len: u64::MAX,
                iova: 0,
                access,
            },
        };
        let current = KBox::pin_init(new_mutex!(current), GFP_KERNEL)?;
        port.publish_region(reserved, region);
        Ok(Self {
            port: port.clone(),
            current,
            key,
            _permit: permit,
        })
    }

    /// The old region ends before the new one can be found where both are the same memory, and
    /// after it where they are not. Either way no copy by the old rights, or to the old memory,
    /// goes on when this returns, and nothing can fail once the old one is touched.
    fn register_again(&self, core_pd: PdRef<'_>, change: Change<'_, Domain>) -> Result {
        let mut current = self.current.lock();
        let old = current.region.clone();
        if !old.close() {
            return Err(EBUSY);
        }
        let changed = self.change(&mut current, core_pd, change);
        if changed.is_err() {
            old.open();
        }
        changed
    }

    /// A window that is bound names the region, and its peers have a right to it; so they end first
    /// (IBTA 10.6.7.2.6).
    fn close(&self) -> Result {
        if self.current.lock().region.close() {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Addresses are the business of the process alone.
    fn details(&self, out: &mut Details<'_>) -> Result {
        let current = self.current.lock();
        let access = current.range.access;
        out.flags(c"access", access.0)?;
        let offsets = access.has(Access::ZERO_BASED);
        out.word(c"addresses", if offsets { c"offsets" } else { c"virtual" })?;
        out.number(c"windows", current.region.windows())?;
        let pieces = current.region.ask(UserMemory::pieces_of_all);
        out.number(c"pieces", pieces.unwrap_or(0) as u64)
    }

    /// See [`MemoryRegion::register_again`]; no window is bound to the region.
    fn change(
        &self,
        current: &mut Current,
        core_pd: PdRef<'_>,
        change: Change<'_, Domain>,
    ) -> Result {
        let old = current.region.clone();
        let mut range = current.range;
        range.access = change.access.unwrap_or(range.access);
        if let Some((start, len, iova)) = change.translation {
            (range.start, range.len, range.iova) = (start, len, iova);
        } else if (range.access.0 ^ current.range.access.0) & Access::ZERO_BASED != 0 {
            // Addresses become offsets, or offsets addresses.
            range.iova = range.start;
        }
        let range = checked(range)?;
        let domain = change.pd.map_or(current.domain, Domain::id);
        let is_writable = old.ask(UserMemory::is_writable).ok_or(EINVAL)?;
        let memory = if change.translation.is_some() {
            Some(pin(core_pd, &range)?)
        } else if range.access.needs_writable() && !is_writable {
            // It was pinned to be read only. Another process has other memory at that address.
            if !old.ask(UserMemory::is_of_caller).ok_or(EINVAL)? {
                return Err(EINVAL);
            }
            Some(pin(core_pd, &range)?)
        } else {
            None
        };
        let place = UniqueArc::<Region>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let region = self.port.replace_region(&old, || {
            match memory.or_else(|| old.revoke()) {
                Some(memory) => {
                    let (key, iova) = (old.key(), range.iova);
                    Arc::from(place.write(Region::new(key, domain, range.access, iova, memory)))
                }
                // Nobody revokes it but who holds the lock.
                None => old.clone(),
            }
        })?;
        drop(old.revoke());
        *current = Current {
            region,
            domain,
            range,
        };
        Ok(())
    }
}

impl Drop for UserMr {
    fn drop(&mut self) {
        self.port.remove_region(&self.current.lock().region);
    }
}
