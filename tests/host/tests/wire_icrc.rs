// SPDX-License-Identifier: GPL-2.0

//! Parser, emitter and ICRC against the packets of an independent implementation.
//!
//! `vectors/roce.txt` is what `vectors/make_vectors.py` had scapy build.

use ferroce_core::wire::packet::{parse, Headers, MAX_HEADERS};
use ferroce_core::wire::ICRC_LEN;
use ferroce_hostile::frame::{emitted, icrc_of, Hosts, Outer, ETHERNET};
use std::collections::BTreeSet;
use std::collections::HashMap;

const FILE: &str = include_str!("../vectors/roce.txt");

/// A packet from the IP header to the ICRC, and what scapy was asked for.
struct Vector {
    line: usize,
    v6: bool,
    asked: HashMap<&'static str, u64>,
    bytes: Vec<u8>,
}

impl Vector {
    fn parse(line: usize, text: &'static str) -> Self {
        let mut words: Vec<_> = text.split(' ').collect();
        let hex = words.pop().unwrap();
        let bytes = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        let asked = words[1..]
            .iter()
            .map(|word| word.split_once("=0x").unwrap())
            .map(|(key, value)| (key, u64::from_str_radix(value, 16).unwrap()))
            .collect();
        let v6 = match words[0] {
            "v4" => false,
            "v6" => true,
            other => panic!("line {line}: {other}"),
        };
        Self {
            line,
            v6,
            asked,
            bytes,
        }
    }

    fn ip_len(&self) -> usize {
        if self.v6 {
            40
        } else {
            20
        }
    }

    /// What is behind the UDP header.
    fn roce(&self) -> &[u8] {
        &self.bytes[self.ip_len() + 8..]
    }

    /// An address, counted from the end of the IP header.
    fn address(&self, number: usize) -> [u8; 16] {
        let len = if self.v6 { 16 } else { 4 };
        let mut address = [0; 16];
        address[..len].copy_from_slice(&self.bytes[self.ip_len() - number * len..][..len]);
        address
    }

    fn asked(&self, key: &str) -> u64 {
        *self
            .asked
            .get(key)
            .unwrap_or_else(|| panic!("line {}: no {key}", self.line))
    }
}

fn vectors() -> Vec<Vector> {
    let lines = (1..).zip(FILE.lines());
    let vectors: Vec<_> = lines
        .filter(|(_, text)| !text.starts_with('#'))
        .map(|(line, text)| Vector::parse(line, text))
        .collect();
    // The file is whole: both families, every opcode, the lengths that matter.
    for v6 in [false, true] {
        let of = |key| -> BTreeSet<u64> {
            let family = vectors.iter().filter(|vector| vector.v6 == v6);
            family.map(|vector| vector.asked(key)).collect()
        };
        assert_eq!(of("opcode"), (0..=0x11).chain([0x81]).collect());
        let lengths: BTreeSet<u64> = (0..=8).chain([1024, 4095, 4096]).collect();
        assert!(of("payload").is_superset(&lengths));
        assert!(of("tos").contains(&0xff) && of("ttl").contains(&1));
    }
    vectors
}

/// The ICRC of a packet that is given from the IP header to the padding.
fn icrc(v6: bool, packet: &[u8]) -> [u8; ICRC_LEN] {
    let (ip, rest) = packet.split_at(if v6 { 40 } else { 20 });
    icrc_of(ip, rest)
}

#[test]
fn icrc_is_that_of_scapy() {
    for vector in vectors() {
        let (packet, expected) = vector.bytes.split_last_chunk().unwrap();
        assert_eq!(icrc(vector.v6, packet), *expected, "line {}", vector.line);
    }
}

/// Every bit of a packet in front of the ICRC: it counts, except those that vary on the way.
#[test]
fn icrc_covers_every_bit_that_does_not_vary() {
    for vector in vectors().iter().filter(|v| v.bytes.len() < 120) {
        let (packet, expected) = vector.bytes.split_last_chunk().unwrap();
        let udp = vector.ip_len();
        let mut varies = vec![0u8; packet.len()];
        let ones: &[usize] = if vector.v6 {
            varies[0] = 0x0f;
            &[1, 2, 3, 7]
        } else {
            &[1, 8, 10, 11]
        };
        for at in ones.iter().copied().chain([udp + 6, udp + 7, udp + 8 + 4]) {
            varies[at] = 0xff;
        }
        for (at, varies) in varies.iter().enumerate() {
            for bit in (0..8).map(|n| 1 << n) {
                // Another version or header length is not a packet that the prefix is made for.
                if at == 0 && !vector.v6 {
                    continue;
                }
                let mut changed = packet.to_vec();
                changed[at] ^= bit;
                let same = icrc(vector.v6, &changed) == *expected;
                assert_eq!(
                    same,
                    varies & bit != 0,
                    "line {} byte {at} bit {bit:#x}",
                    vector.line
                );
            }
        }
    }
}

#[test]
fn packets_parse_to_what_was_asked() {
    for vector in vectors() {
        let roce = vector.roce();
        let packet = parse(&roce[..roce.len().min(MAX_HEADERS)], roce.len()).unwrap();
        let asked = |key| vector.asked(key);
        assert_eq!(u64::from(packet.opcode.as_u8()), asked("opcode"));
        assert_eq!(u64::from(packet.solicited), asked("solicited"));
        assert_eq!(u64::from(packet.ack_req), asked("ackreq"));
        assert_eq!(u64::from(packet.migreq), asked("migreq"));
        assert_eq!(u64::from(packet.pkey), asked("pkey"));
        assert_eq!(u64::from(packet.dest_qpn), asked("dqpn"));
        assert_eq!(u64::from(packet.psn.get()), asked("psn"));
        assert_eq!(packet.payload_len as u64, asked("payload"));
        assert_eq!(
            packet.extension.reth().is_some(),
            vector.asked.contains_key("va")
        );
        if let Some(reth) = packet.extension.reth() {
            assert_eq!(reth.va(), asked("va"));
            assert_eq!(u64::from(reth.rkey()), asked("rkey"));
            assert_eq!(u64::from(reth.length()), asked("length"));
        }
        assert_eq!(
            packet.extension.aeth().is_some(),
            vector.asked.contains_key("msn")
        );
        if let Some(aeth) = packet.extension.aeth() {
            assert_eq!(u64::from(aeth.syndrome().encode()), asked("syndrome"));
            assert_eq!(u64::from(aeth.msn()), asked("msn"));
        }
        assert_eq!(
            packet.extension.imm().is_some(),
            vector.asked.contains_key("imm")
        );
        if let Some(imm) = packet.extension.imm() {
            assert_eq!(u64::from(u32::from_be_bytes(imm)), asked("imm"));
        }
        // The payload is where the packet says: the generator's pattern begins with 13, 180.
        let payload = &roce[packet.payload_offset..][..packet.payload_len];
        assert!([13, 180].starts_with(&payload[..payload.len().min(2)]));
    }
}

/// A sender that is given the same values writes the same bytes, from the IP header to the ICRC.
#[test]
fn packets_are_emitted_as_scapy_builds_them() {
    let mut same = 0;
    for vector in vectors() {
        let asked = |key| vector.asked(key);
        let is_notification = asked("opcode") == 0x81;
        let ours = ["chksum", "fecn", "resv6", "resv7", "id", "becn"];
        // In front of BECN: a notification has it by itself.
        let ours = &ours[..ours.len() - usize::from(is_notification)];
        if ours
            .iter()
            .any(|key| vector.asked.get(key).is_some_and(|value| *value != 0))
        {
            continue;
        }
        let roce = vector.roce();
        let packet = parse(roce, roce.len()).unwrap();
        let payload = &roce[packet.payload_offset..][..packet.payload_len];
        let outer = Outer {
            from: vector.address(2),
            to: vector.address(1),
            source_port: asked("sport") as u16,
            class: asked("tos") as u8,
            ttl: asked("ttl") as u8,
            flow: if vector.v6 { asked("flow") as u32 } else { 0 },
            ..Outer::new(&Hosts::numbered(vector.v6))
        };
        let frame = outer.frame(&emitted(Headers::from(&packet), payload));
        let out = &frame[ETHERNET..];
        assert_eq!(out, vector.bytes, "line {}", vector.line);
        same += 1;
    }
    assert!(same > 80, "{same}");
}
