// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The reliable connection: packets are acknowledged, retransmitted after a loss, and executed in
//! order and once (IBTA volume 1, 9.7).
//!
//! | part | file |
//! |---|---|
//! | configuration | [`config`] |
//! | requester | [`requester`] |
//! | responder | [`responder`] |
//! | packets kept behind a gap | `ahead` |
//! | the pace of congestion notifications | [`cnp`] |
//! | counters | [`counters`] |
//! | PSNs as numbers that do not wrap | `sequence` |

mod ahead;
pub mod cnp;
pub mod config;
mod conversation;
pub mod counters;
pub mod requester;
pub mod responder;
mod sequence;
