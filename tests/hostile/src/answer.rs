// SPDX-License-Identifier: GPL-2.0

//! What comes back from the victim. Whatever it is about, it must be a proper packet, to the peer
//! of the queue pair and nobody else, and carry nothing that is secret.

use crate::frame::{icrc_of, Hosts};
use crate::model::NOTIFICATION;
use crate::Result;

/// A packet of the victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything up to the PSN was accepted.
    Ack { psn: u32 },
    /// There is no receive.
    Rnr { psn: u32 },
    /// Refused, with the code of the NAK.
    Nak { psn: u32, code: u8 },
    /// A piece of a READ, with its bytes.
    Read { opcode: u8, psn: u32, len: usize },
    /// What was there before an atomic operation.
    Original { psn: u32 },
    /// A request of the victim itself.
    Request { opcode: u8, psn: u32, len: usize },
}

impl Answer {
    /// How it is called where it is counted what was provoked.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Ack { .. } => "ACK",
            Answer::Rnr { .. } => "RNR NAK",
            Answer::Nak { code, .. } => ["NAK 0", "NAK 1", "NAK 2"]
                .get(usize::from(*code))
                .unwrap_or(&"another NAK"),
            Answer::Read { .. } => "READ response",
            Answer::Original { .. } => "original",
            Answer::Request { .. } => "request",
        }
    }
}

/// The NAK codes of IBTA 9.7.5.2.
pub const PSN_SEQUENCE: u8 = 0;
pub const INVALID_REQUEST: u8 = 1;
pub const REMOTE_ACCESS: u8 = 2;

/// The queue pair that a frame is for, and what it says; `None` if it is no packet of the victim,
/// or one that answers a mark of the network.
pub fn read(frame: &[u8], hosts: &Hosts) -> Result<Option<(u32, Answer)>> {
    let Some((ip, udp)) = from_victim(frame, hosts)? else {
        return Ok(None);
    };
    judge(ip, udp).map_err(|what| {
        let (len, head) = (frame.len(), &frame[..frame.len().min(100)]);
        format!("the victim sent {what}: {len} bytes that begin {head:02x?}")
    })
}

/// The IP header of a frame, and what follows from the UDP header on; `None` if it is no packet of
/// the victim.
fn from_victim<'f>(frame: &'f [u8], hosts: &Hosts) -> Result<Option<(&'f [u8], &'f [u8])>> {
    let (header, len) = if hosts.v6 { (14, 40) } else { (14, 20) };
    let Some(udp) = frame.get(header + len..) else {
        return Ok(None);
    };
    let ip = &frame[header..header + len];
    let kind: [u8; 2] = if hosts.v6 { [0x86, 0xdd] } else { [8, 0] };
    let protocol = if hosts.v6 { ip[6] } else { ip[9] };
    if frame[12..14] != kind || protocol != 17 || udp.len() < 8 || udp[2..4] != [0x12, 0xb7] {
        return Ok(None);
    }
    let bytes = if hosts.v6 { 16 } else { 4 };
    let (from, to) = ip[len - 2 * bytes..].split_at(bytes);
    if from != &hosts.victim[..bytes] {
        return Ok(None);
    }
    let udp_len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let Some(udp) = udp.get(..udp_len) else {
        return Err(format!(
            "the victim sent a datagram cut short: {frame:02x?}"
        ));
    };
    if to != &hosts.us[..bytes] {
        return Err(format!("the victim wrote to a stranger: {frame:02x?}"));
    }
    Ok(Some((ip, udp)))
}

fn judge(ip: &[u8], udp: &[u8]) -> std::result::Result<Option<(u32, Answer)>, &'static str> {
    if udp.len() < 8 + 12 + 4 {
        return Err("less than a packet");
    }
    let (covered, icrc) = udp.split_at(udp.len() - 4);
    if icrc_of(ip, covered) != icrc {
        return Err("a wrong ICRC");
    }
    let (bth, rest) = covered[8..].split_at(12);
    let word = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
    let (opcode, qpn, psn) = (bth[0], word(5), word(9));
    if opcode == NOTIFICATION {
        let is_sound = bth[4] == 0x40 && psn == 0 && rest == [0; 16];
        return is_sound.then_some(None).ok_or("a strange notification");
    }
    let (reth, aeth) = match opcode {
        0x06 | 0x0a | 0x0c => (16, 0),
        // Of an AtomicAckETH the 8 bytes are for us what others have as payload.
        0x0d | 0x0f..=0x12 => (0, 4),
        0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0e => (0, 0),
        _ => return Err("an opcode that it has no reason to send"),
    };
    let pad = usize::from((bth[1] >> 4) & 3);
    if rest.len() < reth + aeth + pad || bth[1] & 0x0f != 0 || bth[2..4] != [0xff, 0xff] {
        return Err("malformed headers");
    }
    let (payload, padding) = rest[reth + aeth..].split_at(rest.len() - reth - aeth - pad);
    if padding.iter().any(|byte| *byte != 0) {
        return Err("padding that is not zero");
    }
    // All that may leave the victim is below 128, all else is not.
    if payload.iter().any(|byte| *byte >= 0x80) {
        return Err("SECRET BYTES");
    }
    let len = payload.len();
    let answer = match (opcode, rest.first()) {
        (0x11, Some(syndrome)) if len == 0 => match syndrome >> 5 {
            0 => Answer::Ack { psn },
            1 => Answer::Rnr { psn },
            3 => Answer::Nak {
                psn,
                code: syndrome & 0x1f,
            },
            _ => return Err("a reserved syndrome"),
        },
        (0x0d..=0x10, _) => Answer::Read { opcode, psn, len },
        (0x12, _) if len == 8 => Answer::Original { psn },
        (0x12, _) => return Err("an original of another length"),
        (0x11, _) => return Err("an acknowledgement with payload"),
        _ => Answer::Request { opcode, psn, len },
    };
    Ok(Some((qpn, answer)))
}
