// SPDX-License-Identifier: GPL-2.0

//! What a run is made of, as data: nothing else decides what happens in it.

use ferroce_core::operation::Operation;
use std::fmt;

/// Everything about a run.
#[derive(Clone)]
pub struct Scenario {
    /// Of the network's luck and of the data.
    pub seed: u64,
    pub mtu: u32,
    /// Packets' worth of data in one segment: 1 is the wire, more is the local path.
    pub span: u32,
    pub sides: [Side; 2],
    /// What carries the packets of each side.
    pub links: [Link; 2],
    /// Times in which nothing arrives.
    pub blackouts: Vec<Blackout>,
    pub events: Vec<Event>,
}

/// A QP, and the plan of its user.
#[derive(Clone)]
pub struct Side {
    /// PSN of the first packet that it sends. What follows, up to `max_dest_rd_atomic`, is as in
    /// `ibv_qp_attr`.
    pub first_psn: u32,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub rnr_timer: u8,
    /// 0 is no timeout.
    pub timeout: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub allow_read: bool,
    pub allow_write: bool,
    pub allow_atomic: bool,
    /// It keeps packets behind a gap, and says so.
    pub keeps: bool,
    /// It says of a gap once, whatever comes behind it: as rdma_rxe and adapters do.
    pub terse: bool,
    /// Slots of the send queue, as a binary logarithm.
    pub send_log: u8,
    /// Slots of the receive queue, as a binary logarithm.
    pub recv_log: u8,
    /// Segments that a turn sends before others have theirs.
    pub budget: u8,
    /// Microseconds that a worker which sends takes to get its turn, beyond the first.
    pub late: u8,
    /// How often in a hundred times a batch of segments, or a response, finds the device full.
    pub stuck: u8,
    /// Most segments of a batch.
    pub batch: u8,
    /// Microseconds after which it goes to RTR.
    pub rtr_at: u32,
    /// Microseconds that it then stays in RTR.
    pub rts_after: u32,
    pub work: Vec<Work>,
    /// The first receives; those behind them are posted at once and are large enough.
    pub receives: Vec<Receive>,
    /// Receives that are posted, if not enough: the rest comes only if the peer asks for ever.
    pub starve: Option<u8>,
}

/// A work request.
#[derive(Clone)]
pub struct Work {
    /// Microseconds since the one before it was due.
    pub gap: u16,
    pub op: Operation,
    /// Its length: so many packets.
    pub packets: u16,
    /// Its length: and so many bytes more, or less.
    pub bytes: i16,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// Its local memory is not accessible, or the key that it is about.
    pub gone: bool,
    /// Which memory of the peer it is about.
    pub place: Place,
}

/// Which memory of the peer a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Own,
    /// The one place that requests have in common; the length is that of the place. Atomic
    /// operations have another one.
    Cell,
    /// Its own, with a key that is not the region's.
    WrongKey,
    /// It runs out of the region.
    Outside,
    /// It runs over the end of the address space.
    Wraps,
}

/// A receive.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Microseconds since the one before it was due.
    pub gap: u16,
    pub fault: Fault,
}

/// What may be wrong with a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing, and it has so many bytes more than the message.
    None(u8),
    /// It has so many bytes less than the message, if that is so long.
    Short(u16),
    Malformed,
    Gone,
}

/// What one direction of the network does to packets.
#[derive(Clone, Default)]
pub struct Link {
    pub delay: u16,
    /// Up to so many microseconds more, which changes slowly and keeps the order.
    pub jitter: u16,
    /// Nanoseconds that the wire takes for a packet, beyond those for its bytes.
    pub packet_ns: u32,
    /// Lost, in a hundred.
    pub loss: u8,
    /// So many are lost together.
    pub burst: u8,
    /// Arrive twice, in a hundred.
    pub duplicate: u8,
    /// Are held up, in a hundred.
    pub reorder: u8,
    /// Up to so many microseconds.
    pub depth: u16,
    /// What comes within so many microseconds comes as one batch.
    pub gather: u8,
}

/// A time in which nothing arrives that was sent in it.
#[derive(Clone, Debug)]
pub struct Blackout {
    /// Begins after so many microseconds.
    pub from: u32,
    /// Lasts so many microseconds.
    pub length: u32,
    /// Only what this side sends.
    pub side: Option<usize>,
}

/// Something that happens once.
#[derive(Clone, Debug)]
pub struct Event {
    /// After so many microseconds.
    pub at: u32,
    pub side: usize,
    pub what: What,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The user moves the QP to ERR.
    Error,
    Destroy,
    /// The region that the peer addresses is deregistered.
    RegionGone,
    /// The local memory of both queues is deregistered.
    LocalGone,
    /// The user moves the QP to SQD, and so many microseconds after it drained to RTS again.
    Drain(u16),
    /// The QP is told that the network has marked its packets.
    Marked,
}

impl Scenario {
    /// Two QPs of usual attributes and a good network, with nothing to do.
    pub fn calm(mtu: u32) -> Self {
        Self {
            seed: 1,
            mtu,
            span: 1,
            sides: [Side::usual(0xff_fffc), Side::usual(0x12_3456)],
            links: [Link::good(), Link::good()],
            blackouts: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl Default for Side {
    fn default() -> Self {
        Self::usual(0)
    }
}

impl Side {
    /// Usual attributes and nothing to do.
    pub fn usual(first_psn: u32) -> Self {
        Self {
            first_psn,
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            timeout: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            allow_read: true,
            allow_write: true,
            allow_atomic: true,
            keeps: false,
            terse: false,
            send_log: 6,
            recv_log: 6,
            budget: 64,
            late: 0,
            stuck: 0,
            batch: 1,
            rtr_at: 0,
            rts_after: 0,
            work: Vec::new(),
            receives: Vec::new(),
            starve: None,
        }
    }
}

impl Work {
    /// A signaled request of a number of packets and some bytes.
    pub fn new(op: Operation, packets: u16, bytes: i16) -> Self {
        Self {
            gap: 0,
            op,
            packets,
            bytes,
            signaled: true,
            fence: false,
            solicited: false,
            gone: false,
            place: Place::Own,
        }
    }
}

impl Link {
    /// One that does what it should.
    pub fn good() -> Self {
        Self {
            delay: 5,
            ..Self::default()
        }
    }
}

/// Shows a value as the code that would make it from a usual one.
macro_rules! show_what_differs {
    ($type:ident, $usual:expr, $name:literal, $($field:ident)*) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let usual = $usual;
                write!(f, "{} {{ ", stringify!($type))?;
                $(
                    let own = format!("{:?}", self.$field);
                    if own != format!("{:?}", usual.$field) {
                        write!(f, "{}: {own}, ", stringify!($field))?;
                    }
                )*
                write!(f, "..{} }}", $name)
            }
        }
    };
}

show_what_differs!(
    Scenario, Scenario::calm(0), "Scenario::calm(0)",
    seed mtu span sides links blackouts events
);
show_what_differs!(
    Side, Side::usual(0), "Side::usual(0)",
    first_psn retry_cnt rnr_retry rnr_timer timeout max_rd_atomic max_dest_rd_atomic allow_read
    allow_write allow_atomic keeps terse send_log recv_log budget late stuck batch rtr_at rts_after
    work receives starve
);
show_what_differs!(
    Work, Work::new(Operation::Send, 0, 0), "Work::new(Operation::Send, 0, 0)",
    gap op packets bytes signaled fence solicited gone place
);
show_what_differs!(
    Link, Link::good(), "Link::good()",
    delay jitter packet_ns loss burst duplicate reorder depth gather
);
