// SPDX-License-Identifier: GPL-2.0

//! Every opcode, every length from nothing to the headers and 64 bytes and around the largest
//! payload, every pad count; to queue pairs of all kinds. Nothing of it is answered or executed.

use crate::attack::Attack;
use crate::case::{Fate, Qp, State};
use crate::dice::{Chance, Dice};
use crate::frame::{Ib, Outer, FILL};
use crate::model::{is_response, Service, NOTIFICATION};
use crate::Result;

const IGNORED: Fate = Fate::Received("ignored_request");
const STATE: Fate = Fate::Drop("drop_state");

/// Every opcode and every length, with these pad counts.
fn every(pads: &'static [u8]) -> impl Iterator<Item = (u8, u8, usize)> {
    (0..=u8::MAX).flat_map(move |opcode| {
        let headers = Service::with(opcode).and_then(|service| service.headers_len(opcode));
        let bare = headers.unwrap_or(12) + 4;
        // Long ones of those that somebody takes.
        let long = if headers.is_some() { 12 } else { 0 };
        let lens = (0..=bare + 64).chain((bare + 4090..).take(long));
        lens.flat_map(move |total| pads.iter().map(move |pad| (opcode, *pad, total)))
    })
}

/// The frame of `total` bytes behind the UDP header.
fn frame(outer: &Outer, (qpn, psn): (u32, u32), (opcode, pad, total): (u8, u8, usize)) -> Vec<u8> {
    let mut ib = Ib::new(opcode, qpn, psn).with_headers((0x1000, 0x1234, 64));
    ib.flags |= pad << 4;
    ib.deth = ib.deth.map(|(qkey, source)| (qkey ^ 0x10, source));
    let mut bytes = ib.bytes();
    let mut outer = outer.clone();
    // Below that there is no room for an ICRC.
    outer.icrc = total >= 16;
    bytes.resize(if outer.icrc { total - 4 } else { total }, FILL);
    outer.frame(&bytes)
}

/// Every packet to a queue pair of a kind; `sound` is the fate of one whose form is as it should be.
fn to(
    a: &mut Attack,
    (kind, state): (&str, State),
    pads: &'static [u8],
    sound: impl Fn(u8) -> Fate,
    spoil: impl Fn(&mut Outer, &Qp, &mut Dice, u8) -> u32,
) -> Result<()> {
    let service = Service::of(kind);
    let outer = Outer::new(&a.hosts);
    a.bombard(kind, state, every(pads), |qp, random, what| {
        let (opcode, pad, total) = what;
        let mut outer = outer.clone();
        let psn = spoil(&mut outer, qp, random, opcode) & 0xff_ffff;
        let form = service.form(opcode, 0, pad.into(), total);
        let fate = form.map_or_else(|reason| reason, |_| sound(opcode));
        (frame(&outer, (qp.qpn, psn), what), fate)
    })
}

/// A PSN that is older than the connection of the queue pair.
fn old_psn(qp: &Qp, opcode: u8) -> u32 {
    let first = if is_response(opcode) {
        qp.sq_psn
    } else {
        qp.rq_psn
    };
    first.wrapping_sub(5000)
}

pub fn run(a: &mut Attack) -> Result<()> {
    const ALL_PADS: &[u8] = &[0, 1, 2, 3];
    let old = |_: &mut Outer, qp: &Qp, _: &mut Dice, opcode| old_psn(qp, opcode);
    let a_little_old = |_: &mut Outer, qp: &Qp, _: &mut Dice, _| qp.rq_psn.wrapping_sub(5);
    let expected = |_: &mut Outer, qp: &Qp, _: &mut Dice, _| qp.rq_psn;
    // From the peer, with a right ICRC: the PSN is all that is not right, and the form.
    let sound = |opcode| match is_response(opcode) {
        // It has no PSN that means anything.
        true if opcode == NOTIFICATION => Fate::Received("rp_cnp_handled"),
        true => Fate::Received("stale_response"),
        false => IGNORED,
    };
    to(a, ("rts", State::Rts), ALL_PADS, sound, old)?;
    // An old packet to UC, a wrong Q_Key to UD.
    let unreliable = |opcode| match opcode {
        NOTIFICATION => Fate::Received("rp_cnp_ignored"),
        _ => IGNORED,
    };
    to(a, ("uc", State::Rts), ALL_PADS, unreliable, a_little_old)?;
    let qkey = |_| Fate::Drop("drop_qkey");
    to(a, ("ud", State::Rts), ALL_PADS, qkey, a_little_old)?;
    // With the PSN that is expected, from an address that is not the peer's.
    let address = |_| Fate::Drop("drop_address");
    to(a, ("rts-stranger", State::Rts), &[0], address, expected)?;
    // In states that take nothing, or no responses.
    for kind in [
        ("reset", State::Reset),
        ("init", State::Init),
        ("err", State::Err),
        ("uc-init", State::Init),
        ("uc-err", State::Err),
        ("ud-init", State::Init),
        ("ud-err", State::Err),
    ] {
        to(a, kind, &[0], |_| STATE, old)?;
    }
    let requests = |opcode| match is_response(opcode) {
        true => STATE,
        false => IGNORED,
    };
    to(a, ("rtr", State::Rtr), &[0], requests, old)?;
    // With the PSN that is expected, from the peer, but for the ICRC.
    for kind in ["rts", "uc", "ud"] {
        let icrc = |_| Fate::Drop("drop_icrc");
        to(a, (kind, State::Rts), &[0], icrc, |outer, qp, random, _| {
            outer.icrc_error = random.throw() as u32 | (1 << random.below(32));
            qp.rq_psn
        })?;
    }
    Ok(())
}
