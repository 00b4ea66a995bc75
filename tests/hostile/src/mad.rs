// SPDX-License-Identifier: GPL-2.0

//! Management datagrams to queue pair 1: cut short, of every class and method. Each is counted, and
//! answered as the standard says or not at all.

use crate::link::Link;
use crate::wire::Counters;
use ferroce_hostile::answer::{from_victim, said};
use ferroce_hostile::case::Fate;
use ferroce_hostile::dice::{Chance, Dice};
use ferroce_hostile::frame::{icrc_of, Hosts, Ib, Outer, FILL};
use ferroce_hostile::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of a management datagram.
const LEN: usize = 256;
/// That of all queue pairs 1.
const QKEY: u32 = 0x8001_0000;
/// The queue pair that we say to be: answers come to it.
const SOURCE: u32 = 0x7654;
/// So many datagrams at most are under way: ib_mad has 512 receives.
const AT_ONCE: usize = 64;

const GET: u8 = 1;
const SET: u8 = 2;
const GET_RESPONSE: u8 = 0x81;
/// Performance management, which the device answers itself.
const PERFORMANCE: u8 = 4;
const CM: u8 = 7;

/// One datagram.
type Mad = [u8; LEN];

/// The attack, and what it has come to.
struct Mads<'a> {
    link: &'a Link,
    hosts: &'a Hosts,
    counters: Counters,
    random: Dice,
    sent: u64,
}

impl Mads<'_> {
    /// Sends a datagram to queue pair 1.
    fn send(&mut self, opcode: u8, qkey: u32, payload: &[u8], fate: Fate) -> Result<()> {
        let mut ib = Ib::new(opcode, 1, self.random.psn()).with_headers((0, 0, 0));
        ib.ack = 0;
        ib.deth = ib.deth.map(|_| (qkey, SOURCE));
        ib.payload = payload.to_vec();
        ib.pad = (payload.len().wrapping_neg() & 3) as u8;
        let frame = Outer::new(self.hosts).frame(&ib.bytes());
        self.link.send(&frame).map_err(|e| format!("send: {e}"))?;
        self.counters.expect(fate);
        self.sent += 1;
        Ok(())
    }

    /// Waits until all is counted; what the victim sends until nothing comes any more, or so many
    /// answers are there.
    fn answers(&mut self, count: usize) -> Result<Vec<Mad>> {
        self.counters.settle()?;
        let mut heard = Vec::new();
        let mut since = Instant::now();
        while heard.len() < count || since.elapsed() < Duration::from_millis(30) {
            let next = self.link.receive(Duration::from_millis(30));
            let Some(frame) = next.map_err(|e| format!("receive: {e}"))? else {
                if since.elapsed() > Duration::from_secs(20) {
                    break;
                }
                continue;
            };
            if let Some((ip, udp)) = from_victim(&frame, self.hosts)? {
                heard.push(judge(ip, udp).map_err(|what| said(what, &frame))?);
                since = Instant::now();
            }
        }
        match heard.len() == count {
            true => Ok(heard),
            false => Err(format!("{} answers, not {count}", heard.len())),
        }
    }
}

/// A datagram of nothing but its header.
fn header(class: u8, version: u8, method: u8, attribute: u16, transaction: u64) -> Mad {
    let mut mad = [0; LEN];
    mad[..4].copy_from_slice(&[1, class, version, method]);
    // The upper half names the agent that gets a response, and none has that number.
    mad[8..16].copy_from_slice(&(transaction | 0xf000_0000_0000_0000).to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad
}

/// The datagram in a packet of the victim.
fn judge(ip: &[u8], udp: &[u8]) -> std::result::Result<Mad, &'static str> {
    if udp.len() != 8 + 12 + 8 + LEN + 4 {
        return Err("what is no management datagram by its length");
    }
    let (covered, icrc) = udp.split_at(udp.len() - 4);
    if icrc_of(ip, covered) != icrc {
        return Err("a wrong ICRC");
    }
    let (bth, deth) = (&covered[8..20], &covered[20..28]);
    if bth[0] != 0x64 || bth[1] & 0x3f != 0 || bth[2..4] != [0xff, 0xff] {
        return Err("no datagram");
    }
    if bth[5..8] != SOURCE.to_be_bytes()[1..] {
        return Err("a datagram to somebody else");
    }
    if deth[..4] != QKEY.to_be_bytes() || deth[5..] != [0, 0, 1] {
        return Err("a datagram of another queue pair, or with another Q_Key");
    }
    covered[28..].try_into().map_err(|_| "no datagram")
}

/// Attacks queue pair 1; what was sent.
pub fn run(link: &Link, hosts: &Hosts, counters: Counters, random: Dice) -> Result<String> {
    let mut mads = Mads {
        link,
        hosts,
        counters,
        random,
        sent: 0,
    };
    sizes(&mut mads)?;
    classes(&mut mads)?;
    Ok(format!("mads: {} datagrams sent", mads.sent))
}

/// Datagrams of every length but the right one, of every opcode but the right ones, and with the
/// wrong Q_Key.
fn sizes(m: &mut Mads<'_>) -> Result<()> {
    // A question that is answered, were it whole.
    let mut question = header(PERFORMANCE, 1, GET, 0x12, 0x1234);
    question[65] = 1;
    let mut whole = question.to_vec();
    whole.resize(4096, FILL);
    let lens = (0..LEN).chain(LEN + 1..LEN + 45);
    for (n, len) in lens.chain([512, 1024, 4095, 4096]).enumerate() {
        let opcode = 0x64 + (n % 2) as u8;
        m.send(opcode, QKEY, &whole[..len], Fate::Drop("drop_mad"))?;
        if n % 100 == 99 {
            m.answers(0)?;
        }
    }
    for opcode in (0..=u8::MAX).filter(|opcode| !matches!(opcode, 0x64 | 0x65)) {
        m.send(opcode, QKEY, &question, Fate::Drop("drop_opcode"))?;
    }
    for bit in 0..32 {
        m.send(0x64, QKEY ^ (1 << bit), &question, Fate::Drop("drop_qkey"))?;
    }
    m.answers(0)?;
    // To see that it would have been answered; and what is none by its content.
    m.send(0x64, QKEY, &question, Fate::Accepted)?;
    m.send(0x64, QKEY, &[FILL; LEN], Fate::Accepted)?;
    let mad = m.answers(1)?[0];
    match mad[3] == GET_RESPONSE && mad[8..18] == question[8..18] {
        true => Ok(()),
        false => Err(format!("answered: {:02x?}", &mad[..64])),
    }
}

/// Every class and method: a question that nobody knows is answered with the status that says so
/// (IBTA 13.4.7), and all else with silence.
fn classes(m: &mut Mads<'_>) -> Result<()> {
    let mut kinds = Vec::new();
    for number in 0..=u8::MAX {
        kinds.extend([0, GET, SET, 3, 0x7f, GET_RESPONSE].map(|method| (1, number, 1, method)));
        kinds.extend([PERFORMANCE, CM].map(|class| (1, class, 1, number)));
    }
    for version in [0, 2, 0x80, 0xff] {
        // Of the header, which nobody knows and none may answer, and of classes.
        kinds.extend([PERFORMANCE, 9].map(|class| (version, class, 1, GET)));
        kinds.extend([PERFORMANCE, 9].map(|class| (1, class, version, GET)));
    }
    for kinds in kinds.chunks(AT_ONCE) {
        let mut asked = BTreeMap::new();
        for &(base, class, version, method) in kinds {
            let mut mad = header(class, version, method, 1, m.random.throw());
            mad[0] = base;
            mad[24..].fill(FILL);
            m.send(0x64, QKEY, &mad, Fate::Accepted)?;
            // Those of the subnet are for queue pair 0.
            let subnet = matches!(class, 0x01 | 0x81);
            if base == 1 && matches!(method, GET | SET) && !subnet {
                asked.insert(mad[8..16].to_vec(), mad);
            }
        }
        for answer in m.answers(asked.len())? {
            let want = asked.remove(&answer[8..16]);
            let mut want = want.ok_or_else(|| format!("not asked: {:02x?}", &answer[..64]))?;
            let (is_known_class, version, method) = (want[1] == PERFORMANCE, want[2], want[3]);
            let status = match (is_known_class, version, method) {
                // The device knows that one.
                (true, 1, GET) => 0,
                (true, 1, _) => 3 << 2,
                (true, ..) => 1 << 2,
                _ => 3 << 2,
            };
            if is_known_class {
                want[64..].copy_from_slice(&answer[64..]);
                // What ClassPortInfo says ends with the time to respond.
                if answer[84..].iter().any(|byte| *byte != 0) {
                    return Err(format!("an answer that goes on: {answer:02x?}"));
                }
            }
            want[4..6].copy_from_slice(&[0, status]);
            want[3] = GET_RESPONSE;
            if answer != want {
                return Err(format!("{answer:02x?}, not {want:02x?}"));
            }
        }
    }
    Ok(())
}
