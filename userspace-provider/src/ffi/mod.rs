// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Where the provider meets C and shared memory: the only unsafe code of the crate.
//!
//! Contract of the verbs in here, as libibverbs and its applications keep it: a pointer to an
//! object was returned by the verb that creates it and not yet given to the one that destroys it,
//! no verb on an object runs while it is destroyed, and a list of work requests is readable (its
//! `bad_wr` writable) for the time of the call. A SAFETY comment that says "contract of the verb"
//! means this.

mod ah;
mod context;
mod cq;
mod cq_ex;
mod domain;
pub mod layout;
#[cfg(test)]
mod layout_test;
mod library;
mod limits;
mod loader;
pub mod log;
mod mapping;
pub mod memory;
mod probe;
mod qp;
mod region;
mod register;
mod srq;
mod window;
mod work_queue;
mod wr;
