// SPDX-License-Identifier: GPL-2.0

//! ib_core: the device, its verbs objects and its upcalls as safe types.
//!
//! ib_core allocates the C objects at the size we declare, and frees them right after our destroy
//! function. The driver's part is behind the C object ([`object`]) and usually holds an `Arc` that
//! the data path shares. A driver names its types in [`device::Driver`]; each kind of object has a
//! file with the trait that its type implements, and with the operations of ib_core that call it
//! ([`call`]).

pub mod ah;
pub mod call;
pub mod context;
pub mod counter_set;
pub mod cq;
pub mod device;
pub mod event;
pub mod limits;
pub mod mr;
pub mod object;
pub mod qp;
pub mod query;
pub mod srq;
pub mod udata;
pub mod wc;
pub mod wr;
