// SPDX-License-Identifier: GPL-2.0

//! Peers who keep to no order: messages that end too soon, too late or as others, among such as are
//! right.

use crate::attack::Attack;
use crate::case::{Qp, State};
use crate::dice::Chance;
use crate::frame::Ib;
use crate::model::{is_bare, is_last, Model, Service, QKEY};
use crate::Result;

/// Kinds of queue pairs that peers talk to.
pub const KINDS: [&str; 12] = [
    "rts",
    "rts-no-receives",
    "rts-no-rights",
    "rts-no-reads",
    "rts-shared-receives",
    "rts-flush",
    "rts-window",
    "uc",
    "uc-no-receives",
    "uc-no-rights",
    "ud",
    "ud-no-receives",
];

/// Talks with a queue pair of each kind.
const TALKS: usize = 400;

pub fn run(a: &mut Attack) -> Result<()> {
    for kind in KINDS {
        a.each(kind, (0..TALKS).collect(), |talk, number| {
            let mut random = talk.random;
            let mut said = Vec::new();
            for _ in 0..random.below(12) + 2 {
                let ib = any_packet(&mut random, Service::of(kind), &talk.qp, &talk.model);
                said.push(format!(
                    "{:#04x} of {} bytes, PSN {:#x}, {:x?}",
                    ib.opcode,
                    ib.payload.len(),
                    ib.psn,
                    ib.reth
                ));
                talk.say(&ib);
                if talk.model.state == State::Err && random.below(2) == 0 {
                    break;
                }
            }
            talk.name = format!("talk {number}: {}", said.join("; "));
        })?;
    }
    Ok(())
}

/// A packet of the service that is right about nine times of ten, for what the model expects.
pub fn any_packet(random: &mut impl Chance, service: Service, qp: &Qp, model: &Model) -> Ib {
    let sane = random.below(10) != 0;
    let opcode = any_opcode(random, service, sane, model);
    let len = match (service, opcode, is_last(opcode)) {
        (Service::Ud, ..) => random.pick(&[0, 1, 100, 983, 984, 985, 1024, 4096]),
        (Service::Rc, _, _) if is_bare(opcode) => 0,
        (Service::Rc, 0x1d, _) if sane => 8,
        _ if !sane => random.below(600) as usize,
        (_, _, true) => random.below(256) as usize + 1,
        (_, _, false) => 256,
    };
    let promised = match (is_last(opcode), random.below(10)) {
        (_, 0) => random.throw() as u32,
        (true, _) if opcode == 0x0c => random.below(2000) as u32,
        (true, _) => len as u32,
        (false, _) => 257 + random.below(900) as u32,
    };
    let names = [
        "rw", "rw", "rw", "mw-rw", "mw-own", "wo", "ro", "mw-ro", "local",
    ];
    let regions = &model.rights.regions;
    // Of those that have none, or none any more.
    let region = regions.get(random.pick(&names)).unwrap_or(&regions["rw"]);
    let mut va = region.at + random.below(region.len - 2100);
    if service == Service::Rc && opcode > 0x12 && sane {
        va = va.next_multiple_of(8);
    }
    let distance = match random.below(12) {
        0 | 3 => -(random.below(9) as i64 + 1),
        1 => random.below(9) as i64,
        2 if random.below(4) == 0 => i64::from(random.psn()) - (1 << 23),
        2 => random.pick(&[-4097, -4096, -4095, 4095, 4096, 4097, 1 << 22, 1 << 23]),
        _ => 0,
    };
    let mut ib = Ib::new(opcode, qp.qpn, model.psn(model.expected + distance))
        .with_headers((va, region.rkey, promised))
        .with_payload(len);
    if opcode == 0x1c && random.below(8) == 0 {
        // Another placement, or of the whole region.
        ib.feth = Some(random.below(0x40) as u32);
    }
    if matches!(opcode, 0x16 | 0x17) {
        ib.imm = Some(random.pick(&[qp.window, qp.window ^ 0x100, region.rkey]));
    }
    if random.below(4) == 0 {
        let turned = 1 << random.below(32);
        ib.deth = ib.deth.map(|(_, source)| (QKEY ^ turned, source));
    }
    ib.ack = random.pick(&[0x80, 0x80, 0x80, 0]);
    ib.flags |= random.pick(&[0, 0x80]);
    ib
}

fn any_opcode(random: &mut impl Chance, service: Service, sane: bool, model: &Model) -> u8 {
    let rest = match (sane, model.open) {
        (true, Some(0x00 | 0x01)) => Some(random.pick(&[0x01, 0x02, 0x03])),
        (true, Some(_)) => Some(random.pick(&[0x07, 0x08, 0x09])),
        _ => None,
    };
    match (service, rest) {
        (Service::Ud, _) => random.pick(&[0x64, 0x65]),
        (Service::Uc, Some(rest)) => 0x20 | rest,
        (Service::Uc, None) if sane => {
            random.pick(&[0x20, 0x20, 0x24, 0x25, 0x26, 0x26, 0x2a, 0x2b])
        }
        (Service::Uc, None) => 0x20 + random.below(12) as u8,
        (Service::Rc, Some(rest)) => rest,
        (Service::Rc, None) if sane => {
            let flush = if model.rights.flush { 0x1c } else { 0x0c };
            let window = model.rights.regions.contains_key("mw-own");
            let invalidate = if window { 0x17 } else { 0x04 };
            random.pick(&[
                0x00, 0x04, 0x05, 0x06, 0x0a, 0x0b, 0x0c, 0x13, 0x14, 0x1d, flush, invalidate,
            ])
        }
        (Service::Rc, None) => match random.below(4) {
            0 => random.pick(&[0x13, 0x14, 0x16, 0x17, 0x1c, 0x1d, 0x1e]),
            _ => random.below(13) as u8,
        },
    }
}
