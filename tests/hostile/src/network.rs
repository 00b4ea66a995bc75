// SPDX-License-Identifier: GPL-2.0

//! What Ethernet, IP, UDP and the BTH can say that a peer would not: each around a WRITE that is
//! otherwise perfect, so that it shows whether it was executed.

use crate::answer::{Answer, INVALID_REQUEST};
use crate::attack::{Attack, Case, Plan};
use crate::counters::{Fate, ACCEPTED};
use crate::frame::{internet_checksum, Checksum, Hosts, Ib, Outer};
use crate::victim::{Qp, Region, Result, State};

/// Bytes of the WRITE.
const LEN: u32 = 8;
/// WRITEs that are executed go below this offset, others above.
const FORBIDDEN: u64 = 10_000;

const ICRC: Fate = Fate::Drop("drop_icrc");
const MALFORMED: Fate = Fate::Drop("drop_malformed");
const ADDRESS: Fate = Fate::Drop("drop_address");
const IP_HEADER: Fate = Fate::Drop("drop_ip_header");
const PKEY: Fate = Fate::Drop("drop_pkey");

/// The attacks, and what they are made with.
struct Oddities {
    hosts: Hosts,
    rw: Region,
    plans: Vec<Plan>,
}

impl Oddities {
    /// A WRITE in frames that `make` makes of a proper frame's recipe and the packet.
    fn add(
        &mut self,
        name: &str,
        fate: Fate,
        make: impl Fn(Outer, Ib) -> Vec<(Vec<u8>, Fate)> + 'static,
    ) {
        let executed = matches!(fate, Fate::Received(_));
        let offset = 16 * self.plans.len() as u64 + if executed { 0 } else { FORBIDDEN };
        let (hosts, rw, name) = (self.hosts, self.rw, String::from(name));
        self.plans.push(Plan::new(move |qp: &Qp| {
            let ib = Ib::new(0x0a, qp.qpn, qp.rq_psn)
                .with_headers((rw.at + offset, rw.rkey, LEN))
                .with_payload(LEN as usize);
            let asks = ib.clone();
            let mut case = Case::silent(name.clone(), make(Outer::new(&hosts), ib));
            if executed {
                case.answers = vec![Answer::Ack { psn: asks.psn }];
                case.writes = vec![("rw", offset, LEN.into())];
            }
            case
        }));
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

    /// One frame, in which bytes are changed afterwards: the ICRC is that of the bytes before.
    fn raw(&mut self, name: &str, fate: Fate, change: impl Fn(&mut Vec<u8>) + 'static) {
        self.add(name, fate, move |outer, ib| {
            let mut frame = outer.frame(&ib.bytes());
            change(&mut frame);
            vec![(frame, fate)]
        });
    }
}

pub fn run(a: &mut Attack) -> Result<()> {
    let mut odd = Oddities {
        hosts: a.hosts,
        rw: a.victim.region("rw"),
        plans: Vec::new(),
    };
    ethernet(&mut odd);
    udp(&mut odd);
    if odd.hosts.v6 {
        ipv6(&mut odd);
    } else {
        ipv4(&mut odd);
    }
    addresses(&mut odd);
    transport_header(&mut odd);
    let plans = odd.plans;
    a.run("rts", plans)?;
    jumbo(a)
}

fn ethernet(odd: &mut Oddities) {
    odd.outer("as it should be", ACCEPTED, |_| ());
    odd.outer("tagged with VLAN 0, which is a priority", ACCEPTED, |o| {
        o.vlan = Some(0x6000)
    });
    odd.outer("in a VLAN that is not there", Fate::Outside, |o| {
        o.vlan = Some(5)
    });
    odd.outer("to another MAC", Fate::Outside, |o| {
        o.to_mac = [2, 0, 0, 0, 0, 0x77]
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
    odd.outer("with a right UDP checksum", ACCEPTED, |o| {
        o.checksum = Checksum::Right
    });
    odd.outer("with a wrong UDP checksum", Fate::Outside, |o| {
        o.checksum = Checksum::Wrong
    });
    for behind in [1, 4, 100] {
        odd.outer("with bytes behind the datagram", ACCEPTED, move |o| {
            o.behind_udp = behind
        });
    }
    for len in 1..=3 {
        odd.outer("UDP length a little less", MALFORMED, move |o| {
            o.udp_len = -len
        });
    }
    // Headers 8 + 12 + 16, payload 8, ICRC 4: down to the RETH, to less than that, and to the UDP
    // header.
    for len in [4, 8] {
        odd.outer("UDP length a word less", ICRC, move |o| o.udp_len = -len);
    }
    for len in [12, 20, 24, 28, 29] {
        odd.outer("UDP length that cuts headers off", MALFORMED, move |o| {
            o.udp_len = -len
        });
    }
    odd.outer("UDP length of 7", Fate::Outside, |o| o.udp_len = 7 - 48);
    odd.outer("UDP length a little more", Fate::Outside, |o| o.udp_len = 1);
    odd.outer("UDP length of 65535", Fate::Outside, |o| {
        o.udp_len = 65535 - 48
    });
    odd.raw("a wrong ICRC", ICRC, |frame| {
        let end = frame.len() - 1;
        frame[end] ^= 1;
    });
    odd.raw("payload changed on the way", ICRC, |frame| {
        let at = frame.len() - 6;
        frame[at] ^= 1;
    });
    odd.raw("UDP source port changed on the way", ICRC, |frame| {
        let at = frame.len() - 48;
        frame[at] ^= 1;
    });
}

/// A frame in two fragments of the same IPv4 packet; the ICRC is that of the whole.
fn fragments4(outer: &Outer, ib: &Ib) -> Vec<Vec<u8>> {
    let mut whole = outer.clone();
    whole.fragment = 0;
    let frame = whole.frame(&ib.bytes());
    let (head, data) = frame.split_at(34);
    let (first, second) = data.split_at(24);
    [(first, 0x2000u16), (second, 3)]
        .into_iter()
        .map(|(data, field)| {
            let mut head = head.to_vec();
            head[16..18].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
            head[20..22].copy_from_slice(&field.to_be_bytes());
            head[24..26].fill(0);
            let sum = internet_checksum(&[&head[14..34]]);
            head[24..26].copy_from_slice(&sum.to_be_bytes());
            head.extend(data);
            head
        })
        .collect()
}

fn ipv4(odd: &mut Oddities) {
    for ttl in [0, 1, 255] {
        odd.outer("another time to live", ACCEPTED, move |o| o.ttl = ttl);
    }
    for class in [1, 3, 0xb8, 0xff] {
        odd.outer("another type of service", ACCEPTED, move |o| {
            o.class = class
        });
    }
    odd.outer("an IP id, and no DF", ACCEPTED, |o| {
        o.id = 0x1234;
        o.fragment = 0;
    });
    odd.outer("IP length a word less", Fate::Outside, |o| o.ip_len = -4);
    odd.outer("IP length below its header", Fate::Outside, |o| {
        o.ip_len = -50
    });
    odd.outer("IP length beyond the frame", Fate::Outside, |o| {
        o.ip_len = 4
    });
    odd.outer("a wrong IP checksum", Fate::Outside, |o| {
        o.bad_ip_checksum = true
    });
    for option in [[1, 1, 1, 0], [0x94, 4, 0, 0]] {
        odd.outer("an IP option", IP_HEADER, move |o| {
            o.options = option.to_vec()
        });
    }
    odd.outer("40 bytes of IP options", IP_HEADER, |o| {
        o.options = vec![1; 40]
    });
    odd.outer("the first fragment alone", Fate::Outside, |o| {
        o.id = 0x7777;
        o.fragment = 0x2000;
    });
    odd.outer("a fragment from the middle alone", Fate::Outside, |o| {
        o.id = 0x7778;
        o.fragment = 0x0010;
    });
    odd.add("in two fragments", IP_HEADER, |mut outer, ib| {
        outer.id = 0x4242;
        let mut frames = fragments4(&outer, &ib);
        let last = frames.remove(1);
        vec![(frames.remove(0), Fate::Outside), (last, IP_HEADER)]
    });
    odd.add(
        "in two fragments, the second first",
        IP_HEADER,
        |mut outer, ib| {
            outer.id = 0x4243;
            let mut frames = fragments4(&outer, &ib);
            let last = frames.remove(1);
            vec![(last, Fate::Outside), (frames.remove(0), IP_HEADER)]
        },
    );
    for (what, first) in [
        ("header length of 4", 0x44),
        ("version 5", 0x55),
        ("version 6", 0x65),
    ] {
        odd.raw(what, Fate::Outside, move |frame| frame[14] = first);
    }
}

/// A frame in two fragments of the same IPv6 packet.
fn fragments6(outer: &Outer, ib: &Ib, id: u8) -> Vec<Vec<u8>> {
    let frame = outer.frame(&ib.bytes());
    let (head, data) = frame.split_at(54);
    let (first, second) = data.split_at(24);
    [(first, 1u16), (second, 24)]
        .into_iter()
        .map(|(data, field)| {
            let mut head = head.to_vec();
            head[18..20].copy_from_slice(&(8 + data.len() as u16).to_be_bytes());
            head[20] = 44;
            head.extend([17, 0]);
            head.extend(field.to_be_bytes());
            head.extend([0, 0, 0, id]);
            head.extend(data);
            head
        })
        .collect()
}

fn ipv6(odd: &mut Oddities) {
    for ttl in [0, 1, 255] {
        odd.outer("another hop limit", ACCEPTED, move |o| o.ttl = ttl);
    }
    for class in [1, 3, 0xb8, 0xff] {
        odd.outer("another traffic class", ACCEPTED, move |o| o.class = class);
    }
    for flow in [1, 0xf_ffff] {
        odd.outer("another flow label", ACCEPTED, move |o| o.flow = flow);
    }
    odd.outer("IP length a word less", Fate::Outside, |o| o.ip_len = -4);
    odd.outer("IP length beyond the frame", Fate::Outside, |o| {
        o.ip_len = 4
    });
    for (what, number) in [("hop-by-hop options", 0), ("destination options", 60)] {
        odd.outer(what, IP_HEADER, move |o| {
            o.extension = Some((number, vec![17, 0, 1, 4, 0, 0, 0, 0]))
        });
    }
    odd.outer("an atomic fragment", IP_HEADER, |o| {
        o.extension = Some((44, vec![17, 0, 0, 0, 0, 0, 0, 9]))
    });
    odd.outer("the first fragment alone", Fate::Outside, |o| {
        o.extension = Some((44, vec![17, 0, 0, 1, 0, 0, 0, 7]))
    });
    odd.add("in two fragments", IP_HEADER, |outer, ib| {
        let mut frames = fragments6(&outer, &ib, 1);
        let last = frames.remove(1);
        vec![(frames.remove(0), Fate::Outside), (last, IP_HEADER)]
    });
    odd.add(
        "in two fragments, the second first",
        IP_HEADER,
        |outer, ib| {
            let mut frames = fragments6(&outer, &ib, 2);
            let last = frames.remove(1);
            vec![(last, Fate::Outside), (frames.remove(0), IP_HEADER)]
        },
    );
    odd.raw("version 4", Fate::Outside, |frame| frame[14] = 0x40);
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[a, b, c, d]);
    address
}

fn v6(first: u16, last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&first.to_be_bytes());
    address[15] = last;
    address
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
    let (from, to) = if hosts.v6 {
        (
            [v6(0, 0), v6(0, 1), v6(0xff02, 1), v6(0xfe80, 9)],
            [v6(0xff02, 1), v6(0xff01, 1), v6(0, 1)],
        )
    } else {
        (
            [
                v4(0, 0, 0, 0),
                v4(127, 0, 0, 1),
                v4(224, 0, 0, 1),
                v4(255, 255, 255, 255),
            ],
            [v4(224, 0, 0, 1), v4(10, 77, 0, 255), v4(255, 255, 255, 255)],
        )
    };
    odd.outer("from the victim itself", NOT_US, move |o| {
        o.from = hosts.victim
    });
    for address in from {
        odd.outer("from an address nobody has", NOT_US, move |o| {
            o.from = address
        });
    }
    for address in to {
        odd.outer("to everybody", NOT_US, move |o| {
            o.to = address;
            o.to_mac = [0xff; 6];
        });
    }
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
    odd.raw("congestion marked on the way", ACCEPTED, |frame| {
        let at = frame.len() - 40 + 4;
        frame[at] = 0xff;
    });
    odd.raw("PSN changed on the way", ICRC, |frame| {
        let at = frame.len() - 40 + 11;
        frame[at] ^= 0x80;
    });
    odd.raw(
        "QPN of nobody, changed on the way",
        Fate::Drop("drop_unknown_qp"),
        |frame| {
            let at = frame.len() - 40 + 5;
            frame[at] ^= 0xff;
        },
    );
}

/// More than a path MTU: a peer who does not keep to it is refused, and more than any MTU is no
/// packet.
fn jumbo(a: &mut Attack) -> Result<()> {
    let outer = Outer::new(&a.hosts);
    let plans = [257usize, 1024, 4092, 4093, 4096, 4097, 4100, 4200, 4380]
        .into_iter()
        .map(|len| {
            let outer = outer.clone();
            Plan::new(move |qp| {
                let ib = Ib::new(0x04, qp.qpn, qp.rq_psn).with_payload(len);
                let is_packet = len <= 4096;
                let fate = if is_packet {
                    Fate::Received(&["refused_request"])
                } else {
                    MALFORMED
                };
                let frames = vec![(outer.frame(&ib.bytes()), fate)];
                let mut case = Case::silent(format!("SEND of {len} bytes in one packet"), frames);
                if is_packet {
                    let (psn, code) = (qp.rq_psn, INVALID_REQUEST);
                    case.answers = vec![Answer::Nak { psn, code }];
                    case.state = State::Err;
                }
                case
            })
        })
        .collect();
    let before = a.counters.value("rx_linearized")?;
    a.run("rts", plans)?;
    // A frame of more than a page comes in pieces.
    if a.counters.value("rx_linearized")? == before {
        return Err("rx_linearized does not count".into());
    }
    Ok(())
}
