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

/// The words of the command line.
struct Words(BTreeMap<String, String>);

impl Words {
    fn text(&self, key: &str) -> Result<&str> {
        let value = self.0.get(key);
        value
            .map(String::as_str)
            .ok_or_else(|| format!("{key}= is missing"))
    }

    fn number(&self, key: &str) -> Result<u64> {
        let text = self.text(key)?;
        text.parse().map_err(|_| format!("{key}={text}: no number"))
    }

    fn address(&self, key: &str) -> Result<[u8; 16]> {
        let text = self.text(key)?;
        let mut bytes = [0; 16];
        match text.parse() {
            Ok(IpAddr::V4(address)) => bytes[..4].copy_from_slice(&address.octets()),
            Ok(IpAddr::V6(address)) => bytes = address.octets(),
            Err(e) => return Err(format!("{key}={text}: {e}")),
        }
        Ok(bytes)
    }

    fn mac(&self, key: &str) -> Result<[u8; 6]> {
        let text = self.text(key)?;
        let byte = |byte| u8::from_str_radix(byte, 16).ok();
        let bytes: Vec<u8> = text.split(':').filter_map(byte).collect();
        bytes
            .try_into()
            .map_err(|_| format!("{key}={text}: no MAC"))
    }
}

fn run() -> Result<()> {
    let (words, families): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.contains('='));
    let words = words.iter().filter_map(|word| word.split_once('='));
    let words = Words(
        words
            .map(|(key, value)| (key.into(), value.into()))
            .collect(),
    );
    let hosts = Hosts {
        v6: words.text("us")?.contains(':'),
        our_mac: words.mac("our-mac")?,
        victim_mac: words.mac("victim-mac")?,
        us: words.address("us")?,
        victim: words.address("victim")?,
        victim_too: words.address("victim-too")?,
        other: words.address("other")?,
    };
    let seed = words.number("seed")?;
    let wire = Wire::new()?;
    let one_of = words.number("one-of")?;
    let random = Dice::of(&[seed]);
    let mut attack = Attack::new(Box::new(wire), hosts, random, one_of);
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
