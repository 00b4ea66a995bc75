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

    /// Another CPU of this node that the administrator did not set apart, if there is one. Callers
    /// with different `seed`s get different ones.
    pub fn another(seed: u32) -> Option<Self> {
        // SAFETY: No requirements.
        let cpu = unsafe { bindings::ferroce_another_cpu(seed) };
        (cpu >= 0).then_some(Self(cpu))
    }

    /// Its number.
    pub(super) fn as_raw(self) -> c_int {
        self.0
    }
}

/// Whether nothing but the calling thread is ready to run on this CPU.
pub fn is_alone() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_is_alone() }
}
