// SPDX-License-Identifier: GPL-2.0

//! All families against the pure code of the driver, over both IP versions, each case of them.

use ferroce_hostile::attack::Attack;
use ferroce_hostile::device::Device;
use ferroce_hostile::dice::Dice;
use ferroce_hostile::frame::Hosts;

/// The number that `FERROCE_FRESH` has: another each time that `make check` runs.
fn seed() -> u64 {
    let fresh = std::env::var("FERROCE_FRESH");
    fresh.map_or(1, |text| text.parse().expect("FERROCE_FRESH is a number"))
}

fn meets(family: &str) {
    for v6 in [false, true] {
        let host = |last| {
            let mut address = [0xfd; 16];
            address[if v6 { 15 } else { 3 }] = last;
            address
        };
        let hosts = Hosts {
            v6,
            our_mac: [2; 6],
            victim_mac: [4; 6],
            us: host(1),
            victim: host(2),
            victim_too: host(3),
            other: host(4),
        };
        let device = Box::new(Device::new(hosts));
        let mut attack = Attack::new(device, hosts, Dice::of(&[seed(), v6.into()]), 1);
        match ferroce_hostile::run(&mut attack, family) {
            Ok(told) => println!("{told}"),
            Err(wrong) => panic!("v6 {v6}, FERROCE_FRESH={}: {wrong}", seed()),
        }
    }
}

#[test]
fn opcodes() {
    meets("opcodes");
}

#[test]
fn headers() {
    meets("headers");
}

#[test]
fn requests() {
    meets("requests");
}

#[test]
fn talks() {
    meets("talks");
}

#[test]
fn responses() {
    meets("responses");
}

#[test]
fn network() {
    meets("network");
}
