// SPDX-License-Identifier: GPL-2.0

//! The pure code of the driver as a target: parser, ICRC and both halves of queue pairs, in the
//! order in which `rust/datapath/receive.rs` asks them.

use crate::attack::Target;
use crate::case::{Completion, Fate, Qp, Region, State, FIRST_RECEIVE};
use crate::frame::{emitted, icrc_of, Hosts, Outer, ETHERNET};
use crate::model::{Rights, Service, Use, MTU, OUTSTANDING, QKEY, RECEIVE};
use crate::Result;
use ferroce_core::completion::{RecvCompletion, SendCompletion, Status};
use ferroce_core::env::{
    AccessError, AtomicOp, FlushPlacement, FlushRange, ReceiveEnv, RemoteAccess, ResponderEnv,
    TakeReceive, WriteEnv,
};
use ferroce_core::memory::{MemoryKey, Span};
use ferroce_core::message::Mtu;
use ferroce_core::operation::{Arguments, Operation};
use ferroce_core::rc::requester::{Requester, SendSlot};
use ferroce_core::rc::responder::{DropReason, Resource, Responder};
use ferroce_core::rc::RequesterCounters;
use ferroce_core::rc::{RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::segment::{IncomingRequest, ReadSegment, Response};
use ferroce_core::send::{
    Progress,
    SendRequest, //
};
use ferroce_core::uc;
use ferroce_core::uc::responder::UnreliableResponder;
use ferroce_core::ud::{DatagramEnv, DatagramResponder};
use ferroce_core::wire::bth::Bth;
use ferroce_core::wire::headers::AethSyndrome;
use ferroce_core::wire::icrc::is_plain_ipv4;
use ferroce_core::wire::opcode::{Opcode, OpcodeService as Opcodes};
use ferroce_core::wire::packet::{parse, Headers, Packet, ParseError};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::{DEFAULT_PKEY, ICRC_LEN, UDP_PORT};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// Bytes of a region.
const REGION: u64 = 20_000;
/// What a peer may read.
const READABLE: u8 = 0x11;
const NAMES: &str = "rw ro wo local foreign stale volatile receives sends mw-rw mw-ro mw-stale \
                     mw-foreign mw-own";

enum Half {
    Reliable(Box<Responder<Vec<Resource>>>),
    Unreliable(UnreliableResponder),
    Datagram(DatagramResponder),
}

/// A queue pair.
struct Victim {
    qp: Qp,
    state: State,
    peer: [u8; 16],
    responder: Half,
    requester: Requester<Vec<SendSlot>>,
    posted: Option<Operation>,
    memory: Memory,
    now: u64,
}

/// What requests act on: the rights of the queue pair, and what was done by them.
struct Memory {
    rights: Rights,
    taken: u32,
    completions: Vec<Completion>,
    written: Vec<(&'static str, u64, u64)>,
}

/// The device.
pub struct Device {
    hosts: Hosts,
    regions: BTreeMap<String, Region>,
    victims: Vec<Victim>,
    round: u32,
    heard: Vec<Vec<u8>>,
}

type Access<T> = std::result::Result<T, AccessError>;

impl Memory {
    fn access(&mut self, how: Use, span: Span) -> Access<(&'static str, u64)> {
        let place = (span.va, span.key.get(), span.len as u32);
        self.rights.range(how, place).ok_or(AccessError)
    }

    fn write(&mut self, span: Span) -> Access<()> {
        let (name, offset) = self.access(Use::Write, span)?;
        self.written.push((name, offset, offset + span.len));
        Ok(())
    }
}

impl ReceiveEnv for Memory {
    fn take_receive(&mut self) -> TakeReceive {
        if self.taken == self.rights.receives {
            return TakeReceive::Empty;
        }
        self.taken += 1;
        TakeReceive::Taken {
            wr_id: FIRST_RECEIVE + u64::from(self.taken) - 1,
            capacity: RECEIVE.into(),
        }
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Access<()> {
        let at = u64::from((self.taken - 1) * RECEIVE + offset);
        self.written.push(("receives", at, at + u64::from(len)));
        Ok(())
    }

    fn complete(&mut self, done: RecvCompletion) {
        let bytes = match done.status {
            Status::Success => done.byte_len,
            _ => 0,
        };
        let completion = (done.wr_id, done.status.as_u32(), bytes);
        self.completions.push(completion);
    }
}

impl WriteEnv for Memory {
    fn check_remote(&mut self, access: RemoteAccess, span: Span) -> Access<()> {
        let how = match access {
            RemoteAccess::Read => Use::Read,
            RemoteAccess::Write => Use::Write,
        };
        self.access(how, span).map(|_| ())
    }

    fn write_remote(&mut self, span: Span) -> Access<()> {
        self.write(span)
    }
}

impl ResponderEnv for Memory {
    fn change_remote(&mut self, word: Span, _: AtomicOp) -> Access<u64> {
        // What is compared is not there, and what is added is nothing.
        self.access(Use::Atomic, word)?;
        Ok(u64::from_ne_bytes([READABLE; 8]))
    }

    fn write_word(&mut self, word: Span) -> Access<()> {
        self.write(word)
    }

    fn flush(&mut self, range: FlushRange, to: FlushPlacement) -> Access<()> {
        let rw = self.rights.regions["rw"];
        let known = match range {
            FlushRange::Range(span) => self.access(Use::Flush, span).is_ok(),
            FlushRange::Region(key) => rw.rkey == key.get(),
        };
        let may = known && to.global && !to.persistent;
        may.then_some(()).ok_or(AccessError)
    }

    fn invalidate(&mut self, key: MemoryKey) -> Access<()> {
        let own = self.rights.regions.get("mw-own");
        own.filter(|own| own.rkey == key.get()).ok_or(AccessError)?;
        self.rights.regions.remove("mw-own");
        Ok(())
    }
}

impl DatagramEnv for Memory {
    fn scatter_header(&mut self) -> Access<()> {
        self.scatter(0, 40)
    }

    fn complete_from(&mut self, done: RecvCompletion, _source: u32) {
        self.complete(done);
    }
}

/// The request that a victim posts.
fn arguments() -> Arguments {
    Arguments {
        remote_addr: 0x1234_5678_9000,
        rkey: 0xfeed,
        ..Arguments::default()
    }
}

impl Victim {
    fn new(index: usize, kind: &str, round: u32, device: &Device) -> Self {
        let number = index as u32;
        let psn = |more: u32| {
            let step = 0x3_1337u32.wrapping_mul(number.wrapping_add(7 * round));
            0xff_fffdu32.wrapping_add(step).wrapping_add(more) & 0xff_ffff
        };
        let window = if kind == "rts-window" {
            0x7700 + number
        } else {
            0
        };
        let qp = Qp {
            index,
            qpn: 0x11_0003 + 5 * number,
            peer_qpn: 0x70_0000 + number,
            rq_psn: psn(0),
            sq_psn: psn(0x45_6789),
            window,
        };
        let rights = Rights::of(kind, &device.regions, window);
        let state = match kind.rsplit('-').next() {
            Some("reset") => State::Reset,
            Some("init") => State::Init,
            Some("rtr") => State::Rtr,
            Some("err") => State::Err,
            _ => State::Rts,
        };
        let mut requester = Requester::new(vec![SendSlot::default(); 16]);
        let responder = connected(Service::of(kind), &rights, &qp);
        requester.connect(RequesterConfig {
            mtu: Mtu::MIN,
            sq_psn: Psn::new(qp.sq_psn),
            retry_cnt: 2,
            rnr_retry: 2,
            ack_timeout_ns: None,
            max_rd_atomic: OUTSTANDING,
            ecn: false,
        });
        Self {
            qp,
            state,
            peer: match kind {
                "rts-stranger" => device.hosts.other,
                _ => device.hosts.us,
            },
            responder,
            requester,
            posted: None,
            memory: Memory {
                rights,
                taken: 0,
                completions: Vec::new(),
                written: Vec::new(),
            },
            now: 0,
        }
    }

    fn opcodes(&self) -> Opcodes {
        match self.responder {
            Half::Reliable(_) => Opcodes::Rc,
            Half::Unreliable(_) => Opcodes::Uc,
            Half::Datagram(_) => Opcodes::Ud,
        }
    }

    /// What a request does, and under what it is counted.
    fn execute(&mut self, request: &IncomingRequest) -> Fate {
        use uc::{UnreliableDrop as Lost, UnreliableOutcome as Outcome};
        let outcome = match &mut self.responder {
            Half::Reliable(responder) => {
                let outcome = responder.on_request(request, &mut self.memory);
                let counted = match outcome.dropped {
                    None if outcome.fatal.is_some() => "refused_request",
                    None => return Fate::Accepted,
                    Some(DropReason::Duplicate) => "duplicate_request",
                    Some(DropReason::OutOfSequence) => "out_of_sequence",
                    Some(DropReason::NoReceive) => "rnr_nak_sent",
                    Some(_) => "ignored_request",
                };
                return Fate::Received(counted);
            }
            Half::Unreliable(responder) => responder.on_request(request, &mut self.memory),
            Half::Datagram(responder) => match request.extension.deth() {
                Some(deth) if responder.admits(deth.qkey()) => {
                    responder.on_datagram(request, deth.source_qp(), &mut self.memory)
                }
                _ => return Fate::Drop("drop_qkey"),
            },
        };
        Fate::Received(match outcome {
            Outcome::Executed => return Fate::Accepted,
            Outcome::Failed => "failed",
            Outcome::Dropped(Lost::Old | Lost::NotReady) => "ignored_request",
            Outcome::Dropped(Lost::Gap) => "out_of_sequence",
            Outcome::Dropped(Lost::NoReceive) => "lost_no_receive",
            Outcome::Dropped(Lost::TooLong) => "lost_too_long",
            Outcome::Dropped(Lost::Denied) => "lost_denied",
            Outcome::Dropped(Lost::Invalid) => "lost_invalid",
        })
    }

    /// The same for a response.
    fn respond(&mut self, packet: &Packet) -> Fate {
        if packet.opcode == Opcode::CongestionNotification {
            if matches!(self.responder, Half::Unreliable(_)) {
                return Fate::Received("rp_cnp_ignored");
            }
            self.requester.slow_down();
            return Fate::Received("rp_cnp_handled");
        }
        let before = counts(self.requester.counters());
        let sink = &mut |done: SendCompletion| {
            let status = done.status.as_u32();
            self.memory.completions.push((done.wr_id, status, 0));
        };
        let aeth = packet.extension.aeth();
        let progress = if let Some(segment) = ReadSegment::from_packet(packet) {
            let is_ack = aeth.is_none_or(|a| matches!(a.syndrome(), AethSyndrome::Ack { .. }));
            if !is_ack {
                return Fate::Drop("drop_malformed");
            }
            match self
                .requester
                .accept_read_response(&segment, self.now, sink)
            {
                Ok(place) => {
                    let range = u64::from(place.offset)..u64::from(place.offset + place.len);
                    self.memory.written.push(("sends", range.start, range.end));
                    self.requester.read_response_placed(&place, self.now, sink)
                }
                Err(refused) => refused.progress,
            }
        } else {
            let aeth = aeth.expect("an acknowledgement has one");
            let (psn, now) = (packet.psn, self.now);
            if packet.opcode == Opcode::RcMissing {
                self.requester.on_missing(psn, aeth, &[0xaa; 8], now, sink)
            } else {
                self.requester.on_acknowledge(psn, aeth, now, sink)
            }
        };
        self.proceed(progress);
        let now = counts(self.requester.counters());
        let mut grown = before
            .into_iter()
            .zip(now)
            .filter(|(before, now)| before != now);
        match (grown.next(), grown.next()) {
            (None, _) => Fate::Accepted,
            (Some(((name, before), (_, now))), None) if now == before + 1 => Fate::Received(name),
            _ => Fate::Received("more than one reason"),
        }
    }

    fn proceed(&mut self, progress: Progress) {
        if progress.has_failed() {
            self.fail();
        }
    }

    /// To ERR.
    fn fail(&mut self) {
        self.state = State::Err;
        let completions = &mut self.memory.completions;
        self.requester.flush(&mut |done| {
            completions.push((done.wr_id, done.status.as_u32(), 0));
        });
        let flushed = |wr_id| (wr_id, Status::WrFlushErr.as_u32(), 0);
        let in_progress = match &mut self.responder {
            Half::Reliable(responder) => responder.abort(),
            Half::Unreliable(responder) => responder.abort(),
            Half::Datagram(responder) => responder.abort(),
        };
        if let Some(done) = in_progress {
            self.memory.complete(done);
        }
        while let TakeReceive::Taken { wr_id, .. } = self.memory.take_receive() {
            self.memory.completions.push(flushed(wr_id));
        }
    }

    /// What it sends now: headers and payload.
    fn next(&mut self) -> Option<(Headers, Vec<u8>)> {
        if self.state == State::Err {
            return None;
        }
        if let Half::Reliable(responder) = &mut self.responder {
            if let Some(response) = responder.next_response(1) {
                let payload = match &response {
                    Response::ReadResponse {
                        segment, source, ..
                    } => {
                        let place = (source.va, source.key.get(), segment.len);
                        let may = segment.len == 0
                            || self.memory.rights.range(Use::Read, place).is_some();
                        if !may {
                            let _ = responder.read_failed();
                            return self.next();
                        }
                        vec![READABLE; segment.len as usize]
                    }
                    _ => Vec::new(),
                };
                let mut headers = Headers::new(response.opcode(), self.qp.peer_qpn, response.psn());
                headers.extension = response.extension();
                if responder.has_ended() {
                    self.fail();
                }
                return Some((headers, payload));
            }
        }
        if self.state != State::Rts {
            return None;
        }
        if self.requester.deadline().is_some_and(|at| at <= self.now) {
            let sink = &mut |_| {};
            let progress = self.requester.on_deadline(self.now, sink);
            self.proceed(progress);
        }
        let segment = self.requester.next_segment(self.now, 1)?;
        let mut headers = Headers::new(segment.opcode, self.qp.peer_qpn, segment.psn);
        headers.ack_req = segment.ack_req;
        headers.extension = segment.extension(arguments);
        let is_send = self.posted == Some(Operation::Send);
        let len = if is_send { segment.len as usize } else { 0 };
        Some((headers, vec![READABLE; len]))
    }
}

/// A responder in RTR.
fn connected(service: Service, rights: &Rights, qp: &Qp) -> Half {
    let rq_psn = Psn::new(qp.rq_psn);
    match service {
        Service::Rc => {
            let mut responder = Responder::new(vec![Resource::default(); OUTSTANDING.into()]);
            responder.connect(ResponderConfig {
                mtu: Mtu::from_bytes(MTU).expect("an MTU"),
                rq_psn,
                max_dest_rd_atomic: if rights.reads { OUTSTANDING } else { 0 },
                min_rnr_timer: 12,
                rights: RemoteRights {
                    read: rights.rdma,
                    write: rights.rdma,
                    atomic: rights.rdma,
                    flush_global: rights.flush,
                    flush_persistent: false,
                },
            });
            Half::Reliable(Box::new(responder))
        }
        Service::Uc => {
            let mut responder = UnreliableResponder::default();
            responder.connect(Mtu::MIN, rq_psn, rights.rdma);
            Half::Unreliable(responder)
        }
        Service::Ud => {
            let mut responder = DatagramResponder::default();
            responder.connect(QKEY);
            Half::Datagram(responder)
        }
    }
}

/// Under what responses are counted, and how often.
fn counts(c: &RequesterCounters) -> [(&'static str, u32); 6] {
    [
        (
            "stale_response",
            c.duplicate_responses + c.unexpected_responses,
        ),
        ("bad_response", c.bad_responses),
        ("out_of_sequence_response", c.out_of_sequence),
        ("fatal_nak_rcvd", c.fatal_naks),
        ("seq_nak_rcvd", c.seq_naks),
        ("rnr_nak_rcvd", c.rnr_naks),
    ]
}

/// An IP packet of the RoCEv2 port: its header, where it is from and to, and what follows from the
/// UDP header on.
struct Datagram<'f> {
    ip: &'f [u8],
    from: &'f [u8],
    to: &'f [u8],
    udp: &'f [u8],
}

impl Device {
    /// One for these hosts.
    pub fn new(hosts: Hosts) -> Self {
        let regions = NAMES.split(' ').enumerate().map(|(n, name)| {
            let region = Region {
                at: 0x7f00_0000_0408 + 0x2_0000 * n as u64,
                len: REGION,
                rkey: 0x100 * (n as u32 + 1) + 0x5a,
            };
            (String::from(name), region)
        });
        Self {
            hosts,
            regions: regions.collect(),
            victims: Vec::new(),
            round: 0,
            heard: Vec::new(),
        }
    }

    /// As the kernel gives it to the driver; what it keeps from it is not sent to this target.
    fn datagram<'f>(&self, frame: &'f [u8]) -> std::result::Result<Datagram<'f>, Fate> {
        let tagged = frame[12..14] == [0x81, 0];
        let start = ETHERNET + if tagged { 4 } else { 0 };
        let (len, to_udp) = if self.hosts.v6 {
            (40, frame[start + 6] == 17)
        } else {
            (20, is_plain_ipv4(frame[start]))
        };
        if !to_udp {
            return Err(Fate::Drop("drop_ip_header"));
        }
        let (ip, udp) = frame[start..].split_at(len);
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let udp_len = usize::from(word(4));
        if word(2) != UDP_PORT || udp_len < 8 || udp_len > udp.len() {
            return Err(Fate::Outside);
        }
        let (from, to) = if self.hosts.v6 {
            (&ip[8..24], &ip[24..])
        } else {
            (&ip[12..16], &ip[16..])
        };
        let udp = &udp[..udp_len];
        Ok(Datagram { ip, from, to, udp })
    }

    /// As `receive.rs` does it.
    fn receive(&mut self, frame: &[u8]) -> std::result::Result<Fate, Fate> {
        let datagram = self.datagram(frame)?;
        let bytes = &datagram.udp[8..];
        let (bth, _) = Bth::ref_from_prefix(bytes).map_err(|_| Fate::Drop("drop_malformed"))?;
        let mut victims = self.victims.iter();
        let index = victims.position(|victim| victim.qp.qpn == bth.dest_qp());
        let index = index.ok_or(Fate::Drop("drop_unknown_qp"))?;
        let victim = &mut self.victims[index];
        if bth.version() == 0 && !bth.is_of(victim.opcodes()) {
            return Err(Fate::Drop("drop_opcode"));
        }
        let packet = parse(bytes, bytes.len()).map_err(|e| match e {
            ParseError::UnknownOpcode => Fate::Drop("drop_opcode"),
            _ => Fate::Drop("drop_malformed"),
        })?;
        if packet.pkey & 0x7fff != DEFAULT_PKEY & 0x7fff {
            return Err(Fate::Drop("drop_pkey"));
        }
        let (covered, told) = datagram.udp.split_at(datagram.udp.len() - ICRC_LEN);
        if icrc_of(datagram.ip, covered) != told {
            return Err(Fate::Drop("drop_icrc"));
        }
        let request = IncomingRequest::from_packet(&packet);
        let serves = match request {
            Some(_) => matches!(victim.state, State::Rtr | State::Rts),
            None => victim.state == State::Rts,
        };
        if !serves {
            return Err(Fate::Drop("drop_state"));
        }
        let is_peer = datagram.from == &victim.peer[..datagram.from.len()]
            && datagram.to == &self.hosts.victim[..datagram.to.len()];
        if !matches!(victim.responder, Half::Datagram(_)) && !is_peer {
            return Err(Fate::Drop("drop_address"));
        }
        let fate = match request {
            Some(request) => victim.execute(&request),
            None => victim.respond(&packet),
        };
        self.send_from(index);
        Ok(fate)
    }

    /// All that a queue pair has to send.
    fn send_from(&mut self, index: usize) {
        let outer = Outer {
            from: self.hosts.victim,
            to: self.hosts.us,
            ..Outer::new(&self.hosts)
        };
        while let Some((headers, payload)) = self.victims[index].next() {
            self.heard.push(outer.frame(&emitted(headers, &payload)));
        }
    }
}

impl Target for Device {
    fn regions(&self) -> BTreeMap<String, Region> {
        self.regions.clone()
    }

    fn make(&mut self, n: usize, kind: &str) -> Result<Vec<Qp>> {
        self.round += 1;
        self.heard.clear();
        self.victims = (0..n)
            .map(|index| Victim::new(index, kind, self.round, self))
            .collect();
        Ok(self.victims.iter().map(|victim| victim.qp).collect())
    }

    fn post(&mut self, index: usize, op: &str, len: u32) -> Result<()> {
        let victim = &mut self.victims[index];
        let op = match op {
            "send" => Operation::Send,
            _ => Operation::Read,
        };
        victim.posted = Some(op);
        let request = SendRequest {
            wr_id: index as u64,
            length: len,
            op,
            signaled: true,
            ..SendRequest::default()
        };
        let pushed = victim.requester.push(request);
        pushed.map_err(|e| format!("a request was not taken: {e:?}"))?;
        self.send_from(index);
        Ok(())
    }

    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()> {
        let met = self.receive(frame).unwrap_or_else(|dropped| dropped);
        // No IP layer stands before it.
        let fate = match fate {
            Fate::Perhaps(reason) => Fate::Drop(reason),
            fate => fate,
        };
        if met == fate {
            return Ok(());
        }
        Err(format!("{met:?}, not {fate:?}: {frame:02x?}"))
    }

    fn hear(&mut self, _: usize) -> Result<Vec<Vec<u8>>> {
        // What was refused for a moment is tried again.
        for index in 0..self.victims.len() {
            let victim = &mut self.victims[index];
            if let Some(at) = victim.requester.deadline() {
                victim.now = at;
                self.send_from(index);
            }
        }
        Ok(std::mem::take(&mut self.heard))
    }

    fn states(&mut self) -> Result<Vec<u64>> {
        Ok(self.victims.iter().map(|v| v.state as u64).collect())
    }

    fn completions(&mut self) -> Result<BTreeMap<usize, Vec<Completion>>> {
        let victims = self.victims.iter_mut().enumerate();
        Ok(victims
            .map(|(index, v)| (index, std::mem::take(&mut v.memory.completions)))
            .filter(|(_, completions)| !completions.is_empty())
            .collect())
    }

    fn check_memory(&mut self, may_change: &[(&'static str, u64, u64)]) -> Result<()> {
        let mut written = self.victims.iter().flat_map(|v| &v.memory.written);
        let stray = written.find(|(name, from, to)| {
            let inside = |may: &&(&str, u64, u64)| may.0 == *name && may.1 <= *from && *to <= may.2;
            from != to && !may_change.iter().any(|may| inside(&may))
        });
        match stray {
            Some(stray) => Err(format!("memory was written: {stray:?}")),
            None => Ok(()),
        }
    }

    fn register(&mut self, name: &str, again: bool) -> Result<()> {
        if again {
            let region = self.regions.get_mut(name).ok_or("no such region")?;
            region.rkey ^= 0xff00_0000;
        } else {
            for victim in &mut self.victims {
                victim.memory.rights.regions.remove(name);
            }
        }
        Ok(())
    }
}
