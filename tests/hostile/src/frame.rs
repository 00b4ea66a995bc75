// SPDX-License-Identifier: GPL-2.0

//! Frames as bytes: whatever a field can hold, it can be told to hold.
//!
//! The headers of ferroce-core cannot say what is wrong on purpose, so they are laid out here anew.

use crate::model::{NOTIFICATION, QKEY};
use ferroce_core::wire::icrc::{self, Crc32, SoftCrc32};
use ferroce_core::wire::packet::{pad_for, Headers, MAX_HEADERS};

/// What stands between the UDP header and the ICRC.
#[derive(Clone, Debug, Default)]
pub struct Ib {
    /// Any of the 256.
    pub opcode: u8,
    /// Solicited (0x80), MigReq (0x40), version (low four bits); the pad count is apart.
    pub flags: u8,
    pub pad: u8,
    pub pkey: u16,
    /// FECN, BECN and six reserved bits.
    pub congestion: u8,
    pub qpn: u32,
    /// AckReq (0x80) and seven reserved bits.
    pub ack: u8,
    pub psn: u32,
    /// Q_Key, number of the sender.
    pub deth: Option<(u32, u32)>,
    /// Placement type and selectivity.
    pub feth: Option<u32>,
    /// Address, key, length.
    pub reth: Option<(u64, u32, u32)>,
    /// Address, key, what to put there or to add, what to compare with.
    pub atomic: Option<(u64, u32, u64, u64)>,
    /// Syndrome, MSN.
    pub aeth: Option<(u8, u32)>,
    pub imm: Option<u32>,
    /// What was there before.
    pub original: Option<u64>,
    pub payload: Vec<u8>,
}

impl Ib {
    /// A packet without extended headers and payload that asks for an acknowledgement.
    pub fn new(opcode: u8, qpn: u32, psn: u32) -> Self {
        Self {
            opcode,
            flags: 0x40,
            pkey: 0xffff,
            // A notification says what its opcode says.
            congestion: if opcode == NOTIFICATION { 0x40 } else { 0 },
            qpn,
            ack: 0x80,
            psn,
            ..Self::default()
        }
    }

    /// The extended headers that the opcode has, as the standard says, with values that fit. An
    /// atomic operation leaves memory as it is: what it did is seen by its answer.
    pub fn with_headers(mut self, reth: (u64, u32, u32)) -> Self {
        // What UC has looks as on RC.
        let connected = match self.opcode {
            0x20..=0x2b => self.opcode & 0x1f,
            opcode => opcode,
        };
        self.deth = matches!(self.opcode, 0x64 | 0x65).then_some((QKEY, 0x7654));
        let (has_reth, has_aeth, has_imm) = match connected {
            0x06 | 0x0a | 0x0c | 0x1c | 0x1d => (true, false, false),
            0x0b => (true, false, true),
            // Two of them have a key to be invalidated in that place.
            0x03 | 0x05 | 0x09 | 0x16 | 0x17 | 0x65 => (false, false, true),
            0x0d | 0x0f..=0x12 | 0xc0 => (false, true, false),
            _ => (false, false, false),
        };
        self.reth = has_reth.then_some(reth);
        // To where all see it, of a range.
        self.feth = (self.opcode == 0x1c).then_some(1);
        self.aeth = has_aeth.then_some((0x1f, 1));
        self.imm = has_imm.then_some(0x1357_9bdf);
        let fill = u64::from_ne_bytes([FILL; 8]);
        self.atomic = match self.opcode {
            0x13 => Some((reth.0, reth.1, fill, fill)),
            0x14 => Some((reth.0, reth.1, 0, fill)),
            _ => None,
        };
        self.original = (self.opcode == 0x12).then_some(fill);
        self
    }

    /// `len` bytes of payload that no region of the victim has, and the padding that fits.
    pub fn with_payload(mut self, len: usize) -> Self {
        self.payload = vec![FILL; len];
        self.pad = (len.wrapping_neg() & 3) as u8;
        self
    }

    /// The bytes, padding included, without the ICRC.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.opcode, self.flags | ((self.pad & 3) << 4)];
        out.extend(self.pkey.to_be_bytes());
        out.push(self.congestion);
        out.extend(&self.qpn.to_be_bytes()[1..]);
        out.push(self.ack);
        out.extend(&self.psn.to_be_bytes()[1..]);
        if let Some((qkey, source)) = self.deth {
            out.extend(qkey.to_be_bytes());
            out.extend((source & 0xff_ffff).to_be_bytes());
        }
        if let Some(feth) = self.feth {
            out.extend(feth.to_be_bytes());
        }
        if let Some((va, rkey, len)) = self.reth {
            out.extend(va.to_be_bytes());
            out.extend(rkey.to_be_bytes());
            out.extend(len.to_be_bytes());
        }
        if let Some((va, rkey, swap_add, compare)) = self.atomic {
            out.extend(va.to_be_bytes());
            out.extend(rkey.to_be_bytes());
            out.extend(swap_add.to_be_bytes());
            out.extend(compare.to_be_bytes());
        }
        if let Some((syndrome, msn)) = self.aeth {
            out.push(syndrome);
            out.extend(&msn.to_be_bytes()[1..]);
        }
        if let Some(imm) = self.imm {
            out.extend(imm.to_be_bytes());
        }
        if let Some(original) = self.original {
            out.extend(original.to_be_bytes());
        }
        if self.opcode == NOTIFICATION {
            out.extend([0; 16]);
        }
        out.extend(&self.payload);
        out.extend(vec![0; usize::from(self.pad)]);
        out
    }
}

/// Headers as the driver writes them, a payload and its padding, without the ICRC.
///
/// # Panics
///
/// If the headers do not fit their opcode.
pub fn emitted(mut headers: Headers, payload: &[u8]) -> Vec<u8> {
    headers.pad = pad_for(payload.len());
    let mut head = [0; MAX_HEADERS];
    let len = headers.emit(&mut head).expect("the headers fit the opcode");
    [&head[..len], payload, &[0; 3][..headers.pad.into()]].concat()
}

/// What this program writes everywhere it may: below 128, as all that may be read is.
pub const FILL: u8 = 0x2a;

/// The machines on the wire. An IPv4 address stands in the first four bytes.
#[derive(Clone, Copy)]
pub struct Hosts {
    pub v6: bool,
    pub our_mac: [u8; 6],
    pub victim_mac: [u8; 6],
    /// Whom the victim's queue pairs believe to talk to.
    pub us: [u8; 16],
    pub victim: [u8; 16],
    /// Another address of the victim's netdev.
    pub victim_too: [u8; 16],
    /// The peer of those queue pairs that are not ours.
    pub other: [u8; 16],
}

impl Hosts {
    /// Hosts of one network, numbered in the order of their fields.
    pub fn numbered(v6: bool) -> Self {
        let host = |last| {
            let mut address = [0xfd; 16];
            address[if v6 { 15 } else { 3 }] = last;
            address
        };
        Self {
            v6,
            our_mac: [2; 6],
            victim_mac: [4; 6],
            us: host(1),
            victim: host(2),
            victim_too: host(3),
            other: host(4),
        }
    }
}

/// Bytes of an Ethernet header without a tag.
pub const ETHERNET: usize = 14;

/// Everything around the IB packet.
#[derive(Clone, Default)]
pub struct Outer {
    pub v6: bool,
    pub from_mac: [u8; 6],
    pub to_mac: [u8; 6],
    pub from: [u8; 16],
    pub to: [u8; 16],
    pub source_port: u16,
    pub ttl: u8,
    pub class: u8,
    pub flow: u32,
    pub id: u16,
    /// The IPv4 field of flags and fragment offset.
    pub fragment: u16,
    /// IPv4 options; a multiple of four bytes.
    pub options: Vec<u8>,
    /// An IPv6 extension header: its number and its bytes, of which the first is filled in.
    pub extension: Option<(u8, Vec<u8>)>,
    /// Added to the true UDP length.
    pub udp_len: i32,
    /// Whether there is a UDP checksum.
    pub checksum: bool,
    pub vlan: Option<u16>,
    /// Bytes behind the UDP datagram, inside the IP packet.
    pub behind_udp: usize,
    /// Bytes behind the IP packet.
    pub behind_ip: usize,
    /// Whether there is an ICRC.
    pub icrc: bool,
    /// Changes the ICRC.
    pub icrc_error: u32,
}

impl Outer {
    /// From us to the victim, and all as it should be.
    pub fn new(hosts: &Hosts) -> Self {
        Self {
            v6: hosts.v6,
            from_mac: hosts.our_mac,
            to_mac: hosts.victim_mac,
            from: hosts.us,
            to: hosts.victim,
            source_port: 0xc123,
            ttl: 64,
            fragment: 0x4000,
            icrc: true,
            ..Self::default()
        }
    }

    /// The frame with this IB packet, and its ICRC behind it.
    pub fn frame(&self, ib: &[u8]) -> Vec<u8> {
        let udp_len = 8 + ib.len() + if self.icrc { 4 } else { 0 };
        let mut udp = Vec::from(self.source_port.to_be_bytes());
        udp.extend(4791u16.to_be_bytes());
        udp.extend(((udp_len as i32 + self.udp_len) as u16).to_be_bytes());
        udp.extend([0, 0]);
        let extension = self.extension.as_ref().map_or(0, |(_, bytes)| bytes.len());
        let ip = self.ip(udp_len + self.behind_udp + extension + self.options.len());
        udp.extend(ib);
        if self.icrc {
            let icrc = u32::from_le_bytes(icrc_of(&ip, &udp)) ^ self.icrc_error;
            udp.extend(icrc.to_le_bytes());
        }
        if self.checksum {
            let sum = match self.udp_checksum(&udp) {
                0 => 0xffff,
                sum => sum,
            };
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let mut out = Vec::from(self.to_mac);
        out.extend(self.from_mac);
        if let Some(vlan) = self.vlan {
            out.extend([0x81, 0]);
            out.extend(vlan.to_be_bytes());
        }
        out.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        out.extend(ip);
        out.extend(&self.options);
        if let Some((_, bytes)) = &self.extension {
            out.push(17);
            out.extend(&bytes[1..]);
        }
        out.extend(udp);
        out.extend(vec![0x5a; self.behind_udp + self.behind_ip]);
        out
    }

    /// The IP header, for `len` bytes behind its fixed part.
    fn ip(&self, len: usize) -> Vec<u8> {
        if self.v6 {
            let word = (6 << 28) | (u32::from(self.class) << 20) | (self.flow & 0xf_ffff);
            let mut ip = Vec::from(word.to_be_bytes());
            ip.extend((len as u16).to_be_bytes());
            ip.push(self.extension.as_ref().map_or(17, |(number, _)| *number));
            ip.push(self.ttl);
            ip.extend(self.from);
            ip.extend(self.to);
            return ip;
        }
        let words = 5 + self.options.len() / 4;
        let mut ip = vec![0x40 | words as u8, self.class];
        ip.extend(((20 + len) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, 17, 0, 0]);
        ip.extend(&self.from[..4]);
        ip.extend(&self.to[..4]);
        let sum = internet_checksum(&[&ip, &self.options]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip
    }

    fn udp_checksum(&self, udp: &[u8]) -> u16 {
        let len = (udp.len() as u32).to_be_bytes();
        let bytes = if self.v6 { 16 } else { 4 };
        internet_checksum(&[&self.from[..bytes], &self.to[..bytes], &len, &[0, 17], udp])
    }
}

/// RFC 1071. Every part but the last has an even length.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += (u32::from(pair[0]) << 8) | u32::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The ICRC of an IP header and what follows from the UDP header to the padding.
pub fn icrc_of(ip: &[u8], udp: &[u8]) -> [u8; 4] {
    let (udp, ib) = udp.split_at(8);
    let (bth, rest) = ib.split_at(12);
    let udp = udp.try_into().unwrap();
    let bth = bth.try_into().unwrap();
    let crc = match <&[u8; 20]>::try_from(ip) {
        Ok(ip) => SoftCrc32.update(icrc::SEED, &icrc::masked_prefix_v4(ip, udp, bth)),
        Err(_) => {
            let ip = ip.try_into().unwrap();
            SoftCrc32.update(icrc::SEED, &icrc::masked_prefix_v6(ip, udp, bth))
        }
    };
    icrc::finish(SoftCrc32.update(crc, rest))
}
