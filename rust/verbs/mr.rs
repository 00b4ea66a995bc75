// SPDX-License-Identifier: GPL-2.0

//! Memory regions: of processes, of all kernel memory, and FRMRs; and memory windows of processes.

use crate::core::memory::MemoryKey;
use crate::core::quota::ObjectKind;
use crate::datapath::memory::region::{
    Lists,
    Region, //
};
use crate::datapath::memory::window::{
    Mw,
    MwKind, //
};
use crate::datapath::port::Port;
use crate::sys::ib::mr::{
    Access,
    MemoryRegion,
    MemoryWindow,
    MrChange,
    MwType,
    UserRange, //
};
use crate::sys::ib::process::Details;
use crate::sys::ib::PdRef;
use crate::sys::listed::{
    ListShape,
    MappedPart,
    ScatterList, //
};
use crate::sys::memory::{
    KernelMemory,
    UserMemory, //
};
use crate::sys::refusal::{
    of_bits,
    within,
    EOPNOTSUPP, //
};
use crate::sys::table::{
    Published,
    Replacement,
    Reserved, //
};
use crate::sys::trace::{
    self,
    KeyAction, //
};
use crate::verbs::device::{
    Device,
    Domain,
    ObjectPermit,
    MAX_FAST_PAGES, //
};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    Mutex, //
};

/// A memory region of ib_core. Dropping it ends all access.
pub enum MrObject {
    /// Registered by a verb.
    Verb(VerbMr),
    /// Registered by WRs.
    Fast(MwObject),
}

impl MemoryRegion for MrObject {
    type Device = Device;
    type Pd = Domain;

    fn register(
        device: &Device,
        pd: &Domain,
        core_pd: PdRef<'_>,
        range: UserRange,
    ) -> Result<Self> {
        let range = checked(range)?;
        let permit = device.permit(ObjectKind::Mr)?;
        let memory = pin(core_pd, &range)?;
        let (reserved, key) = device.port.keys.reserve_region()?;
        let region = Region::new(key, pd.id, range.access, range.iova, memory);
        VerbMr::published(device, permit, reserved, region, range).map(Self::Verb)
    }

    fn of_kernel(
        device: &Device,
        pd: &Domain,
        memory: KernelMemory,
        access: Access,
    ) -> Result<Self> {
        let permit = device.permit(ObjectKind::Mr)?;
        let (reserved, key) = device.port.keys.reserve_region()?;
        let region = Region::of_kernel(key, pd.id, access, memory);
        // ULPs do not reregister.
        let range = UserRange {
            start: 0,
            len: u64::MAX,
            iova: 0,
            access,
        };
        VerbMr::published(device, permit, reserved, region, range).map(Self::Verb)
    }

    fn reregister(&self, core_pd: PdRef<'_>, change: MrChange<'_, Domain>) -> Result {
        match self {
            Self::Verb(region) => region.reregister(core_pd, change),
            Self::Fast(_) => Err(EINVAL),
        }
    }

    fn close(&self) -> Result {
        match self {
            Self::Verb(region) => region.close(),
            // An FRMR's registration ends with it.
            Self::Fast(_) => Ok(()),
        }
    }

    fn key(&self) -> u32 {
        match self {
            Self::Verb(region) => region.key.get(),
            Self::Fast(window) => window.key.get(),
        }
    }

    fn details(&self, out: &mut Details<'_>) -> Result {
        match self {
            Self::Verb(region) => region.details(out),
            Self::Fast(MwObject { window, .. }) => {
                out.word(c"addresses", c"fast")?;
                out.number(c"registered", window.is_bound())
            }
        }
    }

    fn allocate(device: &Device, pd: &Domain, most: u32, shape: ListShape) -> Result<Self> {
        within("max_num_sg", most, 1..=u64::from(MAX_FAST_PAGES))?;
        let permit = device.permit(ObjectKind::Mr)?;
        let lists = Lists::new(most as usize, shape)?;
        MwObject::new(device, pd, permit, MwKind::Fast(lists)).map(Self::Fast)
    }

    fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<MappedPart> {
        match self {
            Self::Verb(_) => Err(EINVAL),
            Self::Fast(fast) => fast.window.lists().ok_or(EINVAL)?.map(list, page),
        }
    }
}

/// A registered region. Dropping it deregisters the region and unpins its memory.
pub struct VerbMr {
    port: Arc<Port>,
    /// The current region. Listing the objects of processes takes the lock too, so it is not held
    /// while pages are pinned: a process can make that last.
    current: Pin<KBox<Mutex<Current>>>,
    key: MemoryKey,
    _permit: ObjectPermit,
}

/// State needed to reregister.
struct Current {
    region: Published<Region>,
    range: UserRange,
}

/// What happens to the key of a region.
#[cold]
fn of_key(what: KeyAction, key: MemoryKey, current: &Current) -> trace::Key {
    let pieces = current.region.inspect(UserMemory::pieces_of_all);
    trace::Key {
        key: key.get(),
        what: what as u32,
        len: current.range.len,
        access: current.range.access.0,
        pieces: pieces.map_or(0, |pieces| pieces as u32),
        done: true,
    }
}

/// The rights that can be granted; any other is refused unless it is optional.
const SUPPORTED: u32 = Access::LOCAL_WRITE
    | Access::REMOTE_READ
    | Access::REMOTE_WRITE
    | Access::REMOTE_ATOMIC
    | Access::MW_BIND
    | Access::ZERO_BASED
    | Access::FLUSH_GLOBAL
    | Access::OPTIONAL;

/// The range that a process names, with the addresses that WRs use.
fn checked(mut range: UserRange) -> Result<UserRange> {
    of_bits(EOPNOTSUPP(), "access", range.access.0, SUPPORTED)?;
    if range.access.has(Access::ZERO_BASED) {
        // `ibv_reg_mr` passes the address anyway, `ibv_reg_mr_iova` may pass any.
        if range.iova != range.start {
            within("iova of a zero-based region", range.iova, 0..=0)?;
        }
        range.iova = 0;
    }
    // The last byte of a region may be the last one of the address space, not beyond. A region may
    // be empty: programs register what they have, and that may be nothing.
    let last = u64::MAX.saturating_sub(range.len.saturating_sub(1));
    within("iova of a region of this length", range.iova, 0..=last)?;
    Ok(range)
}

fn pin(pd: PdRef<'_>, range: &UserRange) -> Result<UserMemory> {
    UserMemory::pin(pd, range.start, range.len, range.access.as_raw())
}

impl VerbMr {
    fn published(
        device: &Device,
        permit: ObjectPermit,
        reserved: Reserved<'_, Region>,
        region: Region,
        range: UserRange,
    ) -> Result<Self> {
        let key = region.key;
        let region = Arc::new(region, GFP_KERNEL_ACCOUNT)?;
        let place = KBox::<Mutex<Current>>::new_uninit(GFP_KERNEL_ACCOUNT)?;
        let current = Current {
            region: reserved.publish_named(region),
            range,
        };
        trace::key(|| of_key(KeyAction::Register, key, &current));
        Ok(Self {
            port: device.port.clone(),
            // It has its memory, and cannot fail.
            current: place.write_pin_init(new_mutex!(current))?,
            key,
            _permit: permit,
        })
    }

    /// The old region ends before the new one is published if both are the same memory, and after
    /// it otherwise. Either way no copy by the old rights, or to the old memory, is in progress
    /// when this returns, and nothing can fail once the old one is touched.
    fn reregister(&self, core_pd: PdRef<'_>, change: MrChange<'_, Domain>) -> Result {
        let (old, before) = {
            let current = self.current.lock();
            (Arc::clone(&current.region), current.range)
        };
        let mut range = before;
        range.access = change.access.unwrap_or(range.access);
        if let Some((start, len, iova)) = change.translation {
            (range.start, range.len, range.iova) = (start, len, iova);
        } else if (range.access.0 ^ before.access.0) & Access::ZERO_BASED != 0 {
            // Changes between virtual and zero-based addresses.
            range.iova = range.start;
        }
        let range = checked(range)?;
        let domain = change.pd.map_or(old.domain, |domain| domain.id);
        let is_writable = old.inspect(UserMemory::is_writable).ok_or(EINVAL)?;
        let memory = if change.translation.is_some() {
            Some(pin(core_pd, &range)?)
        } else if range.access.needs_writable() && !is_writable {
            // It was pinned read-only. Another process has other memory at that address.
            if !old.inspect(UserMemory::is_of_caller).ok_or(EINVAL)? {
                return Err(EINVAL);
            }
            Some(pin(core_pd, &range)?)
        } else {
            None
        };
        let replacement = Replacement::new()?;

        let mut current = self.current.lock();
        // ib_core serialises reregistration; an MW may have been bound.
        if !Arc::ptr_eq(&current.region, &old) || !old.close() {
            return Err(EBUSY);
        }
        let Some(memory) = memory.or_else(|| old.revoke()) else {
            // Only the holder of the lock revokes it.
            old.open();
            return Err(EINVAL);
        };
        let region = Region::new(self.key, domain, range.access, range.iova, memory);
        self.port
            .keys
            .replace_region(&mut current.region, replacement, region);
        drop(old.revoke());
        current.range = range;
        trace::key(|| of_key(KeyAction::Reregister, self.key, &current));
        Ok(())
    }

    /// A bound MW names the region, and its peers have a right to it; so MWs end first (IBTA
    /// 10.6.7.2.6).
    fn close(&self) -> Result {
        if self.current.lock().region.close() {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Addresses concern only the process.
    fn details(&self, out: &mut Details<'_>) -> Result {
        let current = self.current.lock();
        let access = current.range.access;
        out.flags(c"access", access.0)?;
        let offsets = access.has(Access::ZERO_BASED);
        out.word(c"addresses", if offsets { c"offsets" } else { c"virtual" })?;
        out.number(c"windows", current.region.windows())?;
        let pieces = current.region.inspect(UserMemory::pieces_of_all);
        out.number(c"pieces", pieces.unwrap_or(0) as u64)
    }
}

impl Drop for VerbMr {
    fn drop(&mut self) {
        trace::key(|| of_key(KeyAction::Deregister, self.key, &self.current.lock()));
        let keys = &self.port.keys;
        keys.remove_region(&mut self.current.lock().region);
    }
}

/// A memory window, or the window by which an FRMR is accessed. When it is dropped, no access
/// through it is left.
pub struct MwObject {
    port: Arc<Port>,
    window: Published<Mw>,
    /// The key at allocation.
    key: MemoryKey,
    _permit: ObjectPermit,
}

impl MwObject {
    fn new(device: &Device, pd: &Domain, permit: ObjectPermit, kind: MwKind) -> Result<Self> {
        let port = &device.port;
        let (reserved, key) = port.keys.reserve_window()?;
        let window = Mw::new(key, pd.id, kind)?;
        Ok(Self {
            port: port.clone(),
            window: reserved.publish(window),
            key,
            _permit: permit,
        })
    }
}

impl MemoryWindow for MwObject {
    type Device = Device;
    type Pd = Domain;

    fn allocate(device: &Device, pd: &Domain, kind: MwType) -> Result<(Self, u32)> {
        let permit = device.permit(ObjectKind::Mw)?;
        let kind = match kind {
            MwType::One => MwKind::One,
            MwType::Two => MwKind::Two,
        };
        let window = Self::new(device, pd, permit, kind)?;
        let key = window.key.get();
        Ok((window, key))
    }
}

impl Drop for MwObject {
    fn drop(&mut self) {
        self.port.keys.remove_window(&mut self.window);
    }
}
