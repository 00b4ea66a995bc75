// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The transports as state machines without input and output (IBTA volume 1, chapter 9).
//!
//! Nothing here sends, receives, copies, locks, sleeps or asks for the time. The owner of a QP
//! does, and tells the state machines what happened; they answer what is to be done next.
//!
//! ```text
//!   work request                                                              receive
//!        |                                                                       |
//!        v push                                                     take_receive v
//!  +-----------+   next_segment     RequestSegment      on_request         +-----------+
//!  |           | ---------------------------------------------------------> |           |
//!  | requester |                                                            | responder |
//!  |           | <--------------------------------------------------------- |           |
//!  +-----------+   on_acknowledge        Response        next_response      +-----------+
//!        |         accept_read_response                                          |
//!        v                                                                       v
//!  SendCompletion                                                          RecvCompletion
//! ```
//!
//! | what | file |
//! |---|---|
//! | the types of queue pairs, and what each is composed of | [`service`] |
//! | operations, and the replies to them | [`operation`] |
//! | how a message is cut into packets | [`message`] |
//! | what moves between requester and responder | [`segment`] |
//! | completions | [`completion`] |
//! | WQEs, as a requester sees them | [`request`] |
//! | requests of a responder to its QP | [`env`] |
//! | the reliable connection: requester and responder | [`reliable`] |
//! | the responder of datagrams | [`datagram`] |
//! | the unreliable connection, and the requester of datagrams | [`unreliable`] |
//!
//! On the wire a segment is a packet, and the payload is in it. On the local path the segment of
//! the one QP is handed to the other one directly, the payload is copied once from memory to
//! memory, and a segment may be as long as a message.
//!
//! Whatever a peer sends ends in a counter, an answer, or the end of its own connection: there is
//! no arithmetic here that wraps unseen, no loop whose length the peer chooses, and no access to
//! memory that the [`env::ResponderEnv`] has not checked.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod completion;
pub mod datagram;
pub mod env;
pub mod message;
pub mod operation;
pub mod reliable;
pub mod request;
pub mod segment;
pub mod service;
pub mod unreliable;
