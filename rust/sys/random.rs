// SPDX-License-Identifier: GPL-2.0

//! Random numbers.

use super::bindings;

/// `N` random words.
pub fn words<const N: usize>() -> [u64; N] {
    let mut words = [0u64; N];
    // SAFETY: `words` takes any bytes of its size.
    unsafe {
        bindings::get_random_bytes(
            words.as_mut_ptr().cast::<kernel::ffi::c_void>(),
            core::mem::size_of_val(&words),
        )
    };
    words
}

/// A random byte.
pub fn byte() -> u8 {
    let [word] = words::<1>();
    word as u8
}
