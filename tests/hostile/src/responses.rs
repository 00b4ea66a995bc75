// SPDX-License-Identifier: GPL-2.0

//! Responses that nobody gave: to a victim that waits for the answer to a SEND or a READ.
//!
//! As with requests, a sender that has the addresses right and a PSN that is outstanding is
//! believed (a connection whose peer refuses, or answers nonsense, ends), but READ data goes nowhere
//! but to the place that the work request named, and no more of it than was asked for.

use crate::answer::Answer;
use crate::attack::{Attack, Talk};
use crate::case::{Fate, Qp, State};
use crate::dice::Chance;
use crate::frame::{Hosts, Ib};
use crate::Result;
use std::ops::Range;

/// Bytes of the SENDs and READs: two full packets and one of 88.
const LEN: u32 = 600;
/// So many packets they are.
const PACKETS: i64 = 3;
/// The responses to the READ: opcode, bytes.
const RIGHT: [(u8, usize); 3] = [(0x0d, 256), (0x0e, 256), (0x0f, 88)];
const STALE: Fate = Fate::Received("stale_response");

/// Statuses of completions.
const SUCCESS: u32 = 0;
const BAD_RESP: u32 = 7;
const REM_INV_REQ: u32 = 9;
const REM_ACCESS: u32 = 10;
const REM_OP: u32 = 11;

/// A forged packet: opcode, distance of its PSN from the first that is outstanding, syndrome, bytes.
type Forged = (u8, i64, u8, usize);

fn ack(at: i64, syndrome: u8) -> Forged {
    (0x11, at, syndrome, 0)
}

fn response(opcode: u8, at: i64, len: usize) -> Forged {
    (opcode, at, 0x1f, len)
}

/// A response of the READ as it should be.
fn right(at: usize) -> Forged {
    let (opcode, len) = RIGHT[at];
    response(opcode, at as i64, len)
}

/// The model of a victim that waits.
#[derive(Default)]
struct Waiting {
    is_read: bool,
    /// The first packet that is not acknowledged, or READ response that has not come.
    oldest: i64,
    /// How the work request ended.
    status: Option<u32>,
    /// What the victim sends once more: from this packet to before that one.
    again: Range<i64>,
}

impl Waiting {
    fn ends(&mut self, status: u32) {
        self.status = Some(status);
    }

    fn proceeds(&mut self, to: i64) -> Fate {
        self.oldest = to;
        if to == PACKETS {
            self.ends(SUCCESS);
        }
        Fate::Accepted
    }

    /// What comes of a packet from the peer.
    fn hears(&mut self, (opcode, at, syndrome, len): Forged) -> Fate {
        // The AETH of a READ response is an ACK (IBTA 9.7.5.1.6): with a NAK the packet contradicts
        // itself.
        let contradicts = matches!(opcode, 0x0d | 0x0f | 0x10 | 0x12) && syndrome > 0x1f;
        if len > 4096 || contradicts {
            return Fate::Drop("drop_malformed");
        }
        if !(self.oldest..PACKETS).contains(&at) {
            return STALE;
        }
        match (opcode, syndrome) {
            // It says of a READ no more than that its responses were lost.
            (0x11, 0..=0x1f) if self.is_read => {
                self.again = 0..PACKETS;
                Fate::Accepted
            }
            (0x11, 0..=0x1f) => self.proceeds(at + 1),
            (0x11, 0x20..=0x3f) => {
                self.again = at..at + 1;
                Fate::Received("rnr_nak_rcvd")
            }
            // A responder tells a gap once: what comes again is a copy, and costs no second retry.
            (0x11, 0x60) if self.again == (at..PACKETS) => STALE,
            (0x11, 0x60) => {
                self.again = at..PACKETS;
                Fate::Received("seq_nak_rcvd")
            }
            (0x11, 0x61..=0x64) => {
                let statuses = [REM_INV_REQ, REM_ACCESS, REM_OP, REM_INV_REQ];
                self.ends(statuses[usize::from(syndrome - 0x61)]);
                Fate::Received("fatal_nak_rcvd")
            }
            (0x11, _) => STALE,
            _ if self.is_read && at > self.oldest => {
                self.again = self.oldest..PACKETS;
                Fate::Received("out_of_sequence_response")
            }
            _ if self.is_read && RIGHT[at as usize] == (opcode, len) => self.proceeds(at + 1),
            // No READ or atomic operation is outstanding, so nobody can have answered one, or not
            // so: the peer is not to be trusted any more.
            _ => {
                self.ends(BAD_RESP);
                Fate::Received("bad_response")
            }
        }
    }

    /// What it has sent of these packets: of a READ it is one, which asks for them.
    fn sent(&self, qp: &Qp, packets: Range<i64>) -> Vec<Answer> {
        let end = match self.is_read {
            true => packets.end.min(packets.start + 1),
            false => packets.end,
        };
        let request = |at| {
            let (opcode, len) = match (self.is_read, at) {
                (true, _) => (0x0c, 0),
                (_, 0) => (0x00, 256),
                (_, 1) => (0x01, 256),
                _ => (0x02, 88),
            };
            let psn = psn_at(qp, at);
            Answer::Request { opcode, psn, len }
        };
        (packets.start..end).map(request).collect()
    }
}

fn psn_at(qp: &Qp, distance: i64) -> u32 {
    (i64::from(qp.sq_psn) + distance).rem_euclid(1 << 24) as u32
}

/// Not from the peer, not to the victim, or damaged: and for what it is dropped.
const SPOOFED: [(&str, &str); 3] = [
    ("from a stranger", "drop_address"),
    ("to another address", "drop_address"),
    ("with a wrong ICRC", "drop_icrc"),
];

/// Some forged packets, which may be spoofed.
type Forgery = (Option<usize>, Vec<Forged>);

fn tell((spoofed, forged): &Forgery, is_read: bool, talk: &mut Talk, hosts: &Hosts) {
    let way = spoofed.map(|way| SPOOFED[way]);
    talk.name = format!("{}, {forged:x?}", way.map_or("from the peer", |way| way.0));
    match spoofed {
        Some(0) => talk.outer.from = hosts.other,
        Some(1) => talk.outer.to = hosts.victim_too,
        Some(_) => talk.outer.icrc_error = 0x100,
        None => {}
    }
    let mut waiting = Waiting {
        is_read,
        ..Waiting::default()
    };
    for &(opcode, at, syndrome, len) in forged {
        let mut ib = Ib::new(opcode, talk.qp.qpn, psn_at(&talk.qp, at))
            .with_headers((0, 0, 0))
            .with_payload(len);
        ib.aeth = ib.aeth.map(|_| (syndrome, 1));
        let fate = match way {
            Some((_, reason)) => Fate::Drop(reason),
            None => waiting.hears((opcode, at, syndrome, len)),
        };
        talk.push(&ib, fate);
    }
    let (qp, model) = (talk.qp, &mut talk.model);
    if let Some(status) = waiting.status {
        model.completions.push((qp.index as u64, status, 0));
        if status != SUCCESS {
            model.state = State::Err;
        }
    }
    model.answers.extend(waiting.sent(&qp, 0..PACKETS));
    model
        .answers
        .extend(waiting.sent(&qp, waiting.again.clone()));
    let placed = if is_read { 256 * waiting.oldest } else { 0 };
    model
        .writes
        .push(("sends", 0, u64::from(LEN).min(placed as u64)));
}

pub fn run(a: &mut Attack) -> Result<()> {
    let hosts = a.hosts;
    // On a wire nobody knows how long to listen: there what comes again does so within milliseconds.
    let timers = if a.one_of == 1 { 0..32 } else { 1..18 };
    for (op, own) in [("send", to_sends(timers)), ("read", to_reads())] {
        let is_read = op == "read";
        let mut all: Vec<_> = own.into_iter().map(|forged| (None, forged)).collect();
        all.extend(to_both(a).into_iter().map(|forged| (None, forged)));
        all.extend(spoofed(is_read));
        a.each("rts", all, |talk, forgery| {
            talk.post = Some((op, LEN));
            tell(forgery, is_read, talk, &hosts);
        })
        .map_err(|e| format!("{op}: {e}"))?;
    }
    Ok(())
}

fn to_sends(timers: Range<u8>) -> Vec<Vec<Forged>> {
    let mut all = vec![vec![ack(0, 0x60); 3]];
    all.extend((0..0x20).map(|credits| vec![ack(2, credits)]));
    all.extend(timers.map(|timer| vec![ack(0, 0x20 | timer)]));
    for at in 0..PACKETS {
        let says = [0x1f, 0x60, 0x61, 0x62, 0x63, 0x64].map(|syndrome| ack(at, syndrome));
        let brings = [0x0d, 0x0e, 0x0f, 0x10].map(|opcode| response(opcode, at, 256));
        let one = says
            .into_iter()
            .chain(brings)
            .chain([response(0x12, at, 0)]);
        all.extend(one.map(|forged| vec![forged]));
    }
    all
}

fn to_reads() -> Vec<Vec<Forged>> {
    let whole = [0, 1, 2].map(right);
    let mut all = vec![
        [&whole[..], &whole, &[response(0x10, 3, 256)]].concat(),
        vec![response(0x0d, 0, 4100)],
        vec![response(0x12, 0, 0)],
    ];
    for come in 0..whole.len() {
        let mut add = |last: Forged| all.push([&whole[..come], &[last]].concat());
        for opcode in 0x0d..=0x10 {
            for len in [0, 1, 87, 88, 89, 255, 256, 257, 512, 600, 4096] {
                add(response(opcode, come as i64, len));
            }
        }
        // A gap: what is missing is asked for again.
        (come + 1..whole.len()).for_each(|at| add(right(at)));
        all.push(vec![ack(come as i64, 0x1f)]);
        all.push(vec![ack(come as i64, 0x62)]);
    }
    let contradicting = [0x20, 0x40, 0x60, 0x62, 0x80, 0xff];
    all.extend(contradicting.map(|syndrome| vec![(0x0d, 0, syndrome, 256)]));
    all
}

/// What is ignored whatever is outstanding.
fn to_both(a: &mut Attack) -> Vec<Vec<Forged>> {
    let reserved = (0x40..0x60).chain(0x65..=0xff);
    let mut all: Vec<_> = reserved.map(|syndrome| vec![ack(2, syndrome)]).collect();
    let half = 1 << 23;
    for at in [3, 4, -1, -2, 1000, -1000, half - 1, half, half + 3] {
        let says = [0x1f, 0x20, 0x60, 0x61, 0x62, 0x63, 0x64, 0x80];
        all.extend(says.map(|syndrome| vec![ack(at, syndrome)]));
        all.push(
            (0x0d..=0x10)
                .map(|opcode| response(opcode, at, 256))
                .collect(),
        );
    }
    for _ in 0..50 {
        let anywhere = (0..20).map(|_| {
            let at = 3 + a.random.below((1 << 24) - 3) as i64;
            let opcode = 0x0d + a.random.below(5) as u8;
            response(opcode, at, if opcode == 0x11 { 0 } else { 256 })
        });
        all.push(anywhere.collect());
    }
    all
}

/// The right answer, but not from the peer, or damaged.
fn spoofed(is_read: bool) -> Vec<Forgery> {
    let mut all = Vec::new();
    for way in 0..SPOOFED.len() {
        for syndrome in [0x1f, 0x62, 0x60, 0x21] {
            let mut forged = vec![ack(if is_read { 0 } else { 2 }, syndrome), ack(0, syndrome)];
            // A READ response with a NAK is refused for its form already.
            if is_read && syndrome == 0x1f {
                forged.extend([0, 1, 2].map(right));
            }
            all.push((Some(way), forged));
        }
    }
    all
}
