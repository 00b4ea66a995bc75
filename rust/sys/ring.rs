// SPDX-License-Identifier: GPL-2.0

//! Rings that a user process maps: the memory behind `uabi::ring`.
//!
//! The process can write to all of it at any time. So nothing here is ever referenced: the control
//! words are read and written as single atomics, and slots are copied whole into private memory
//! before anybody looks at them.

use super::bindings;
use super::ib::object::ContextRef;
use crate::uabi::ring as layout;
use crate::uabi::udata::RingMap;
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

/// One ring.
///
/// # Invariants
///
/// `base` is the start of `len` bytes from `vmalloc_user` that this value owns, with
/// `CONTROL_SIZE + entries * stride <= len`; `entries` is a power of two and `stride` a multiple
/// of `SLOT_ALIGN`.
pub struct Ring {
    base: NonNull<u8>,
    len: usize,
    entries: u32,
    stride: u32,
}

// SAFETY: The memory is only accessed through raw pointers, by atomics and copies.
unsafe impl Send for Ring {}
// SAFETY: As above.
unsafe impl Sync for Ring {}

/// Orders all accesses before it against all after it, on every CPU.
fn full_barrier() {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_smp_mb() };
}

impl Ring {
    /// Allocates a zeroed ring of `entries` (a power of two) slots of `stride` bytes.
    pub fn new(entries: u32, stride: u32) -> Result<Ring> {
        if !entries.is_power_of_two() || stride == 0 || stride as usize % layout::SLOT_ALIGN != 0 {
            return Err(EINVAL);
        }
        let bytes = usize::try_from(layout::mapping_len(entries, stride)).map_err(|_| EINVAL)?;
        let len = kernel::page::page_align(bytes).ok_or(EINVAL)?;
        // SAFETY: No requirements.
        let base = unsafe { bindings::ferroce_vmalloc_user(len) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(ENOMEM)?;
        // INVARIANT: As checked and allocated above.
        Ok(Ring {
            base,
            len,
            entries,
            stride,
        })
    }

    /// Number of slots.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes of a slot.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    fn word(&self, offset: usize) -> *mut u32 {
        // SAFETY: The control block is within the allocation, by the type invariant.
        unsafe { self.base.as_ptr().add(offset).cast::<u32>() }
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

    /// The producer's index, with all that it wrote before.
    pub fn load_producer(&self) -> u32 {
        // SAFETY: The word is valid; the other side accesses it by atomics or harms itself only.
        unsafe { atomic::atomic_load(self.word(layout::OFFSET_PRODUCER), Acquire) }
    }

    /// The consumer's index, with all that it read before.
    pub fn load_consumer(&self) -> u32 {
        // SAFETY: As in `load_producer`.
        unsafe { atomic::atomic_load(self.word(layout::OFFSET_CONSUMER), Acquire) }
    }

    /// Publishes the producer's index after the slots before it were written.
    pub fn store_producer(&self, index: u32) {
        // SAFETY: As in `load_producer`.
        unsafe { atomic::atomic_store(self.word(layout::OFFSET_PRODUCER), index, Release) }
    }

    /// Publishes the consumer's index after the slots before it were read.
    pub fn store_consumer(&self, index: u32) {
        // SAFETY: As in `load_producer`.
        unsafe { atomic::atomic_store(self.word(layout::OFFSET_CONSUMER), index, Release) }
    }

    /// Publishes the flags; a full barrier follows, so that an index read next is not older.
    pub fn store_flags(&self, flags: u32) {
        // SAFETY: As in `load_producer`.
        unsafe { atomic::atomic_store(self.word(layout::OFFSET_FLAGS), flags, Relaxed) };
        full_barrier();
    }

    /// Empties the ring: both indices 0, no arm, and these flags.
    pub fn reset(&self, flags: u32) {
        self.store_producer(0);
        self.store_consumer(0);
        // SAFETY: As in `load_producer`.
        unsafe { atomic::atomic_store(self.word(layout::OFFSET_ARM), layout::ARM_NONE, Relaxed) };
        self.store_flags(flags);
    }

    /// Takes the arm word if a completion of this kind satisfies it. A full barrier comes first,
    /// so that a consumer who arms and then looks at the ring misses nothing.
    pub fn take_arm(&self, solicited: bool) -> bool {
        full_barrier();
        let word = self.word(layout::OFFSET_ARM);
        // SAFETY: As in `load_producer`.
        let armed = unsafe { atomic::atomic_load(word, Relaxed) };
        let wanted = match armed {
            layout::ARM_NONE => false,
            layout::ARM_SOLICITED => solicited,
            _ => true,
        };
        // SAFETY: As in `load_producer`; the word is aligned and valid for the whole call.
        wanted && unsafe { atomic::Atomic::from_ptr(word) }.xchg(layout::ARM_NONE, Relaxed) != 0
    }

    /// Copies 64-bit words of a slot, from word `first` on, as many as `out` and the slot have. A
    /// caller copies no word twice, so that it never sees two versions of one.
    pub fn read_slot(&self, index: u32, first: usize, out: &mut [u64]) {
        let slot = self.slot(index);
        let words = (self.stride as usize / 8).saturating_sub(first);
        for (i, word) in out.iter_mut().take(words).enumerate() {
            // SAFETY: `first + i` is a word of the slot. A volatile read, as the process may be
            // writing.
            *word = unsafe { slot.add(first.wrapping_add(i)).read_volatile() };
        }
    }

    /// Writes the first `words.len() * 8` bytes, at most the stride, of a slot.
    pub fn write_slot(&self, index: u32, words: &[u64]) {
        let slot = self.slot(index);
        for (i, word) in words.iter().take(self.stride as usize / 8).enumerate() {
            // SAFETY: `i * 8 < stride`. A volatile write, as the process may be reading.
            unsafe { slot.add(i).write_volatile(*word) };
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Pages that a process still maps stay until it unmaps them: each mapped page is counted.
        // SAFETY: By the type invariant the area is ours.
        unsafe { bindings::ferroce_vfree(self.base.as_ptr().cast::<c_void>()) };
    }
}

/// What makes a [`Ring`] appear at an offset of the command file; dropping it withdraws the offset.
///
/// # Invariants
///
/// `entry` is the `rdma_entry` of a live [`Entry`], inserted in its context, and not removed.
pub struct Mapping {
    entry: NonNull<bindings::rdma_user_mmap_entry>,
}

// SAFETY: ib_core locks the entries of a context.
unsafe impl Send for Mapping {}
// SAFETY: As above.
unsafe impl Sync for Mapping {}

/// The entry as ib_core refers to it; freed in [`Mapping::free`] with its last reference.
#[repr(C)]
struct Entry {
    rdma_entry: bindings::rdma_user_mmap_entry,
    ring: Arc<Ring>,
}

impl Mapping {
    /// Offers `ring` to the process of `context`, and says where.
    pub fn new(context: ContextRef<'_>, ring: &Arc<Ring>) -> Result<(Mapping, RingMap)> {
        let entry = KBox::new(
            Entry {
                rdma_entry: pin_init::zeroed(),
                ring: ring.clone(),
            },
            GFP_KERNEL,
        )?;
        let raw = KBox::into_raw(entry);
        // SAFETY: `raw` is a live entry, zeroed as the callee wants it; `context` is a live context.
        let ret = unsafe {
            bindings::rdma_user_mmap_entry_insert(
                context.as_raw(),
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
        // INVARIANT: Inserted above.
        Ok((
            Mapping { entry },
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
        // SAFETY: Every entry of our contexts is the first field of an `Entry`, and the reference
        // just taken keeps it.
        let ring = unsafe { &(*entry.cast::<Entry>()).ring };
        // SAFETY: The area is from `vmalloc_user`; ib_core has checked that the length is the
        // entry's; the flags are set before any page is mapped.
        let ret = unsafe { bindings::ferroce_map_ring(vma, ring.base.as_ptr().cast::<c_void>()) };
        // SAFETY: The reference was taken above.
        unsafe { bindings::rdma_user_mmap_entry_put(entry) };
        to_result(ret)
    }

    /// The `mmap_free` of the device.
    ///
    /// # Safety
    ///
    /// `entry` must be the `rdma_entry` of an [`Entry`] whose last reference is gone.
    pub(super) unsafe fn free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: By the requirement; it was made by `KBox::into_raw` in `new`.
        drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry is inserted, and this is the only removal.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.entry.as_ptr()) };
    }
}
