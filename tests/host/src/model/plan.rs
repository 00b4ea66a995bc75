// SPDX-License-Identifier: GPL-2.0

//! What the requests of one side are, worked out before the run: their PSNs, their data, and where
//! it must show up. It is what the run is measured against, so it knows nothing of the code under
//! test but the types of its interface.

use super::dice::{Chance, Dice};
use super::scenario::{Fault, Place, Scenario, Side, Work};
use ferroce_core::completion::Carried;
use ferroce_core::operation::{Arguments, Operation};
use ferroce_core::send::SendRequest;
use ferroce_core::uabi::wqe::Flush;
use ferroce_core::wire::headers::Feth;
use zerocopy::transmute;

/// Length of [`Place::Cell`]: some packets and a rest.
pub const CELL: usize = 2 * 4096 + 5;
/// Key of a side's region.
pub const RKEY: u32 = 0x0bee_f000;
/// Address of a side's region.
pub const BASE: u64 = 0x7f00_1234_5000;
/// Keys from here on are invalidated by the SENDs that are for it, each its own.
const KEYS: u32 = 0x0dad_0000;
/// Bytes between places, where nobody may write.
const GUARD: usize = 8;
/// Where the one word is that atomic operations have in common: [`Place::Cell`] for them.
const COUNTER: usize = (CELL + GUARD).next_multiple_of(8);
/// Bytes that a FLUSH is about.
const FLUSHED: usize = 40;

/// What the tests want to know of an operation.
pub trait Kinds {
    fn op(&self) -> Operation;
    /// Whether data comes back instead of going out.
    fn is_read(&self) -> bool {
        self.op() == Operation::Read
    }
    /// Whether it changes a word, and what was there comes back.
    fn is_atomic(&self) -> bool {
        matches!(self.op(), Operation::CompareSwap | Operation::FetchAdd)
    }
    /// Whether it writes a word as one, or brings to where all see it what was written.
    fn is_settling(&self) -> bool {
        matches!(self.op(), Operation::AtomicWrite | Operation::Flush)
    }
    /// Whether it is answered by a response.
    fn is_answered(&self) -> bool {
        self.is_read() || self.is_atomic() || self.is_settling()
    }
    /// Whether it fills a receive of the peer.
    fn is_send(&self) -> bool {
        use Operation::{Send, SendImm, SendInv};
        matches!(self.op(), Send | SendImm | SendInv)
    }
    /// Whether it asks no peer, and takes no PSN.
    fn is_here(&self) -> bool {
        use Operation::{BindMw, LocalInv, RegMr};
        matches!(self.op(), LocalInv | BindMw | RegMr)
    }
    /// Whether remote memory is addressed.
    fn is_rdma(&self) -> bool {
        !self.is_send() && !self.is_here()
    }
}

impl Kinds for Operation {
    fn op(&self) -> Operation {
        *self
    }
}

/// What memory holds that nobody wrote.
pub const UNTOUCHED: u8 = 0xee;

/// A message that a work request makes.
#[derive(Clone, Debug)]
pub struct Message {
    pub request: SendRequest,
    /// What its extended headers are filled from.
    pub arguments: Arguments,
    pub work: Work,
    /// How many PSNs come before it.
    pub first: u64,
    pub packets: u64,
    /// What it carries; of a READ, nothing; of an atomic operation, what it leaves there.
    pub data: Vec<u8>,
    /// What an atomic operation finds.
    pub original: [u8; 8],
    /// Which receive of the peer it takes.
    pub receive: Option<usize>,
    /// Where in the peer's region it reads or writes, if it may.
    pub offset: Option<usize>,
    /// How many bytes the WRITEs and atomic operations up to and with this one write.
    pub written: u64,
}

/// A receive of a side.
#[derive(Clone, Debug)]
pub struct PlannedReceive {
    /// Microseconds after which it is due.
    pub due: u64,
    pub fault: Fault,
    pub capacity: usize,
}

/// What one side wants.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The requests, with the microseconds after which they are due.
    pub messages: Vec<Message>,
    /// When each is due, in microseconds.
    pub due: Vec<u64>,
    /// The receives for the messages of the peer.
    pub receives: Vec<PlannedReceive>,
    pub region: Vec<u8>,
    /// The keys that the peer may invalidate.
    pub keys: Vec<u32>,
}

impl Message {
    /// The end of its PSNs.
    pub fn end(&self) -> u64 {
        self.first + self.packets
    }

    /// Whether it addresses memory that it may not.
    pub fn is_out_of_bounds(&self) -> bool {
        let op = self.request.op;
        op.is_rdma() && (self.request.length != 0 || op.is_settling()) && self.offset.is_none()
    }

    /// Whether it asks no peer and cannot be done.
    pub fn is_unfit(&self) -> bool {
        self.work.gone && self.request.op.is_here()
    }

    /// Whether it takes a receive of the peer.
    pub fn takes_receive(&self) -> bool {
        self.request.op.is_send() || self.request.op == Operation::WriteImm
    }

    /// Whether it is to invalidate a key that is not for the peer to invalidate.
    pub fn is_bad_key(&self) -> bool {
        self.request.op == Operation::SendInv && self.work.place == Place::WrongKey
    }

    /// What the receive that it takes is told besides.
    pub fn carries(&self) -> Carried {
        match self.request.op {
            Operation::SendInv => Carried::Invalidated(self.arguments.invalidated),
            op if op.has_imm() => Carried::Imm(self.arguments.imm),
            _ => Carried::Nothing,
        }
    }

    /// Whether it writes data to the peer's region.
    pub fn is_write(&self) -> bool {
        matches!(self.request.op, Operation::Write | Operation::WriteImm)
    }

    /// Whether it changes the peer's region.
    pub fn changes(&self) -> bool {
        let op = self.request.op;
        self.is_write() || op.is_atomic() || op == Operation::AtomicWrite
    }
}

fn length(work: &Work, mtu: u32) -> usize {
    if work.op.is_atomic() {
        return 8;
    }
    // What they are about stands in no list of this side.
    if work.op.is_settling() || work.op.is_here() {
        return 0;
    }
    if work.op.is_rdma() && work.place == Place::Cell {
        return CELL;
    }
    (i64::from(work.packets) * i64::from(mtu) + i64::from(work.bytes)).max(0) as usize
}

fn message(index: usize, work: &Work, mtu: u32) -> Message {
    let len = length(work, mtu);
    Message {
        request: SendRequest {
            wr_id: index as u64,
            length: len as u32,
            op: work.op,
            signaled: work.signaled,
            fence: work.fence,
            solicited: work.solicited,
        },
        arguments: Arguments {
            remote_addr: 0,
            rkey: RKEY,
            imm: (index as u32).wrapping_mul(0x0101_0101).to_be_bytes(),
            invalidated: KEYS + index as u32,
            operands: [0; 2],
        },
        work: work.clone(),
        first: 0,
        packets: if work.op.is_here() {
            0
        } else {
            len.div_ceil(mtu as usize).max(1) as u64
        },
        data: Vec::new(),
        original: [0; 8],
        receive: None,
        offset: None,
        written: 0,
    }
}

/// The plans of both sides.
pub fn plans(scenario: &Scenario) -> [Plan; 2] {
    let requests = [0, 1].map(|side| requests(scenario, side));
    [0, 1].map(|side: usize| {
        let (messages, _) = &requests[side];
        // What one side addresses is the region of the other.
        let (peer, region) = &requests[1 - side];
        let own = &scenario.sides[side];
        let begin = u64::from(own.rtr_at) + u64::from(own.rts_after);
        Plan {
            messages: messages.clone(),
            due: sums(begin, own.work.iter().map(|work| work.gap)),
            receives: receives(own, peer),
            region: region.clone(),
            keys: keys(peer),
        }
    })
}

fn keys(peer: &[Message]) -> Vec<u32> {
    let invalidating = peer
        .iter()
        .filter(|m| m.request.op == Operation::SendInv && !m.is_bad_key());
    invalidating.map(|m| m.arguments.invalidated).collect()
}

fn sums(begin: u64, gaps: impl Iterator<Item = u16>) -> Vec<u64> {
    gaps.scan(begin, |at, gap| {
        *at += u64::from(gap);
        Some(*at)
    })
    .collect()
}

/// The messages of a side, and the region of its peer: the cell, the counter, then what is read
/// from, then a place for each WRITE and atomic operation.
fn requests(scenario: &Scenario, side: usize) -> (Vec<Message>, Vec<u8>) {
    let mtu = scenario.mtu;
    let mut messages: Vec<_> = scenario.sides[side]
        .work
        .iter()
        .enumerate()
        .map(|(index, work)| message(index, work, mtu))
        .collect();
    let longest_read = messages
        .iter()
        .filter(|m| m.request.op.is_read())
        .map(|m| m.request.length as usize)
        .max();
    let source = COUNTER + 8 + GUARD;
    let source_len = longest_read.unwrap_or(0) + 64;
    let mut region = Dice::of(&[scenario.seed, side as u64, 0]).bytes(source + source_len);
    let mut counter = *region[COUNTER..].first_chunk().expect("eight bytes");
    let (mut psns, mut receive, mut written) = (0, 0, 0);
    for message in &mut messages {
        let op = message.request.op;
        let len = match op {
            Operation::AtomicWrite => 8,
            Operation::Flush => FLUSHED,
            _ => message.request.length as usize,
        };
        message.first = psns;
        psns += message.packets;
        let mut dice = Dice::of(&[scenario.seed, side as u64, 1 + message.request.wr_id]);
        if message.takes_receive() {
            message.receive = Some(receive);
            receive += 1;
        }
        if !op.is_answered() || op == Operation::AtomicWrite {
            message.data = dice.bytes(len);
        }
        if !op.is_rdma() {
            continue;
        }
        let is_atomic = op.is_atomic();
        let is_word = is_atomic || op == Operation::AtomicWrite;
        let offset = match message.work.place {
            Place::Cell if is_word => COUNTER,
            Place::Cell => 0,
            _ if op.is_read() || op == Operation::Flush => {
                source + dice.below((source_len - len) as u64) as usize
            }
            _ => {
                let at = (region.len() + GUARD).next_multiple_of(8);
                region.resize(at + len + GUARD, UNTOUCHED);
                at
            }
        };
        message.arguments.remote_addr = BASE + offset as u64;
        match message.work.place {
            Place::Own | Place::Cell => message.offset = Some(offset),
            Place::WrongKey => message.arguments.rkey ^= 1 << dice.below(32),
            Place::Wraps => {
                // The last byte is beyond the end; a message of one byte stands at the very end.
                message.arguments.remote_addr = u64::MAX - dice.below(len as u64 / 2 + 1);
            }
            Place::Outside => message.arguments.remote_addr = BASE - 1 - dice.below(4096),
        }
        if is_word {
            message.arguments.remote_addr &= !7;
        }
        if op == Operation::Flush {
            message.arguments.operands = transmute!(Flush {
                length: len as u32,
                placement: Feth::GLOBAL,
                selectivity: Feth::RANGE,
                ..Flush::default()
            });
        }
        if is_atomic {
            let found = match message.work.place {
                Place::Cell => counter,
                _ => [UNTOUCHED; 8],
            };
            change(message, found, &mut dice);
        }
        if op == Operation::AtomicWrite {
            let value = *message.data.first_chunk().expect("eight bytes");
            message.arguments.operands = [u64::from_ne_bytes(value), 0];
        }
        if is_word && message.work.place == Place::Cell {
            counter = *message.data.first_chunk().expect("eight bytes");
        }
        if message.changes() && message.offset.is_some() {
            written += len as u64;
        }
        message.written = written;
    }
    // Half of what is out of bounds begins within them.
    let end = BASE + region.len() as u64;
    for message in &mut messages {
        let len = u64::from(message.request.length);
        let is_outside = message.request.op.is_rdma() && message.work.place == Place::Outside;
        if is_outside
            && len > 1
            && !message.request.op.is_atomic()
            && message.request.wr_id % 2 == 0
        {
            let mut dice = Dice::of(&[scenario.seed, side as u64, message.request.wr_id, 2]);
            let inside = 1 + dice.below((len - 1).min(region.len() as u64));
            message.arguments.remote_addr = end - inside;
        }
    }
    // Each message knows what was written up to it, also one that does not write.
    let mut before = 0;
    for message in &mut messages {
        before = message.written.max(before);
        message.written = before;
    }
    (messages, region)
}

/// Gives an atomic operation its operands, of which half the comparisons hold.
fn change(message: &mut Message, found: [u8; 8], dice: &mut Dice) {
    let [before, other] = [u64::from_ne_bytes(found), dice.throw()];
    let (operands, after) = if message.request.op == Operation::FetchAdd {
        ([other, 0], before.wrapping_add(other))
    } else {
        let holds = dice.below(2) == 0;
        let compare = if holds { before } else { !before };
        ([compare, other], if holds { other } else { before })
    };
    message.arguments.operands = operands;
    message.original = found;
    message.data = after.to_ne_bytes().to_vec();
}

fn receives(side: &Side, peer: &[Message]) -> Vec<PlannedReceive> {
    let taking: Vec<_> = peer.iter().filter(|m| m.receive.is_some()).collect();
    // One more than needed is a receive that nobody takes.
    let count = side.receives.len().max(taking.len() + 1);
    let due = sums(0, side.receives.iter().map(|receive| receive.gap));
    (0..count)
        .map(|n| {
            let fault = side.receives.get(n).map_or(Fault::None(0), |r| r.fault);
            let len = taking.get(n).map_or(0, |message| {
                if message.request.op == Operation::WriteImm {
                    0
                } else {
                    message.data.len()
                }
            });
            PlannedReceive {
                due: due.get(n).or(due.last()).copied().unwrap_or(0),
                fault,
                capacity: match fault {
                    Fault::None(more) => len + usize::from(more),
                    Fault::Short(less) => len.saturating_sub(usize::from(less)),
                    Fault::Malformed | Fault::Gone => len,
                },
            }
        })
        .collect()
}
