// SPDX-License-Identifier: GPL-2.0

//! The parts of a case: queue pairs and regions of the victim, and what is to be seen of a packet.

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The IP or UDP layer of the kernel drops it: the driver never sees it.
    Outside,
    /// Dropped, and counted under this reason alone.
    Drop(&'static str),
    /// Either of the two: it depends on what the IP layer thinks of the addresses.
    Perhaps(&'static str),
    /// Received, and in order or an answer that was waited for: nothing else is counted.
    Accepted,
    /// Received, and counted under this as well.
    Received(&'static str),
}

impl Fate {
    /// How it is called where it is counted what was provoked.
    pub fn name(&self) -> &'static str {
        match self {
            Fate::Outside => "outside",
            Fate::Accepted => "accepted",
            Fate::Drop(name) | Fate::Perhaps(name) | Fate::Received(name) => name,
        }
    }
}

/// A memory region of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub at: u64,
    pub len: u64,
    pub rkey: u32,
}

/// A queue pair of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Qp {
    pub index: usize,
    pub qpn: u32,
    /// What it believes the number of its peer to be.
    pub peer_qpn: u32,
    /// The PSN it expects first.
    pub rq_psn: u32,
    /// The PSN of its own first packet.
    pub sq_psn: u32,
    /// The key of its own memory window, over the bytes of "mw-own"; 0 if it has none.
    pub window: u32,
}

/// A state of `ibv_query_qp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Err = 6,
}

/// A completion: `wr_id`, status and bytes.
pub type Completion = (u64, u32, u32);

/// Receives have numbers from here on.
pub const FIRST_RECEIVE: u64 = 1000;
