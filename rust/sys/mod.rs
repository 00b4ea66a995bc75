// SPDX-License-Identifier: GPL-2.0

//! The only room with `unsafe` and `bindings`: safe types over ib_core, the network stack and
//! kernel memory.

pub mod ib;
pub mod listed;
pub mod memory;
pub mod net;
pub mod reclaim;
pub mod refusal;
pub mod ring;
pub mod sync;
pub mod table;
pub mod trace;
pub mod work;

/// The C declarations of RDMA, networking and our own shims, as bindgen writes them.
///
/// Only `sys` may name this module: everything above it is safe Rust.
#[allow(
    clippy::all,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
pub(crate) mod bindings {
    use kernel::ffi;
    use pin_init::{
        MaybeZeroable,
        Zeroable, //
    };

    pub(crate) use kernel::bindings::*;

    // SAFETY: An array without elements has no bytes.
    unsafe impl<T> Zeroable for __IncompleteArrayField<T> {}
    // SAFETY: The storage is plain bytes.
    unsafe impl<S: Zeroable> Zeroable for __BindgenBitfieldUnit<S> {}

    include!(concat!(env!("FERROCE_GENDIR"), "/bindings_generated.rs"));
}

/// `N` random words.
pub fn random_words<const N: usize>() -> [u64; N] {
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
pub fn random_byte() -> u8 {
    let [word] = random_words::<1>();
    word as u8
}
