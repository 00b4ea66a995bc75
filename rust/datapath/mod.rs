// SPDX-License-Identifier: GPL-2.0

//! The data path: from a doorbell to a packet to a completion.
//!
//! A message passes three files: [`post`] from the doorbell to the transmit path, [`receive`] from
//! the socket to the QP and back, and [`ctx`], the context of each invocation. A file uses only the
//! files below it:
//!
//! ```text
//!   receive                             a packet arrives
//!   post                                a process has posted; workers and timers
//!   kernel                              post, poll and arm for ULPs
//!   local                               segments over the local path, and
//!   tx                                  as packets: what the send loop (core::send) transmits on
//!   congestion                          marks of the network, and notifications
//!   deliver                             executes a segment at its QP
//!   ctx                                 completions, errors, budgets
//!   directory                           QPs by number, ports by netdev; workqueues
//!   qp                                  the state, and both queues under their locks
//!   queues                              send queue and receive queue, as data
//!   protocol                            requester and responder of each QP type
//!   backlog                             packets that another CPU executes
//!   port                                the device, and its multicast groups
//!   path                                routes and AHs; packets, their batches and ICRCs
//!   cq  srq                             completions; SRQs
//!   traced                              what trace events say
//!   memory::{self, sg, window, region}  keys, scatter/gather lists, MWs, MRs and FRMRs
//! ```
//!
//! What needs no kernel is in [`core`](crate::core): the protocol, [`queue`] (private copies of
//! WQEs, CQEs, the consumer side of an SRQ), [`offload`] (which CPU sends, at which priority) and
//! [`steering`] (which CPU executes what arrives).
//!
//! [`queue`]: crate::core::queue
//! [`offload`]: crate::core::offload
//! [`offload::stream`]: crate::core::offload::stream
//! [`steering`]: crate::core::steering
//!
//! Processing runs to completion: the system call that rings the doorbell transmits, the softirq
//! that receives a request places the data and responds, and the softirq that receives the ACK
//! completes the WQE. Each invocation has a budget; work beyond it goes to a worker. If a process
//! posts faster than this path transmits ([`offload::stream`]), its send queue is offloaded: a
//! worker on another CPU transmits, or a timer on this one. A long batch that arrives is executed
//! on another CPU ([`backlog`]).
//!
//! Lock order: send queue of a QP, receive queue of a QP (of the peer QP on the local path), SRQ,
//! CQ. No code takes a queue lock while it holds a later lock of this order, so QPs may be
//! connected in any way, including to themselves. Nothing sleeps under these locks. No completion
//! or event handler runs under them (`sys::ib::event`).

mod backlog;
mod congestion;
pub mod cq;
pub mod ctx;
pub mod deliver;
pub mod directory;
pub mod kernel;
mod local;
pub mod memory;
pub mod path;
pub mod port;
pub mod post;
pub mod protocol;
pub mod qp;
pub mod queues;
pub mod receive;
pub mod srq;
mod traced;
pub mod tx;
