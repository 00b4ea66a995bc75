// SPDX-License-Identifier: GPL-2.0

//! Requests that are wrong by themselves: of every length, to where they may not go, by keys that
//! are not for them, asked for again with other words. PSNs from everywhere are in `talks`.

use crate::attack::Attack;
use crate::case::Region;
use crate::frame::Ib;
use crate::model::is_bare;
use crate::Result;

pub fn run(a: &mut Attack) -> Result<()> {
    for kind in ["rts", "rts-no-receives", "rts-no-rights", "rts-no-reads"] {
        let requests = (0..=0x0c).chain(0x13..=0x1f).collect();
        first_packets(a, kind, requests)?;
    }
    for kind in ["uc", "uc-no-receives", "uc-no-rights"] {
        first_packets(a, kind, (0x20..=0x2b).collect())?;
    }
    ranges(a)?;
    invalidations(a)?;
    reads_again(a)?;
    gone_regions(a)
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

/// Ranges that leave their region, or their window, at either end or wrap round the address space.
/// Windows are of the domain, of the queue pair itself, of another one, and such as have gone.
fn ranges(a: &mut Attack) -> Result<()> {
    let (mut rc, mut windows, mut uc) = (Vec::new(), Vec::new(), Vec::new());
    for (name, rkey, region) in keys(a) {
        let (begin, end) = (region.at, region.at + region.len);
        let whole = region.len as u32;
        let places = [
            // Aligned, as atomic operations want it: the first, the last, and across the end.
            &[begin.next_multiple_of(8), (end - 8) & !7, end & !7][..],
            // At the edges.
            &[begin - 4096, begin - 1, begin, begin + 1],
            &[end - 1, end, end + 1],
            // Far away, and such as wrap.
            &[0, 1, 1 << 47, 1 << 63, begin | (1 << 63)],
            &[u64::MAX - 255, u64::MAX - 3, u64::MAX],
        ]
        .concat();
        for va in places {
            let words = [0x13u8, 0x14, 0x1d].map(|opcode| (opcode, 8));
            let lens = [0, 1, 4, 256, whole, whole + 1];
            let lens = [&lens[..], &[1 << 31, (1 << 31) + 1, u32::MAX]].concat();
            let whole_writes = |len| {
                if len <= 256 {
                    [0x0a, 0x0b]
                } else {
                    [0x06, 0x06]
                }
            };
            let writes = lens
                .iter()
                .flat_map(|len| whole_writes(*len).map(|op| (op, *len)));
            let others = lens.iter().flat_map(|len| [(0x0c, *len), (0x1c, *len)]);
            let specs = words.into_iter().chain(writes).chain(others);
            let specs = specs.map(|(opcode, len)| (name.clone(), opcode, (va, rkey, len)));
            match name.starts_with("mw-") {
                true => windows.extend(specs),
                false => rc.extend(specs),
            }
            uc.extend([0, 1, 256].map(|len| (name.clone(), 0x2a, (va, rkey, len))));
        }
    }
    for (kind, mut specs) in [("rts", rc), ("rts-window", windows), ("uc", uc)] {
        specs.dedup();
        a.each(kind, specs, |talk, (name, opcode, (va, rkey, len))| {
            talk.name = format!("{opcode:#04x} of {len} at {va:#x} with {name}");
            let key = key_of(name, *rkey, talk.qp.window);
            let payload = if is_bare(*opcode) { 0 } else { (*len).min(256) };
            let ib = Ib::new(*opcode, talk.qp.qpn, talk.qp.rq_psn)
                .with_headers((*va, key, *len))
                .with_payload(payload as usize);
            talk.say(&ib);
        })?;
    }
    Ok(())
}

/// The key by which a queue pair uses the bytes of a name.
fn key_of(name: &str, told: u32, window: u32) -> u32 {
    match name {
        "mw-own" => window,
        _ => told,
    }
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
        let key = key_of(name, region.rkey, talk.qp.window) ^ turned;
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
            talk.pause = Some((2, "volatile"));
        })?;
        a.one_of = one_of;
        a.target.register("volatile", true)?;
    }
    Ok(())
}
