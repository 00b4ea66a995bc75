// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The contract between the module and its user-space provider, version [`ABI_VERSION`].
//!
//! Everything that crosses the boundary is declared here and nowhere else: the rings that both
//! sides map ([`ring`], with the order of their loads and stores), the work requests
//! ([`wqe`]) and completions ([`cqe`]) in them, and the structures that travel with
//! the verbs commands ([`udata`]). The module and the provider compile this same source, so neither
//! can drift from the other; the sizes and offsets are asserted at compile time.
//!
//! All integers are in the byte order of the machine, except where a field says that it is
//! big-endian. Reserved fields and unknown flag bits must be zero.

#![forbid(unsafe_code)]
// Sums of sizes: constants, and strides of numbers that the callers bound.
#![allow(clippy::arithmetic_side_effects)]

pub mod cqe;
pub mod ring;
pub mod udata;
pub mod wqe;

/// The version of this contract: `uverbs_abi_ver` of the device.
///
/// It is counted up only for what neither a longer structure nor a bit of the features can express.
pub const ABI_VERSION: u32 = 2;

/// The oldest version that a provider serves, and with it every one up to [`ABI_VERSION`]: an
/// upgrade of the provider keeps no program from the module that is loaded.
pub const OLDEST_ABI_VERSION: u32 = 2;

/// The version of the module, which it reports as that of its firmware: major, minor, patch.
pub const MODULE_VERSION: [u16; 3] = [0, 1, 0];

/// The `driver_id` that binds a device to its provider ("FeRC").
///
/// It is outside `enum rdma_driver_id` on purpose: libibverbs matches by this number alone, and
/// uverbs refuses an ioctl that carries another one.
pub const DRIVER_ID: u32 = 0x4665_5243;

const _: () = assert!(OLDEST_ABI_VERSION <= ABI_VERSION);
