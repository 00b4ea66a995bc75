// SPDX-License-Identifier: GPL-2.0

//! What the standard says a responder does with a packet, told a second time.
//!
//! A sender that has the addresses right and the PSN that is expected is the peer, as far as any
//! implementation can know: RoCEv2 has no other proof. Such a packet is executed, or refused with a
//! NAK that ends the connection (IBTA 9.9.3, class of errors C), which is what a broken peer gets
//! as well. What it can reach even so is bounded by the rights of the queue pair and of the keys of
//! its protection domain, and that is what this model is exact about. Before the PSN come the
//! address, the ICRC and the form of the packet; what fails there, or has a PSN that is not
//! expected, must leave no trace.
//!
//! Queue pairs of UC and UD answer nothing, and go on after what they lose (9.8.2.2, 9.8.3, 9.9.3.1
//! class D).

use crate::answer::{Answer, INVALID_REQUEST, PSN_SEQUENCE, REMOTE_ACCESS};
use crate::case::{Completion, Fate, Qp, Region, State, FIRST_RECEIVE};
use crate::frame::Ib;
use std::collections::BTreeMap;

/// The path MTU of the victim's queue pairs.
pub const MTU: u32 = 256;
/// Bytes of a receive; the receives follow one another in their region.
pub const RECEIVE: u32 = 1024;
/// Receives that are posted, unless the kind has none.
pub const RECEIVES: u32 = 4;
/// The Q_Key of all.
pub const QKEY: u32 = 0x2468_ace0;
/// READs and atomic operations that the peer of a victim may have outstanding.
pub const OUTSTANDING: u8 = 4;
const MAX_MESSAGE: u32 = 1 << 31;
/// Bytes in front of a datagram.
const GRH: u32 = 40;
/// The opcode of a CNP.
pub const NOTIFICATION: u8 = 0x81;
const LOC_LEN_ERR: u32 = 1;
const LOC_ACCESS_ERR: u32 = 8;
const FLUSHED: u32 = 5;
/// No peer is further ahead, nor behind on an unreliable connection.
const FAR: i64 = 4096;

const MALFORMED: Fate = Fate::Drop("drop_malformed");
const OPCODE: Fate = Fate::Drop("drop_opcode");
const IGNORED: Fate = Fate::Received("ignored_request");

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Rc,
    Uc,
    Ud,
}

impl Service {
    /// That of a kind of queue pair.
    pub fn of(kind: &str) -> Self {
        match &kind[..2] {
            "uc" => Service::Uc,
            "ud" => Service::Ud,
            _ => Service::Rc,
        }
    }

    /// Who has an opcode; of a notification, RC.
    pub fn with(opcode: u8) -> Option<Self> {
        let mut all = [Service::Rc, Service::Uc, Service::Ud].into_iter();
        all.find(|service| service.headers_len(opcode).is_some())
    }

    /// BTH and extended headers of an opcode that it has. Of those that are not served nobody looks
    /// behind the BTH.
    pub fn headers_len(self, opcode: u8) -> Option<usize> {
        // What UC has looks as on RC.
        let connected = match (self, opcode) {
            (Service::Rc, 0..=0x1f) => opcode,
            // A report of missing packets looks as an acknowledgement with payload.
            (Service::Rc, 0xc0) => 0x11,
            (Service::Rc | Service::Uc, NOTIFICATION) => return Some(28),
            (Service::Uc, 0x20..=0x2b) => opcode & 0x1f,
            (Service::Ud, 0x64) => return Some(20),
            (Service::Ud, 0x65) => return Some(24),
            _ => return None,
        };
        Some(match connected {
            0x03 | 0x05 | 0x09 | 0x0d | 0x0f | 0x10 | 0x11 | 0x16 | 0x17 => 16,
            0x06 | 0x0a | 0x0c | 0x1d => 28,
            0x0b | 0x1c => 32,
            0x12 => 24,
            0x13 | 0x14 => 40,
            _ => 12,
        })
    }

    /// The payload of a packet of `total` bytes, ICRC included, or why it has not the form of its
    /// opcode.
    pub fn form(self, opcode: u8, version: u8, pad: usize, total: usize) -> Result<usize, Fate> {
        if total < 12 || version != 0 {
            return Err(MALFORMED);
        }
        let headers = self.headers_len(opcode).ok_or(OPCODE)?;
        let padded = total.checked_sub(headers + 4).ok_or(MALFORMED)?;
        let payload = padded.checked_sub(pad).ok_or(MALFORMED)?;
        let is_long = payload > 4096 && !is_unserved(opcode);
        if padded % 4 != 0 || is_long || (is_bare(opcode) && padded != 0) {
            return Err(MALFORMED);
        }
        Ok(payload)
    }
}

/// Whether RC names the opcode and has nothing to do for it.
fn is_unserved(opcode: u8) -> bool {
    matches!(opcode, 0x15 | 0x18..=0x1b | 0x1e | 0x1f)
}

/// Whether the packet has no payload.
pub fn is_bare(opcode: u8) -> bool {
    matches!(opcode, 0x0c | 0x11..=0x14 | 0x1c | NOTIFICATION)
}

/// Whether the packet is from a responder.
pub fn is_response(opcode: u8) -> bool {
    (0x0d..=0x12).contains(&opcode) || matches!(opcode, NOTIFICATION | 0xc0)
}

/// Whether the packet is the first of its message.
pub fn is_first(opcode: u8) -> bool {
    matches!(opcode & 0x1f, 0x00 | 0x04..=0x06 | 0x0a | 0x0b | 0x17)
}

/// Whether the packet is the last of its message.
pub fn is_last(opcode: u8) -> bool {
    !matches!(opcode & 0x1f, 0x00 | 0x01 | 0x06 | 0x07)
}

/// How memory is used.
#[derive(Clone, Copy)]
pub enum Use {
    Read,
    Write,
    Atomic,
    Flush,
}

/// What the victim lets its peer do, and where.
#[derive(Clone)]
pub struct Rights {
    pub regions: BTreeMap<String, Region>,
    pub rdma: bool,
    pub reads: bool,
    pub flush: bool,
    pub receives: u32,
}

impl Rights {
    /// Those that a queue pair of this kind has in `all` regions of the victim.
    pub fn of(kind: &str, all: &BTreeMap<String, Region>, window: u32) -> Self {
        let mut regions = all.clone();
        // Another domain's, another queue pair's, and what has gone.
        for name in ["foreign", "stale", "mw-foreign", "mw-stale", "mw-own"] {
            regions.remove(name);
        }
        if window != 0 {
            let own = Region {
                rkey: window,
                ..all["mw-own"]
            };
            regions.insert("mw-own".into(), own);
        }
        Self {
            regions,
            rdma: !kind.ends_with("-no-rights"),
            reads: kind != "rts-no-reads",
            flush: kind == "rts-flush",
            receives: if kind.ends_with("-no-receives") {
                0
            } else {
                RECEIVES
            },
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
    /// Of an unreliable connection, for this reason.
    Lost(&'static str),
}

/// Why a request is not executed.
enum Wrong {
    Invalid,
    NoReceive,
    TooLong,
    Denied,
}

/// A responder.
pub struct Model {
    service: Service,
    first_psn: u32,
    pub rights: Rights,
    /// Of the next packet in order, counted from the first of the connection.
    pub expected: i64,
    message: Message,
    /// The last packet that was accepted, if its message goes on.
    pub open: Option<u8>,
    /// The newest packet behind a gap since the peer was asked for the expected one.
    newest: Option<i64>,
    /// Those that were accepted, and where they begin.
    asked: Vec<(i64, Asked)>,
    /// Receives that are complete; the next one may be in use.
    complete: u32,
    pub state: State,
    pub answers: Vec<Answer>,
    pub completions: Vec<Completion>,
    pub writes: Vec<(&'static str, u64, u64)>,
}

impl Model {
    /// That of a fresh queue pair in RTS.
    pub fn new(kind: &str, qp: &Qp, regions: &BTreeMap<String, Region>) -> Self {
        Self {
            service: Service::of(kind),
            first_psn: qp.rq_psn,
            rights: Rights::of(kind, regions, qp.window),
            expected: 0,
            message: Message::None,
            open: None,
            newest: None,
            asked: Vec::new(),
            complete: 0,
            state: State::Rts,
            answers: Vec::new(),
            completions: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Whether `completions` names such a one: not the receives that are flushed in ERR.
    pub fn tells(&self, (wr_id, status, _): &Completion) -> bool {
        self.state != State::Err || *wr_id < FIRST_RECEIVE || *status != FLUSHED
    }

    /// The PSN so many packets after the first of the connection.
    pub fn psn(&self, sequence: i64) -> u32 {
        (i64::from(self.first_psn) + sequence).rem_euclid(1 << 24) as u32
    }

    /// A well-formed request of the service comes from the right address.
    pub fn request(&mut self, ib: &Ib) -> Fate {
        if self.state == State::Err {
            return Fate::Drop("drop_state");
        }
        if self.service == Service::Ud {
            return self.datagram(ib);
        }
        // The nearest packet with this PSN, before or after the expected one.
        let ahead = (i64::from(ib.psn) - i64::from(self.psn(self.expected))).rem_euclid(1 << 24);
        let distance = if ahead >= 1 << 23 {
            ahead - (1 << 24)
        } else {
            ahead
        };
        let fate = match self.service {
            Service::Rc => self.reliable(distance, ib),
            _ => self.unreliable(distance, ib),
        };
        if fate == Fate::Accepted {
            self.open = (!is_last(ib.opcode)).then_some(ib.opcode & 0x1f);
        }
        fate
    }

    fn reliable(&mut self, distance: i64, ib: &Ib) -> Fate {
        let sequence = self.expected + distance;
        if sequence < 0 || distance > FAR {
            return IGNORED;
        }
        if distance > 0 {
            // A peer that begins again is asked again.
            if self.newest.is_none_or(|newest| sequence <= newest) {
                self.nak(self.expected, PSN_SEQUENCE);
            }
            self.newest = Some(sequence);
            return Fate::Received("out_of_sequence");
        }
        if distance < 0 {
            return self.again(sequence, ib);
        }
        let done = match ib.opcode {
            0x00..=0x05 | 0x16 | 0x17 => self.send(ib),
            0x06..=0x0b => self.write(ib),
            0x0c => self.read(ib),
            0x13 | 0x14 | 0x1c | 0x1d => self.at_once(ib),
            _ if is_unserved(ib.opcode) => Err(Wrong::Invalid),
            _ => panic!("{:#x} is no request", ib.opcode),
        };
        match done {
            Ok(packets) => {
                let is_answered = matches!(ib.opcode, 0x0c | 0x13 | 0x14 | 0x1c | 0x1d);
                if !is_answered && ib.ack & 0x80 != 0 {
                    let psn = self.psn(self.expected);
                    self.answers.push(Answer::Ack { psn });
                }
                self.expected += packets;
                self.newest = None;
                Fate::Accepted
            }
            Err(Wrong::NoReceive) => {
                let psn = self.psn(self.expected);
                self.answers.push(Answer::Rnr { psn });
                self.newest = Some(self.expected);
                Fate::Received("rnr_nak_sent")
            }
            Err(wrong) => {
                let code = match wrong {
                    Wrong::Denied => REMOTE_ACCESS,
                    _ => INVALID_REQUEST,
                };
                // The receive of a SEND that is too long, or that a WRITE of one packet would have
                // completed, says so; others are flushed with the rest.
                let status = match (wrong, ib.opcode) {
                    (Wrong::TooLong, _) => Some(LOC_LEN_ERR),
                    (Wrong::Denied, 0x0b) => Some(LOC_ACCESS_ERR),
                    _ => None,
                };
                if self.complete < self.rights.receives {
                    let wr_id = FIRST_RECEIVE + u64::from(self.complete);
                    let ended = status.map(|status| (wr_id, status, 0));
                    self.completions.extend(ended);
                }
                self.nak(self.expected, code);
                self.state = State::Err;
                Fate::Received("refused_request")
            }
        }
    }

    fn unreliable(&mut self, distance: i64, ib: &Ib) -> Fate {
        if (-FAR..0).contains(&distance) {
            return IGNORED;
        }
        if distance != 0 {
            self.message = Message::Lost("out_of_sequence");
        }
        self.expected += distance + 1;
        if is_first(ib.opcode) {
            self.message = Message::None;
        }
        let done = match (self.message, ib.opcode & 0x1f) {
            (Message::Lost(reason), _) => return Fate::Received(reason),
            (_, 0x00..=0x05) => self.send(ib),
            _ => self.write(ib),
        };
        let Err(wrong) = done else {
            return Fate::Accepted;
        };
        let reason = match wrong {
            Wrong::Invalid => "lost_invalid",
            Wrong::NoReceive => "lost_no_receive",
            Wrong::TooLong => "lost_too_long",
            Wrong::Denied => "lost_denied",
        };
        self.message = Message::Lost(reason);
        Fate::Received(reason)
    }

    fn datagram(&mut self, ib: &Ib) -> Fate {
        let len = ib.payload.len() as u32 + GRH;
        if ib.deth.is_none_or(|(qkey, _)| qkey != QKEY) {
            Fate::Drop("drop_qkey")
        } else if self.complete == self.rights.receives {
            Fate::Received("lost_no_receive")
        } else if len > RECEIVE {
            Fate::Received("lost_too_long")
        } else {
            let at = u64::from(RECEIVE * self.complete);
            self.writes.push(("receives", at, u64::from(len)));
            self.end(len);
            Fate::Accepted
        }
    }

    fn nak(&mut self, sequence: i64, code: u8) {
        let psn = self.psn(sequence);
        self.answers.push(Answer::Nak { psn, code });
    }

    /// The receive in use is complete.
    fn end(&mut self, len: u32) {
        let wr_id = FIRST_RECEIVE + u64::from(self.complete);
        self.completions.push((wr_id, 0, len));
        self.complete += 1;
    }

    fn send(&mut self, ib: &Ib) -> Result<i64, Wrong> {
        let len = has_place(ib)?;
        let received = match (self.message, is_first(ib.opcode)) {
            (Message::None, true) => 0,
            (Message::Send { received }, false) => received,
            _ => return Err(Wrong::Invalid),
        };
        if self.complete == self.rights.receives {
            return Err(Wrong::NoReceive);
        }
        let received_now = received + len;
        if received_now > RECEIVE {
            return Err(Wrong::TooLong);
        }
        let at = u64::from(RECEIVE * self.complete + received);
        self.writes.push(("receives", at, u64::from(len)));
        if matches!(ib.opcode, 0x16 | 0x17) {
            // A peer may invalidate the window of the queue pair's own, and nothing else.
            let own = self.rights.regions.get("mw-own");
            if own.is_none_or(|own| ib.imm != Some(own.rkey)) {
                return Err(Wrong::Denied);
            }
            self.rights.regions.remove("mw-own");
        }
        self.message = if is_last(ib.opcode) {
            self.end(received_now);
            Message::None
        } else {
            Message::Send {
                received: received_now,
            }
        };
        Ok(1)
    }

    fn write(&mut self, ib: &Ib) -> Result<i64, Wrong> {
        let len = has_place(ib)?;
        let last = is_last(ib.opcode);
        let (reth, received) = match (self.message, is_first(ib.opcode), ib.reth) {
            (Message::None, true, Some(reth)) => (reth, 0),
            (Message::Write { reth, received }, false, _) => (reth, received),
            _ => return Err(Wrong::Invalid),
        };
        // Never more than there is left.
        let rest = reth.2 - received;
        if reth.2 > MAX_MESSAGE || (last && len != rest) || (!last && len >= rest) {
            return Err(Wrong::Invalid);
        }
        if !self.rights.rdma {
            let is_reliable = self.service == Service::Rc;
            return Err(if is_reliable {
                Wrong::Invalid
            } else {
                Wrong::Denied
            });
        }
        let range = self.rights.range(Use::Write, reth);
        if reth.2 != 0 && range.is_none() {
            return Err(Wrong::Denied);
        }
        let has_imm = matches!(ib.opcode & 0x1f, 0x09 | 0x0b);
        if has_imm && self.complete == self.rights.receives {
            return Err(Wrong::NoReceive);
        }
        if let Some((name, offset)) = range {
            let at = offset + u64::from(received);
            self.writes.push((name, at, u64::from(len)));
        }
        if has_imm {
            self.end(reth.2);
        }
        let received = received + len;
        self.message = if last {
            Message::None
        } else {
            Message::Write { reth, received }
        };
        Ok(1)
    }

    fn read(&mut self, ib: &Ib) -> Result<i64, Wrong> {
        let (Message::None, Some(reth)) = (self.message, ib.reth) else {
            return Err(Wrong::Invalid);
        };
        if !self.rights.rdma || !self.rights.reads || reth.2 > MAX_MESSAGE {
            return Err(Wrong::Invalid);
        }
        if reth.2 != 0 && self.rights.range(Use::Read, reth).is_none() {
            return Err(Wrong::Denied);
        }
        let asked = Asked::Read(reth.0, reth.1, reth.2);
        self.asked.push((self.expected, asked));
        Ok(self.respond(self.expected, reth.2))
    }

    /// What is executed when it comes, and answered by a response: atomic operations, ATOMIC WRITEs,
    /// FLUSHes (to where all see it: nothing of the victim persists).
    fn at_once(&mut self, ib: &Ib) -> Result<i64, Wrong> {
        const GLOBAL: u32 = 1;
        let is_atomic = matches!(ib.opcode, 0x13 | 0x14);
        let place = match ib.atomic {
            Some((va, rkey, ..)) => Some((va, rkey, 8)),
            None => ib.reth,
        };
        let (Message::None, Some((va, rkey, len))) = (self.message, place) else {
            return Err(Wrong::Invalid);
        };
        let (placement, selectivity) = ib.feth.map_or((0, 0), |feth| (feth & 0xf, (feth >> 4) & 3));
        let is_valid = match ib.opcode {
            0x1c => self.rights.flush && placement == GLOBAL && selectivity <= 1,
            0x1d => self.rights.rdma && va % 8 == 0 && len == 8 && ib.payload.len() == 8,
            _ => self.rights.rdma && va % 8 == 0,
        };
        if !self.rights.reads || !is_valid {
            return Err(Wrong::Invalid);
        }
        let range = match ib.opcode {
            0x1c if selectivity == 1 => {
                let rw = &self.rights.regions["rw"];
                (rw.rkey == rkey).then_some(("rw", 0))
            }
            0x1c => self.rights.range(Use::Flush, (va, rkey, len)),
            0x1d => self.rights.range(Use::Write, (va, rkey, 8)),
            _ => self.rights.range(Use::Atomic, (va, rkey, 8)),
        };
        let (name, offset) = range.ok_or(Wrong::Denied)?;
        if ib.opcode == 0x1d {
            self.writes.push((name, offset, 8));
        }
        let asked = Asked::Executed(ib.opcode, va, rkey);
        self.asked.push((self.expected, asked));
        if is_atomic {
            let psn = self.psn(self.expected);
            self.answers.push(Answer::Original { psn });
        } else {
            self.respond(self.expected, 0);
        }
        Ok(1)
    }

    /// The responses to a READ; how many they are.
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
        i64::from(packets)
    }

    /// A request comes again. Nothing is written twice; a READ is answered again if it is one of
    /// the last that the peer may have outstanding, or a part of one: the same bytes at the same
    /// PSNs, from memory that the peer may read *now*. An atomic operation is answered as before,
    /// for it is not done again.
    ///
    /// A key that is no good any more is told to who asks, without harm to the connection: the
    /// packet may be an old one that the network brought twice.
    fn again(&mut self, sequence: i64, ib: &Ib) -> Fate {
        const AGAIN: Fate = Fate::Received("duplicate_request");
        let mut newest = self.asked.iter().rev().take(OUTSTANDING.into());
        let named = match ib.opcode {
            0x13 | 0x14 => ib.atomic.map(|(va, rkey, ..)| (va, rkey)),
            0x1c | 0x1d => ib.reth.map(|(va, rkey, _)| (va, rkey)),
            _ => None,
        };
        if let Some((va, rkey)) = named {
            let asked = (sequence, Asked::Executed(ib.opcode, va, rkey));
            if !newest.any(|known| *known == asked) {
                return IGNORED;
            }
            if ib.opcode > 0x14 {
                self.respond(sequence, 0);
            } else {
                let psn = self.psn(sequence);
                self.answers.push(Answer::Original { psn });
            }
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
        let is_known = newest.any(|&(start, asked)| {
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

/// The bytes of payload, if they are as many as the place in the message wants.
fn has_place(ib: &Ib) -> Result<u32, Wrong> {
    let len = ib.payload.len() as u32;
    let fits = if is_last(ib.opcode) {
        len <= MTU && (is_first(ib.opcode) || len != 0)
    } else {
        len == MTU
    };
    fits.then_some(len).ok_or(Wrong::Invalid)
}
