// SPDX-License-Identifier: GPL-2.0

//! How bytes move, from a doorbell to a packet to a completion.
//!
//! ```text
//!  doorbell          packet              timer            worker
//!     |                 |                  |                 |
//!     v                 v                  v                 v
//!  drive::doorbell   receive::receive   drive::expired    drive::work
//!     |                 |                  |                 |
//!     +------- sending half (lock) --------+-----------------+
//!     |                 +------- receiving half (lock) ------+
//!     v                 v
//!  send_queue        recv_queue       what the process posted, what it is told
//!     |                 |
//!     v                 v
//!  transport::requester / responder   the protocol, which decides
//!     |                 |
//!     v                 v
//!  connection (packets)   or   local (same device, no packets)
//! ```
//!
//! One thread of control carries a message as far as it can: the system call that rings the
//! doorbell sends it, the softirq that receives it places the data and answers, the softirq that
//! receives the ACK completes it. A turn has a budget; what is beyond goes to a worker. A process
//! that posts faster than this goes ([`offload`]) is left to post: a worker on another CPU sends.
//!
//! Locks: sending half of a QP, then receiving half of a QP (another one's on the local path),
//! then a CQ. A half is never locked while a lock behind it in this order is held, so QPs may be
//! connected in any way, also to themselves. Nothing sleeps under them. Handlers of users are
//! called after all of them were given back ([`deferred`]).

pub mod connection;
pub mod cq;
pub mod deferred;
pub mod drive;
pub mod fabric;
pub mod local;
pub mod offload;
pub mod payload;
pub mod port;
pub mod qp;
pub mod receive;
pub mod recv_queue;
pub mod region;
pub mod send_queue;
pub mod stream;

use crate::sys::timer;
use deferred::Deferred;
use fabric::Fabric;
use kernel::sync::rcu;

/// One turn of the data path: what everybody in it needs.
///
/// QPs and regions that are looked up during the turn stay until it ends.
pub struct Turn<'a> {
    /// Keeps what is looked up.
    pub rcu: &'a rcu::Guard,
    /// All QPs.
    pub fabric: &'a Fabric,
    /// When the turn began, in nanoseconds of the monotonic clock.
    pub now: u64,
    /// What to do when the locks are free.
    pub deferred: Deferred,
}

impl<'a> Turn<'a> {
    /// Begins a turn.
    pub fn new(rcu: &'a rcu::Guard, fabric: &'a Fabric) -> Self {
        Self {
            rcu,
            fabric,
            now: timer::now(),
            deferred: Deferred::default(),
        }
    }

    /// Ends it. No lock is held.
    #[inline]
    pub fn end(self) {
        if self.deferred.is_empty() {
            // There is nothing to drop in it either.
            core::mem::forget(self.deferred);
        } else {
            self.deferred.run(self.rcu);
        }
    }
}
