// SPDX-License-Identifier: GPL-2.0

//! hostile_packets KEY=VALUE... FAMILY...: attacks queue pairs of `hostile_victim`.
//!
//! A family is a set of attacks; each frame has a fate that is known before it is sent. All that
//! can be seen of it is judged: what the victim answers, under which counter each packet went,
//! states, completions, and every byte of the victim's memory. The seed decides all that is by
//! chance.

mod answer;
mod attack;
mod counters;
mod flood;
mod frame;
mod link;
mod mad;
mod memory;
mod model;
mod network;
mod opcodes;
mod random;
mod responses;
mod sequence;
mod unreliable;
mod victim;
mod windows;

use attack::Attack;
use counters::Counters;
use frame::Hosts;
use link::Link;
use random::Random;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Instant;
use victim::{Result, Victim};

type Family = fn(&mut Attack) -> Result<()>;

const FAMILIES: &[(&str, Family)] = &[
    ("opcodes", opcodes::run),
    ("sequence", sequence::run),
    ("ranges", memory::ranges),
    ("reads-again", memory::reads_again),
    ("responses", responses::run),
    ("network", network::run),
    ("windows", windows::run),
    ("unreliable", unreliable::run),
];

/// The words of the command line.
pub struct Words(BTreeMap<String, String>);

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
        let bytes: Vec<u8> = text
            .split(':')
            .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect();
        bytes
            .try_into()
            .map_err(|_| format!("{key}={text}: no MAC"))
    }
}

fn run() -> Result<()> {
    let (words, families): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|word| word.contains('='));
    let words = Words(
        words
            .iter()
            .filter_map(|word| word.split_once('='))
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
    let ip = if hosts.v6 { "ipv6" } else { "ipv4" };
    println!("seed {seed}, over {ip}");
    let netdev = words.text("netdev")?;
    let link = Link::open(netdev).map_err(|e| format!("{netdev}: {e}"))?;
    if let [flood] = &families[..] {
        let datagrams = flood == "flood-of-datagrams";
        if datagrams || flood == "flood" {
            let targets = words.text("targets")?;
            return flood::run(
                &link,
                &hosts,
                Random::new(seed),
                targets,
                datagrams,
                words.number("count")?,
            );
        }
    }
    let patience = words.number("patience")? as u32;
    if let [family] = &families[..] {
        if let Some((_, run)) = mad::FAMILIES.iter().find(|(n, _)| n == family) {
            let counters = Counters::new(words.text("counters")?, patience)?;
            let mut mads = mad::Mads::new(&link, &hosts, counters, Random::new(seed), patience);
            run(&mut mads).map_err(|e| format!("{family}: {e}"))?;
            println!("{family} {ip}: {}", mads.told());
            return Ok(());
        }
    }
    let mut attack = Attack::new(
        hosts,
        Victim::connect(words.text("control")?)?,
        Random::new(seed),
        link,
        Counters::new(words.text("counters")?, patience)?,
        (words.number("short")? != 0, patience),
    );
    for name in &families {
        let family = FAMILIES.iter().find(|(n, _)| n == name);
        let (_, run) = family.ok_or_else(|| format!("no family {name}"))?;
        let began = Instant::now();
        (attack.sent, attack.answered) = (0, 0);
        run(&mut attack).map_err(|e| format!("{name}: {e}"))?;
        println!(
            "{name} {ip}: {} packets sent, {} answered, {:.1} s",
            attack.sent,
            attack.answered,
            began.elapsed().as_secs_f32()
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            println!("failed: {what}");
            ExitCode::FAILURE
        }
    }
}
