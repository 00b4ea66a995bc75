// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The queues of a device as their consumers and producers see them: [`wqe`] has the private copies
//! of WQEs, [`cq_producer`] writes CQEs, [`moderation`] decides which of them raise an event,
//! [`srq_consumer`] takes receives from a shared ring.

pub mod cq_producer;
#[cfg(any(test, CONFIG_KUNIT = "y"))]
mod fake;
pub mod moderation;
pub mod srq_consumer;
pub mod wqe;
