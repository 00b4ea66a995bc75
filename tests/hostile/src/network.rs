// SPDX-License-Identifier: GPL-2.0

//! What Ethernet, IP, UDP and the BTH can say that a peer would not: each around a WRITE that is
//! otherwise perfect, so that it shows whether it was executed.

use crate::attack::Attack;
use crate::case::Fate;
use crate::frame::{internet_checksum, Hosts, Ib, Outer};
use crate::Result;

pub const FLOOR: &[&str] = &[
    "accepted",
    "refused_request",
    "drop_icrc",
    "drop_malformed",
    "drop_address",
    "drop_ip_header",
    "drop_pkey",
];

/// Bytes of the WRITE.
const LEN: u32 = 8;
/// WRITEs that are executed go below this offset, others above.
const FORBIDDEN: u64 = 10_000;

const ICRC: Fate = Fate::Drop("drop_icrc");
const MALFORMED: Fate = Fate::Drop("drop_malformed");
const ADDRESS: Fate = Fate::Drop("drop_address");
const IP_HEADER: Fate = Fate::Drop("drop_ip_header");
const PKEY: Fate = Fate::Drop("drop_pkey");

const ACCEPTED: Fate = Fate::Accepted;

/// Frames that are made of a proper frame's recipe and the packet.
type Make = Box<dyn Fn(Outer, Ib) -> Vec<(Vec<u8>, Fate)>>;

/// The attacks.
struct Oddities {
    hosts: Hosts,
    all: Vec<(String, Fate, Make)>,
}

impl Oddities {
    /// A WRITE in such frames.
    fn add(
        &mut self,
        name: &str,
        fate: Fate,
        make: impl Fn(Outer, Ib) -> Vec<(Vec<u8>, Fate)> + 'static,
    ) {
        self.all.push((name.into(), fate, Box::new(make)));
    }

    /// One frame, in whose recipe something is changed.
    fn outer(&mut self, name: &str, fate: Fate, change: impl Fn(&mut Outer) + 'static) {
        self.add(name, fate, move |mut outer, ib| {
            change(&mut outer);
            vec![(outer.frame(&ib.bytes()), fate)]
        });
    }

    /// One frame, in whose packet something is changed.
    fn ib(&mut self, name: &str, fate: Fate, change: impl Fn(&mut Ib) + 'static) {
        self.add(name, fate, move |outer, mut ib| {
            change(&mut ib);
            vec![(outer.frame(&ib.bytes()), fate)]
        });
    }
}

pub fn run(a: &mut Attack) -> Result<()> {
    let mut odd = Oddities {
        hosts: a.hosts,
        all: Vec::new(),
    };
    ethernet(&mut odd);
    udp(&mut odd);
    ip(&mut odd);
    addresses(&mut odd);
    transport_header(&mut odd);
    // Each is a case of its own kind, so all of them go.
    let one_of = std::mem::replace(&mut a.one_of, 1);
    let rw = a.target.regions()["rw"];
    let has_ip = a.target.has_ip();
    let mut all = odd.all;
    if !has_ip {
        all.retain(|(name, fate, _)| {
            let is_of_ip = matches!(fate, Fate::Outside | Fate::Perhaps(_));
            !is_of_ip && !name.contains("fragments")
        });
    }
    let all = all.into_iter().enumerate().collect();
    a.each("rts", all, |talk, (n, (name, fate, make))| {
        // WRITEs that are executed go below this offset, others above.
        let offset = 16 * *n as u64 + if *fate == ACCEPTED { 0 } else { FORBIDDEN };
        talk.name.clone_from(name);
        let ib = Ib::new(0x0a, talk.qp.qpn, talk.qp.rq_psn)
            .with_headers((rw.at + offset, rw.rkey, LEN))
            .with_payload(LEN as usize);
        if *fate == ACCEPTED {
            talk.model.request(&ib);
        }
        talk.frames = make(talk.outer.clone(), ib);
    })?;
    let jumbo = jumbo(a);
    a.one_of = one_of;
    jumbo
}

fn ethernet(odd: &mut Oddities) {
    odd.outer("as it should be", ACCEPTED, |_| ());
    odd.outer("tagged with VLAN 0, which is a priority", ACCEPTED, |o| {
        o.vlan = Some(0x6000)
    });
    odd.outer("from a multicast MAC", ACCEPTED, |o| o.from_mac[0] |= 1);
    for padding in [1, 6, 46, 1000] {
        odd.outer("with bytes behind the IP packet", ACCEPTED, move |o| {
            o.behind_ip = padding
        });
    }
}

fn udp(odd: &mut Oddities) {
    for port in [0, 1, 4790, 4791, 0xbfff, 0xffff] {
        // Entropy for routers, and no proof of anything.
        odd.outer("from another UDP port", ACCEPTED, move |o| {
            o.source_port = port
        });
    }
    odd.outer("with a right UDP checksum", ACCEPTED, |o| o.checksum = true);
    for behind in [1, 4, 100] {
        odd.outer("with bytes behind the datagram", ACCEPTED, move |o| {
            o.behind_udp = behind
        });
    }
    // Headers 8 + 12 + 16, payload 8, ICRC 4: down to the RETH, to less than that, and to the UDP
    // header. By whole words it is the ICRC that is not where it should be.
    for len in [1, 2, 3, 4, 8, 12, 20, 24, 28, 29] {
        let fate = if matches!(len, 4 | 8) {
            ICRC
        } else {
            MALFORMED
        };
        odd.outer("UDP length that cuts it short", fate, move |o| {
            o.udp_len = -len
        });
    }
    odd.outer("UDP length a little more", Fate::Outside, |o| o.udp_len = 1);
}

/// A frame in two fragments of the same packet; the ICRC is that of the whole.
fn fragments(outer: &Outer, ib: &Ib) -> [Vec<u8>; 2] {
    let mut whole = outer.clone();
    whole.fragment = 0;
    whole.id = 0x4242;
    let frame = whole.frame(&ib.bytes());
    let (head, data) = frame.split_at(if outer.v6 { 54 } else { 34 });
    let (first, second) = data.split_at(24);
    [(first, 0u16, true), (second, 24, false)].map(|(data, offset, more)| {
        let mut head = head.to_vec();
        if outer.v6 {
            head[18..20].copy_from_slice(&(8 + data.len() as u16).to_be_bytes());
            head[20] = 44;
            head.extend([17, 0]);
            head.extend((offset | u16::from(more)).to_be_bytes());
            head.extend([0, 0, 0x42, 0x42]);
        } else {
            let field = (offset / 8) | if more { 0x2000 } else { 0 };
            head[16..18].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
            head[20..22].copy_from_slice(&field.to_be_bytes());
            head[24..26].fill(0);
            let sum = internet_checksum(&[&head[14..34]]);
            head[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        head.extend(data);
        head
    })
}

fn ip(odd: &mut Oddities) {
    for ttl in [0, 1, 255] {
        odd.outer("another hop limit", ACCEPTED, move |o| o.ttl = ttl);
    }
    for class in [1, 3, 0xb8, 0xff] {
        odd.outer("another traffic class", ACCEPTED, move |o| o.class = class);
    }
    odd.add("in two fragments", IP_HEADER, |outer, ib| {
        let [first, last] = fragments(&outer, &ib);
        vec![(first, Fate::Outside), (last, IP_HEADER)]
    });
    if odd.hosts.v6 {
        odd.outer("another flow label", ACCEPTED, |o| o.flow = 0xf_ffff);
        for (what, number) in [("hop-by-hop options", 0), ("destination options", 60)] {
            odd.outer(what, IP_HEADER, move |o| {
                o.extension = Some((number, vec![17, 0, 1, 4, 0, 0, 0, 0]))
            });
        }
        odd.outer("an atomic fragment", IP_HEADER, |o| {
            o.extension = Some((44, vec![17, 0, 0, 0, 0, 0, 0, 9]))
        });
    } else {
        odd.outer("an IP id, and no DF", ACCEPTED, |o| {
            o.id = 0x1234;
            o.fragment = 0;
        });
        for option in [vec![1, 1, 1, 0], vec![0x94, 4, 0, 0], vec![1; 40]] {
            odd.outer("IP options", IP_HEADER, move |o| {
                o.options.clone_from(&option)
            });
        }
    }
}

fn addresses(odd: &mut Oddities) {
    let hosts = odd.hosts;
    odd.outer("from the address of another peer", ADDRESS, move |o| {
        o.from = hosts.other
    });
    let mut neighbour = hosts.us;
    neighbour[if hosts.v6 { 15 } else { 3 }] ^= 1;
    odd.outer("from a neighbour's address", ADDRESS, move |o| {
        o.from = neighbour
    });
    odd.outer("to another address of the victim", ADDRESS, move |o| {
        o.to = hosts.victim_too
    });
    // Some of these the kernel drops for what they are.
    const NOT_US: Fate = Fate::Perhaps("drop_address");
    odd.outer("from the victim itself", NOT_US, move |o| {
        o.from = hosts.victim
    });
    let mut everybody = [0; 16];
    if hosts.v6 {
        (everybody[0], everybody[1], everybody[15]) = (0xff, 2, 1);
    } else {
        (everybody[0], everybody[3]) = (224, 1);
    }
    for address in [[0; 16], everybody] {
        odd.outer("from an address nobody has", NOT_US, move |o| {
            o.from = address
        });
    }
    odd.outer("to everybody", NOT_US, move |o| {
        o.to = everybody;
        o.to_mac = [0xff; 6];
    });
}

fn transport_header(odd: &mut Oddities) {
    for pkey in [0, 1, 0x1234, 0x7ffe, 0x8000, 0xfffe] {
        odd.ib("another partition", PKEY, move |ib| ib.pkey = pkey);
    }
    odd.ib("a limited member of the partition", ACCEPTED, |ib| {
        ib.pkey = 0x7fff
    });
    for version in 1..16 {
        odd.ib("another version", MALFORMED, move |ib| ib.flags |= version);
    }
    odd.ib("not migrated", ACCEPTED, |ib| ib.flags &= !0x40);
    odd.ib("solicited", ACCEPTED, |ib| ib.flags |= 0x80);
    for bits in [0x40, 0x80, 0x3f, 0xff] {
        // The bits of congestion are no business of the ICRC, nor are the reserved ones beside
        // them.
        odd.ib("FECN, BECN and reserved bits", ACCEPTED, move |ib| {
            ib.congestion = bits
        });
    }
    odd.ib("reserved bits beside AckReq", ACCEPTED, |ib| ib.ack = 0xff);
}

/// More than a path MTU: a peer who does not keep to it is refused, and more than any MTU is no
/// packet.
fn jumbo(a: &mut Attack) -> Result<()> {
    let lens = vec![257usize, 1024, 4092, 4093, 4096, 4097, 4100, 4200, 4380];
    a.each("rts", lens, |talk, &len| {
        talk.name = format!("SEND of {len} bytes in one packet");
        let ib = Ib::new(0x04, talk.qp.qpn, talk.qp.rq_psn).with_payload(len);
        match len {
            0..=4096 => talk.say(&ib),
            _ => {
                talk.push(&ib, MALFORMED);
                MALFORMED
            }
        };
    })
}
