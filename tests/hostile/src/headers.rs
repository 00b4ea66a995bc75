// SPDX-License-Identifier: GPL-2.0

//! Every bit of perfect packets, from the IP header to the ICRC, turned on the way: what routers may
//! change makes no difference, all else drops the packet under one reason.

use crate::attack::{Attack, Talk};
use crate::case::Fate;
use crate::frame::{internet_checksum, Ib, ETHERNET};
use crate::model::Service;
use crate::Result;

const UDP: usize = 8;

/// Requests that leave the queue pair as it is, as often as they come.
const PACKETS: [(&str, u8, usize); 10] = [
    ("rts", 0x06, 256),
    ("rts", 0x0a, 8),
    ("rts", 0x0c, 0),
    ("rts", 0x13, 0),
    ("rts", 0x14, 0),
    ("rts", 0x1d, 8),
    ("rts-flush", 0x1c, 0),
    ("uc", 0x26, 256),
    ("uc", 0x2a, 7),
    ("ud", 0x64, 10),
];

pub fn run(a: &mut Attack) -> Result<()> {
    for (kind, opcode, len) in PACKETS {
        let bytes = (if a.hosts.v6 { 40 } else { 20 }) + UDP + 12 + 28 + len + 4;
        // Each bit has its own queue pair, so that what it does shows.
        let bits: Vec<usize> = (0..8 * bytes).collect();
        let rw = a.target.regions()["rw"];
        a.each(kind, bits, |talk, &bit| {
            let promised = len as u32 + u32::from(matches!(opcode, 0x06 | 0x26));
            let ib = Ib::new(opcode, talk.qp.qpn, talk.qp.rq_psn)
                .with_headers((rw.at.next_multiple_of(8), rw.rkey, promised))
                .with_payload(len);
            turn(talk, Service::of(kind), &ib, bit);
        })?;
    }
    Ok(())
}

/// The frame with one bit turned, unless that is one which the kernel judges.
fn turn(talk: &mut Talk, service: Service, ib: &Ib, bit: usize) {
    let mut frame = talk.outer.frame(&ib.bytes());
    let at = ETHERNET + bit / 8;
    let Some(byte) = frame.get_mut(at) else {
        return;
    };
    *byte ^= 1 << (bit % 8);
    let v6 = talk.outer.v6;
    let ip_len = if v6 { 40 } else { 20 };
    if !v6 {
        // As a router does.
        let ip = &mut frame[ETHERNET..][..ip_len];
        ip[10..12].fill(0);
        let sum = internet_checksum(&[ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let bth = &frame[ETHERNET + ip_len + UDP..];
    let (opcode, flags, total) = (bth[0], bth[1], bth.len());
    let form = service.form(opcode, flags & 0xf, ((flags >> 4) & 3).into(), total);
    let damaged = Fate::Drop("drop_icrc");
    let mask = 1u8 << (bit % 8);
    let fate = match (at - ETHERNET, v6) {
        // Type of service, time to live; class, flow label, hop limit.
        (1 | 8, false) | (1..=3 | 7, true) => None,
        (0, true) if mask < 0x10 => None,
        // Where it comes from: the kernel drops some of these for what they are.
        (12..=15, false) | (8..=23, true) => Some(Fate::Perhaps("drop_icrc")),
        // The identification, and that it is not to be fragmented.
        (4 | 5, false) => Some(damaged),
        (6, false) if mask == 0x40 => Some(damaged),
        // Version, lengths, protocol, the checksum itself, where it goes.
        (n, _) if n < ip_len => return,
        (n, _) => match n - ip_len {
            0 | 1 => Some(damaged),
            2..=7 => return,
            // Form comes before the ICRC, and the P_Key between them; the upper bit of a P_Key
            // tells full members.
            8 | 9 => Some(form.err().unwrap_or(damaged)),
            10 | 11 if (n - ip_len, mask) == (10, 0x80) => Some(damaged),
            10 | 11 => Some(Fate::Drop("drop_pkey")),
            12 => None,
            13..=15 => {
                let number = u32::from_be_bytes([0, bth[5], bth[6], bth[7]]);
                match number {
                    // The management queue pair checks for itself.
                    1 => return,
                    _ if talk.known.contains(&number) => Some(damaged),
                    _ => Some(Fate::Drop("drop_unknown_qp")),
                }
            }
            _ => Some(damaged),
        },
    };
    talk.name = format!("{opcode:#04x}, bit {} of byte {}", bit % 8, at - ETHERNET);
    let fate = fate.unwrap_or_else(|| talk.model.request(ib));
    talk.frames.push((frame, fate));
}
