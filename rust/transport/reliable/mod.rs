// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The reliable connection: what is sent is acknowledged, repeated if it is lost, and executed in
//! order and once (IBTA volume 1, 9.7).
//!
//! | what | file |
//! |---|---|
//! | what it is configured with | [`config`] |
//! | the sending side | [`requester`] |
//! | the receiving side | [`responder`] |
//! | what is counted | [`counters`] |
//! | PSNs as numbers that do not wrap | `sequence` |

pub mod config;
mod conversation;
pub mod counters;
pub mod requester;
pub mod responder;
mod sequence;
