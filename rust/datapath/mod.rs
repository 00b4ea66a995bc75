// SPDX-License-Identifier: GPL-2.0

//! How bytes move, from a doorbell to a packet to a completion.
//!
//! The way of a message is in three files: [`post`] from the doorbell to the carrier, [`receive`]
//! from the socket to the QP and back, and [`ctx`], the scope of each step. A file uses only those
//! below it:
//!
//! ```text
//!   worker                              what runs by itself: workers, timer
//!   receive                             a packet comes in
//!   post                                a process has posted
//!   kernel                              posting, polling and arming by users in the kernel
//!   carrier::{wire, local, datagram}    segments as packets, or handed over within a device
//!   deliver                             what a segment does at the QP it is for
//!   turn                                completing, failing, budgets
//!   directory                           QPs by number, ports by netdev, worker queues
//!   qp                                  the state, and the halves under their locks
//!   halves                              sending and receiving half, as data
//!   protocol                            what a half does, by the type of the QP
//!   outbox  way  cq  srq                batches; addresses; completions; shared receives
//!   notify  icrc  memory::sg  port      handlers; checksums; lists of memory; the device
//!   handle                              address handles
//!   memory::region                      registered memory
//!   schedule  stream  budget            who sends, for whom, how urgently: pure
//!   wqe  filler                         copies of requests; entries of completions: pure
//!   moderation  shelf                   when a completion is an event; shared receives: pure
//! ```
//!
//! One thread of control carries a message as far as it can: the system call that rings the
//! doorbell sends it, the softirq that receives it places the data and answers, the softirq that
//! receives the ACK completes it. A turn has a budget; what is beyond goes to a worker. A process
//! that posts faster than this goes ([`stream`]) is left to post: a worker on another CPU sends.
//!
//! Locks: sending half of a QP, then receiving half of a QP (another one's on the local path),
//! then a shared receive queue, then a CQ. A half is never locked while a lock behind it in this
//! order is held, so QPs may be connected in any way, also to themselves. Nothing sleeps under
//! them, and no handler of a user runs under them, nor on the stack of who posts ([`notify`]).

pub mod ah;
pub mod budget;
pub mod cq;
pub mod cq_producer;
pub mod ctx;
pub mod deliver;
pub mod directory;
#[cfg(CONFIG_KUNIT = "y")]
mod fake;
pub mod groups;
pub mod icrc;
pub mod kernel;
pub mod memory;
pub mod moderation;
pub mod notify;
pub mod path;
pub mod port;
pub mod post;
pub mod protocol;
pub mod qp;
pub mod queues;
pub mod receive;
pub mod rounds;
pub mod schedule;
pub mod srq;
pub mod srq_consumer;
pub mod stream;
pub mod tx;
pub mod tx_batch;
pub mod worker;
pub mod wqe;
