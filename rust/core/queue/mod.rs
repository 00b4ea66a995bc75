// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The module's side of the rings: [`wqe`] has the private copies of WQEs, [`cq_producer`] writes
//! CQEs, [`moderation`] decides which of them raise an event, [`srq_consumer`] takes receives from
//! the ring of an SRQ.

pub mod cq_producer;
#[cfg(any(test, CONFIG_KUNIT = "y"))]
mod fake;
pub mod moderation;
pub mod srq_consumer;
pub mod wqe;
