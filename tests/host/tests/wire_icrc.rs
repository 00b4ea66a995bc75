// SPDX-License-Identifier: GPL-2.0

//! Parser, emitter and ICRC against the packets of an independent implementation.
//!
//! `vectors/roce.txt` is what `vectors/make_vectors.py` had scapy build.

use ferroce_core::wire::icrc::{finish, is_plain_ipv4, masked_prefix_v4, masked_prefix_v6};
use ferroce_core::wire::icrc::{Crc32, SoftCrc32, SEED};
use ferroce_core::wire::packet::{parse, Headers, MAX_HEADERS};
use ferroce_core::wire::ICRC_LEN;
use ferroce_host_tests::ip::{ipv4, ipv6};
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

    /// IP header, UDP header, and all that is behind them.
    fn split(&self) -> (&[u8], &[u8; 8], &[u8]) {
        let (ip, rest) = self.bytes.split_at(self.ip_len());
        let (udp, rest) = rest.split_first_chunk().unwrap();
        (ip, udp, rest)
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
    let (udp, rest) = rest.split_first_chunk().unwrap();
    let (bth, rest) = rest.split_first_chunk().unwrap();
    let crc = if v6 {
        let prefix = masked_prefix_v6(ip.try_into().unwrap(), udp, bth);
        SoftCrc32.update(SEED, &prefix)
    } else {
        assert!(is_plain_ipv4(ip[0]));
        let prefix = masked_prefix_v4(ip.try_into().unwrap(), udp, bth);
        SoftCrc32.update(SEED, &prefix)
    };
    finish(SoftCrc32.update(crc, rest))
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
        let (_, _, roce) = vector.split();
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
    let mut emitted = 0;
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
        let (ip, _, roce) = vector.split();
        let packet = parse(roce, roce.len()).unwrap();

        let (tos, ttl) = (asked("tos") as u8, asked("ttl") as u8);
        let (port, len) = (asked("sport") as u16, roce.len());
        let mut out = if vector.v6 {
            let from = ip[8..24].try_into().unwrap();
            let to = ip[24..].try_into().unwrap();
            ipv6(from, to, (tos, asked("flow") as u32), ttl, port, len)
        } else {
            let from = ip[12..16].try_into().unwrap();
            let to = ip[16..].try_into().unwrap();
            ipv4(from, to, tos, ttl, port, len)
        };
        let mut headers = [0; MAX_HEADERS];
        let headers_len = Headers::from(&packet).emit(&mut headers).unwrap();
        out.extend(&headers[..headers_len]);
        out.extend(&roce[packet.payload_offset..][..packet.payload_len]);
        out.extend([0; 3][..packet.pad.into()].iter());
        out.extend(icrc(vector.v6, &out));
        assert_eq!(out, vector.bytes, "line {}", vector.line);
        emitted += 1;
    }
    assert!(emitted > 80, "{emitted}");
}
