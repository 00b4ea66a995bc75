// SPDX-License-Identifier: GPL-2.0

//! Responses that nobody gave: to a victim that waits for the answer to a SEND or a READ.
//!
//! As with requests, a sender that has the addresses right and a PSN that is outstanding is believed (a
//! connection whose peer refuses, or answers nonsense, ends), but READ data goes nowhere but to the
//! place that the work request named, and no more of it than was asked for.

use crate::answer::Answer;
use crate::attack::{Attack, Talk};
use crate::case::{Fate, Qp, State};
use crate::frame::Ib;
use crate::Result;

pub const FLOOR: &[&str] = &[
    "accepted",
    "stale_response",
    "bad_response",
    "out_of_sequence_response",
    "fatal_nak_rcvd",
    "seq_nak_rcvd",
    "rnr_nak_rcvd",
    "drop_malformed",
    "drop_address",
    "drop_icrc",
    "request",
];

/// Bytes of the SENDs and READs: two full packets and one of 88.
const LEN: u32 = 600;
/// So many packets they are.
const PACKETS: i64 = 3;
const STALE: Fate = Fate::Received("stale_response");
const BAD: Fate = Fate::Received("bad_response");
const GAP: Fate = Fate::Received("out_of_sequence_response");
const FATAL: Fate = Fate::Received("fatal_nak_rcvd");
const SEQUENCE: Fate = Fate::Received("seq_nak_rcvd");
const RNR: Fate = Fate::Received("rnr_nak_rcvd");
const MALFORMED: Fate = Fate::Drop("drop_malformed");

/// Statuses of completions.
const SUCCESS: u32 = 0;
const BAD_RESP: u32 = 7;
const REM_INV_REQ: u32 = 9;
const REM_ACCESS: u32 = 10;
const REM_OP: u32 = 11;

/// A forged packet: opcode, distance of its PSN from the first that is outstanding, syndrome,
/// payload.
#[derive(Clone, Copy)]
struct Forged(u8, i64, u8, usize, Fate);

fn ack(at: i64, syndrome: u8, fate: Fate) -> Forged {
    Forged(0x11, at, syndrome, 0, fate)
}

/// What follows the forged packets.
#[derive(Clone, Copy, Default)]
struct Then {
    /// The status of the work request, if it completes.
    status: Option<u32>,
    /// The victim sends again from the packet with the first distance to before that with the other.
    again: (i64, i64),
    /// So many bytes of a READ may have come.
    read: u64,
}

fn done(status: u32) -> Then {
    Then {
        status: Some(status),
        ..Then::default()
    }
}

/// The victim sends all from this packet on again.
fn again(at: i64) -> Then {
    Then {
        again: (at, PACKETS),
        ..Then::default()
    }
}

/// Or this one alone.
fn alone(at: i64) -> Then {
    Then {
        again: (at, at + 1),
        ..Then::default()
    }
}

fn psn_at(qp: &Qp, distance: i64) -> u32 {
    (i64::from(qp.sq_psn) + distance).rem_euclid(1 << 24) as u32
}

fn request(qp: &Qp, op: &str, at: i64) -> Answer {
    let (opcode, len) = match (op, at) {
        ("read", _) => (0x0c, 0),
        (_, 0) => (0x00, 256),
        (_, 1) => (0x01, 256),
        _ => (0x02, 88),
    };
    Answer::Request {
        opcode,
        psn: psn_at(qp, at),
        len,
    }
}

/// What is sent of these packets: of a READ it is one, which asks for them.
fn sent(qp: &Qp, op: &str, (from, to): (i64, i64)) -> Vec<Answer> {
    let packets = match op {
        "read" => from..to.min(from + 1),
        _ => from..to,
    };
    packets.map(|at| request(qp, op, at)).collect()
}

/// What is forged, and what follows.
struct Forgery {
    name: String,
    forged: Vec<Forged>,
    then: Then,
    /// Not from the peer, not to the victim, or damaged.
    spoofed: Option<&'static str>,
}

fn forgery(name: String, forged: Vec<Forged>, then: Then) -> Forgery {
    Forgery {
        name,
        forged,
        then,
        spoofed: None,
    }
}

impl Forgery {
    fn tell(&self, op: &str, talk: &mut Talk, hosts: &crate::frame::Hosts) {
        talk.name = format!("{op}: {}", self.name);
        match self.spoofed {
            Some("from a stranger") => talk.outer.from = hosts.other,
            Some("to another address") => talk.outer.to = hosts.victim_too,
            Some(_) => talk.outer.icrc_error = 0x100,
            None => {}
        }
        for Forged(opcode, at, syndrome, len, fate) in &self.forged {
            let mut ib = Ib::new(*opcode, talk.qp.qpn, psn_at(&talk.qp, *at))
                .with_headers((0, 0, 0))
                .with_payload(*len);
            ib.aeth = ib.aeth.map(|_| (*syndrome, 1));
            talk.push(&ib, *fate);
        }
        let (qp, model, then) = (talk.qp, &mut talk.model, self.then);
        if let Some(status) = then.status {
            model.completions.push((qp.index as u64, status, 0));
            if status != SUCCESS {
                model.state = State::Err;
            }
        }
        model.answers.extend(sent(&qp, op, (0, PACKETS)));
        model.answers.extend(sent(&qp, op, then.again));
        model.writes.push(("sends", 0, then.read));
    }
}

pub fn run(a: &mut Attack) -> Result<()> {
    let hosts = a.hosts;
    for (op, own) in [("send", to_sends(a.one_of == 1)), ("read", to_reads())] {
        let mut all = own;
        all.extend(to_both(a));
        all.extend(spoofed(op));
        a.each_posting("rts", Some((op, LEN)), all, |talk, forgery| {
            forgery.tell(op, talk, &hosts)
        })?;
    }
    Ok(())
}

/// `all` of them, or those alone after which a packet comes again within a few milliseconds: on a
/// wire nobody knows how long to listen.
fn to_sends(all: bool) -> Vec<Forgery> {
    let mut plans = Vec::new();
    let mut add = |name: String, forged: Vec<Forged>, then: Then| {
        plans.push(forgery(name, forged, then));
    };
    for credits in 0..32 {
        let name = format!("ACK with credits {credits}");
        add(name, vec![ack(2, credits, Fate::Accepted)], done(SUCCESS));
    }
    for at in 0..2 {
        let name = format!("ACK of packet {at}");
        add(name, vec![ack(at, 0x1f, Fate::Accepted)], Then::default());
    }
    for at in 0..3 {
        let name = format!("NAK of the sequence at {at}");
        add(name, vec![ack(at, 0x60, SEQUENCE)], again(at));
        for (syndrome, status) in [
            (0x61, REM_INV_REQ),
            (0x62, REM_ACCESS),
            (0x63, REM_OP),
            (0x64, REM_INV_REQ),
        ] {
            let name = format!("NAK {syndrome:#x} at {at}");
            add(name, vec![ack(at, syndrome, FATAL)], done(status));
        }
        for opcode in [0x0d, 0x0e, 0x0f, 0x10, 0x12] {
            let len = if opcode == 0x12 { 0 } else { 256 };
            // No READ or atomic operation is outstanding, so nobody can have answered one: the peer is not to be
            // trusted any more.
            let name = format!("response {opcode:#x} at {at}");
            add(
                name,
                vec![Forged(opcode, at, 0x1f, len, BAD)],
                done(BAD_RESP),
            );
        }
    }
    // A responder tells a gap once: what comes again is a copy, and costs no second retry.
    let name = "a NAK of the sequence three times".into();
    let copy = ack(0, 0x60, STALE);
    add(name, vec![ack(0, 0x60, SEQUENCE), copy, copy], again(0));
    for timer in if all { 0..32 } else { 1..18 } {
        let name = format!("RNR NAK with timer {timer}");
        add(name, vec![ack(0, 0x20 | timer, RNR)], alone(0));
    }
    plans
}

fn to_reads() -> Vec<Forgery> {
    let mut plans = Vec::new();
    let mut add = |name: &str, forged: &[(u8, i64, usize, Fate)], then: Then| {
        let forged = forged
            .iter()
            .map(|(opcode, at, len, fate)| Forged(*opcode, *at, 0x1f, *len, *fate))
            .collect();
        plans.push(forgery(name.into(), forged, then));
    };
    const FIRST: (u8, i64, usize, Fate) = (0x0d, 0, 256, Fate::Accepted);
    const MIDDLE: (u8, i64, usize, Fate) = (0x0e, 1, 256, Fate::Accepted);
    const LAST: (u8, i64, usize, Fate) = (0x0f, 2, 88, Fate::Accepted);
    let bad = |read| Then {
        status: Some(BAD_RESP),
        read,
        ..Then::default()
    };
    let whole = Then {
        status: Some(SUCCESS),
        read: LEN.into(),
        ..Then::default()
    };
    add("answered as it should be", &[FIRST, MIDDLE, LAST], whole);
    add(
        "answered twice",
        &[
            FIRST,
            MIDDLE,
            LAST,
            (0x0d, 0, 256, STALE),
            (0x0e, 1, 256, STALE),
            (0x0f, 2, 88, STALE),
            (0x10, 3, 256, STALE),
        ],
        whole,
    );
    add(
        "answered as an atomic operation",
        &[(0x12, 0, 0, BAD)],
        bad(0),
    );
    for len in [0, 1, 255, 257, 512, 600, 4096] {
        let what = format!("first of {len} bytes");
        add(&what, &[(0x0d, 0, len, BAD)], bad(0));
        let what = format!("middle of {len} bytes");
        add(&what, &[FIRST, (0x0e, 1, len, BAD)], bad(256));
    }
    for len in [0, 1, 87, 89, 256, 257, 4096] {
        let what = format!("last of {len} bytes");
        add(&what, &[FIRST, MIDDLE, (0x0f, 2, len, BAD)], bad(512));
    }
    add("too long", &[(0x0d, 0, 4100, MALFORMED)], Then::default());
    for (opcode, len) in [
        (0x0e, 256),
        (0x0f, 88),
        (0x0f, 256),
        (0x10, 256),
        (0x10, 600),
    ] {
        let what = format!("begins with {opcode:#x} of {len}");
        add(&what, &[(opcode, 0, len, BAD)], bad(0));
    }
    for (opcode, len) in [
        (0x0d, 256),
        (0x0f, 256),
        (0x0f, 88),
        (0x10, 256),
        (0x10, 88),
    ] {
        let what = format!("goes on with {opcode:#x} of {len}");
        add(&what, &[FIRST, (opcode, 1, len, BAD)], bad(256));
    }
    for (opcode, len) in [(0x0d, 88), (0x0e, 88), (0x0e, 256), (0x10, 88)] {
        let what = format!("ends with {opcode:#x} of {len}");
        add(&what, &[FIRST, MIDDLE, (opcode, 2, len, BAD)], bad(512));
    }
    // A gap: what is missing is asked for again.
    add("middle without first", &[(0x0e, 1, 256, GAP)], again(0));
    add("last alone", &[(0x0f, 2, 88, GAP)], again(0));
    let mut then = again(1);
    then.read = 256;
    add("middle left out", &[FIRST, (0x0f, 2, 88, GAP)], then);
    // An ACK says nothing of a READ but that its responses were lost.
    for at in 0..3 {
        let what = format!("ACK of packet {at}");
        let forged = vec![ack(at, 0x1f, Fate::Accepted)];
        plans.push(forgery(what, forged, again(0)));
        let what = format!("NAK of access at {at}");
        let forged = vec![ack(at, 0x62, FATAL)];
        plans.push(forgery(what, forged, done(REM_ACCESS)));
    }
    // The AETH of a READ response is an ACK (IBTA 9.7.5.1.6): with a NAK the packet contradicts
    // itself.
    for syndrome in [0x20, 0x40, 0x60, 0x62, 0x80, 0xff] {
        let what = format!("first with syndrome {syndrome:#x}");
        let forged = vec![Forged(0x0d, 0, syndrome, 256, MALFORMED)];
        plans.push(forgery(what, forged, Then::default()));
    }
    plans
}

/// What is ignored whatever is outstanding.
fn to_both(a: &mut Attack) -> Vec<Forgery> {
    let mut plans = Vec::new();
    let mut add = |name: String, forged: Vec<Forged>| {
        plans.push(forgery(name, forged, Then::default()));
    };
    for syndrome in (0x40..0x60).chain(0x65..=0xff) {
        let name = format!("reserved syndrome {syndrome:#x}");
        add(name, vec![ack(2, syndrome, STALE)]);
    }
    let half = 1 << 23;
    for at in [3, 4, -1, -2, 1000, -1000, half - 1, half, half + 3] {
        for syndrome in [0x1f, 0x20, 0x60, 0x61, 0x62, 0x63, 0x64, 0x80] {
            let name = format!("syndrome {syndrome:#x} at {at}");
            add(name, vec![ack(at, syndrome, STALE)]);
        }
        let name = format!("READ responses at {at}");
        let responses = (0x0d..=0x10).map(|opcode| Forged(opcode, at, 0x1f, 256, STALE));
        add(name, responses.collect());
    }
    for n in 0..50 {
        let anywhere = (0..20).map(|_| {
            let at = 3 + a.random.below((1 << 24) - 3) as i64;
            let opcode = 0x0d + a.random.below(5) as u8;
            let len = if opcode == 0x11 { 0 } else { 256 };
            Forged(opcode, at, 0x1f, len, STALE)
        });
        add(format!("responses from everywhere {n}"), anywhere.collect());
    }
    plans
}

/// The right answer, but not from the peer, or damaged.
fn spoofed(op: &str) -> Vec<Forgery> {
    let right: &[(u8, i64, usize)] = match op {
        "read" => &[(0x0d, 0, 256), (0x0e, 1, 256), (0x0f, 2, 88), (0x11, 0, 0)],
        _ => &[(0x11, 2, 0), (0x11, 0, 0)],
    };
    let ways = [
        ("from a stranger", "drop_address"),
        ("to another address", "drop_address"),
        ("with a wrong ICRC", "drop_icrc"),
    ];
    let mut plans = Vec::new();
    for (way, reason) in ways {
        for syndrome in [0x1f, 0x62, 0x60, 0x21] {
            // A READ response with a NAK is refused for its form already.
            let forged = (right.iter())
                .filter(|(opcode, ..)| *opcode == 0x11 || syndrome == 0x1f)
                .map(|(opcode, at, len)| Forged(*opcode, *at, syndrome, *len, Fate::Drop(reason)))
                .collect();
            plans.push(Forgery {
                spoofed: Some(way),
                ..forgery(format!("the right answer {way}"), forged, Then::default())
            });
        }
    }
    plans
}
