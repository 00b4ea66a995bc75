// SPDX-License-Identifier: GPL-2.0

//! Requests that are wrong by themselves: of every length, to where they may not go, by keys that
//! are not for them, asked for again with other words, with PSNs from everywhere.

use crate::attack::Attack;
use crate::case::{Fate, Region, State};
use crate::dice::{Chance, Dice};
use crate::frame::Ib;
use crate::model::is_bare;
use crate::Result;

pub const FLOOR: &[&str] = &[
    "accepted",
    "refused_request",
    "rnr_nak_sent",
    "duplicate_request",
    "ignored_request",
    "lost_denied",
    "lost_invalid",
    "ACK",
    "NAK 1",
    "NAK 2",
    "READ response",
    "original",
];

pub fn run(a: &mut Attack) -> Result<()> {
    for kind in ["rts", "rts-no-receives", "rts-no-rights", "rts-no-reads"] {
        let requests = (0..=0x0c).chain(0x13..=0x1f).collect();
        first_packets(a, kind, requests)?;
    }
    for kind in ["uc", "uc-no-receives", "uc-no-rights"] {
        first_packets(a, kind, (0x20..=0x2b).collect())?;
    }
    ranges(a)?;
    edges_of_windows(a)?;
    invalidations(a)?;
    reads_again(a)?;
    gone_regions(a)?;
    psns_everywhere(a)
}

/// Each request with each length of payload as the first packet of the connection.
fn first_packets(a: &mut Attack, kind: &'static str, opcodes: Vec<u8>) -> Result<()> {
    let rw = a.target.regions()["rw"];
    let mut specs = Vec::new();
    for opcode in opcodes {
        for len in [0u32, 1, 4, 8, 63, 64, 252, 255, 256, 257, 512, 1024, 4096] {
            let len = if is_bare(opcode) { 0 } else { len };
            let promises = [len, len + 1, 0, 1000, 1 << 31, (1 << 31) + 1];
            let has_reth = matches!(opcode & 0x1f, 0x06 | 0x0a..=0x0c | 0x1c | 0x1d);
            let promises = &promises[..if has_reth { 6 } else { 1 }];
            specs.extend(promises.iter().map(|promised| (opcode, len, *promised)));
        }
    }
    specs.dedup();
    a.each(kind, specs, |talk, &(opcode, len, promised)| {
        talk.name = format!("{opcode:#04x}, {len} bytes of {promised}");
        let ib = Ib::new(opcode, talk.qp.qpn, talk.qp.rq_psn)
            .with_headers((rw.at + 104, rw.rkey, promised))
            .with_payload(len as usize);
        talk.say(&ib);
    })
}

/// Keys and the region that the addresses are about.
fn keys(a: &Attack) -> Vec<(String, u32, Region)> {
    let regions = a.target.regions();
    let (rw, ro) = (regions["rw"], regions["ro"]);
    let mut keys: Vec<_> = (regions.into_iter())
        .map(|(name, region)| (name, region.rkey, region))
        .collect();
    // Keys that belong to nobody, or to somebody with another last byte.
    let turned = [rw.rkey ^ 1, rw.rkey ^ 0x100, rw.rkey.swap_bytes()];
    for wrong in [0, 1, u32::MAX].into_iter().chain(turned) {
        keys.push((format!("rw as {wrong:#x}"), wrong, rw));
    }
    // One region's key with another's addresses.
    keys.push(("key of rw for ro".into(), rw.rkey, ro));
    keys.push(("key of ro for rw".into(), ro.rkey, rw));
    keys
}

/// Ranges that leave their region at either end or wrap round the address space.
fn ranges(a: &mut Attack) -> Result<()> {
    let mut specs = Vec::new();
    for (name, rkey, region) in keys(a) {
        let (begin, end) = (region.at, region.at + region.len);
        let whole = region.len as u32;
        // Aligned, as atomic operations want it: the first, the last, and across the end.
        let aligned = [begin.next_multiple_of(8), (end - 8) & !7, end & !7];
        let at_edges = [
            begin,
            begin + 1,
            begin - 1,
            begin - 4096,
            end - 1,
            end,
            end + 1,
        ];
        let far = [0, 1, 1 << 47, 1 << 63, begin | (1 << 63)];
        let wrapping = [u64::MAX - 255, u64::MAX - 3, u64::MAX];
        let places = [&aligned[..], &at_edges, &far, &wrapping].concat();
        for va in places {
            let words = [0x13u8, 0x14, 0x1d].map(|opcode| (opcode, 8));
            let lens = [
                0,
                1,
                4,
                256,
                whole,
                whole + 1,
                1 << 31,
                (1 << 31) + 1,
                u32::MAX,
            ];
            let writes = lens.map(|len| (if len <= 256 { 0x0a } else { 0x06 }, len));
            let reads = lens.map(|len| (0x0c, len));
            let uc = [0, 1, 256].map(|len| (0x2a, len));
            for (opcode, len) in [&words[..], &writes, &reads, &uc].concat() {
                specs.push((name.clone(), opcode, (va, rkey, len)));
            }
        }
    }
    let (uc, rc): (Vec<_>, Vec<_>) = specs.into_iter().partition(|spec| spec.1 == 0x2a);
    for (kind, specs) in [("rts", rc), ("uc", uc)] {
        a.each(kind, specs, |talk, (name, opcode, reth)| {
            talk.name = format!("{opcode:#04x} of {} at {:#x} with {name}", reth.2, reth.0);
            let payload = if is_bare(*opcode) { 0 } else { reth.2.min(256) };
            let ib = Ib::new(*opcode, talk.qp.qpn, talk.qp.rq_psn)
                .with_headers(*reth)
                .with_payload(payload as usize);
            talk.say(&ib);
        })?;
    }
    Ok(())
}

/// The key by which a queue pair uses the bytes of a name.
fn key_of(name: &str, told: Region, window: u32) -> u32 {
    match name {
        "mw-own" => window,
        _ => told.rkey,
    }
}

/// Every request at the edges of every window: of the domain, of the queue pair itself, of another
/// one, and such as have gone.
fn edges_of_windows(a: &mut Attack) -> Result<()> {
    let mut specs = Vec::new();
    for name in ["mw-rw", "mw-ro", "mw-own", "mw-foreign", "mw-stale"] {
        let told = a.target.regions()[name];
        let (end, whole) = (told.at + told.len, told.len as u32);
        for (va, len) in [
            (told.at, 8),
            (end - 8, 8),
            (told.at - 8, 8),
            (told.at - 1, 8),
            (end, 8),
            (end - 7, 8),
            (told.at, whole),
            (told.at, whole + 1),
            (told.at - 1, whole + 1),
        ] {
            let opcodes = [0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x1c, 0x1d];
            specs.extend(opcodes.map(|opcode| (name, told, opcode, va, len)));
        }
    }
    a.each(
        "rts-window",
        specs,
        |talk, &(name, told, opcode, va, len)| {
            talk.name = format!("{opcode:#04x} of {len} at {va:#x} with {name}");
            let payload = match opcode {
                0x06 => 256,
                0x0a | 0x0b => len.min(256),
                0x1d => 8,
                _ => 0,
            };
            let key = key_of(name, told, talk.qp.window);
            let ib = Ib::new(opcode, talk.qp.qpn, talk.qp.rq_psn)
                .with_headers((va, key, len))
                .with_payload(payload as usize);
            talk.say(&ib);
        },
    )
}

/// SENDs that invalidate whatever has a key, and a WRITE by the window of the queue pair itself
/// afterwards.
fn invalidations(a: &mut Attack) -> Result<()> {
    let regions = a.target.regions();
    let own = regions["mw-own"];
    let mut specs = Vec::new();
    for (name, region) in regions {
        for turned in [0, 1, 0x100, 0x8000_0000] {
            specs.push((name.clone(), region, turned));
        }
    }
    a.each("rts-window", specs, |talk, (name, region, turned)| {
        talk.name = format!("{name}, its key turned by {turned:#x}, invalidated");
        let key = key_of(name, *region, talk.qp.window) ^ turned;
        let window = talk.qp.window;
        // By the last packet of several as well.
        let invalidating = match turned {
            0 => vec![(0x00, 0, 256), (0x16, key, 100)],
            _ => vec![(0x17, key, 9)],
        };
        let write = [(0x0au8, window, 64usize)];
        let all = [&write[..], &invalidating, &write, &[(0x17, window, 1)]].concat();
        for (opcode, key, len) in all {
            let psn = talk.model.psn(talk.model.expected);
            let mut ib = Ib::new(opcode, talk.qp.qpn, psn)
                .with_headers((own.at, key, len as u32))
                .with_payload(len);
            ib.imm = ib.imm.map(|_| key);
            talk.say(&ib);
        }
    })
}

/// READs again: from the same PSNs, with another place, key or length.
fn reads_again(a: &mut Attack) -> Result<()> {
    let rw = a.target.regions()["rw"];
    let mut specs = Vec::new();
    for (name, rkey, region) in keys(a) {
        for len in [0, 1, 256, 257, 600, 768, 769, 5000, 1 << 31, u32::MAX] {
            specs.push((name.clone(), rkey, region, len));
        }
    }
    a.each("rts", specs, |talk, (name, rkey, region, len)| {
        talk.name = format!("{len} bytes again with {name}");
        let mut read = |at: i64, reth| {
            let ib = Ib::new(0x0c, talk.qp.qpn, talk.model.psn(at)).with_headers(reth);
            talk.say(&ib);
        };
        // Three responses that it may have, and then from the first, the second and the third of
        // them on.
        read(0, (rw.at, rw.rkey, 600));
        let end = region.at + region.len;
        for at in 0..3 {
            for va in [region.at, region.at + 512, region.at - 1, end - 1] {
                read(at, (va, *rkey, *len));
            }
        }
    })
}

/// A region that was read, and has gone before it is read again.
fn gone_regions(a: &mut Attack) -> Result<()> {
    for again_at in [0, 1, 3] {
        let region = a.target.regions()["volatile"];
        let one_of = std::mem::replace(&mut a.one_of, 1);
        a.each("rts", vec![again_at], |talk, &again_at| {
            talk.name = format!("a region that has gone, read from packet {again_at}");
            for (at, len) in [(0, 600), (0, 600), (again_at, 300)] {
                if len == 300 {
                    talk.model.rights.regions.remove("volatile");
                }
                // Of three responses the second begins with byte 256.
                let va = region.at + if at == 1 { 256 } else { 0 };
                let ib = Ib::new(0x0c, talk.qp.qpn, talk.model.psn(at)).with_headers((
                    va,
                    region.rkey,
                    len,
                ));
                talk.say(&ib);
            }
            talk.pause = Some((2, "volatile".into()));
        })?;
        a.one_of = one_of;
        a.target.register("volatile", true)?;
    }
    Ok(())
}

/// PSNs from everywhere but the expected one, with requests that would change memory if they were
/// executed.
fn psns_everywhere(a: &mut Attack) -> Result<()> {
    let rw = a.target.regions()["rw"];
    let near: Vec<i64> = [0i64, 4096, 1 << 22, (1 << 23) - 2, 1 << 23, (1 << 23) + 2]
        .iter()
        .flat_map(|at| (-3..=3).map(move |n| at + n))
        .collect();
    let specs: Vec<Dice> = (0..40).map(|_| a.random.fork()).collect();
    a.each("rts", specs, |talk, random| {
        let mut random = *random;
        talk.name = "PSNs from everywhere".into();
        // Something to be repeated: WRITEs of what is there already would not show, so they come
        // first.
        for n in 0..4u64 {
            let psn = talk.model.psn(talk.model.expected);
            let ib = Ib::new(0x0a, talk.qp.qpn, psn)
                .with_headers((rw.at + 4 * n, rw.rkey, 4))
                .with_payload(4);
            talk.say(&ib);
        }
        for _ in 0..120 {
            let distance = match random.below(3) {
                0 => random.pick(&near),
                1 => random.below(600) as i64 - 300,
                _ => random.psn().into(),
            };
            if distance % (1 << 24) == 0 {
                continue;
            }
            let sign = random.pick(&[1, -1]);
            let psn = talk.model.psn(talk.model.expected + sign * distance);
            // A READ again would be answered, which is another matter.
            let ib = Ib::new(random.below(12) as u8, talk.qp.qpn, psn)
                .with_headers((rw.at + 5000, rw.rkey, 64))
                .with_payload(64);
            let fate = talk.say(&ib);
            assert_ne!(fate, Fate::Accepted);
        }
        assert_eq!(talk.model.state, State::Rts);
    })
}
