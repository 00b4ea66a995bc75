// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The pure rooms of ferroce as an ordinary crate: no kernel, no allocation, no unsafe code.
//!
//! The module compiles the same files through `ferroce_main.rs`.

#![no_std]
#![forbid(unsafe_code)]

/// The one file of the data path that needs no kernel.
#[path = "datapath/stream.rs"]
pub mod stream;
pub mod transport;
pub mod uabi;
pub mod wire;
