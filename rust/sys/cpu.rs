// SPDX-License-Identifier: GPL-2.0

//! CPUs, as places where work may run.

use super::bindings;
use core::ffi::c_int;

/// A CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu(c_int);

impl Cpu {
    /// The current CPU; it does not change while softirqs are disabled.
    pub fn current() -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::ferroce_this_cpu() })
    }

    /// Another CPU of this node on which the calling process may run and which is not isolated, if
    /// there is one. Different `seed`s give different CPUs.
    ///
    /// Only meaningful in a system call, where the caller is known.
    pub fn another(seed: u32) -> Option<Self> {
        // SAFETY: No requirements.
        let cpu = unsafe { bindings::ferroce_another_cpu(seed) };
        (cpu >= 0).then_some(Self(cpu))
    }

    /// Its number, for hashing.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn as_raw(self) -> c_int {
        self.0
    }
}

/// Whether no other thread is ready to run on this CPU.
pub fn is_alone() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_is_alone() }
}
