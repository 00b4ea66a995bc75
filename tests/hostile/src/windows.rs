// SPDX-License-Identifier: GPL-2.0

//! Memory windows: of the domain, of the queue pair itself, of another one, and such as have gone.
//! What a peer reaches by their keys ends where they end, though the region around goes on; and he
//! may end those of the queue pair alone.

use crate::attack::{Attack, Plan};
use crate::frame::{Ib, Outer};
use crate::model::{Model, Rights};
use crate::victim::{Qp, Region, Result};

/// How often the peer of a queue pair with a window gets to it.
const SEND_AND_INVALIDATE: u8 = 0x17;

pub fn run(a: &mut Attack) -> Result<()> {
    edges(a)?;
    invalidations(a)
}

/// The window that a name means to this queue pair.
fn window(name: &str, told: Region, qp: &Qp) -> Region {
    match name {
        "mw-own" => Region {
            rkey: qp.window,
            ..told
        },
        _ => told,
    }
}

/// Every request at the edges of every window.
fn edges(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("rts-window", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let mut plans = Vec::new();
    for name in ["mw-rw", "mw-ro", "mw-own", "mw-foreign", "mw-stale"] {
        let told = a.victim.region(name);
        let end = told.at + told.len;
        for (va, len) in [
            (told.at, 8),
            (end - 8, 8),
            (told.at - 8, 8),
            (told.at - 1, 8),
            (end, 8),
            (end - 7, 8),
            (told.at, told.len as u32),
            (told.at, told.len as u32 + 1),
            (told.at - 1, told.len as u32 + 1),
        ] {
            for opcode in [0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x1c, 0x1d] {
                let (outer, rights) = (outer.clone(), rights.clone());
                plans.push(Plan::new(move |qp| {
                    let mut model = Model::new(qp, &rights);
                    let key = window(name, told, qp).rkey;
                    let payload = match opcode {
                        0x06 => 256,
                        0x0a | 0x0b => len.min(256),
                        0x1d => 8,
                        _ => 0,
                    };
                    let ib = Ib::new(opcode, qp.qpn, qp.rq_psn)
                        .with_headers((va, key, len))
                        .with_payload(payload as usize);
                    let fate = model.request(&ib);
                    let name = format!("{opcode:#04x} of {len} at {va:#x} with {name}");
                    model.case(name, vec![(outer.frame(&ib.bytes()), fate)])
                }));
            }
        }
    }
    a.run("rts-window", plans)
}

/// SENDs that invalidate whatever has a key, and a WRITE by the window of the queue pair itself
/// afterwards.
fn invalidations(a: &mut Attack) -> Result<()> {
    let rights = Rights::of("rts-window", &a.victim.regions);
    let outer = Outer::new(&a.hosts);
    let told = a.victim.region("mw-own");
    let mut plans = Vec::new();
    for name in [
        "mw-own",
        "mw-rw",
        "mw-ro",
        "mw-foreign",
        "mw-stale",
        "rw",
        "local",
        "foreign",
        "stale",
    ] {
        let target = a.victim.region(name);
        for turned in [0, 1, 0x100, 0x8000_0000] {
            let (outer, rights) = (outer.clone(), rights.clone());
            plans.push(Plan::new(move |qp| {
                let mut model = Model::new(qp, &rights);
                let mut frames = Vec::new();
                let mut say = |model: &mut Model, opcode, key, len: usize| {
                    let mut ib = Ib::new(opcode, qp.qpn, model.psn(model.expected))
                        .with_headers((told.at, key, len as u32))
                        .with_payload(len);
                    ib.imm = ib.imm.map(|_| key);
                    let fate = model.request(&ib);
                    frames.push((outer.frame(&ib.bytes()), fate));
                };
                let own = qp.window;
                say(&mut model, 0x0a, own, 64);
                let key = window(name, target, qp).rkey ^ turned;
                // By the last packet of several as well.
                if turned == 0 {
                    say(&mut model, 0x00, 0, 256);
                    say(&mut model, 0x16, key, 100);
                } else {
                    say(&mut model, SEND_AND_INVALIDATE, key, 9);
                }
                say(&mut model, 0x0a, own, 64);
                say(&mut model, SEND_AND_INVALIDATE, own, 1);
                let name = format!("{name}, its key turned by {turned:#x}, invalidated");
                model.case(name, frames)
            }));
        }
    }
    a.run("rts-window", plans)
}
