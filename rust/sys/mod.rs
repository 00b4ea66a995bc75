// SPDX-License-Identifier: GPL-2.0

//! The only room with `unsafe` and `bindings`: safe types over ib_core, the network stack and
//! kernel memory.

pub(crate) mod bindings;
pub mod ib;
pub mod listed;
pub mod lock;
pub mod memory;
mod modinfo;
pub mod net;
pub mod random;
pub mod reclaim;
pub mod refusal;
pub mod revocable;
pub mod ring;
pub mod table;
pub mod timer;
pub mod trace;
pub mod work;
