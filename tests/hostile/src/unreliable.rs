// SPDX-License-Identifier: GPL-2.0

//! Packets to queue pairs of UC and UD, which answer nothing: what they take and what they drop is
//! seen by counters, completions and memory, and they go on (IBTA 9.8.2.2, 9.8.3, 9.9.3.1 class D).

use crate::attack::{Attack, Case, Plan};
use crate::counters::{Fate, ACCEPTED};
use crate::frame::{Ib, Outer};
use crate::model::{fits, form, Rights, Use, MAX_MESSAGE, RECEIVE};
use crate::random::Random;
use crate::victim::{Completion, Qp, Result, State};

/// Bytes in front of a datagram.
const GRH: u32 = 40;
/// That of the victims.
const QKEY: u32 = 0x2468_ace0;
/// How far before the expected packet an old one may be.
const MOST_BEHIND: i64 = 4096;

pub fn run(a: &mut Attack) -> Result<()> {
    every_opcode(a)?;
    for kind in ["uc", "uc-no-receives", "uc-no-rights"] {
        first_packets(a, kind)?;
        random_talks(a, kind)?;
    }
    ranges(a)?;
    for kind in ["ud", "ud-no-receives"] {
        datagrams(a, kind)?;
    }
    Ok(())
}

/// Every opcode with every length that matters; of UC with an old PSN, of UD with a wrong Q_Key.
fn every_opcode(a: &mut Attack) -> Result<()> {
    let outer = Outer::new(&a.hosts);
    let lens: &[usize] = if a.short {
        &[0, 11, 12, 16, 28, 40, 60]
    } else {
        &[
            0, 1, 11, 12, 13, 15, 16, 17, 20, 24, 28, 32, 36, 40, 44, 48, 60, 64, 100,
        ]
    };
    for (kind, state, sound) in [
        ("uc", State::Rts, Fate::Received(&["ignored_request"])),
        ("uc-init", State::Init, Fate::Drop("drop_state")),
        ("uc-err", State::Err, Fate::Drop("drop_state")),
        ("ud", State::Rts, Fate::Drop("drop_qkey")),
        ("ud-init", State::Init, Fate::Drop("drop_state")),
        ("ud-err", State::Err, Fate::Drop("drop_state")),
    ] {
        let served = if kind.starts_with("uc") {
            0x20..=0x2b
        } else {
            0x64..=0x65
        };
        a.bombard(kind, state, |qp, _, send| {
            for opcode in 0..=u8::MAX {
                for &total in lens {
                    let psn = qp.rq_psn.wrapping_sub(5) & 0xff_ffff;
                    let mut ib = Ib::new(opcode, qp.qpn, psn).with_headers((0x1000, 0x1234, 64));
                    ib.deth = ib.deth.map(|(qkey, source)| (qkey ^ 0x10, source));
                    let mut bytes = ib.bytes();
                    let mut outer = outer.clone();
                    // Below that there is no room for an ICRC.
                    outer.icrc = total >= 16;
                    bytes.resize(if outer.icrc { total - 4 } else { total }, 0);
                    let fate = match total {
                        0..=11 => Fate::Drop("drop_malformed"),
                        _ if !served.contains(&opcode) => Fate::Drop("drop_opcode"),
                        _ if has_form(opcode, total) => sound,
                        _ => Fate::Drop("drop_malformed"),
                    };
                    send(outer.frame(&bytes), fate)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether so many bytes without padding may be a packet of this opcode.
fn has_form(opcode: u8, total: usize) -> bool {
    match opcode {
        0x64 | 0x65 => {
            let headers = if opcode == 0x64 { 20 } else { 24 };
            total >= headers + 4 && total % 4 == 0
        }
        // What UC has looks as on RC.
        _ => form(opcode & 0x1f, 0, 0, total).is_ok(),
    }
}

#[derive(Clone, Copy)]
enum Message {
    None,
    Send {
        received: u32,
    },
    Write {
        reth: (u64, u32, u32),
        received: u32,
    },
    Lost(&'static str),
}

/// The receiver of an unreliable connection, as the standard has it.
struct Model {
    first_psn: u32,
    rights: Rights,
    /// Of the next packet in order, counted from the first of the connection.
    expected: i64,
    message: Message,
    /// Receives that are complete, and whether the next one has been taken.
    complete: u32,
    completions: Vec<Completion>,
    writes: Vec<(&'static str, u64, u64)>,
}

impl Model {
    fn new(qp: &Qp, rights: &Rights) -> Self {
        Self {
            first_psn: qp.rq_psn,
            rights: rights.clone(),
            expected: 0,
            message: Message::None,
            complete: 0,
            completions: Vec::new(),
            writes: Vec::new(),
        }
    }

    fn psn(&self, sequence: i64) -> u32 {
        (i64::from(self.first_psn) + sequence).rem_euclid(1 << 24) as u32
    }

    fn case(self, name: String, frames: Vec<(Vec<u8>, Fate)>) -> Case {
        let mut case = Case::silent(name, frames);
        case.completions = self.completions;
        case.writes = self.writes;
        case
    }

    /// A packet comes, so far from the expected one.
    fn packet(&mut self, distance: i64, ib: &Ib) -> Fate {
        if (-MOST_BEHIND..0).contains(&distance) {
            return Fate::Received(&["ignored_request"]);
        }
        if distance != 0 {
            self.message = Message::Lost("out_of_sequence");
        }
        self.expected += distance + 1;
        let opcode = ib.opcode & 0x1f;
        let first = matches!(opcode, 0x00 | 0x04..=0x06 | 0x0a | 0x0b);
        let last = !matches!(opcode, 0x00 | 0x01 | 0x06 | 0x07);
        if first {
            self.message = Message::None;
        }
        let done = match self.message {
            Message::Lost(reason) => Err(reason),
            _ if !fits(first, last, ib.payload.len() as u32) => Err("lost_invalid"),
            _ if opcode < 0x06 => self.send(ib, first, last),
            _ => self.write(ib, first, last),
        };
        match done {
            Ok(message) => {
                self.message = message;
                ACCEPTED
            }
            Err(reason) => {
                self.message = Message::Lost(reason);
                counted(reason)
            }
        }
    }

    fn receive(&mut self) -> std::result::Result<u32, &'static str> {
        if self.complete == self.rights.receives {
            return Err("lost_no_receive");
        }
        Ok(self.complete)
    }

    fn end(&mut self, len: u32) -> Message {
        self.completions
            .push((1000 + u64::from(self.complete), 0, len));
        self.complete += 1;
        Message::None
    }

    fn send(
        &mut self,
        ib: &Ib,
        first: bool,
        last: bool,
    ) -> std::result::Result<Message, &'static str> {
        let received = match (self.message, first) {
            (Message::None, true) => 0,
            (Message::Send { received }, false) => received,
            _ => return Err("lost_invalid"),
        };
        let number = self.receive()?;
        let len = ib.payload.len() as u32;
        if received + len > RECEIVE {
            return Err("lost_too_long");
        }
        let at = u64::from(RECEIVE * number + received);
        self.writes.push(("receives", at, u64::from(len)));
        let received = received + len;
        Ok(if last {
            self.end(received)
        } else {
            Message::Send { received }
        })
    }

    fn write(
        &mut self,
        ib: &Ib,
        first: bool,
        last: bool,
    ) -> std::result::Result<Message, &'static str> {
        let (reth, received) = match (self.message, first, ib.reth) {
            (Message::None, true, Some(reth)) => (reth, 0),
            (Message::Write { reth, received }, false, _) => (reth, received),
            _ => return Err("lost_invalid"),
        };
        let len = ib.payload.len() as u32;
        // Never more than there is left.
        let rest = reth.2.saturating_sub(received);
        if reth.2 > MAX_MESSAGE || (last && len != rest) || (!last && len >= rest) {
            return Err("lost_invalid");
        }
        let range = self.rights.range(Use::Write, reth);
        if !self.rights.rdma || (reth.2 != 0 && range.is_none()) {
            return Err("lost_denied");
        }
        let has_imm = matches!(ib.opcode, 0x29 | 0x2b);
        if has_imm {
            self.receive()?;
        }
        if let Some((name, offset)) = range {
            let at = offset + u64::from(received);
            self.writes.push((name, at, u64::from(len)));
        }
        if has_imm {
            self.end(reth.2);
        }
        Ok(if last {
            Message::None
        } else {
            Message::Write {
                reth,
                received: received + len,
            }
        })
    }
}

fn counted(reason: &'static str) -> Fate {
    Fate::Received(match reason {
        "out_of_sequence" => &["out_of_sequence"],
        "lost_no_receive" => &["lost_no_receive"],
        "lost_too_long" => &["lost_too_long"],
        "lost_denied" => &["lost_denied"],
        _ => &["lost_invalid"],
    })
}

/// Each opcode with each length of payload as the first packet of the connection.
fn first_packets(a: &mut Attack, kind: &'static str) -> Result<()> {
    let rights = Rights::of(kind, &a.victim.regions);
    let rw = a.victim.region("rw");
    let outer = Outer::new(&a.hosts);
    let mut plans = Vec::new();
    for opcode in 0x20..=0x2b {
        for len in [0usize, 1, 64, 255, 256, 257, 1100, 4096] {
            let promises = [len as u32, len as u32 + 1, 0, 1000, (1 << 31) + 1];
            let promises = match opcode {
                0x26 | 0x2a | 0x2b => &promises[..],
                _ => &promises[..1],
            };
            for &promised in promises {
                let (outer, rights) = (outer.clone(), rights.clone());
                plans.push(Plan::new(move |qp| {
                    let mut model = Model::new(qp, &rights);
                    let ib = Ib::new(opcode, qp.qpn, qp.rq_psn)
                        .with_headers((rw.at + 100, rw.rkey, promised))
                        .with_payload(len);
                    let fate = model.packet(0, &ib);
                    let name = format!("{opcode:#04x}, {len} bytes of {promised}");
                    model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                }));
            }
        }
    }
    a.run(kind, plans)
}

/// Talks of some packets, by chance: most in order and right.
fn random_talks(a: &mut Attack, kind: &'static str) -> Result<()> {
    let rights = Rights::of(kind, &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let plans = (0..if a.short { 64 } else { 256 })
        .map(|talk| {
            let (outer, rights, random) = (outer.clone(), rights.clone(), a.random.fork());
            Plan::new(move |qp| {
                let mut random = random;
                let mut model = Model::new(qp, &rights);
                let (mut frames, mut names) = (Vec::new(), Vec::new());
                for _ in 0..random.below(14) + 2 {
                    let ib = any_packet(&mut random, qp, &model);
                    let distance = match random.below(12) {
                        0 => -(random.below(9) as i64),
                        1 => random.below(9) as i64,
                        2 if random.below(4) == 0 => i64::from(random.psn()) - (1 << 23),
                        _ => 0,
                    };
                    let ib = Ib {
                        psn: model.psn(model.expected + distance),
                        ..ib
                    };
                    names.push(format!(
                        "{:#04x} at {distance}, {} bytes of {:?}",
                        ib.opcode,
                        ib.payload.len(),
                        ib.reth
                    ));
                    let fate = model.packet(distance, &ib);
                    frames.push((outer.frame(&ib.bytes()), fate));
                }
                model.case(format!("talk {talk}: {}", names.join("; ")), frames)
            })
        })
        .collect();
    a.run(kind, plans)
}

fn any_packet(random: &mut Random, qp: &Qp, model: &Model) -> Ib {
    let any = |random: &mut Random, from: &[u8]| from[random.below(from.len() as u64) as usize];
    let sane = random.below(10) != 0;
    let opcode = match (sane, model.message) {
        (true, Message::Send { .. }) => any(random, &[0x21, 0x22, 0x23]),
        (true, Message::Write { .. }) => any(random, &[0x27, 0x28, 0x29]),
        (true, _) => any(random, &[0x20, 0x20, 0x24, 0x25, 0x26, 0x26, 0x2a, 0x2b]),
        _ => 0x20 + random.below(12) as u8,
    };
    let last = !matches!(opcode, 0x20 | 0x21 | 0x26 | 0x27);
    let len = match (sane, last, model.message) {
        (false, ..) => random.below(600) as usize,
        (_, false, _) => 256,
        // The end of a WRITE, as it was promised.
        (_, true, Message::Write { reth, received }) if random.below(4) != 0 => {
            reth.2.saturating_sub(received).min(256) as usize
        }
        _ => random.below(256) as usize + 1,
    };
    let promised = match (last, random.below(10)) {
        (_, 0) => random.next() as u32,
        (true, _) => len as u32,
        (false, _) => 257 + random.below(500) as u32,
    };
    let names = ["rw", "rw", "mw-rw", "mw-ro", "wo", "ro", "local"];
    let region = &model.rights.regions[names[random.below(names.len() as u64) as usize]];
    let va = region.at + random.below(region.len - 2100);
    Ib::new(opcode, qp.qpn, 0)
        .with_headers((va, region.rkey, promised))
        .with_payload(len)
}

/// WRITEs to where they may not be, by every key.
fn ranges(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("uc", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let mut plans = Vec::new();
    let regions: Vec<_> = a.victim.regions.clone().into_iter().collect();
    for (name, region) in regions {
        let end = region.at + region.len;
        for va in [
            region.at,
            region.at - 1,
            end - 100,
            end - 99,
            end,
            0,
            u64::MAX - 99,
            u64::MAX - 50,
        ] {
            for key in [region.rkey, region.rkey ^ 1, region.rkey ^ 0x100] {
                let (outer, rights, name) = (outer.clone(), rights.clone(), name.clone());
                plans.push(Plan::new(move |qp| {
                    let mut model = Model::new(qp, &rights);
                    let ib = Ib::new(0x2b, qp.qpn, qp.rq_psn)
                        .with_headers((va, key, 100))
                        .with_payload(100);
                    let fate = model.packet(0, &ib);
                    let name = format!("100 bytes at {va:#x} with {key:#x}, of {name}");
                    model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                }));
            }
        }
    }
    a.run("uc", plans)
}

/// Datagrams of every length that matters, with Q_Keys that are right and such as are not quite.
fn datagrams(a: &mut Attack, kind: &'static str) -> Result<()> {
    let rights = Rights::of(kind, &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let talks = if a.short { 16 } else { 96 };
    let plans = (0..talks)
        .map(|talk| {
            let (outer, receives) = (outer.clone(), rights.receives);
            let random = a.random.fork();
            Plan::new(move |qp| {
                let mut random = random;
                let (mut frames, mut completions, mut writes) = (vec![], vec![], vec![]);
                for _ in 0..random.below(10) + 2 {
                    let len = [0, 1, 100, 983, 984, 985, 1024, 4096][random.below(8) as usize];
                    let turned = match random.below(4) {
                        0 => 1 << random.below(32),
                        _ => 0,
                    };
                    let opcode = 0x64 + random.below(2) as u8;
                    let mut ib = Ib::new(opcode, qp.qpn, random.psn())
                        .with_headers((0, 0, 0))
                        .with_payload(len as usize);
                    ib.deth = Some((QKEY ^ turned, random.psn()));
                    let number = completions.len() as u32;
                    let fate = if turned != 0 {
                        Fate::Drop("drop_qkey")
                    } else if number == receives {
                        counted("lost_no_receive")
                    } else if len + GRH > RECEIVE {
                        counted("lost_too_long")
                    } else {
                        let at = u64::from(RECEIVE * number);
                        writes.push(("receives", at, u64::from(len + GRH)));
                        completions.push((1000 + u64::from(number), 0, len + GRH));
                        ACCEPTED
                    };
                    frames.push((outer.frame(&ib.bytes()), fate));
                }
                Case {
                    completions,
                    writes,
                    ..Case::silent(format!("datagrams {talk}"), frames)
                }
            })
        })
        .collect();
    a.run(kind, plans)
}
