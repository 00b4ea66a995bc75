// SPDX-License-Identifier: GPL-2.0

//! Packets that no peer should send, and a [`model`] of a responder that tells beforehand what
//! becomes of each. The same families go to two targets: [`device`], the pure code of the driver on
//! the host, which gets every case; and a device in a guest, which gets some of them by the wire.

#![allow(missing_docs, reason = "fields and variants that say what they are")]

pub mod answer;
pub mod attack;
pub mod case;
pub mod device;
pub mod dice;
pub mod frame;
pub mod model;

mod headers;
mod network;
mod opcodes;
mod requests;
mod responses;
mod talks;

use attack::{Attack, Target};
use device::Device;
use dice::Chance;
use frame::{Hosts, Outer};
use model::{Model, Service};
pub use talks::{any_packet, KINDS};

/// An error is the text to fail with.
pub type Result<T> = std::result::Result<T, String>;

/// A set of attacks.
pub type Family = fn(&mut Attack) -> Result<()>;

/// What is provoked at least once by each run, however few of its cases it has.
type Floor = &'static [&'static str];

/// All families, by name.
pub const FAMILIES: &[(&str, Family, Floor)] = &[
    ("opcodes", opcodes::run, opcodes::FLOOR),
    ("headers", headers::run, headers::FLOOR),
    ("requests", requests::run, requests::FLOOR),
    ("talks", talks::run, talks::FLOOR),
    ("responses", responses::run, responses::FLOOR),
    ("network", network::run, network::FLOOR),
];

/// A peer says anything to a queue pair of a kind that chance picks, which is held to the model
/// packet by packet.
///
/// # Panics
///
/// If the two do not agree.
pub fn converse(chance: &mut impl Chance, kinds: &[&'static str], steps: usize) {
    let hosts = Hosts::numbered(chance.below(2) != 0);
    let mut device = Device::new(hosts);
    let kind = chance.pick(kinds);
    let qp = device.make(1, kind).expect("a queue pair")[0];
    let mut model = Model::new(kind, &qp, &device.regions());
    let outer = Outer::new(&hosts);
    for _ in 0..steps {
        if chance.is_over() {
            break;
        }
        let ib = any_packet(chance, Service::of(kind), &qp, &model);
        let fate = model.request(&ib);
        let met = device.send(&outer.frame(&ib.bytes()), fate);
        met.unwrap_or_else(|wrong| panic!("{kind}: {ib:x?}: {wrong}"));
        let heard = device.hear(0).expect("frames");
        let answer = |frame: &Vec<u8>| Some(answer::read(frame, &hosts).ok()??.1);
        let heard: Vec<_> = heard.iter().filter_map(answer).collect();
        assert_eq!(heard, std::mem::take(&mut model.answers), "{kind}: {ib:x?}");
    }
    assert_eq!(device.states(), Ok(vec![model.state as u64]));
    let completed = device.completions().expect("completions").remove(&0);
    let told = |c: &case::Completion| model.state == case::State::Rts || c.1 != attack::FLUSHED;
    let completed: Vec<_> = completed.into_iter().flatten().filter(told).collect();
    assert_eq!(completed, model.completions, "{kind}");
    let written = attack::joined(&model.writes);
    device
        .check_memory(&written)
        .expect("memory as it should be");
}

/// Runs a family; what it sent and provoked.
pub fn run(attack: &mut Attack, name: &str) -> Result<String> {
    let family = FAMILIES.iter().find(|(n, ..)| *n == name);
    let (_, run, floor) = family.ok_or_else(|| format!("no family {name}"))?;
    attack.begin();
    run(attack).map_err(|e| format!("{name}: {e}"))?;
    attack
        .has_provoked(floor)
        .map_err(|e| format!("{name}: {e}"))?;
    Ok(format!("{name}: {}", attack.told()))
}
