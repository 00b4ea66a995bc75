// SPDX-License-Identifier: GPL-2.0

//! Pinned user memory, kernel memory, and copies from and to both.
//!
//! This is the only place that accesses the bytes of MRs. A process may write to them at any time,
//! so they are only copied through raw pointers, and a copied value is never read again at its
//! source. All of it is [`Runs`] of addresses. A [`Cursor`] is uninitialised memory, of a packet,
//! that is written from front to back.

use crate::sys::bindings;
use crate::sys::ib::PdRef;
use core::marker::PhantomData;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::prelude::*;

/// Keeps pages of a process pinned.
///
/// # Invariants
///
/// A live `ib_umem` that this value owns, with a reference to its device.
struct Pinned(NonNull<bindings::ib_umem>);

// SAFETY: Any thread may ask a umem, and put it; nothing of it changes before.
unsafe impl Send for Pinned {}
// SAFETY: As above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// See [`UserMemory::pin`].
    fn new(pd: PdRef<'_>, start: u64, len: u64, access: i32) -> Result<Self> {
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        let start = usize::try_from(start).map_err(|_| EINVAL)?;
        // SAFETY: The PD belongs to a live device.
        let umem = unsafe { bindings::ferroce_umem_get(pd.device(), start, len, access) };
        let umem = kernel::error::from_err_ptr(umem)?;
        // INVARIANT: Just made.
        NonNull::new(umem).map(Self).ok_or(EINVAL)
    }

    /// The contiguous runs of its pages, in order: address and length.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut cursor = core::ptr::null_mut();
        core::iter::from_fn(move || {
            let mut address = core::ptr::null_mut();
            // SAFETY: The umem is live, and `cursor` null or from the call before.
            let len =
                unsafe { bindings::ferroce_umem_next(self.0.as_ptr(), &mut cursor, &mut address) };
            (len != 0).then_some((address as usize, len))
        })
    }

    fn is_writable(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_umem_is_writable(self.0.as_ptr()) }
    }

    fn is_of_caller(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_umem_is_of_caller(self.0.as_ptr()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the umem and the reference to its device are ours.
        unsafe { bindings::ferroce_umem_put(self.0.as_ptr()) };
    }
}

/// Pinned pages of a process, or an empty range.
///
/// # Invariants
///
/// Every run is memory of the linear mapping that `pinned` keeps. Without it there are no runs.
pub struct UserMemory {
    pinned: Option<Pinned>,
    runs: Runs,
}

/// The bytes cannot be copied: they are outside the memory, or the hardware has lost them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault;

impl UserMemory {
    /// Pins `len` bytes at `start` of the calling process. `access` is a set of
    /// `ib_access_flags`; without a write permission in it the pages are pinned for reading only.
    ///
    /// For 0 bytes nothing is pinned, and there need be no memory at that address. `ib_umem_get_va`
    /// would refuse 0 bytes at the start of a page, and pin a whole page elsewhere.
    pub fn pin(pd: PdRef<'_>, start: u64, len: u64, access: i32) -> Result<UserMemory> {
        if len == 0 {
            // INVARIANT: Nothing is pinned.
            return Ok(UserMemory {
                pinned: None,
                runs: Runs::new(KVVec::new()),
            });
        }
        let pinned = Pinned::new(pd, start, len, access)?;
        let mut runs = Runs::new(KVVec::new());
        for (address, len) in pinned.runs() {
            runs.reserve()?;
            runs.add(address, len)?;
        }
        runs.skip = start & (bindings::PAGE_SIZE as u64).wrapping_sub(1);
        if runs.len < runs.skip.checked_add(len).ok_or(EINVAL)? {
            return Err(EINVAL);
        }
        runs.len = len;
        // INVARIANT: The runs are those of `pinned`, which were just seen to be enough.
        Ok(UserMemory {
            pinned: Some(pinned),
            runs,
        })
    }

    /// Its bytes.
    #[inline]
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Number of contiguous pieces.
    pub fn pieces_of_all(&self) -> usize {
        self.runs.count()
    }

    /// Whether it is pinned for writing; an empty range counts as such.
    pub fn is_writable(&self) -> bool {
        self.pinned.as_ref().is_none_or(Pinned::is_writable)
    }

    /// Whether the calling process owns the memory; any process owns an empty range.
    pub fn is_of_caller(&self) -> bool {
        self.pinned.as_ref().is_none_or(Pinned::is_of_caller)
    }
}

/// A run of contiguous bytes.
#[derive(Clone, Copy)]
struct Run {
    /// Offset in bytes from the start of the first run.
    offset: u64,
    /// Its address.
    address: usize,
    /// Its length in bytes; 0 only in [`Runs::first`].
    len: usize,
}

impl Run {
    /// No memory.
    const NONE: Self = Self {
        offset: 0,
        address: 0,
        len: 0,
    };
}

/// Memory that can be copied: `len` bytes of the runs, behind the first `skip`.
///
/// # Invariants
///
/// The runs are sorted, without gaps from 0 on, and cover `skip + len` bytes; `rest` is empty if
/// `first` is [`Run::NONE`]. They may be copied from and to while the value lives, which its owner
/// sees to.
pub struct Runs {
    /// The first run, [`Run::NONE`] if there is none. Most regions have only this one, so they need
    /// no vector, and nothing is searched.
    first: Run,
    rest: KVVec<Run>,
    skip: u64,
    len: u64,
}

impl Runs {
    /// None yet; `rest` is the room for all but the first.
    fn new(rest: KVVec<Run>) -> Self {
        Self {
            first: Run::NONE,
            rest,
            skip: 0,
            len: 0,
        }
    }

    /// None yet, with room for so many.
    pub(super) fn with_capacity(most: usize) -> Result<Self> {
        let rest = KVVec::with_capacity(most.saturating_sub(1), GFP_KERNEL)?;
        Ok(Self::new(rest))
    }

    /// Makes room for one more. May sleep.
    fn reserve(&mut self) -> Result {
        if self.first.len != 0 {
            self.rest.reserve(1, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.rest
            .len()
            .wrapping_add(usize::from(self.first.len != 0))
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.first = Run::NONE;
        self.rest.clear();
        self.len = 0;
    }

    /// Appends a run, for which there is room. Any context.
    pub(super) fn add(&mut self, address: usize, len: usize) -> Result {
        let run = Run {
            offset: self.len,
            address,
            len,
        };
        let last = self.rest.last_mut().unwrap_or(&mut self.first);
        if last.len == 0 {
            *last = run;
        } else if last.address.wrapping_add(last.len) == address {
            last.len = last.len.wrapping_add(len);
        } else {
            self.rest.push_within_capacity(run).map_err(|_| ENOMEM)?;
        }
        self.len = self.len.checked_add(len as u64).ok_or(EINVAL)?;
        Ok(())
    }

    /// Calls `piece` with the address and length of each contiguous piece of a range, in order.
    /// Their lengths add up to that of the range, or to less, and then it fails.
    #[inline]
    fn pieces(
        &self,
        offset: u64,
        len: usize,
        mut piece: impl FnMut(*mut u8, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if !self.contains(offset, len as u64) {
            return Err(Fault);
        }
        if len == 0 {
            return Ok(());
        }
        let mut at = offset.wrapping_add(self.skip);
        let mut left = len;
        let (mut run, mut rest) = (&self.first, self.rest.as_slice());
        if at >= self.first.len as u64 {
            // The run that contains `at` is the last one that starts at or before it.
            let behind = rest.partition_point(|run| run.offset <= at);
            let from = rest.get(behind.wrapping_sub(1)..);
            (run, rest) = from.and_then(<[Run]>::split_first).ok_or(Fault)?;
        }
        loop {
            let within = at.wrapping_sub(run.offset) as usize;
            let n = core::cmp::min(left, run.len.wrapping_sub(within));
            piece(run.address.wrapping_add(within) as *mut u8, n)?;
            at = at.wrapping_add(n as u64);
            left = left.wrapping_sub(n);
            if left == 0 {
                return Ok(());
            }
            (run, rest) = rest.split_first().ok_or(Fault)?;
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.len
    }

    /// Whether a range lies within the memory.
    #[inline]
    fn contains(&self, offset: u64, len: u64) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end <= self.size())
    }

    /// The 8 bytes at `offset`. They must be aligned in memory, whatever address users know them
    /// by: a locked access across cache lines stops the whole machine.
    pub fn word(&self, offset: u64) -> Result<MemoryWord<'_>, Fault> {
        let mut found = None;
        self.pieces(offset, size_of::<u64>(), |at, len| {
            found = (len == size_of::<u64>() && at as usize % size_of::<u64>() == 0).then_some(at);
            Ok(())
        })?;
        // INVARIANT: `pieces` gives bytes that may be used while `self` lives, all 8 of them at
        // once; the rest was checked.
        Ok(MemoryWord {
            at: found.ok_or(Fault)?.cast(),
            _memory: PhantomData,
        })
    }

    /// Copies `bytes` to `offset`.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut from = bytes.as_ptr();
        self.pieces(offset, bytes.len(), |to, n| {
            // SAFETY: `to` is `n` bytes, and the pieces together are not longer than `bytes`, by
            // the contract of `pieces`.
            unsafe {
                bindings::ferroce_memmove(to.cast(), from.cast(), n);
                from = from.add(n);
            }
            Ok(())
        })
    }

    /// Appends `len` bytes at `offset` to `out`.
    #[inline]
    pub fn append(&self, offset: u64, len: usize, out: &mut Cursor<'_>) -> Result<(), Fault> {
        self.pieces(offset, len, |from, n| {
            // SAFETY: As in `write`; all `n` bytes are copied.
            unsafe {
                out.advance(n, |to| {
                    bindings::ferroce_memmove(to.cast(), from.cast_const().cast(), n);
                })
            }
            .map_err(|NoRoom| Fault)
        })
    }

    /// Copies `len` bytes at `offset` to `to_offset` of `to`, which may be the same memory.
    #[inline]
    pub fn copy_to(&self, offset: u64, to: &Runs, to_offset: u64, len: usize) -> Result<(), Fault> {
        if !to.contains(to_offset, len as u64) {
            return Err(Fault);
        }
        let mut at = to_offset;
        self.pieces(offset, len, |mut from, n| {
            to.pieces(at, n, |to, n| {
                // SAFETY: As in `write`, of either memory.
                unsafe {
                    bindings::ferroce_memmove(to.cast(), from.cast_const().cast(), n);
                    from = from.add(n);
                }
                Ok(())
            })?;
            at = at.wrapping_add(n as u64);
            Ok(())
        })
    }
}

/// All kernel memory: offsets are addresses.
///
/// # Invariants
///
/// The holder accesses only addresses that WRs of ULPs name. ULPs vouch for their memory, as
/// everywhere in the kernel. The files that use this type are trusted, and few:
/// `tests/lab/rules.py` lists them.
pub struct KernelMemory(Runs);

impl KernelMemory {
    /// # Safety
    ///
    /// Addresses must come from WRs of ULPs, never from peers.
    pub(in crate::sys) unsafe fn new() -> Result<Self> {
        let mut runs = Runs::with_capacity(1)?;
        runs.add(0, usize::MAX)?;
        // INVARIANT: The requirement.
        Ok(Self(runs))
    }

    /// Its bytes.
    pub fn runs(&self) -> &Runs {
        &self.0
    }
}

/// A full barrier: earlier writes of this processor are visible before its later ones.
pub fn full_barrier() {
    // SAFETY: It has no requirements.
    unsafe { bindings::ferroce_smp_mb() };
}

/// Eight aligned bytes of memory, which processors and processes may access concurrently.
///
/// # Invariants
///
/// `at` is a multiple of 8, and 8 bytes of [`Runs`] that live for `'a`.
pub struct MemoryWord<'a> {
    at: *mut u64,
    _memory: PhantomData<&'a ()>,
}

impl MemoryWord<'_> {
    /// Writes `swap` if the value is `compare`; returns the original value.
    pub fn compare_swap(&self, compare: u64, swap: u64) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_compare_swap(self.at, compare, swap) }
    }

    /// Writes these bytes.
    pub fn store(&self, value: [u8; 8]) {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_store_word(self.at, u64::from_ne_bytes(value)) }
    }

    /// Adds `value`; returns the original value.
    pub fn fetch_add(&self, value: u64) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_fetch_add(self.at, value) }
    }
}

/// The write does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A place in such memory: behind what has been written, with `left` bytes to go.
///
/// # Invariants
///
/// `at` is valid for writes of `left` bytes that only this value leads to for `'a`. What lies
/// between the place where the value was made and `at` is written.
pub struct Cursor<'a> {
    at: *mut u8,
    left: usize,
    // Invariant in `'a`, so that two cursors that are lent to closures cannot be exchanged.
    _memory: PhantomData<fn(&'a mut u8) -> &'a mut u8>,
}

impl<'a> Cursor<'a> {
    /// # Safety
    ///
    /// `at` must be valid for writes of `left` bytes, by this cursor alone, for `'a`.
    pub(in crate::sys) unsafe fn new(at: *mut u8, left: usize) -> Self {
        // INVARIANT: By the requirement; nothing is claimed to be written.
        Self {
            at,
            left,
            _memory: PhantomData,
        }
    }

    /// Bytes that are not written yet.
    #[inline]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Appends `bytes`, all or none of them.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        // SAFETY: The closure writes all of the room it is given, which does not overlap `bytes`:
        // nothing else leads there.
        unsafe {
            self.advance(bytes.len(), |to| {
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            })
        }
    }

    /// Appends `len` zeros, and lends them to be written over.
    #[inline]
    pub fn zeros(&mut self, len: usize) -> Result<&mut [u8], NoRoom> {
        let at = self.at;

        // SAFETY: The closure writes all of the room it is given.
        unsafe { self.advance(len, |to| ptr::write_bytes(to, 0, len)) }?;
        // SAFETY: These bytes were written just now, and nothing else leads to them while `self` is
        // borrowed.
        Ok(unsafe { core::slice::from_raw_parts_mut(at, len) })
    }

    /// Appends `len` bytes, which `write` writes at the address it is given.
    ///
    /// # Safety
    ///
    /// `write` must write all of the `len` bytes.
    #[inline]
    pub(in crate::sys) unsafe fn advance(
        &mut self,
        len: usize,
        write: impl FnOnce(*mut u8),
    ) -> Result<(), NoRoom> {
        let left = self.left.checked_sub(len).ok_or(NoRoom)?;

        write(self.at);
        // INVARIANT: `len` of the `left` bytes are written, by the requirement, and no longer ours.
        self.at = self.at.wrapping_add(len);
        self.left = left;
        Ok(())
    }
}
