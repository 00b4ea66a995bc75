// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The pure rooms of ferroce as an ordinary crate: no kernel, no allocation, no unsafe code.
//!
//! The module compiles the same files through `ferroce.rs`.

#![no_std]
#![forbid(unsafe_code)]

pub mod transport;
pub mod uabi;
pub mod wire;
