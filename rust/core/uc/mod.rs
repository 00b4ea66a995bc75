// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What is sent is not acknowledged and not repeated: the unreliable connection (IBTA volume 1,
//! 9.8.2), and the sending side of datagrams, which differs in that a message is one packet.
//!
//! | what | file |
//! |---|---|
//! | the sending side: a request is complete when it has left | [`requester`] |
//! | the receiving side of a connection: messages without a gap | [`responder`] |

pub mod requester;
pub mod responder;

#[cfg(test)]
mod tests;
