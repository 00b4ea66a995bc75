// SPDX-License-Identifier: GPL-2.0

//! Packets that no peer should send, and a [`model`] of a responder that tells beforehand what
//! becomes of each. The same families go to two targets: [`device`], the pure code of the driver on
//! the host, which gets every case; and a device in a guest, which gets some of them by the wire.
//!
//! Chance, dice or the bytes of a fuzzer, makes peers that [say anything](converse) or
//! [answer anything](any_answers), and processes that [post anything](any_work_requests).

#![allow(missing_docs, reason = "fields and variants that say what they are")]

pub mod answer;
pub mod attack;
pub mod case;
pub mod device;
pub mod dice;
pub mod frame;
pub mod model;

mod answers;
mod headers;
mod network;
mod opcodes;
mod process;
mod requests;
mod responses;
mod talks;

use attack::{Attack, Target};
use device::Device;
use dice::Chance;
use frame::{Hosts, Outer};
use model::{Model, Service};

pub use answers::any_answers;
pub use process::any_work_requests;
pub use talks::{any_packet, KINDS};

/// An error is the text to fail with.
pub type Result<T> = std::result::Result<T, String>;

/// A set of attacks.
pub type Family = fn(&mut Attack) -> Result<()>;

/// All families, by name, and how many fates and answers of different names all cases of each
/// provoke at least.
pub const FAMILIES: &[(&str, Family, usize)] = &[
    ("opcodes", opcodes::run, 10),
    ("headers", headers::run, 9),
    ("requests", requests::run, 15),
    ("talks", talks::run, 19),
    ("responses", responses::run, 11),
    ("network", network::run, 7),
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
    let completed = completed.into_iter().flatten();
    let completed: Vec<_> = completed.filter(|done| model.tells(done)).collect();
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
        .has_provoked(*floor)
        .map_err(|e| format!("{name}: {e}"))?;
    Ok(format!("{name}: {}", attack.told()))
}
