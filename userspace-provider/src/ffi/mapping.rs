// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A ring of the module in the address space of the process.
//!
//! The module (and, through a bug, anything in the process) may write to it at any time. The
//! indices and flags are therefore accessed as atomics and the slots by copies through raw
//! pointers; no reference into the mapping is ever formed.

use super::layout::IbvSendWr;
use crate::{request::Slot, ring::well_formed};
use core::{
    ptr::{self, NonNull},
    sync::atomic::{fence, AtomicU32, Ordering},
};
use ferroce_core::uabi::{
    ring::{
        Provider,
        Word,
        Words,
        CONTROL_SIZE,
        OFFSET_SUCCESSOR, //
    },
    udata::RingMap,
    wqe::Sge, //
};
use libc::c_int;
use zerocopy::FromBytes;

/// A mapped ring. Unmapped when dropped.
///
/// # Invariants
///
/// `base` is a shared, writable mapping of `len` bytes that holds the control block and
/// `mask + 1` slots of `stride` bytes, where `mask + 1` is a power of two.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    len: usize,
    mask: u32,
    stride: usize,
    /// The process that has it: a child of fork() has none, or something else at its address.
    pid: libc::pid_t,
}

// SAFETY: The mapping belongs to the process, not to a thread.
unsafe impl Send for Ring {}
// SAFETY: All access is by atomics or, for slots, by copies that the lock of the queue orders.
unsafe impl Sync for Ring {}

impl Ring {
    /// Maps the ring that the module describes, whose slots must have at least `stride` bytes.
    ///
    /// # Errors
    ///
    /// EPROTO if the module describes no ring of this contract; what mmap says.
    pub fn map(cmd_fd: c_int, map: &RingMap, stride: u32) -> Result<Self, c_int> {
        if !well_formed(map, stride) {
            return Err(libc::EPROTO);
        }
        // Both fit: `well_formed` has looked.
        let (len, offset) = (map.length as usize, map.offset as libc::off_t);
        // SAFETY: A new mapping at an address of the kernel's choice disturbs nothing.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                cmd_fd,
                offset,
            )
        };
        let base = NonNull::new(address.cast::<u8>()).filter(|_| address != libc::MAP_FAILED);
        let Some(base) = base else {
            return Err(super::memory::errno());
        };
        // A child of fork() has no part of it (VM_DONTCOPY): it must not advance the queues of its
        // parent.
        Ok(Self {
            base,
            len,
            mask: map.entries - 1,
            stride: map.stride as usize,
            // SAFETY: It has no requirements.
            pid: unsafe { libc::getpid() },
        })
    }

    /// Whether this is the process that has mapped the ring.
    pub fn is_here(&self) -> bool {
        // SAFETY: It has no requirements.
        self.pid == unsafe { libc::getpid() }
    }

    /// Number of slots.
    pub fn entries(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: The word is in the control block, which the mapping holds for as long as `self`
        // lives, aligned because the mapping is page-aligned; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(word.offset()).cast()) }
    }

    fn slot(&self, index: u32) -> *mut u8 {
        let offset = CONTROL_SIZE + (index & self.mask) as usize * self.stride;
        // SAFETY: By the invariants the slot is within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Where the module says the ring is that has taken the place of this one.
    pub fn successor(&self) -> RingMap {
        const { assert!(OFFSET_SUCCESSOR + size_of::<RingMap>() <= CONTROL_SIZE) };
        // SAFETY: The control block is within the mapping, aligned, and any bytes are a `RingMap`.
        // The module writes it during a command that has returned.
        unsafe { ptr::read_volatile(self.base.as_ptr().add(OFFSET_SUCCESSOR).cast()) }
    }

    /// Copies the start of slot `index` out. The caller orders it behind
    /// [`Words::load_producer`].
    pub fn take<T: FromBytes>(&self, index: u32) -> T {
        assert!(size_of::<T>() <= self.stride);
        // SAFETY: The source is within the slot by the check; any bytes are a `T`. The module does
        // not write to a slot that it has published and the provider has not given back; were it
        // to do so, the copy would be garbage, nothing worse.
        unsafe { ptr::read_unaligned(self.slot(index).cast::<T>()) }
    }

    /// Copies slot `from` to slot `to`. Both must belong to the caller by the indices.
    pub fn copy(&self, from: u32, to: u32) {
        // SAFETY: Both slots are within the mapping, and `copy` allows them to be the same.
        unsafe { ptr::copy(self.slot(from), self.slot(to), self.stride) };
    }

    /// Slot `index`, to be filled before it is published.
    ///
    /// # Safety
    ///
    /// Every piece of memory given to [`Slot::gather`] must be readable, and what a request given
    /// to [`Slot::keys`] names valid or null.
    pub unsafe fn slot_for_post(&self, index: u32) -> PostSlot<'_> {
        PostSlot { ring: self, index }
    }
}

impl Words for Ring {
    #[inline]
    fn load(&self, word: Word) -> u32 {
        self.word(word).load(Ordering::Relaxed)
    }

    #[inline]
    fn load_acquire(&self, word: Word) -> u32 {
        self.word(word).load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, word: Word, value: u32) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    #[inline]
    fn store_release(&self, word: Word, value: u32) {
        self.word(word).store(value, Ordering::Release);
    }

    #[inline]
    fn full_barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Provider for Ring {
    #[inline]
    fn raise(&self, word: Word, value: u32) {
        self.word(word).fetch_max(value, Ordering::Relaxed);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: The mapping is `self`'s alone, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A slot that a work request is written into.
///
/// # Invariants
///
/// Made by [`Ring::slot_for_post`], whose caller answers for the pieces.
pub struct PostSlot<'a> {
    ring: &'a Ring,
    index: u32,
}

impl PostSlot<'_> {
    /// Copies `len` bytes from `from` to offset `at`.
    ///
    /// # Safety
    ///
    /// `from` must be readable for `len` bytes.
    #[inline]
    unsafe fn copy(&self, at: usize, from: *const u8, len: usize) {
        // Never beyond the slot, whatever the limits of the queue say.
        assert!(at <= self.ring.stride && len <= self.ring.stride - at);
        // SAFETY: The target is within the slot, as just checked; the source is the caller's
        // promise. They may overlap only if the application sends its own queue: `copy` allows it.
        unsafe { ptr::copy(from, self.ring.slot(self.index).add(at), len) };
    }
}

impl Slot for PostSlot<'_> {
    #[inline]
    fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: A slice is readable for its length.
        unsafe { self.copy(at, bytes.as_ptr(), bytes.len()) }
    }

    #[inline]
    fn gather(&self, at: usize, piece: &Sge) {
        if piece.length != 0 {
            // SAFETY: The caller of `slot_for_post` promises that the piece is readable.
            unsafe { self.copy(at, piece.addr as *const u8, piece.length as usize) }
        }
    }

    fn keys(&self, wr: &IbvSendWr) -> [Option<u32>; 2] {
        // SAFETY: The caller of `slot_for_post` promises that they are objects of libibverbs, or
        // null.
        unsafe {
            [
                wr.mw.as_ref().map(|mw| mw.rkey),
                wr.bind_info.mr.as_ref().map(|mr| mr.lkey),
            ]
        }
    }
}
