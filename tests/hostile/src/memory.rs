// SPDX-License-Identifier: GPL-2.0

//! RDMA to where it may not be: ranges that leave their region at either end or wrap round the
//! address space, keys of other regions, of another domain, of regions that have gone, and keys
//! that never were; READs that were permitted once and are asked for again with other words.

use crate::attack::{Attack, Plan};
use crate::frame::{Ib, Outer};
use crate::model::{Model, Rights};
use crate::victim::{Region, Result};

/// Keys and the region that the addresses are about.
fn keys(a: &Attack) -> Vec<(String, u32, Region)> {
    let rw = a.victim.region("rw");
    let mut keys: Vec<(String, u32, Region)> = a
        .victim
        .regions
        .iter()
        .map(|(name, region)| (name.clone(), region.rkey, *region))
        .collect();
    // Keys that belong to nobody, or to somebody with another last byte.
    for wrong in [
        0,
        1,
        u32::MAX,
        rw.rkey ^ 1,
        rw.rkey ^ 0x100,
        rw.rkey.swap_bytes(),
    ] {
        keys.push((format!("rw as {wrong:#x}"), wrong, rw));
    }
    // One region's key with another's addresses.
    let ro = a.victim.region("ro");
    keys.push(("key of rw for ro".into(), rw.rkey, ro));
    keys.push(("key of ro for rw".into(), ro.rkey, rw));
    keys
}

pub fn ranges(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("rts", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let mut plans = Vec::new();
    for (name, rkey, region) in keys(a) {
        let end = region.at + region.len;
        let mut places = vec![
            region.at,
            region.at + 1,
            // Aligned, as atomic operations want it: the first, the last, and across the end.
            region.at.next_multiple_of(8),
            (end - 8) & !7,
            end & !7,
            region.at - 1,
            region.at - 4096,
            end - 1,
            end,
            end + 1,
            0,
            1,
            1 << 47,
            1 << 63,
            region.at | (1 << 63),
            u64::MAX - 255,
            u64::MAX - 3,
            u64::MAX,
        ];
        let len = region.len as u32;
        let mut lens = vec![0, 1, 4, 256, len, len + 1, 1 << 31, (1 << 31) + 1, u32::MAX];
        if a.short {
            places.retain(|_| a.random.below(3) == 0);
            lens.retain(|_| a.random.below(2) == 0);
        }
        for va in &places {
            for opcode in [0x13, 0x14, 0x1d] {
                let (outer, rights, name, va) = (outer.clone(), rights.clone(), name.clone(), *va);
                plans.push(Plan::new(move |qp| {
                    let mut model = Model::new(qp, &rights);
                    let ib = Ib::new(opcode, qp.qpn, qp.rq_psn).with_headers((va, rkey, 8));
                    let ib = match opcode {
                        0x1d => ib.with_payload(8),
                        _ => ib,
                    };
                    let fate = model.request(&ib);
                    let name = format!("{opcode:#04x} at {va:#x} with {name}");
                    model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                }));
            }
            for len in &lens {
                for read in [false, true] {
                    let (va, len) = (*va, *len);
                    let (outer, rights, name) = (outer.clone(), rights.clone(), name.clone());
                    plans.push(Plan::new(move |qp| {
                        let opcode = match (read, len) {
                            (true, _) => 0x0c,
                            (false, 0..=256) => 0x0a,
                            (false, _) => 0x06,
                        };
                        let payload = if read { 0 } else { len.min(256) };
                        let mut model = Model::new(qp, &rights);
                        let ib = Ib::new(opcode, qp.qpn, qp.rq_psn)
                            .with_headers((va, rkey, len))
                            .with_payload(payload as usize);
                        let fate = model.request(&ib);
                        let name = format!("{opcode:#04x} of {len} at {va:#x} with {name}");
                        model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                    }));
                }
            }
        }
    }
    a.run("rts", plans)
}

/// READs again: from the same PSNs, with another place, key or length.
pub fn reads_again(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("rts", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let rw = a.victim.region("rw");
    let mut plans = Vec::new();
    for (name, rkey, region) in keys(a) {
        for len in [0, 1, 256, 257, 600, 768, 769, 5000, 1 << 31, u32::MAX] {
            let (outer, rights, name) = (outer.clone(), rights.clone(), name.clone());
            plans.push(Plan::new(move |qp| {
                let mut model = Model::new(qp, &rights);
                let mut frames = Vec::new();
                let mut read = |model: &mut Model, at: i64, reth| {
                    let ib = Ib::new(0x0c, qp.qpn, model.psn(at)).with_headers(reth);
                    let fate = model.request(&ib);
                    frames.push((outer.frame(&ib.bytes()), fate));
                };
                // Three responses that it may have, and then from the first, the second and the
                // third of them on.
                read(&mut model, 0, (rw.at, rw.rkey, 600));
                for at in 0..4 {
                    for va in [
                        region.at,
                        region.at + 512,
                        region.at - 1,
                        region.at + region.len - 1,
                    ] {
                        if at < model.expected {
                            read(&mut model, at, (va, rkey, len));
                        }
                    }
                }
                model.case(format!("{len} bytes again with {name}"), frames)
            }));
        }
    }
    a.run("rts", plans)?;
    gone_regions(a)
}

/// A region that was read, and has gone before it is read again.
fn gone_regions(a: &mut Attack) -> Result<()> {
    for (name, again_at) in [
        ("from its beginning", 0),
        ("from its middle", 1),
        ("anew", 3),
    ] {
        let rights = Rights::of("rts", &a.victim.regions);
        let outer = Outer::new(&a.hosts);
        let region = a.victim.region("volatile");
        let plan = Plan::new(move |qp| {
            let mut model = Model::new(qp, &rights);
            let mut frames = Vec::new();
            let mut read = |model: &mut Model, at, len| {
                // Of three responses the second begins with byte 256.
                let va = region.at + if at == 1 { 256 } else { 0 };
                let ib = Ib::new(0x0c, qp.qpn, model.psn(at)).with_headers((va, region.rkey, len));
                let fate = model.request(&ib);
                frames.push((outer.frame(&ib.bytes()), fate));
            };
            read(&mut model, 0, 600);
            read(&mut model, 0, 600);
            model.rights.regions.remove("volatile");
            read(&mut model, again_at, 300);
            let mut case = model.case(format!("a region that has gone, read {name}"), frames);
            case.pause = Some((2, "dereg volatile".into()));
            case
        });
        a.run("rts", vec![plan])?;
        a.victim.register_again("volatile")?;
    }
    Ok(())
}
