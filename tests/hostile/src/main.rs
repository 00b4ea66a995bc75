// SPDX-License-Identifier: GPL-2.0

//! hostile_packets KEY=VALUE... FAMILY...: attacks queue pairs of `victim.py` by the wire.

mod wire;

use ferroce_hostile::attack::Attack;
use ferroce_hostile::dice::Dice;
use ferroce_hostile::frame::Hosts;
use ferroce_hostile::Result;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use wire::Wire;

fn run() -> Result<()> {
    let (words, families): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.contains('='));
    let words: BTreeMap<&str, &str> = (words.iter())
        .filter_map(|word| word.split_once('='))
        .collect();
    let word = |key: &str| {
        let value = words.get(key).copied();
        value.ok_or_else(|| format!("{key}= is missing"))
    };
    let number = |key| -> Result<u64> { word(key)?.parse().map_err(|e| format!("{key}: {e}")) };
    let address = |key| -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        match word(key)?.parse() {
            Ok(IpAddr::V4(address)) => bytes[..4].copy_from_slice(&address.octets()),
            Ok(IpAddr::V6(address)) => bytes = address.octets(),
            Err(e) => return Err(format!("{key}: {e}")),
        }
        Ok(bytes)
    };
    let mac = |key| -> Result<[u8; 6]> {
        let byte = |byte| u8::from_str_radix(byte, 16).ok();
        let bytes: Vec<u8> = word(key)?.split(':').filter_map(byte).collect();
        bytes.try_into().map_err(|_| format!("{key}: no MAC"))
    };
    let hosts = Hosts {
        v6: word("us")?.contains(':'),
        our_mac: mac("our-mac")?,
        victim_mac: mac("victim-mac")?,
        us: address("us")?,
        victim: address("victim")?,
        victim_too: address("victim-too")?,
        other: address("other")?,
    };
    let (random, one_of) = (Dice::of(&[number("seed")?]), number("one-of")?);
    let mut attack = Attack::new(Box::new(Wire::new()?), hosts, random, one_of);
    for name in &families {
        println!("said {}", ferroce_hostile::run(&mut attack, name)?);
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("failed {what}");
            ExitCode::FAILURE
        }
    }
}
