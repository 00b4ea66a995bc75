// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The contract between the module and its user-space provider, version [`ABI_VERSION`].
//!
//! Everything that crosses the boundary is declared here and nowhere else: the rings that both sides
//! map ([`ring`]), the work requests and completions in them ([`wqe`], [`cqe`]), and the structures
//! that travel with the verbs commands ([`udata`]). The module and the provider compile this same
//! source, so neither can drift from the other; the sizes and offsets are asserted at compile time.
//!
//! All integers are in the byte order of the machine, except where a field says that it is
//! big-endian. Reserved fields and unknown flag bits must be zero.

#![forbid(unsafe_code)]

pub mod cqe;
pub mod ring;
pub mod udata;
pub mod wqe;

/// The version of this contract: `uverbs_abi_ver` of the device. A provider refuses any other.
pub const ABI_VERSION: u32 = 1;

/// The `driver_id` that binds a device to its provider ("FeRC").
///
/// It is outside `enum rdma_driver_id` on purpose: libibverbs matches by this number alone, and
/// uverbs refuses an ioctl that carries another one.
pub const DRIVER_ID: u32 = 0x4665_5243;
