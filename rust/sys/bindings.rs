// SPDX-License-Identifier: GPL-2.0

//! The C declarations of RDMA, networking and our own shims, as bindgen writes them.
//!
//! Only `sys` may name this module: everything above it is safe Rust.

#![allow(
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

use kernel::ffi;
use pin_init::{MaybeZeroable, Zeroable};

pub(crate) use kernel::bindings::*;

// SAFETY: An array without elements has no bytes.
unsafe impl<T> Zeroable for __IncompleteArrayField<T> {}
// SAFETY: The storage is plain bytes.
unsafe impl<S: Zeroable> Zeroable for __BindgenBitfieldUnit<S> {}

include!(concat!(env!("FERROCE_GENDIR"), "/bindings_generated.rs"));
