// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Unreliable services, where nothing is acknowledged and nothing retransmitted: the unreliable
//! connection (IBTA volume 1, 9.8.2), and the requester of datagrams, whose messages are one packet
//! each.
//!
//! | what | file |
//! |---|---|
//! | the requester: a WQE is complete when its last packet has left | [`requester`] |
//! | the responder of a connection: messages without a gap | [`responder`] |

pub mod requester;
pub mod responder;

#[cfg(test)]
mod tests;
