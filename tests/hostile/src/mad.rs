// SPDX-License-Identifier: GPL-2.0

//! Management datagrams to queue pair 1: cut short, of every class and method, and messages of
//! connection management that no peer sends. Each is counted, and answered as the standard says or
//! not at all.

use crate::answer;
use crate::counters::{Counters, Fate, ACCEPTED};
use crate::frame::{icrc_of, Hosts, Ib, Outer, FILL};
use crate::link::Link;
use crate::random::Random;
use crate::victim::Result;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of a management datagram.
const LEN: usize = 256;
/// That of all queue pairs 1.
const QKEY: u32 = 0x8001_0000;
/// The queue pair that we say to be, where it is not number 1: answers to requests come to it.
const SOURCE: u32 = 0x7654;
/// So many datagrams at most are under way: ib_mad has 512 receives.
const AT_ONCE: usize = 64;

const GET: u8 = 1;
const SET: u8 = 2;
const SEND: u8 = 3;
const GET_RESPONSE: u8 = 0x81;

/// A class of its own: performance management, which the device answers itself.
const PERFORMANCE: u8 = 4;
const CM: u8 = 7;

// Attributes of connection management (IBTA 12.6).
const REQ: u16 = 0x10;
const MRA: u16 = 0x11;
const REJ: u16 = 0x12;
const REP: u16 = 0x13;
const RTU: u16 = 0x14;
const DREQ: u16 = 0x15;
const DREP: u16 = 0x16;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;
const LAP: u16 = 0x19;
const APR: u16 = 0x1a;

/// Where the message begins in a datagram of connection management.
const MESSAGE: usize = 24;
/// The port of rdma_cm that somebody listens on, and one where nobody does.
const HEARD: u16 = 7174;
const DEAF: u16 = 7175;

/// Reasons of a REJ (IBTA 12.6.7.2).
const NO_SERVICE: u16 = 8;
const BY_CONSUMER: u16 = 28;

type Family = fn(&mut Mads<'_>) -> Result<()>;

/// What there is to attack with.
pub const FAMILIES: &[(&str, Family)] = &[
    ("mad-sizes", sizes),
    ("mad-classes", classes),
    ("mad-cm", connections),
];

/// One datagram.
type Mad = [u8; LEN];

/// The attack, and what it has come to.
pub struct Mads<'a> {
    link: &'a Link,
    hosts: &'a Hosts,
    counters: Counters,
    random: Random,
    patience: u32,
    sent: u64,
    answered: u64,
    notes: Vec<String>,
}

impl<'a> Mads<'a> {
    pub fn new(
        link: &'a Link,
        hosts: &'a Hosts,
        counters: Counters,
        random: Random,
        patience: u32,
    ) -> Self {
        Self {
            link,
            hosts,
            counters,
            random,
            patience,
            sent: 0,
            answered: 0,
            notes: Vec::new(),
        }
    }

    /// What was sent and answered.
    pub fn told(&self) -> String {
        let mut text = format!("{} datagrams sent, {} answered", self.sent, self.answered);
        for note in &self.notes {
            text += "; ";
            text += note;
        }
        text
    }

    /// Sends a datagram to queue pair 1.
    fn send(
        &mut self,
        opcode: u8,
        qkey: u32,
        source: u32,
        payload: &[u8],
        fate: Fate,
    ) -> Result<()> {
        let mut ib = Ib::new(opcode, 1, self.random.psn()).with_headers((0, 0, 0));
        ib.ack = 0;
        ib.deth = ib.deth.map(|_| (qkey, source));
        ib.payload = payload.to_vec();
        ib.pad = (payload.len().wrapping_neg() & 3) as u8;
        let frame = Outer::new(self.hosts).frame(&ib.bytes());
        self.link.send(&frame).map_err(|e| format!("send: {e}"))?;
        self.counters.expect(fate);
        self.sent += 1;
        Ok(())
    }

    fn mad(&mut self, source: u32, mad: &Mad) -> Result<()> {
        self.send(0x64, QKEY, source, mad, ACCEPTED)
    }

    /// The next datagram that the victim sends, if one comes in time.
    fn hear(&mut self, patience: Duration) -> Result<Option<(u32, Mad)>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let frame = self
                .link
                .receive(left)
                .map_err(|e| format!("receive: {e}"))?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            if let Some((ip, udp)) = answer::from_victim(&frame, self.hosts)? {
                let mad = judge(ip, udp).map_err(|what| answer::said(what, &frame))?;
                self.answered += 1;
                return Ok(Some(mad));
            }
        }
    }

    /// Waits for so many answers, and that there are no more.
    fn answers(&mut self, count: usize) -> Result<Vec<(u32, Mad)>> {
        let mut heard = Vec::new();
        while heard.len() < count {
            match self.hear(Duration::from_secs(10) * self.patience)? {
                Some(answer) => heard.push(answer),
                None => return Err(format!("{} answers, not {count}", heard.len())),
            }
        }
        self.counters.settle()?;
        while let Some(answer) = self.hear(Duration::from_millis(30))? {
            heard.push(answer);
        }
        if heard.len() != count {
            let (_, last) = heard[heard.len() - 1];
            return Err(format!(
                "{} answers, not {count}: {:02x?}",
                heard.len(),
                &last[..64]
            ));
        }
        Ok(heard)
    }

    /// A message of connection management.
    fn message(&mut self, attribute: u16, fields: &[(usize, &[u8])]) -> Mad {
        let mut mad = header(CM, 2, SEND, attribute, self.random.next());
        for (at, bytes) in fields {
            mad[MESSAGE + at..][..bytes.len()].copy_from_slice(bytes);
        }
        mad
    }

    /// A REQ: from this connection and queue pair, to this port of rdma_cm, with this private data.
    fn req(&mut self, id: u32, qpn: u32, port: u16, private: &[u8]) -> Mad {
        let (us, victim) = (
            gid(self.hosts.v6, &self.hosts.us),
            gid(self.hosts.v6, &self.hosts.victim),
        );
        // RDMA_PS_TCP.
        let service = (0x0106_0000 | u64::from(port)).to_be_bytes();
        let mut qpn_and_more = (qpn << 8).to_be_bytes();
        qpn_and_more[3] = 1;
        self.message(
            REQ,
            &[
                (0, &id.to_be_bytes()),
                (8, &service),
                // GUID of the device.
                (16, &0x1122_3344_5566_7788u64.to_be_bytes()),
                (32, &qpn_and_more),
                // Initiator depth; then timeouts, service RC, PSN, retries.
                (36, &[0, 0, 0, 1, 0, 0, 0, 0xa0, 0, 0x12, 0x34, 0xa7]),
                // P_Key; MTU 1024, RNR retries; CM retries.
                (48, &[0xff, 0xff, 0x37, 0xf0]),
                // Both LIDs are permissive.
                (52, &[0xff; 4]),
                (56, &us),
                (72, &victim),
                // Flow label and rate; traffic class; hop limit; subnet local; ACK timeout.
                (88, &[0, 0, 0, 3, 0, 64, 8, 0x90]),
                (140, private),
            ],
        )
    }

    /// The private data that rdma_cm puts in front of a program's.
    fn cma_header(&self) -> Vec<u8> {
        let mut bytes = vec![0, if self.hosts.v6 { 6 << 4 } else { 4 << 4 }, 0xc3, 0x50];
        for address in [&self.hosts.us, &self.hosts.victim] {
            if self.hosts.v6 {
                bytes.extend(address);
            } else {
                bytes.extend([0; 12]);
                bytes.extend(&address[..4]);
            }
        }
        bytes
    }

    /// Sends requests, and wants an answer of this kind to each, for the same transaction.
    fn each_answered(&mut self, mads: &[Mad], answer: u16) -> Result<Vec<Mad>> {
        let mut all = Vec::new();
        for mads in mads.chunks(AT_ONCE) {
            for mad in mads {
                self.mad(1, mad)?;
            }
            let mut asked: Vec<_> = mads.iter().map(|mad| &mad[8..16]).collect();
            for (to, mad) in self.answers(mads.len())? {
                let which = asked.iter().position(|tid| *tid == &mad[8..16]);
                let Some(which) = which.filter(|_| to == 1 && kind(&mad) == Some(answer)) else {
                    return Err(format!(
                        "no answer {answer:#x}: to {to:#x} {:02x?}",
                        &mad[..64]
                    ));
                };
                asked.swap_remove(which);
                all.push(mad);
            }
        }
        Ok(all)
    }

    /// Sends what is not to be answered.
    fn silent(&mut self, mads: &[Mad]) -> Result<()> {
        for mads in mads.chunks(AT_ONCE) {
            for mad in mads {
                self.mad(1, mad)?;
            }
            self.answers(0)?;
        }
        Ok(())
    }
}

fn gid(v6: bool, address: &[u8; 16]) -> [u8; 16] {
    if v6 {
        return *address;
    }
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address[..4]);
    gid
}

/// The attribute of a message of connection management.
fn kind(mad: &Mad) -> Option<u16> {
    let is_cm = mad[..4] == [1, CM, 2, SEND];
    is_cm.then(|| u16::from_be_bytes([mad[16], mad[17]]))
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

/// The queue pair that a packet of the victim is for, and the datagram.
fn judge(ip: &[u8], udp: &[u8]) -> std::result::Result<(u32, Mad), &'static str> {
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
    let number = |at: &[u8]| u32::from_be_bytes([0, at[0], at[1], at[2]]);
    if deth[..4] != QKEY.to_be_bytes() || number(&deth[5..]) != 1 {
        return Err("a datagram of another queue pair, or with another Q_Key");
    }
    let mad = covered[28..].try_into().map_err(|_| "no datagram")?;
    Ok((number(&bth[5..]), mad))
}

/// Datagrams of every length but the right one, of every opcode but the right ones, and with the
/// wrong Q_Key.
fn sizes(m: &mut Mads<'_>) -> Result<()> {
    let drop = Fate::Drop("drop_mad");
    // A question that is answered, were it whole.
    let mut question = header(PERFORMANCE, 1, GET, 0x12, 0x1234);
    question[65] = 1;
    for content in [[FILL; LEN], question] {
        let mut whole = content.to_vec();
        whole.resize(4096, FILL);
        let lens = (0..LEN)
            .chain(LEN + 1..LEN + 45)
            .chain([512, 1024, 4095, 4096]);
        for (n, len) in lens.enumerate() {
            m.send(0x64 + (n % 2) as u8, QKEY, SOURCE, &whole[..len], drop)?;
            if n % 100 == 99 {
                m.answers(0)?;
            }
        }
        m.answers(0)?;
    }
    for opcode in (0..=u8::MAX).filter(|opcode| !matches!(opcode, 0x64 | 0x65)) {
        m.send(opcode, QKEY, SOURCE, &question, Fate::Drop("drop_opcode"))?;
    }
    for bit in 0..32 {
        let qkey = QKEY ^ (1 << bit);
        m.send(0x64, qkey, SOURCE, &question, Fate::Drop("drop_qkey"))?;
    }
    m.answers(0)?;
    // To see that it would have been answered; and what is none by its content.
    m.mad(SOURCE, &question)?;
    m.mad(SOURCE, &[FILL; LEN])?;
    let (to, mad) = m.answers(1)?[0];
    if to != SOURCE || mad[3] != GET_RESPONSE || mad[8..18] != question[8..18] {
        return Err(format!("answered to {to:#x}: {:02x?}", &mad[..64]));
    }
    Ok(())
}

/// Every class and method: a question that nobody knows is answered with the status that says so
/// (IBTA 13.4.7), and all else with silence.
fn classes(m: &mut Mads<'_>) -> Result<()> {
    let mut kinds = Vec::new();
    for class in 0..=u8::MAX {
        for method in [0, GET, SET, SEND, 5, 6, 7, 0x7f, GET_RESPONSE, 0x85, 0xff] {
            kinds.push((1, class, 1, method));
        }
    }
    for method in 0..=u8::MAX {
        kinds.extend([3, PERFORMANCE, CM, 0x30].map(|class| (1, class, 1, method)));
    }
    for version in [0, 2, 0x80, 0xff] {
        // Of the header, which nobody knows and none may answer, and of classes.
        kinds.extend([PERFORMANCE, 9].map(|class| (version, class, 1, GET)));
        kinds.extend([PERFORMANCE, 9].map(|class| (1, class, version, GET)));
    }
    for kinds in kinds.chunks(AT_ONCE) {
        let mut asked = BTreeMap::new();
        for &(base, class, version, method) in kinds {
            let mut mad = header(class, version, method, 1, m.random.next());
            mad[0] = base;
            mad[MESSAGE..].fill(FILL);
            m.mad(SOURCE, &mad)?;
            // Those of the subnet are for queue pair 0.
            let subnet = matches!(class, 0x01 | 0x81);
            if base == 1 && matches!(method, GET | SET) && !subnet {
                asked.insert(mad[8..16].to_vec(), mad);
            }
        }
        for (to, answer) in m.answers(asked.len())? {
            let Some(mut want) = asked.remove(&answer[8..16]) else {
                return Err(format!(
                    "answered what was not asked: {:02x?}",
                    &answer[..64]
                ));
            };
            if want[1] == PERFORMANCE {
                // The device knows that one.
                let known = want[2] == 1 && want[3] == GET;
                let status = match (known, want[2]) {
                    (true, _) => 0,
                    (_, 1) => 3 << 2,
                    _ => 1 << 2,
                };
                want[4..6].copy_from_slice(&[0, status]);
                want[64..].copy_from_slice(&answer[64..]);
                // What ClassPortInfo says ends with the time to respond.
                if answer[84..].iter().any(|byte| *byte != 0) {
                    return Err(format!("an answer that goes on: {answer:02x?}"));
                }
            } else {
                want[4..6].copy_from_slice(&[0, 3 << 2]);
            }
            want[3] = GET_RESPONSE;
            if to != SOURCE || answer != want {
                return Err(format!("{answer:02x?} to {to:#x}, not {want:02x?}"));
            }
        }
    }
    Ok(())
}

/// Messages that no peer sends, and a connection whose every message comes several times.
fn connections(m: &mut Mads<'_>) -> Result<()> {
    let many = 8 * AT_ONCE as u32;
    let mut private = [0u8; 92];
    let mut reasons: BTreeMap<u16, u32> = BTreeMap::new();
    // Refused because nobody listens, whatever it carries; then by rdma_cm, for what it carries.
    for (port, reason) in [(DEAF, NO_SERVICE), (HEARD, BY_CONSUMER)] {
        let mut mads = Vec::new();
        for n in 0..many {
            private.fill_with(|| m.random.next() as u8);
            // No version of that header.
            private[0] |= 1;
            let base = u32::from(port) << 16;
            mads.push(m.req(base + n, 0x1000 + n, port, &private));
        }
        for rej in m.each_answered(&mads, REJ)? {
            let said = u16::from_be_bytes([rej[MESSAGE + 10], rej[MESSAGE + 11]]);
            *reasons.entry(said).or_default() += 1;
            if said != reason {
                return Err(format!("refused with {said}, not {reason}"));
            }
        }
    }
    m.notes.push(format!("refused by reason {reasons:?}"));

    // About connections that nobody has. DREQ is answered all the same (IBTA 12.10.7), and so is
    // the question for the number of a service that is not there.
    let mut mads = Vec::new();
    for attribute in (0..0x30).chain([0xff, 0x1000, 0xffff]) {
        if !matches!(attribute, REQ | DREQ | SIDR_REQ) {
            let ids: [u8; 8] = m.random.next().to_ne_bytes();
            mads.push(m.message(attribute, &[(0, &ids)]));
        }
    }
    for attribute in [MRA, REJ, REP, RTU, DREP, SIDR_REP, LAP, APR] {
        for _ in 0..AT_ONCE / 4 {
            let mut bytes = [0; LEN - MESSAGE];
            bytes.fill_with(|| m.random.next() as u8);
            mads.push(m.message(attribute, &[(0, &bytes)]));
        }
    }
    m.silent(&mads)?;
    let ids: Vec<[u8; 8]> = (0..many).map(|_| m.random.next().to_ne_bytes()).collect();
    let mads: Vec<Mad> = ids.iter().map(|ids| m.message(DREQ, &[(0, ids)])).collect();
    m.each_answered(&mads, DREP)?;
    let mads: Vec<Mad> = (0..many)
        .map(|n| {
            let service = (0x0111_0000 | u64::from(DEAF)).to_be_bytes();
            m.message(
                SIDR_REQ,
                &[(0, &n.to_be_bytes()), (4, &[0xff, 0xff]), (8, &service)],
            )
        })
        .collect();
    for rep in m.each_answered(&mads, SIDR_REP)? {
        if rep[MESSAGE + 4] != 1 {
            return Err(format!("SIDR_REP with status {}", rep[MESSAGE + 4]));
        }
    }
    handshake(m)
}

/// A connection: each of its messages comes again and again.
fn handshake(m: &mut Mads<'_>) -> Result<()> {
    const AGAIN: usize = 8;
    let (id, qpn) = (0x00ab_cdef_u32, 0x4711);
    let private = m.cma_header();
    let req = m.req(id, qpn, HEARD, &private);
    for _ in 0..AGAIN {
        m.mad(1, &req)?;
    }
    let mut rep = None;
    // It may say that it needs longer.
    while rep.is_none() {
        let heard = m.hear(Duration::from_secs(10) * m.patience)?;
        let (_, mad) = heard.ok_or("no answer to a proper REQ")?;
        match kind(&mad) {
            Some(REP) => rep = Some(mad),
            Some(MRA) => (),
            _ => return Err(format!("answered to a proper REQ: {:02x?}", &mad[..64])),
        }
    }
    m.counters.settle()?;
    let rep = rep.ok_or("no REP")?;
    let theirs: [u8; 4] = rep[MESSAGE..MESSAGE + 4]
        .try_into()
        .map_err(|_| "no number")?;
    if rep[MESSAGE + 4..MESSAGE + 8] != id.to_be_bytes() {
        return Err("a REP for another connection".into());
    }
    let their_qpn = [rep[MESSAGE + 12], rep[MESSAGE + 13], rep[MESSAGE + 14], 0];
    let ours = id.to_be_bytes();
    for _ in 0..AGAIN {
        let rtu = m.message(RTU, &[(0, &ours), (4, &theirs)]);
        m.mad(1, &rtu)?;
    }
    m.counters.settle()?;
    // A late REQ of the same, and late answers to what was never asked.
    m.mad(1, &req)?;
    for attribute in [REP, MRA, APR, DREP] {
        let mad = m.message(attribute, &[(0, &ours), (4, &theirs)]);
        m.mad(1, &mad)?;
    }
    m.counters.settle()?;
    let mut late = 0;
    // The REP again, while no RTU had come; that it needs longer, to a REQ at which another CPU looked
    // when the REP was not out yet; and the RTU that a REP gets. They may take their time.
    let expected = |mad: &Mad| {
        matches!(kind(mad), Some(REP | MRA | RTU)) && mad[MESSAGE..MESSAGE + 4] == theirs
    };
    while let Some((_, mad)) = m.hear(Duration::from_millis(30))? {
        if !expected(&mad) {
            return Err(format!("answered in a connection: {:02x?}", &mad[..64]));
        }
        late += 1;
    }
    let dreqs: Vec<Mad> = (0..AGAIN)
        .map(|_| m.message(DREQ, &[(0, &ours), (4, &theirs), (8, &their_qpn)]))
        .collect();
    // One by one: those that come while the first is under way get its answer.
    let mut dreps = 0;
    for dreq in dreqs {
        m.mad(1, &dreq)?;
        m.counters.settle()?;
        loop {
            let heard = m.hear(Duration::from_secs(10) * m.patience)?;
            let (_, mad) = heard.ok_or("no answer to DREQ")?;
            if kind(&mad) == Some(DREP) {
                break;
            }
            if !expected(&mad) {
                return Err(format!("answered to DREQ: {:02x?}", &mad[..64]));
            }
            late += 1;
        }
        dreps += 1;
    }
    m.notes.push(format!(
        "one connection of {AGAIN} REQ, {AGAIN} RTU and {dreps} DREQ, {late} answers more"
    ));
    Ok(())
}
