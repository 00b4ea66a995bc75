// SPDX-License-Identifier: GPL-2.0

//! All families against the pure code of the driver, over both IP versions, each case of them.
//! Overflow checks are on here, as they are in the kernel.

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
        let hosts = Hosts::numbered(v6);
        let device = Box::new(Device::new(hosts));
        let mut attack = Attack::new(device, hosts, Dice::of(&[seed(), v6.into()]), 1);
        match ferroce_hostile::run(&mut attack, family) {
            Ok(told) => println!("{told}"),
            Err(wrong) => panic!("v6 {v6}, FERROCE_FRESH={}: {wrong}", seed()),
        }
    }
}

macro_rules! families {
    ($($family:ident)*) => {
        $(
            #[test]
            fn $family() {
                meets(stringify!($family));
            }
        )*
    };
}

families!(opcodes headers requests talks responses network);
