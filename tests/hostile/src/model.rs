// SPDX-License-Identifier: GPL-2.0

//! What the standard says a responder does with a packet, told a second time.
//!
//! Whoever has the addresses right and the PSN that is expected is the peer, as far as any
//! implementation can know: RoCEv2 has no other proof. Such a packet is executed, or refused with a
//! NAK that ends the connection (IBTA 9.9.3, class of errors C), which is what a broken peer gets
//! as well. What it can reach even so is bounded by the rights of the queue pair and of the keys of
//! its protection domain, and that is what this model is exact about. Before the PSN come the
//! address, the ICRC and the form of the packet; what fails there, or has a PSN that is not
//! expected, must leave no trace.

use crate::answer::{Answer, INVALID_REQUEST, PSN_SEQUENCE, REMOTE_ACCESS};
use crate::attack::Case;
use crate::counters::{Fate, ACCEPTED};
use crate::frame::Ib;
use crate::victim::{Completion, Qp, Region, State};
use std::collections::BTreeMap;

/// The path MTU of the victim's queue pairs.
pub const MTU: u32 = 256;
/// Bytes of a receive; the receives follow one another in their region.
pub const RECEIVE: u32 = 1024;
pub const MAX_MESSAGE: u32 = 1 << 31;
const LOC_LEN_ERR: u32 = 1;
const LOC_ACCESS_ERR: u32 = 8;
/// READs and atomic operations that the peer of a victim may have outstanding.
const OUTSTANDING: usize = 4;

/// BTH and extended headers of the opcodes of RC. Of those that are not served nobody looks behind
/// the BTH.
pub fn headers_len(opcode: u8) -> Option<usize> {
    match opcode {
        0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0e | 0x15 | 0x18..=0x1b | 0x1e | 0x1f => Some(12),
        0x03 | 0x05 | 0x09 | 0x0d | 0x0f | 0x10 | 0x11 | 0x16 | 0x17 => Some(16),
        0x06 | 0x0a | 0x0c | 0x1d => Some(28),
        0x0b | 0x1c => Some(32),
        0x12 => Some(24),
        0x13 | 0x14 => Some(40),
        _ => None,
    }
}

/// Why a packet of `total` bytes, ICRC included, has not the form of its opcode; or its bytes of
/// payload.
pub fn form(opcode: u8, version: u8, pad: usize, total: usize) -> Result<usize, &'static str> {
    const MALFORMED: &str = "drop_malformed";
    if total < 12 || version != 0 {
        return Err(MALFORMED);
    }
    let headers = headers_len(opcode).ok_or("drop_opcode")?;
    let padded = total.checked_sub(headers + 4).ok_or(MALFORMED)?;
    let payload = padded.checked_sub(pad).ok_or(MALFORMED)?;
    let bare = matches!(opcode, 0x0c | 0x11..=0x14 | 0x1c);
    let is_long = payload > 4096 && matches!(opcode, 0..=0x14 | 0x16 | 0x17 | 0x1c | 0x1d);
    if padded % 4 != 0 || is_long || (bare && padded != 0) {
        return Err(MALFORMED);
    }
    Ok(payload)
}

/// Whether the packet is from a responder.
pub fn is_response(opcode: u8) -> bool {
    (0x0d..=0x12).contains(&opcode)
}

/// What the victim lets its peer do, and where.
#[derive(Clone)]
pub struct Rights {
    pub regions: BTreeMap<String, Region>,
    pub rdma: bool,
    pub reads: bool,
    pub flush: bool,
    pub receives: u32,
    /// The bytes of the windows that belong to one queue pair each.
    own_window: Region,
}

impl Rights {
    /// Those of a kind of queue pair.
    pub fn of(kind: &str, regions: &BTreeMap<String, Region>) -> Self {
        let mut regions = regions.clone();
        // Another domain's, another queue pair's, and what has gone.
        for name in ["foreign", "stale", "mw-foreign", "mw-stale"] {
            regions.remove(name);
        }
        Self {
            own_window: regions.remove("mw-own").expect("it tells all places"),
            regions,
            rdma: !kind.ends_with("-no-rights"),
            reads: kind != "rts-no-reads",
            flush: kind == "rts-flush",
            receives: if kind.ends_with("-no-receives") { 0 } else { 4 },
        }
    }

    /// The region and the offset of a range that the peer may use so.
    pub fn range(&self, how: Use, (va, rkey, len): (u64, u32, u32)) -> Option<(&'static str, u64)> {
        let names: &[&'static str] = match how {
            Use::Read => &["rw", "ro", "volatile", "mw-rw", "mw-ro", "mw-own"],
            Use::Write => &["rw", "wo", "volatile", "mw-rw", "mw-own"],
            Use::Atomic => &["rw", "volatile", "mw-rw", "mw-own"],
            Use::Flush => &["rw"],
        };
        names.iter().find_map(|name| {
            let region = self.regions.get(*name)?;
            let end = u128::from(va) + u128::from(len);
            let fits = region.rkey == rkey
                && va >= region.at
                && end <= u128::from(region.at) + u128::from(region.len);
            fits.then(|| (*name, va - region.at))
        })
    }
}

/// How memory is used.
#[derive(Clone, Copy)]
pub enum Use {
    Read,
    Write,
    Atomic,
    Flush,
}

/// A request that is answered by a response: a READ's RETH; opcode, address and key of one that is
/// executed when it comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Read(u64, u32, u32),
    Executed(u8, u64, u32),
}

#[derive(Clone, Copy, Debug)]
enum Message {
    None,
    Send {
        received: u32,
    },
    Write {
        reth: (u64, u32, u32),
        received: u32,
    },
}

/// A responder.
pub struct Model {
    first_psn: u32,
    pub rights: Rights,
    /// Of the next packet in order, counted from the first of the connection.
    pub expected: i64,
    message: Message,
    /// The newest packet behind a gap since the peer was asked for the expected one.
    newest: Option<i64>,
    /// Those that were accepted, and where they begin.
    asked: Vec<(i64, Asked)>,
    taken: u32,
    state: State,
    answers: Vec<Answer>,
    completions: Vec<Completion>,
    writes: Vec<(&'static str, u64, u64)>,
}

const IGNORED: Fate = Fate::Received(&["ignored_request"]);
const REFUSED: Fate = Fate::Received(&["refused_request"]);

impl Model {
    pub fn new(qp: &Qp, rights: &Rights) -> Self {
        let mut rights = rights.clone();
        if qp.window != 0 {
            let own = Region {
                rkey: qp.window,
                ..rights.own_window
            };
            rights.regions.insert("mw-own".into(), own);
        }
        Self {
            first_psn: qp.rq_psn,
            rights,
            expected: 0,
            message: Message::None,
            newest: None,
            asked: Vec::new(),
            taken: 0,
            state: State::Rts,
            answers: Vec::new(),
            completions: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// The PSN so many packets after the first of the connection.
    pub fn psn(&self, sequence: i64) -> u32 {
        (i64::from(self.first_psn) + sequence).rem_euclid(1 << 24) as u32
    }

    /// The case that these frames make, whose fates the model has told.
    pub fn case(self, name: String, frames: Vec<(Vec<u8>, Fate)>) -> Case {
        Case {
            name,
            frames,
            pause: None,
            answers: self.answers,
            state: self.state,
            completions: self.completions,
            writes: self.writes,
        }
    }

    /// A well-formed request from the right address comes.
    pub fn request(&mut self, ib: &Ib) -> Fate {
        if self.state == State::Err {
            return Fate::Drop("drop_state");
        }
        // The nearest packet with this PSN, before or after the expected one.
        let ahead = (i64::from(ib.psn) - i64::from(self.psn(self.expected))).rem_euclid(1 << 24);
        let distance = if ahead >= 1 << 23 {
            ahead - (1 << 24)
        } else {
            ahead
        };
        let sequence = self.expected + distance;
        // No peer sends what is so far from the expected packet.
        if sequence < 0 || distance > 4096 {
            return IGNORED;
        }
        if distance > 0 {
            // A peer that begins again is asked again.
            if self.newest.is_none_or(|newest| sequence <= newest) {
                self.nak(self.expected, PSN_SEQUENCE);
            }
            self.newest = Some(sequence);
            return Fate::Received(&["out_of_sequence"]);
        }
        if distance < 0 {
            return self.again(sequence, ib);
        }
        let before = self.expected;
        let fate = match ib.opcode {
            0x00..=0x05 | 0x16 | 0x17 => self.send(ib),
            0x06..=0x0b => self.write(ib),
            0x0c => self.read(ib),
            0x13 | 0x14 => self.atomic(ib),
            0x1c => self.flush(ib),
            0x1d => self.atomic_write(ib),
            0x15 | 0x18..=0x1f => self.refuse(INVALID_REQUEST),
            _ => panic!("{:#x} is no request", ib.opcode),
        };
        if self.expected != before {
            self.newest = None;
        }
        fate
    }

    fn nak(&mut self, sequence: i64, code: u8) {
        let psn = self.psn(sequence);
        self.answers.push(Answer::Nak { psn, code });
    }

    fn refuse(&mut self, code: u8) -> Fate {
        self.nak(self.expected, code);
        self.state = State::Err;
        REFUSED
    }

    fn not_ready(&mut self) -> Fate {
        let psn = self.psn(self.expected);
        self.answers.push(Answer::Rnr { psn });
        self.newest = Some(self.expected);
        Fate::Received(&["rnr_nak_sent"])
    }

    fn accept(&mut self, ib: &Ib) -> Fate {
        if ib.ack & 0x80 != 0 {
            let psn = self.psn(self.expected);
            self.answers.push(Answer::Ack { psn });
        }
        self.expected += 1;
        ACCEPTED
    }

    fn send(&mut self, ib: &Ib) -> Fate {
        let first = matches!(ib.opcode, 0x00 | 0x04 | 0x05 | 0x17);
        let last = !matches!(ib.opcode, 0x00 | 0x01);
        let len = ib.payload.len() as u32;
        if !fits(first, last, len) {
            return self.refuse(INVALID_REQUEST);
        }
        let received = match (self.message, first) {
            (Message::None, true) if self.taken == self.rights.receives => return self.not_ready(),
            (Message::None, true) => {
                self.taken += 1;
                0
            }
            (Message::Send { received }, false) => received,
            // The receive of a SEND that goes on is flushed with the rest, which is not told here.
            _ => return self.refuse(INVALID_REQUEST),
        };
        let number = self.taken - 1;
        let wr_id = 1000 + u64::from(number);
        if received + len > RECEIVE {
            self.completions.push((wr_id, LOC_LEN_ERR, 0));
            return self.refuse(INVALID_REQUEST);
        }
        let at = u64::from(RECEIVE * number + received);
        self.writes.push(("receives", at, u64::from(len)));
        if matches!(ib.opcode, 0x16 | 0x17) {
            // A peer may invalidate the window of the queue pair's own, and nothing else.
            let own = self.rights.regions.get("mw-own");
            if own.is_none_or(|own| ib.imm != Some(own.rkey)) {
                // The receive is flushed.
                self.message = Message::None;
                return self.refuse(REMOTE_ACCESS);
            }
            self.rights.regions.remove("mw-own");
        }
        self.message = if last {
            self.completions.push((wr_id, 0, received + len));
            Message::None
        } else {
            Message::Send {
                received: received + len,
            }
        };
        self.accept(ib)
    }

    /// The next receive of those posted, by its `wr_id`.
    fn take_receive(&mut self) -> Option<u64> {
        if self.taken == self.rights.receives {
            return None;
        }
        let wr_id = 1000 + u64::from(self.taken);
        self.taken += 1;
        Some(wr_id)
    }

    fn write(&mut self, ib: &Ib) -> Fate {
        let first = matches!(ib.opcode, 0x06 | 0x0a | 0x0b);
        let last = !matches!(ib.opcode, 0x06 | 0x07);
        let has_imm = matches!(ib.opcode, 0x09 | 0x0b);
        let len = ib.payload.len() as u32;
        if !fits(first, last, len) {
            return self.refuse(INVALID_REQUEST);
        }
        let (reth, received) = match (self.message, first, ib.reth) {
            (Message::None, true, Some(reth)) => (reth, 0),
            (Message::Write { reth, received }, false, _) => (reth, received),
            _ => return self.refuse(INVALID_REQUEST),
        };
        if !self.rights.rdma || reth.2 > MAX_MESSAGE {
            return self.refuse(INVALID_REQUEST);
        }
        let rest = reth.2 - received;
        if (last && len != rest) || (!last && len >= rest) {
            return self.refuse(INVALID_REQUEST);
        }
        let range = self.rights.range(Use::Write, reth);
        if first && reth.2 != 0 && range.is_none() {
            if has_imm {
                // The receive that it would have completed says so, if there is one.
                let receive = self.take_receive();
                let completion = receive.map(|wr_id| (wr_id, LOC_ACCESS_ERR, 0));
                self.completions.extend(completion);
            }
            return self.refuse(REMOTE_ACCESS);
        }
        if has_imm {
            let Some(wr_id) = self.take_receive() else {
                return self.not_ready();
            };
            self.completions.push((wr_id, 0, reth.2));
        }
        if let Some((name, offset)) = range {
            let at = offset + u64::from(received);
            self.writes.push((name, at, u64::from(len)));
        }
        self.message = if last {
            Message::None
        } else {
            Message::Write {
                reth,
                received: received + len,
            }
        };
        self.accept(ib)
    }

    fn read(&mut self, ib: &Ib) -> Fate {
        let (Message::None, Some(reth)) = (self.message, ib.reth) else {
            return self.refuse(INVALID_REQUEST);
        };
        if !self.rights.rdma || !self.rights.reads || reth.2 > MAX_MESSAGE {
            return self.refuse(INVALID_REQUEST);
        }
        if reth.2 != 0 && self.rights.range(Use::Read, reth).is_none() {
            return self.refuse(REMOTE_ACCESS);
        }
        let asked = Asked::Read(reth.0, reth.1, reth.2);
        self.asked.push((self.expected, asked));
        self.expected = self.respond(self.expected, reth.2);
        ACCEPTED
    }

    fn atomic(&mut self, ib: &Ib) -> Fate {
        let (Message::None, Some((va, rkey, ..))) = (self.message, ib.atomic) else {
            return self.refuse(INVALID_REQUEST);
        };
        if !self.rights.rdma || !self.rights.reads || va % 8 != 0 {
            return self.refuse(INVALID_REQUEST);
        }
        if self.rights.range(Use::Atomic, (va, rkey, 8)).is_none() {
            return self.refuse(REMOTE_ACCESS);
        }
        let asked = Asked::Executed(ib.opcode, va, rkey);
        self.asked.push((self.expected, asked));
        let psn = self.psn(self.expected);
        self.answers.push(Answer::Original { psn });
        self.expected += 1;
        ACCEPTED
    }

    fn atomic_write(&mut self, ib: &Ib) -> Fate {
        let (Message::None, Some((va, rkey, len))) = (self.message, ib.reth) else {
            return self.refuse(INVALID_REQUEST);
        };
        if !self.rights.rdma
            || !self.rights.reads
            || va % 8 != 0
            || len != 8
            || ib.payload.len() != 8
        {
            return self.refuse(INVALID_REQUEST);
        }
        let Some((name, offset)) = self.rights.range(Use::Write, (va, rkey, 8)) else {
            return self.refuse(REMOTE_ACCESS);
        };
        self.writes.push((name, offset, 8));
        let asked = Asked::Executed(ib.opcode, va, rkey);
        self.asked.push((self.expected, asked));
        self.expected = self.respond(self.expected, 0);
        ACCEPTED
    }

    /// To where all see it: nothing of the victim persists.
    fn flush(&mut self, ib: &Ib) -> Fate {
        const GLOBAL: u32 = 1;
        let (Message::None, Some((va, rkey, len)), Some(feth)) = (self.message, ib.reth, ib.feth)
        else {
            return self.refuse(INVALID_REQUEST);
        };
        let (placement, selectivity) = (feth & 0xf, (feth >> 4) & 3);
        if !self.rights.flush || placement != GLOBAL || selectivity > 1 || !self.rights.reads {
            return self.refuse(INVALID_REQUEST);
        }
        let is_all = selectivity == 1;
        let known = match self.rights.regions.get("rw") {
            Some(region) if is_all && region.rkey == rkey => true,
            _ => !is_all && self.rights.range(Use::Flush, (va, rkey, len)).is_some(),
        };
        if !known {
            return self.refuse(REMOTE_ACCESS);
        }
        let asked = Asked::Executed(ib.opcode, va, rkey);
        self.asked.push((self.expected, asked));
        self.expected = self.respond(self.expected, 0);
        ACCEPTED
    }

    /// The responses to a READ; the sequence behind the last.
    fn respond(&mut self, start: i64, len: u32) -> i64 {
        let packets = len.div_ceil(MTU).max(1);
        for n in 0..packets {
            let opcode = match (n == 0, n + 1 == packets) {
                (true, true) => 0x10,
                (true, false) => 0x0d,
                (false, false) => 0x0e,
                (false, true) => 0x0f,
            };
            let psn = self.psn(start + i64::from(n));
            let len = (len - n * MTU).min(MTU) as usize;
            self.answers.push(Answer::Read { opcode, psn, len });
        }
        start + i64::from(packets)
    }

    /// A request comes again. Nothing is written twice; a READ is answered again if it is one of
    /// the last that the peer may have outstanding, or a part of one: the same bytes at the same
    /// PSNs, from memory that the peer may read *now*. An atomic operation is answered as before,
    /// for it is not done again.
    ///
    /// A key that is no good any more is told to who asks, without harm to the connection: the
    /// packet may be an old one that the network brought twice.
    fn again(&mut self, sequence: i64, ib: &Ib) -> Fate {
        const AGAIN: Fate = Fate::Received(&["duplicate_request"]);
        let newest = self.asked.iter().rev().take(OUTSTANDING);
        let named = match ib.opcode {
            0x13 | 0x14 => ib.atomic.map(|(va, rkey, ..)| (va, rkey)),
            0x1c | 0x1d => ib.reth.map(|(va, rkey, _)| (va, rkey)),
            _ => None,
        };
        if let Some((va, rkey)) = named {
            let asked = (sequence, Asked::Executed(ib.opcode, va, rkey));
            if !newest.into_iter().any(|known| *known == asked) {
                return IGNORED;
            }
            if ib.opcode > 0x14 {
                self.respond(sequence, 0);
                return AGAIN;
            }
            let psn = self.psn(sequence);
            self.answers.push(Answer::Original { psn });
            return AGAIN;
        }
        if ib.opcode != 0x0c {
            if self.expected - sequence > 65536 {
                return IGNORED;
            }
            // If a peer that went back has one of those still to ask for again that are answered
            // by a response, an ACK behind it would say that its answer was lost.
            let has_more = self.asked.last().is_some_and(|newest| sequence < newest.0);
            let psn = self.psn(if has_more {
                sequence
            } else {
                self.expected - 1
            });
            self.answers.push(Answer::Ack { psn });
            return AGAIN;
        }
        let Some(reth) = ib.reth else {
            return IGNORED;
        };
        let (va, rkey, len) = reth;
        let is_known = newest.into_iter().any(|&(start, asked)| {
            let Asked::Read(at, key, all) = asked else {
                return false;
            };
            let packets = i64::from(all.div_ceil(MTU).max(1));
            let Ok(skipped) = u64::try_from(sequence - start) else {
                return false;
            };
            let offset = skipped * u64::from(MTU);
            sequence < start + packets
                && (va, rkey) == (at + offset, key)
                && offset + u64::from(len) <= all.into()
                && (len != 0 || all == 0)
        });
        if !is_known {
            return IGNORED;
        }
        if len != 0 && self.rights.range(Use::Read, reth).is_none() {
            self.nak(sequence, REMOTE_ACCESS);
        } else {
            self.respond(sequence, len);
        }
        AGAIN
    }
}

/// Whether the payload is as long as its place in the message wants it.
pub fn fits(first: bool, last: bool, len: u32) -> bool {
    if last {
        len <= MTU && (first || len != 0)
    } else {
        len == MTU
    }
}
