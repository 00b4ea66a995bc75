// SPDX-License-Identifier: GPL-2.0

//! Memory: rights, protection domains, regions and windows.
//!
//! A region of fast registration is allocated empty, mapped by a verb, and registered by a work
//! request.

use crate::sys::bindings;
use crate::sys::ib::object::{
    self,
    Object, //
};
use crate::sys::ib::process::{
    Details,
    NlMessage,
    NoUdata, //
};
use crate::sys::ib::{
    operations,
    Absent,
    Argument,
    IgnoredArgument,
    PdRef,
    RawArgument,
    Reference, //
};
use crate::sys::listed::{
    ListShape,
    MappedPart,
    ScatterList, //
};
use crate::sys::memory::KernelMemory;
use crate::sys::refusal::EOPNOTSUPP;
use core::ptr::NonNull;
use kernel::prelude::*;

/// What may be done to memory through a QP or a region (`enum ib_access_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(pub u32);

impl Access {
    /// Local writes: receives and READ responses may be placed here.
    pub const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// Remote WRITE.
    pub const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// Remote READ.
    pub const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// Remote atomics.
    pub const REMOTE_ATOMIC: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// FLUSH, so that what was written is visible to all.
    pub const FLUSH_GLOBAL: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL;
    /// FLUSH, so that what was written is persistent.
    pub const FLUSH_PERSISTENT: u32 = bindings::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT;
    /// Flags that ask for nothing that must be honoured (relaxed ordering, for one).
    pub const OPTIONAL: u32 = bindings::ib_access_flags_IB_ACCESS_OPTIONAL;
    /// Addresses are offsets from the beginning.
    pub const ZERO_BASED: u32 = bindings::ib_access_flags_IB_ZERO_BASED;
    /// A window may be bound to the region.
    pub const MW_BIND: u32 = bindings::ib_access_flags_IB_ACCESS_MW_BIND;

    /// Whether all these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether the pages below must be writable (`ib_access_writable`).
    pub fn needs_writable(self) -> bool {
        let writes = Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_ATOMIC | Self::MW_BIND;
        self.0 & writes != 0
    }

    /// As ib_core wants it.
    pub fn as_raw(self) -> i32 {
        self.0 as i32
    }
}

/// A protection domain of a driver. Dropping it destroys it.
pub trait ProtectionDomain: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;

    /// Creates a domain.
    fn create(device: &Self::Device) -> Result<Self>
    where
        Self: Sized;
}

type NewPd<'a, P> = object::New<'a, bindings::ib_pd, P, <P as ProtectionDomain>::Device>;
type GonePd<'a, P> = object::Gone<'a, bindings::ib_pd, P>;

operations! {
    install_pd<'a, P: ProtectionDomain>

    alloc_pd(pd: NewPd<'a, P>, _udata: NoUdata) -> Result {
        pd.create(|device, ()| Ok((P::create(device)?, ())))?;
        Ok(())
    }

    dealloc_pd(pd: GonePd<'a, P>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        pd.destroy();
        Ok(())
    }
}

/// A memory region of a driver. Dropping it deregisters the region: afterwards nothing
/// accesses the memory.
pub trait MemoryRegion: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Registers memory of the calling process.
    fn register(
        device: &Self::Device,
        pd: &Self::Pd,
        core_pd: PdRef<'_>,
        range: UserRange,
    ) -> Result<Self>
    where
        Self: Sized;

    /// Makes a region of all memory of the kernel, for ULPs.
    fn of_kernel(
        device: &Self::Device,
        pd: &Self::Pd,
        memory: KernelMemory,
        access: Access,
    ) -> Result<Self>
    where
        Self: Sized;

    /// Allocates an empty region of fast registration, for lists of so many pages or pieces. Only
    /// ULPs have them.
    fn allocate(device: &Self::Device, pd: &Self::Pd, most: u32, shape: ListShape) -> Result<Self>
    where
        Self: Sized;

    /// Maps as much of a list as it can, in pages of `page` bytes, for the work request that
    /// registers it. Any context.
    fn map(&self, list: &ScatterList<'_>, page: u64) -> Result<MappedPart>;

    /// Changes what the region is, under the same key. On failure it is what it was.
    fn reregister(&self, core_pd: PdRef<'_>, change: MrChange<'_, Self::Pd>) -> Result;

    /// It is about to be dropped, if it can be: `EBUSY` while windows are bound to it.
    fn close(&self) -> Result;

    /// The key of the region, both local and remote.
    fn key(&self) -> u32;

    /// Details for `rdma resource show`.
    fn details(&self, out: &mut Details<'_>) -> Result;
}

/// Changes of a region; `None` leaves an attribute as it is.
pub struct MrChange<'a, Pd> {
    /// Where the memory is: its address, its length, and the address of its first byte in work
    /// requests.
    pub translation: Option<(u64, u64, u64)>,
    /// The protection domain.
    pub pd: Option<&'a Pd>,
    /// Access rights.
    pub access: Option<Access>,
}

/// Memory of a process, to be registered.
#[derive(Clone, Copy, Debug)]
pub struct UserRange {
    /// Where it begins in the process.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The address of its first byte in work requests.
    pub iova: u64,
    /// Access rights.
    pub access: Access,
}

type Pd<'a, M> =
    object::Live<'a, bindings::ib_pd, <M as MemoryRegion>::Pd, <M as MemoryRegion>::Device>;
type Live<'a, M> = object::Live<'a, bindings::ib_mr, M>;
type Gone<'a, M> = object::Gone<'a, bindings::ib_mr, M>;

impl Reference<'_, bindings::ib_mr> {
    fn set_key(self, key: u32) {
        // SAFETY: By the type invariant; the region is being created, so that nobody reads it yet.
        unsafe {
            (*self.as_raw()).lkey = key;
            (*self.as_raw()).rkey = key;
        }
    }

    /// The size of pages that its user has chosen.
    fn page_size(self) -> u64 {
        // SAFETY: By the type invariant; `ib_map_mr_sg` has just set it.
        u64::from(unsafe { (*self.as_raw()).page_size })
    }

    /// What WRs may name: the address of the first byte, and the length.
    fn set_range(self, iova: u64, len: u64) {
        // SAFETY: By the type invariant; the region is being created, or the ULP that maps it is
        // alone in using these fields.
        unsafe {
            (*self.as_raw()).iova = iova;
            (*self.as_raw()).length = len;
        }
    }
}

/// Where to begin in the first entry of a list, and to say where to go on; it may be nowhere.
///
/// # Invariants
///
/// The place may be read and written while the operation runs.
struct Offset(Option<NonNull<c_uint>>);

impl Argument for Offset {
    type Raw = *mut c_uint;

    unsafe fn from_raw(raw: Self::Raw) -> Result<Self> {
        // INVARIANT: By the requirement.
        Ok(Self(NonNull::new(raw)))
    }
}

impl Offset {
    fn get(&self) -> u64 {
        // SAFETY: By the type invariant.
        self.0.map_or(0, |place| u64::from(unsafe { place.read() }))
    }

    fn set(&self, offset: u64) {
        if let Some(place) = self.0 {
            // SAFETY: By the type invariant. It lies within an entry, whose length is a `u32`.
            unsafe { place.write(offset as c_uint) };
        }
    }
}

operations! {
    install<'a, M: MemoryRegion>

    reg_user_mr(
        pd: Pd<'a, M>,
        start: u64,
        len: u64,
        iova: u64,
        access: c_int,
        _dmah: Absent<bindings::ib_dmah>,
        _udata: NoUdata,
    ) -> Result<*mut bindings::ib_mr> {
        let range = UserRange { start, len, iova, access: Access(access as u32) };
        let region = M::register(pd.device()?, &pd, pd.reference(), range)?;
        let key = region.key();
        let mr = object::allocate(region)?;
        mr.set_key(key);
        mr.set_range(iova, len);
        Ok(mr.as_raw())
    }

    /// Only for ULPs: processes cannot request it. As no range is checked, peers get no right to
    /// it.
    get_dma_mr(pd: Pd<'a, M>, access: c_int) -> Result<*mut bindings::ib_mr> {
        let access = Access(access as u32);
        if access.0 & !Access::LOCAL_WRITE != 0 {
            return Err(EOPNOTSUPP());
        }
        // SAFETY: Its domain is one of the kernel, whose requests alone name its key.
        let memory = unsafe { KernelMemory::new() }?;
        let region = M::of_kernel(pd.device()?, &pd, memory, access)?;
        let key = region.key();
        let mr = object::allocate(region)?;
        mr.set_key(key);
        Ok(mr.as_raw())
    }

    alloc_mr(
        pd: Pd<'a, M>,
        kind: bindings::ib_mr_type,
        most: u32,
    ) -> Result<*mut bindings::ib_mr> {
        let shape = match kind {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG => ListShape::Pages,
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS => ListShape::Gaps,
            _ => return Err(EOPNOTSUPP()),
        };
        let region = M::allocate(pd.device()?, &pd, most, shape)?;
        let key = region.key();
        let mr = object::allocate(region)?;
        mr.set_key(key);
        Ok(mr.as_raw())
    }

    map_mr_sg(
        mr: Live<'a, M>,
        first: RawArgument<bindings::scatterlist>,
        count: c_int,
        offset: Offset,
    ) -> Result<c_int> {
        let count = usize::try_from(count).map_err(|_| EINVAL)?;
        // SAFETY: The ULP vouches for the number of entries.
        let list = unsafe { ScatterList::new(first.get(), count, offset.get()) };
        let mapped = mr.map(&list, mr.reference().page_size())?;
        mr.reference().set_range(mapped.address, mapped.len);
        offset.set(mapped.of_next);
        // There are no more than `count`.
        Ok(mapped.entries as c_int)
    }

    /// Null says that the region is the same object as before.
    rereg_user_mr(
        mr: Live<'a, M>,
        flags: c_int,
        start: u64,
        len: u64,
        iova: u64,
        access: c_int,
        pd: Pd<'a, M>,
        _udata: NoUdata,
    ) -> Result<*mut bindings::ib_mr> {
        let flags = flags as u32;
        let has = |flag: bindings::ib_mr_rereg_flags| flags & flag != 0;
        let change = MrChange {
            translation: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS)
                .then_some((start, len, iova)),
            pd: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD).then_some(pd.private()),
            access: has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS)
                .then_some(Access(access as u32)),
        };
        mr.reregister(pd.reference(), change)?;
        Ok(core::ptr::null_mut())
    }

    fill_res_mr_entry(message: NlMessage<'a>, mr: Live<'a, M>) -> Result {
        message.details(|out| mr.details(out))
    }

    dereg_mr(mr: Gone<'a, M>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        // ib_core asks again when it has destroyed what else a process had.
        mr.private().close()?;
        mr.destroy_and_free();
        Ok(())
    }
}

/// A memory window of a driver. Dropping it destroys it: afterwards nothing is accessed through it.
pub trait MemoryWindow: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The protection domain type.
    type Pd: Send + Sync + 'static;

    /// Makes a window that is not bound, and its key.
    fn allocate(device: &Self::Device, pd: &Self::Pd, kind: MwType) -> Result<(Self, u32)>
    where
        Self: Sized;
}

/// The type of a memory window (IBTA 10.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MwType {
    /// Bound by a verb.
    One,
    /// Bound by a WR.
    Two,
}

type NewMw<'a, M> = object::New<'a, bindings::ib_mw, M, <M as MemoryWindow>::Device>;
type GoneMw<'a, M> = object::Gone<'a, bindings::ib_mw, M>;

operations! {
    install_mw<'a, M: MemoryWindow>

    alloc_mw(mw: NewMw<'a, M>, _udata: NoUdata) -> Result {
        let core = mw.as_raw();
        // SAFETY: ib_core has filled in domain and type of the window that is being created, and
        // the domain lives as long as the window.
        let (pd, kind): (&M::Pd, _) = unsafe {
            let pd = NonNull::new((*core).pd).ok_or(EINVAL)?;
            (Object::private(pd), (*core).type_)
        };
        let kind = match kind {
            bindings::ib_mw_type_IB_MW_TYPE_1 => MwType::One,
            bindings::ib_mw_type_IB_MW_TYPE_2 => MwType::Two,
            _ => return Err(EOPNOTSUPP()),
        };
        let (_, key) = mw.create(|device, ()| M::allocate(device, pd, kind))?;
        // SAFETY: The window is being created, so that nobody reads it yet.
        unsafe { (*core).rkey = key };
        Ok(())
    }

    dealloc_mw(mw: GoneMw<'a, M>) -> Result {
        mw.destroy();
        Ok(())
    }
}
