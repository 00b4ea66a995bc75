// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The core of ferroce as an ordinary crate, for the host tests and the provider.
//!
//! The module compiles the same files as `crate::core`, through `ferroce_main.rs`.

#![no_std]
#![forbid(unsafe_code)]

#[path = "mod.rs"]
mod core;

pub use self::core::*;
