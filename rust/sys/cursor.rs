// SPDX-License-Identifier: GPL-2.0

//! Uninitialised memory that is written from front to back, once.

use core::{
    marker::PhantomData,
    ptr, //
};

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
