// SPDX-License-Identifier: GPL-2.0

//! Every opcode, every length from nothing to the headers and 64 bytes, every pad count; to queue
//! pairs of all kinds and to numbers that nobody has. Nothing of it is answered or executed.

use crate::attack::Attack;
use crate::counters::Fate;
use crate::frame::{Hosts, Ib, Outer, FILL};
use crate::model::{form, headers_len, is_response};
use crate::victim::{Qp, Result, State};

/// A PSN that is older than the connection of the queue pair.
fn old_psn(qp: &Qp, opcode: u8) -> u32 {
    let first = if is_response(opcode) {
        qp.sq_psn
    } else {
        qp.rq_psn
    };
    first.wrapping_sub(5000) & 0xff_ffff
}

/// The frame of `total` bytes behind the UDP header.
fn frame(outer: &Outer, opcode: u8, pad: u8, (qpn, psn): (u32, u32), total: usize) -> Vec<u8> {
    let mut ib = Ib::new(opcode, qpn, psn).with_headers((0x1000, 0x1234, 64));
    ib.flags |= pad << 4;
    let mut bytes = ib.bytes();
    let mut outer = outer.clone();
    // Below that there is no room for an ICRC.
    outer.icrc = total >= 16;
    bytes.resize(bytes.len().max(total), FILL);
    bytes.truncate(if outer.icrc { total - 4 } else { total });
    outer.frame(&bytes)
}

/// Every opcode and every length, with these pad counts; of long packets in a hurry only those of
/// whole words.
fn every(
    short: bool,
    pads: &[u8],
    mut what: impl FnMut(u8, u8, usize) -> Result<()>,
) -> Result<()> {
    for opcode in 0..=u8::MAX {
        for total in 0..=headers_len(opcode).unwrap_or(12) + 4 + 64 {
            if short && total > 16 && total % 4 != 0 {
                continue;
            }
            for pad in pads {
                what(opcode, *pad, total)?;
            }
        }
    }
    Ok(())
}

/// What becomes of a packet of this form: `sound` if that is as it should be.
fn fate(opcode: u8, pad: u8, total: usize, sound: Fate) -> Fate {
    match form(opcode, 0, pad.into(), total) {
        Err(reason) => Fate::Drop(reason),
        Ok(_) => sound,
    }
}

pub fn run(a: &mut Attack) -> Result<()> {
    let hosts = a.hosts;
    let short = a.short;
    let pads: &[u8] = if short { &[0, 3] } else { &[0, 1, 2, 3] };
    let outer = Outer::new(&hosts);

    // From the peer, with a right ICRC: the PSN is all that is not right, and the form.
    a.bombard("rts", State::Rts, |qp, _, send| {
        every(short, pads, |opcode, pad, total| {
            let sound = if is_response(opcode) {
                Fate::Received(&["stale_response"])
            } else {
                Fate::Received(&["ignored_request"])
            };
            let psn = old_psn(qp, opcode);
            send(
                frame(&outer, opcode, pad, (qp.qpn, psn), total),
                fate(opcode, pad, total, sound),
            )
        })
    })?;
    wrong_icrc(a, &hosts)?;

    // With the PSN that is expected, from an address that is not the peer's.
    a.bombard("rts-stranger", State::Rts, |qp, _, send| {
        every(short, &[0], |opcode, pad, total| {
            send(
                frame(&outer, opcode, pad, (qp.qpn, qp.rq_psn), total),
                fate(opcode, pad, total, Fate::Drop("drop_address")),
            )
        })
    })?;

    // In states that take nothing, or no responses.
    for (kind, state) in [
        ("reset", State::Reset),
        ("init", State::Init),
        ("rtr", State::Rtr),
        ("err", State::Err),
    ] {
        a.bombard(kind, state, |qp, _, send| {
            every(short, &[0], |opcode, pad, total| {
                let sound = if kind == "rtr" && !is_response(opcode) {
                    Fate::Received(&["ignored_request"])
                } else {
                    Fate::Drop("drop_state")
                };
                let psn = old_psn(qp, opcode);
                send(
                    frame(&outer, opcode, pad, (qp.qpn, psn), total),
                    fate(opcode, pad, total, sound),
                )
            })
        })?;
    }

    // To nobody, to the management queue pair that no device has and to the number of multicasts.
    a.bombard("rts", State::Rts, |qp, random, send| {
        for qpn in [0, 0xff_ffff, qp.qpn ^ 1, random.psn() ^ 0x80_0000] {
            if qpn == qp.qpn {
                continue;
            }
            every(short, &[0], |opcode, pad, total| {
                let fate = if total < 12 {
                    Fate::Drop("drop_malformed")
                } else {
                    Fate::Drop("drop_unknown_qp")
                };
                send(frame(&outer, opcode, pad, (qpn, qp.rq_psn), total), fate)
            })?;
        }
        Ok(())
    })
}

/// With the PSN that is expected, from the peer, and with bits of the ICRC turned.
fn wrong_icrc(a: &mut Attack, hosts: &Hosts) -> Result<()> {
    let outer = Outer::new(hosts);
    let short = a.short;
    a.bombard("rts", State::Rts, |qp, random, send| {
        every(short, &[0], |opcode, pad, total| {
            let mut outer = outer.clone();
            outer.icrc_error = match random.below(4) {
                0 => 1 << random.below(32),
                1 => u32::MAX,
                _ => random.next() as u32 | 1,
            };
            send(
                frame(&outer, opcode, pad, (qp.qpn, qp.rq_psn), total),
                fate(opcode, pad, total, Fate::Drop("drop_icrc")),
            )
        })
    })
}
