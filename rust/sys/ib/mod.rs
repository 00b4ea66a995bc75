// SPDX-License-Identifier: GPL-2.0

//! ib_core: the device, its verbs objects and its upcalls as safe types.
//!
//! ib_core allocates the C objects at the size we declare, and frees them right after our destroy
//! function. What is ours lives behind the C object ([`object::Object`]) and is usually an `Arc`
//! that the data path shares; [`driver`] holds the one table of operations and its trampolines.

pub mod device;
pub mod driver;
pub mod event;
pub mod limits;
pub mod link;
pub mod object;
pub mod qp;
pub mod udata;
