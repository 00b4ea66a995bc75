// SPDX-License-Identifier: GPL-2.0

//! Requests of a peer who keeps to no order: messages that end too soon, too late or as others;
//! PSNs from everywhere. Each is predicted by the model.

use crate::attack::{Attack, Plan};
use crate::frame::{Ib, Outer};
use crate::model::{Model, Rights};
use crate::random::Random;
use crate::victim::{Qp, Result, State};

const REQUESTS: [u8; 26] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x15,
    0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
];
const KINDS: [&str; 4] = ["rts", "rts-no-receives", "rts-no-rights", "rts-no-reads"];
/// Of these the first packets say no more.
const MORE_KINDS: [&str; 3] = ["rts-shared-receives", "rts-flush", "rts-window"];

pub fn run(a: &mut Attack) -> Result<()> {
    for kind in KINDS {
        first_packets(a, kind)?;
        random_talks(a, kind)?;
    }
    for kind in MORE_KINDS {
        random_talks(a, kind)?;
    }
    psns_everywhere(a)
}

/// Each request with each length of payload as the first packet of the connection.
fn first_packets(a: &mut Attack, kind: &'static str) -> Result<()> {
    let rights = Rights::of(kind, &a.victim.regions);
    let rw = a.victim.region("rw");
    let outer = Outer::new(&a.hosts);
    let mut plans = Vec::new();
    let mut lens: Vec<usize> = vec![0, 1, 4, 63, 64, 252, 255, 256, 257, 512, 1024, 4096];
    if a.short {
        lens = vec![0, 1, 256, 257, 4096];
    }
    for opcode in REQUESTS {
        for len in &lens {
            let is_bare = matches!(opcode, 0x0c | 0x13 | 0x14 | 0x1c);
            let len = if is_bare { 0 } else { *len };
            let promises = [len as u32, len as u32 + 1, 0, 1000, 1 << 31, (1 << 31) + 1];
            let promises = match opcode {
                0x06 | 0x0a..=0x0c | 0x1d => &promises[..],
                _ => &promises[..1],
            };
            for promised in promises {
                let (outer, rights, promised) = (outer.clone(), rights.clone(), *promised);
                plans.push(Plan::new(move |qp| {
                    let mut model = Model::new(qp, &rights);
                    let ib = Ib::new(opcode, qp.qpn, qp.rq_psn)
                        .with_headers((rw.at + 100, rw.rkey, promised))
                        .with_payload(len);
                    let fate = model.request(&ib);
                    let name = format!("{opcode:#04x}, {len} bytes of {promised}");
                    model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                }));
            }
        }
    }
    a.run(kind, plans)
}

/// A request that is right about nine times of ten, if `open` is the last opcode that was accepted.
fn any_request(random: &mut Random, qp: &Qp, model: &Model, open: Option<u8>) -> Ib {
    let sane = random.below(10) != 0;
    let opcode = match (sane, open) {
        (true, Some(0x00 | 0x01)) => [0x01, 0x02, 0x03][random.below(3) as usize],
        (true, Some(0x06 | 0x07)) => [0x07, 0x08, 0x09][random.below(3) as usize],
        (true, _) => {
            let flush = if model.rights.flush { 0x1c } else { 0x0c };
            let any = [
                0x00, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x1d, flush,
            ];
            any[random.below(11) as usize]
        }
        _ if random.below(4) == 0 => [0x13, 0x14, 0x1c, 0x1d][random.below(4) as usize],
        _ => random.below(13) as u8,
    };
    let last = !matches!(opcode, 0x00 | 0x01 | 0x06 | 0x07);
    let len = match (opcode, last) {
        (0x0c | 0x13 | 0x14 | 0x1c, _) => 0,
        (0x1d, _) if sane => 8,
        _ if !sane => random.below(600) as usize,
        (_, true) => random.below(256) as usize + 1,
        (_, false) => 256,
    };
    let promised = match (last, random.below(10)) {
        (_, 0) => random.next() as u32,
        (true, _) if opcode == 0x0c => random.below(2000) as u32,
        (true, _) => len as u32,
        (false, _) => random.below(1200) as u32,
    };
    let names = [
        "rw", "rw", "rw", "mw-rw", "mw-own", "wo", "ro", "mw-ro", "local",
    ];
    let region = model
        .rights
        .regions
        .get(names[random.below(names.len() as u64) as usize]);
    // Of those that have none, or none any more.
    let region = region.unwrap_or(&model.rights.regions["rw"]);
    let mut va = region.at + random.below(region.len - 2100);
    if opcode > 0x12 && sane {
        va = va.next_multiple_of(8);
    }
    let distance = match random.below(12) {
        0 => -(random.below(8) as i64 + 1),
        1 => random.below(8) as i64,
        _ => 0,
    };
    let mut ib = Ib::new(opcode, qp.qpn, model.psn(model.expected + distance))
        .with_headers((va, region.rkey, promised))
        .with_payload(len);
    if opcode == 0x1c && random.below(8) == 0 {
        // Another placement, or of the whole region.
        ib.feth = Some(random.below(0x40) as u32);
    }
    ib.ack = (random.below(4) != 0).into();
    ib.ack <<= 7;
    ib.flags |= (random.below(2) as u8) << 7;
    ib
}

/// Talks of some packets, by chance.
fn random_talks(a: &mut Attack, kind: &'static str) -> Result<()> {
    let rights = Rights::of(kind, &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let talks = if a.short { 64 } else { 384 };
    let plans = (0..talks)
        .map(|talk| {
            let (outer, rights, random) = (outer.clone(), rights.clone(), a.random.fork());
            Plan::new(move |qp| {
                let mut random = random;
                let mut model = Model::new(qp, &rights);
                let mut frames = Vec::new();
                let mut names = Vec::new();
                let mut open = None;
                for _ in 0..random.below(12) + 2 {
                    let ib = any_request(&mut random, qp, &model, open);
                    let before = model.expected;
                    let at = ib.psn.wrapping_sub(model.psn(0)) & 0xff_ffff;
                    let fate = model.request(&ib);
                    if model.expected != before {
                        open = Some(ib.opcode);
                    }
                    let (opcode, len) = (ib.opcode, ib.payload.len());
                    names.push(format!(
                        "{opcode:#04x} at {at}, {len} bytes of {:?}",
                        ib.reth
                    ));
                    frames.push((outer.frame(&ib.bytes()), fate));
                }
                model.case(format!("talk {talk}: {}", names.join("; ")), frames)
            })
        })
        .collect();
    a.run(kind, plans)
}

/// PSNs from everywhere but the expected one, with requests that would change memory if they were
/// executed.
fn psns_everywhere(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("rts", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let rw = a.victim.region("rw");
    let count = if a.short { 500 } else { 5000 };
    let near: Vec<i64> = [0i64, 1 << 22, (1 << 23) - 2, 1 << 23, (1 << 23) + 2]
        .iter()
        .flat_map(|at| (-3..=3).map(move |n| at + n))
        .collect();
    let seeds: Vec<Random> = (0..count).map(|_| a.random.fork()).collect();
    let plan = Plan::new(move |qp| {
        let mut model = Model::new(qp, &rights);
        let mut frames = Vec::new();
        // Something to be repeated: four WRITEs of what is there already would not show, so they
        // come first.
        for n in 0..4u64 {
            let ib = Ib::new(0x0a, qp.qpn, model.psn(model.expected))
                .with_headers((rw.at + 4 * n, rw.rkey, 4))
                .with_payload(4);
            frames.push((outer.frame(&ib.bytes()), model.request(&ib)));
        }
        for random in &seeds {
            let mut random = *random;
            let distance = match random.below(3) {
                0 => near[random.below(near.len() as u64) as usize],
                1 => random.below(600) as i64 - 300,
                _ => random.psn().into(),
            };
            if distance % (1 << 24) == 0 {
                continue;
            }
            let sign = if random.below(2) == 0 { 1 } else { -1 };
            // A READ again would be answered, which is another matter.
            let opcode = random.below(12) as u8;
            let ib = Ib::new(opcode, qp.qpn, model.psn(model.expected + sign * distance))
                .with_headers((rw.at + 5000, rw.rkey, 64))
                .with_payload(64);
            let fate = model.request(&ib);
            frames.push((outer.frame(&ib.bytes()), fate));
        }
        let case = model.case("PSNs from everywhere".into(), frames);
        assert_eq!(case.state, State::Rts);
        case
    });
    a.run("rts", vec![plan])
}
