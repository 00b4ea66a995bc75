// SPDX-License-Identifier: GPL-2.0

//! The memory that packets are made of.
//!
//! C source: `net_transmit.c` beside this folder.

use crate::sys::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
};

static EXISTS: Atomic<bool> = Atomic::new(false);

/// Keeps memory for packets at hand on every CPU. Without it they are made of memory from the
/// kernel's allocator, which costs more.
pub struct PacketMemory(());

impl PacketMemory {
    /// From here on memory is kept.
    ///
    /// # Errors
    ///
    /// `EBUSY` when it is already, `ENOMEM`.
    pub fn new() -> Result<Self> {
        if EXISTS.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: `EXISTS` was false, so none is kept, and no other caller begins.
        to_result(unsafe { bindings::ferroce_packet_memory_open() })
            .inspect_err(|_| {
                EXISTS.xchg(false, Full);
            })
            .map(|()| Self(()))
    }
}

impl Drop for PacketMemory {
    /// Gives the memory back, that of packets in flight when they are freed. Sleeps.
    fn drop(&mut self) {
        // SAFETY: Begun by `new`, and ended only here.
        unsafe { bindings::ferroce_packet_memory_close() };
        EXISTS.xchg(false, Full);
    }
}
