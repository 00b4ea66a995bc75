// SPDX-License-Identifier: GPL-2.0

//! Rings that a process maps or a ULP fills: the memory of `uabi::ring`.
//!
//! A process can write to all of it at any time. So nothing here is ever referenced: control words
//! are accessed as single atomics, and slots are copied whole into private memory before anything
//! looks at them.

use crate::core::uabi::ring as layout;
use crate::core::uabi::ring::{
    self,
    Module,
    Provider,
    Word,
    Words, //
};
use crate::core::uabi::udata::RingMap;
use crate::sys::ib::ContextRef;
use crate::sys::reclaim::{
    self,
    Node, //
};
use crate::sys::sync::Revocable;
use crate::sys::{
    bindings,
    memory, //
};
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::{
    self,
    Acquire,
    Relaxed,
    Release, //
};
use kernel::sync::Arc;

/// A charge of pinned pages to the RLIMIT_MEMLOCK of a process. Dropped where sleeping is
/// permitted.
///
/// # Invariants
///
/// `pages` were added to the `pinned_vm` of `mm`, to which this value has a reference.
struct Charge {
    mm: NonNull<bindings::mm_struct>,
    pages: usize,
}

impl Charge {
    /// Charges the calling process. `ENOMEM` beyond its limit.
    fn new(pages: usize) -> Result<Self> {
        // SAFETY: No requirements.
        let charge = || NonNull::new(unsafe { bindings::ferroce_charge_pinned(pages) });
        let mm = charge().or_else(|| {
            // Destroyed objects of the process may be charged until they are reclaimed.
            reclaim::flush();
            charge()
        });
        // INVARIANT: Charged above.
        mm.map(|mm| Self { mm, pages }).ok_or(ENOMEM)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_uncharge_pinned(self.mm.as_ptr(), self.pages) };
    }
}

/// Memory that is shared with a process, accounted to its memory cgroup.
///
/// # Invariants
///
/// `base` is an area from `ferroce_alloc_shared` that this value owns.
struct SharedPages {
    base: NonNull<u8>,
    /// Dropped after the pages are freed. ULPs pin nothing.
    charge: Option<Charge>,
}

impl SharedPages {
    /// Allocates `len` bytes of zeros, whole pages.
    fn new(len: usize, owner: Option<ContextRef<'_>>) -> Result<Self> {
        let charge = owner
            .map(|_process| Charge::new(len >> bindings::PAGE_SHIFT))
            .transpose()?;
        // SAFETY: No requirements.
        let base = unsafe { bindings::ferroce_alloc_shared(len) };
        // INVARIANT: As allocated above.
        Ok(Self {
            base: NonNull::new(base.cast::<u8>()).ok_or(ENOMEM)?,
            charge,
        })
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // Pages that a process still maps stay until it unmaps them: each mapping counts a
        // reference.
        // SAFETY: By the type invariant the area is ours.
        unsafe { bindings::ferroce_free_shared(self.base.as_ptr().cast::<c_void>()) };
    }
}

/// One ring.
///
/// # Invariants
///
/// `base` is that of `shared`, which is from `KBox::into_raw` and ours, and has `len` bytes, with
/// `CONTROL_SIZE + entries * stride <= len`; `entries` is a power of two and `stride` a multiple of
/// `SLOT_ALIGN`.
pub struct Ring {
    base: NonNull<u8>,
    len: usize,
    entries: u32,
    stride: u32,
    shared: NonNull<SharedPages>,
    /// Frees it where the last user may not sleep.
    node: Option<KBox<Node>>,
}

// SAFETY: The memory is only accessed through raw pointers, by atomics and copies.
unsafe impl Send for Ring {}
// SAFETY: As above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Allocates a zeroed ring of `entries` (a power of two) slots of `stride` bytes, charged to
    /// the process that calls by `owner`, or for a ULP. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` without memory, also of its memory cgroup, or beyond its RLIMIT_MEMLOCK.
    pub fn new(owner: Option<ContextRef<'_>>, entries: u32, stride: u32) -> Result<Ring> {
        if !entries.is_power_of_two() || stride == 0 || stride as usize % layout::SLOT_ALIGN != 0 {
            return Err(EINVAL);
        }
        let bytes = usize::try_from(layout::mapping_len(entries, stride)).map_err(|_| EINVAL)?;
        let len = kernel::page::page_align(bytes).ok_or(EINVAL)?;
        let node = Node::new(GFP_KERNEL_ACCOUNT)?;
        let shared = KBox::new(SharedPages::new(len, owner)?, GFP_KERNEL_ACCOUNT)?;
        let base = shared.base;
        // SAFETY: What `KBox::into_raw` returns is not null.
        let shared = unsafe { NonNull::new_unchecked(KBox::into_raw(shared)) };
        // INVARIANT: As checked and allocated above.
        Ok(Ring {
            base,
            len,
            entries,
            stride,
            shared,
            node: Some(node),
        })
    }

    /// Whether the ring is that of a process, and another one is at work: it takes the queue away.
    pub fn is_taken_away(&self) -> bool {
        // SAFETY: By the type invariant.
        let charge = unsafe { self.shared.as_ref() }.charge.as_ref();
        // SAFETY: By the type invariant of the charge.
        charge.is_some_and(|it| unsafe { bindings::ferroce_is_of_another(it.mm.as_ptr()) })
    }

    /// Stores in this ring where to map its successor.
    pub fn succeed(&self, map: &RingMap) {
        let words: [u64; 3] = zerocopy::transmute!(*map);
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: The control block is within the allocation, by the type invariant, and these
            // words of it are aligned. A volatile write, as the process may be reading.
            unsafe {
                self.base
                    .as_ptr()
                    .add(layout::OFFSET_SUCCESSOR)
                    .cast::<u64>()
                    .add(i)
                    .write_volatile(word);
            }
        }
    }

    /// Bytes per slot.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    #[inline]
    fn word(&self, word: Word) -> *mut u32 {
        // SAFETY: The control block is within the allocation, by the type invariant.
        unsafe { self.base.as_ptr().add(word.offset()).cast::<u32>() }
    }

    fn slot(&self, index: u32) -> *mut u64 {
        let slot = (index & (self.entries.wrapping_sub(1))) as usize;
        // SAFETY: `slot < entries`, so the whole slot is within the allocation.
        unsafe {
            self.base
                .as_ptr()
                .add(layout::CONTROL_SIZE.wrapping_add(slot.wrapping_mul(self.stride as usize)))
                .cast::<u64>()
        }
    }
}

impl Words for Ring {
    #[inline]
    fn load(&self, word: Word) -> u32 {
        // SAFETY: The word is valid; the other side accesses it by atomics or harms itself only.
        unsafe { atomic::atomic_load(self.word(word), Relaxed) }
    }

    #[inline]
    fn load_acquire(&self, word: Word) -> u32 {
        // SAFETY: As in `load`.
        unsafe { atomic::atomic_load(self.word(word), Acquire) }
    }

    #[inline]
    fn store(&self, word: Word, value: u32) {
        // SAFETY: As in `load`.
        unsafe { atomic::atomic_store(self.word(word), value, Relaxed) }
    }

    #[inline]
    fn store_release(&self, word: Word, value: u32) {
        // SAFETY: As in `load`.
        unsafe { atomic::atomic_store(self.word(word), value, Release) }
    }

    #[inline]
    fn full_barrier(&self) {
        memory::full_barrier();
    }
}

impl Module for Ring {
    #[inline]
    fn swap(&self, word: Word, value: u32) -> u32 {
        // SAFETY: As in `load`; the word is aligned and valid for the whole call.
        unsafe { atomic::Atomic::from_ptr(self.word(word)) }.xchg(value, Relaxed)
    }
}

/// The module does for a ULP what a provider does for a process.
impl Provider for Ring {
    fn raise(&self, word: Word, value: u32) {
        // SAFETY: As in `load`; the word is aligned and valid for the whole call.
        let word = unsafe { atomic::Atomic::from_ptr(self.word(word)) };
        let mut now = word.load(Relaxed);
        while now < value {
            match word.cmpxchg(now, value, Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

impl ring::RingOps for Ring {
    #[inline]
    fn entries(&self) -> u32 {
        self.entries
    }

    fn read_slot(&self, index: u32, first: usize, out: &mut [u64]) {
        let slot = self.slot(index);
        let words = (self.stride as usize / 8).saturating_sub(first);
        for (i, word) in out.iter_mut().take(words).enumerate() {
            // SAFETY: `first + i` is a word of the slot. A volatile read, as the process may be
            // writing.
            *word = unsafe { slot.add(first.wrapping_add(i)).read_volatile() };
        }
    }

    fn write_slot(&self, index: u32, words: &[u64]) {
        let slot = self.slot(index);
        for (i, word) in words.iter().take(self.stride as usize / 8).enumerate() {
            // SAFETY: `i * 8 < stride`. A volatile write, as the process may be reading.
            unsafe { slot.add(i).write_volatile(*word) };
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        /// # Safety
        ///
        /// `shared` must be from `KBox::into_raw`, and owned; may sleep.
        unsafe fn free(shared: *mut c_void) {
            // SAFETY: By the requirement.
            drop(unsafe { KBox::from_raw(shared.cast::<SharedPages>()) });
        }
        let shared = self.shared.as_ptr().cast::<c_void>();
        // SAFETY: By the type invariant `shared` is ours, and this is the end of it.
        unsafe {
            match self.node.take() {
                Some(node) if !bindings::ferroce_may_sleep() => node.call(shared, free),
                _ => free(shared),
            }
        }
    }
}

/// Access to the mmap offsets of a command file, valid as long as the file.
///
/// An offset may be withdrawn by anyone at any time: after the end of the file that does nothing.
pub(in crate::sys) struct Offsets(Arc<Revocable<File>>);

/// The context of a command file.
struct File(NonNull<bindings::ib_ucontext>);

// SAFETY: ib_core locks the entries of a context, and nothing else of it is used.
unsafe impl Send for File {}
// SAFETY: As above.
unsafe impl Sync for File {}

impl Offsets {
    /// # Safety
    ///
    /// `context` must be valid until the result is dropped.
    pub(in crate::sys) unsafe fn new(context: NonNull<bindings::ib_ucontext>) -> Result<Self> {
        Ok(Self(Arc::new(
            Revocable::new(File(context)),
            GFP_KERNEL_ACCOUNT,
        )?))
    }
}

impl Drop for Offsets {
    fn drop(&mut self) {
        // Waits for entries that are being inserted or removed.
        let _ = self.0.revoke();
    }
}

/// A mapping offset of a [`Ring`] in a command file; dropping it withdraws the offset.
///
/// # Invariants
///
/// `entry` is the `rdma_entry` of an [`MmapEntry`], inserted in the context of `file` and not
/// removed: it lives as long as `file` can be accessed.
pub struct Mapping {
    file: Arc<Revocable<File>>,
    entry: NonNull<bindings::rdma_user_mmap_entry>,
}

// SAFETY: ib_core locks the entries of a context.
unsafe impl Send for Mapping {}
// SAFETY: As above.
unsafe impl Sync for Mapping {}

/// The entry in ib_core's form; freed by [`Mapping::free`] with its last reference.
#[repr(C)]
struct MmapEntry {
    rdma_entry: bindings::rdma_user_mmap_entry,
    ring: Arc<Ring>,
}

impl Mapping {
    /// Offers `ring` to the process of `context`, and returns its offset.
    pub fn new(context: ContextRef<'_>, ring: &Arc<Ring>) -> Result<(Mapping, RingMap)> {
        let file = context.offsets().0.clone();
        let access = file.access().ok_or(ENODEV)?;
        let entry = KBox::new(
            MmapEntry {
                rdma_entry: pin_init::zeroed(),
                ring: ring.clone(),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let raw = KBox::into_raw(entry);
        // SAFETY: `raw` is a live entry, zeroed as the callee wants it; the context is live while
        // `access` is.
        let ret = unsafe {
            bindings::rdma_user_mmap_entry_insert(
                access.0.as_ptr(),
                &raw mut (*raw).rdma_entry,
                ring.len,
            )
        };
        if ret != 0 {
            // SAFETY: The entry was refused, so it is still ours alone.
            drop(unsafe { KBox::from_raw(raw) });
            return Err(Error::from_errno(ret));
        }
        // SAFETY: `raw` is live and not null.
        let (entry, offset) = unsafe {
            (
                NonNull::new_unchecked(&raw mut (*raw).rdma_entry),
                ((*raw).rdma_entry.start_pgoff as u64) << bindings::PAGE_SHIFT,
            )
        };
        drop(access);
        // INVARIANT: Inserted above.
        Ok((
            Mapping { file, entry },
            RingMap {
                offset,
                length: ring.len as u64,
                entries: ring.entries,
                stride: ring.stride,
            },
        ))
    }

    /// The `mmap` of the device: maps the ring at the offset that the process asked for.
    ///
    /// # Safety
    ///
    /// `context` and `vma` must be the arguments of ib_core's `mmap` operation.
    pub(super) unsafe fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut bindings::vm_area_struct,
    ) -> Result {
        // SAFETY: By the requirement.
        let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma) };
        if entry.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: Every entry of our contexts is the first field of an `MmapEntry`, and the
        // reference just taken keeps it.
        let ring = unsafe { &(*entry.cast::<MmapEntry>()).ring };
        // SAFETY: The area is `len` bytes of whole pages from `vmalloc`; nothing is mapped in `vma`
        // yet.
        let ret = unsafe {
            bindings::ferroce_map_shared(vma, ring.base.as_ptr().cast::<c_void>(), ring.len)
        };
        // SAFETY: The reference was taken above.
        unsafe { bindings::rdma_user_mmap_entry_put(entry) };
        to_result(ret)
    }

    /// The `mmap_free` of the device.
    ///
    /// # Safety
    ///
    /// `entry` must be the `rdma_entry` of an [`MmapEntry`] whose last reference is gone.
    pub(super) unsafe fn free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: By the requirement; it was made by `KBox::into_raw` in `new`.
        drop(unsafe { KBox::from_raw(entry.cast::<MmapEntry>()) });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(_file) = self.file.access() {
            // SAFETY: By the type invariant the entry is inserted, and this is the only removal;
            // the context is valid, for its end waits for `_file`.
            unsafe { bindings::rdma_user_mmap_entry_remove(self.entry.as_ptr()) };
        }
    }
}
