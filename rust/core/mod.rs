// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The core: all of ferroce that needs neither the kernel nor unsafe code. On the host it is an
//! ordinary crate (`lib.rs`), for the tests and the provider.
//!
//! Its heart is the transports as state machines without input and output (IBTA volume 1, chapter
//! 9). Nothing here sends, receives, copies, locks, sleeps or asks for the time. The owner of a QP
//! does, and tells the state machines what happened; they return what is to be done next.
//!
//! ```text
//!   work request                                                              receive
//!        |                                                                       |
//!        v push                                                     take_receive v
//!  +-----------+   next             RequestSegment      on_request         +-----------+
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
//! | the types of QPs, and what each is composed of | [`service`] |
//! | operations, and the replies to them | [`operation`] |
//! | how a work request or a packet names memory | [`memory`] |
//! | how a message is cut into packets | [`message`] |
//! | what moves between requester and responder | [`segment`] |
//! | completions | [`completion`] |
//! | the send loop, for each requester and all that transmits; WQEs as it sees them | [`send`] |
//! | what makes a send queue look for work | [`kick`] |
//! | requests of a responder to its QP | [`mod@env`] |
//! | the reliable connection: requester and responder | [`rc`] |
//! | the unreliable connection, and the requester of datagrams | [`uc`] |
//! | the responder of datagrams | [`ud`] |
//! | WQEs, CQEs and shared receives in their rings | [`queue`] |
//! | which CPU transmits, and at which priority | [`offload`] |
//! | which CPU executes what arrives | [`steering`] |
//! | which packets may leave as one batch | [`batch`] |
//! | the reference count that ends access to memory | [`gate`] |
//! | slots, and memory that is allocated when a packet is lost | [`storage`] |
//! | limits of the number of objects | [`quota`] |
//! | packets | [`wire`] |
//! | rings and structures shared with the provider | [`uabi`] |
//!
//! On the wire a segment is a packet, and the payload is in it. On the local path a segment is
//! handed to the other QP directly, the payload is copied once from memory to memory, and a segment
//! may stand for many packets.
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

pub mod batch;
pub mod completion;
pub mod env;
pub mod gate;
pub mod kick;
pub mod memory;
pub mod message;
pub mod offload;
pub mod operation;
pub mod queue;
pub mod quota;
pub mod rc;
pub mod segment;
pub mod send;
pub mod service;
pub mod steering;
pub mod storage;
pub mod uabi;
pub mod uc;
pub mod ud;
pub mod wire;
