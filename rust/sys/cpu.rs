// SPDX-License-Identifier: GPL-2.0

//! CPUs, as places where work may run.

use super::bindings;
use core::ffi::c_int;

/// A CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu(c_int);

impl Cpu {
    /// The CPU that this runs on; it stays so as long as softirqs are off.
    pub fn current() -> Self {
        // SAFETY: No requirements.
        Self(unsafe { bindings::ferroce_this_cpu() })
    }

    /// Another CPU of this node on which the calling process may run and that the administrator did
    /// not set apart, if there is one. Callers with different `seed`s get different ones.
    ///
    /// Only meaningful in a system call, where it is known who calls.
    pub fn another(seed: u32) -> Option<Self> {
        // SAFETY: No requirements.
        let cpu = unsafe { bindings::ferroce_another_cpu(seed) };
        (cpu >= 0).then_some(Self(cpu))
    }

    /// Its number, to choose something by.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn as_raw(self) -> c_int {
        self.0
    }
}

/// Whether nothing but the calling thread is ready to run on this CPU.
pub fn is_alone() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_is_alone() }
}
