// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::access::Access;
use super::call::{
    operations,
    Absent,
    IgnoredArgument, //
};
use super::details::{
    Details,
    NlMessage, //
};
use super::object;
use super::reference::{
    PdRef,
    Reference, //
};
use super::udata::NoUdata;
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use crate::sys::memory::KernelMemory;
use kernel::prelude::*;

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

    /// Changes what the region is, under the same key. On failure it is what it was.
    fn register_again(&self, core_pd: PdRef<'_>, change: MrChange<'_, Self::Pd>) -> Result;

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
    pub(super) fn set_key(self, key: u32) {
        // SAFETY: By the type invariant; the region is being created, so that nobody reads it yet.
        unsafe {
            (*self.as_raw()).lkey = key;
            (*self.as_raw()).rkey = key;
        }
    }

    fn describe(self, key: u32, range: UserRange) {
        self.set_key(key);
        // SAFETY: As above.
        unsafe {
            (*self.as_raw()).iova = range.iova;
            (*self.as_raw()).length = range.len;
        }
    }
}

operations! {
    <'a, M: MemoryRegion>

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
        mr.describe(key, range);
        Ok(mr.as_raw())
    }

    /// Only for ULPs: processes cannot request it. As no range is checked,
    /// peers get no right to it.
    get_dma_mr(pd: Pd<'a, M>, access: c_int) -> Result<*mut bindings::ib_mr> {
        let access = Access(access as u32);
        if access.0 & !Access::LOCAL_WRITE != 0 {
            return Err(EOPNOTSUPP());
        }
        // SAFETY: Its domain is one of the kernel, whose requests alone name its key.
        let memory = unsafe { KernelMemory::new() };
        let region = M::of_kernel(pd.device()?, &pd, memory, access)?;
        let key = region.key();
        let mr = object::allocate(region)?;
        mr.set_key(key);
        Ok(mr.as_raw())
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
        mr.register_again(pd.reference(), change)?;
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
