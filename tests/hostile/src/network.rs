// SPDX-License-Identifier: GPL-2.0

//! What Ethernet, IP, UDP and the BTH can say that a peer would not: each around a WRITE that is
//! otherwise perfect, so that it shows whether it was executed.

use crate::attack::Attack;
use crate::case::Fate;
use crate::frame::{Hosts, Ib, Outer};
use crate::Result;

/// Bytes of the WRITE.
const LEN: u32 = 8;
/// WRITEs that are executed go below this offset, others above.
const FORBIDDEN: u64 = 10_000;

const ACCEPTED: Fate = Fate::Accepted;
const ICRC: Fate = Fate::Drop("drop_icrc");
const MALFORMED: Fate = Fate::Drop("drop_malformed");
const ADDRESS: Fate = Fate::Drop("drop_address");
const IP_HEADER: Fate = Fate::Drop("drop_ip_header");
const PKEY: Fate = Fate::Drop("drop_pkey");
/// Some addresses the kernel drops for what they are.
const NOT_US: Fate = Fate::Perhaps("drop_address");

/// What is changed in a frame's recipe and its packet.
type Change = Box<dyn Fn(&mut Outer, &mut Ib)>;

/// The oddities: what is odd, and what becomes of it.
#[derive(Default)]
struct Oddities(Vec<(&'static str, Fate, Change)>);

impl Oddities {
    fn outer(&mut self, name: &'static str, fate: Fate, change: impl Fn(&mut Outer) + 'static) {
        self.0
            .push((name, fate, Box::new(move |outer, _| change(outer))));
    }

    fn ib(&mut self, name: &'static str, fate: Fate, change: impl Fn(&mut Ib) + 'static) {
        self.0.push((name, fate, Box::new(move |_, ib| change(ib))));
    }
}

pub fn run(a: &mut Attack) -> Result<()> {
    let mut odd = Oddities::default();
    ethernet_and_udp(&mut odd);
    ip(&mut odd, a.hosts.v6);
    addresses(&mut odd, a.hosts);
    transport_header(&mut odd);
    let rw = a.target.regions()["rw"];
    let has_ip = a.target.has_ip();
    let is_for_it = |fate| has_ip || !matches!(fate, Fate::Outside | Fate::Perhaps(_));
    let all = odd.0.into_iter().filter(|odd| is_for_it(odd.1));
    let all = all.enumerate().collect();
    a.each("rts", all, |talk, (n, (name, fate, change))| {
        let offset = 16 * *n as u64 + if *fate == ACCEPTED { 0 } else { FORBIDDEN };
        talk.name = format!("{name}, number {n}");
        let mut ib = Ib::new(0x0a, talk.qp.qpn, talk.qp.rq_psn)
            .with_headers((rw.at + offset, rw.rkey, LEN))
            .with_payload(LEN as usize);
        if *fate == ACCEPTED {
            talk.model.request(&ib);
        }
        change(&mut talk.outer, &mut ib);
        talk.push(&ib, *fate);
    })
}

fn ethernet_and_udp(odd: &mut Oddities) {
    odd.outer("as it should be", ACCEPTED, |_| ());
    let priority = "tagged with VLAN 0, which is a priority";
    odd.outer(priority, ACCEPTED, |o| o.vlan = Some(0x6000));
    odd.outer("from a multicast MAC", ACCEPTED, |o| o.from_mac[0] |= 1);
    for bytes in [1, 6, 46, 1000] {
        odd.outer("bytes behind IP", ACCEPTED, move |o| o.behind_ip = bytes);
    }
    // Entropy for routers, and no proof of anything.
    for port in [0, 1, 4790, 4791, 0xbfff, 0xffff] {
        odd.outer("another UDP port", ACCEPTED, move |o| o.source_port = port);
    }
    odd.outer("a UDP checksum", ACCEPTED, |o| o.checksum = true);
    for bytes in [1, 4, 100] {
        odd.outer("bytes behind UDP", ACCEPTED, move |o| o.behind_udp = bytes);
    }
    // Headers 8 + 12 + 16, payload 8, ICRC 4: down to the RETH, to less than that, and to the UDP
    // header. By whole words it is the ICRC that is not where it should be.
    for len in [1, 2, 3, 4, 8, 12, 20, 24, 28, 29] {
        let fate = if matches!(len, 4 | 8) {
            ICRC
        } else {
            MALFORMED
        };
        odd.outer("cut short by its UDP length", fate, move |o| {
            o.udp_len = -len
        });
    }
    odd.outer("UDP length a little more", Fate::Outside, |o| o.udp_len = 1);
}

fn ip(odd: &mut Oddities, v6: bool) {
    for ttl in [0, 1, 255] {
        odd.outer("another hop limit", ACCEPTED, move |o| o.ttl = ttl);
    }
    for class in [1, 3, 0xb8, 0xff] {
        odd.outer("another traffic class", ACCEPTED, move |o| o.class = class);
    }
    if v6 {
        odd.outer("another flow label", ACCEPTED, |o| o.flow = 0xf_ffff);
        for (name, number, bytes) in [
            ("hop-by-hop options", 0, [17, 0, 1, 4, 0, 0, 0, 0]),
            ("destination options", 60, [17, 0, 1, 4, 0, 0, 0, 0]),
            ("an atomic fragment", 44, [17, 0, 0, 0, 0, 0, 0, 9]),
        ] {
            odd.outer(name, IP_HEADER, move |o| {
                o.extension = Some((number, bytes.to_vec()))
            });
        }
        return;
    }
    odd.outer("an IP id, and no DF", ACCEPTED, |o| {
        (o.id, o.fragment) = (0x1234, 0)
    });
    for option in [vec![1, 1, 1, 0], vec![0x94, 4, 0, 0], vec![1; 40]] {
        odd.outer("IP options", IP_HEADER, move |o| {
            o.options.clone_from(&option)
        });
    }
}

fn addresses(odd: &mut Oddities, hosts: Hosts) {
    let mut neighbour = hosts.us;
    neighbour[if hosts.v6 { 15 } else { 3 }] ^= 1;
    let mut everybody = [0; 16];
    if hosts.v6 {
        (everybody[0], everybody[1], everybody[15]) = (0xff, 2, 1);
    } else {
        (everybody[0], everybody[3]) = (224, 1);
    }
    for (name, from, fate) in [
        ("from the address of another peer", hosts.other, ADDRESS),
        ("from a neighbour's address", neighbour, ADDRESS),
        ("from the victim itself", hosts.victim, NOT_US),
        ("from no address", [0; 16], NOT_US),
        ("from everybody's address", everybody, NOT_US),
    ] {
        odd.outer(name, fate, move |o| o.from = from);
    }
    let too = "to another address of the victim";
    odd.outer(too, ADDRESS, move |o| o.to = hosts.victim_too);
    odd.outer("to everybody", NOT_US, move |o| {
        (o.to, o.to_mac) = (everybody, [0xff; 6])
    });
}

fn transport_header(odd: &mut Oddities) {
    for pkey in [0, 1, 0x1234, 0x7ffe, 0x8000, 0xfffe] {
        odd.ib("another partition", PKEY, move |ib| ib.pkey = pkey);
    }
    odd.ib("a limited member", ACCEPTED, |ib| ib.pkey = 0x7fff);
    for version in 1..16 {
        odd.ib("another version", MALFORMED, move |ib| ib.flags |= version);
    }
    odd.ib("not migrated", ACCEPTED, |ib| ib.flags &= !0x40);
    odd.ib("solicited", ACCEPTED, |ib| ib.flags |= 0x80);
    // The bits of congestion are no business of the ICRC, nor are the reserved ones beside them.
    for bits in [0x40, 0x80, 0x3f, 0xff] {
        odd.ib("FECN, BECN and others", ACCEPTED, move |ib| {
            ib.congestion = bits
        });
    }
    odd.ib("reserved bits beside AckReq", ACCEPTED, |ib| ib.ack = 0xff);
}
