// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Two endpoints, a clock, and a network between them that may lose, double and reorder packets.
//!
//! What has a span of 1 travels as the bytes of a packet, so these tests cover the way from a segment
//! to a packet and back too. What has more travels as on the local path.

extern crate std;

use crate::transport::completion::RecvCompletion;
use crate::transport::completion::SendCompletion;
use crate::transport::completion::SendOp;
use crate::transport::completion::Status;
use crate::transport::config::Mtu;
use crate::transport::config::RequesterConfig;
use crate::transport::config::ResponderConfig;
use crate::transport::requester::Ignored;
use crate::transport::requester::Progress;
use crate::transport::requester::Requester;
use crate::transport::requester::SendRequest;
use crate::transport::requester::SendSlot;
use crate::transport::responder::AccessError;
use crate::transport::responder::Fatal;
use crate::transport::responder::RemoteAccess;
use crate::transport::responder::Responder;
use crate::transport::responder::ResponderEnv;
use crate::transport::responder::TakeReceive;
use crate::transport::segment::IncomingRequest;
use crate::transport::segment::ReadSegment;
use crate::transport::segment::RequestSegment;
use crate::transport::segment::Response;
use crate::wire::headers::rnr_delay_ns;
use crate::wire::packet::pad_for;
use crate::wire::packet::parse;
use crate::wire::packet::Headers;
use crate::wire::psn::Psn;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

pub(super) const RKEY: u32 = 0xbeef;
pub(super) const BASE: u64 = 0x7000_0000_0000;
pub(super) const REGION: usize = 1 << 20;

/// A small generator of numbers that look random (xorshift).
#[derive(Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub(super) fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

/// A receive queue and memory.
pub(super) struct Memory {
    pub(super) region: Vec<u8>,
    pub(super) receives: VecDeque<TakeReceive>,
    taken: Vec<u8>,
    capacity: u64,
    pub(super) received: Vec<(RecvCompletion, Vec<u8>)>,
    /// Remote accesses that were carried out: address, length.
    pub(super) writes: Vec<(u64, u32)>,
    pub(super) scatter_fails: bool,
    /// How many more reads of the region succeed.
    pub(super) reads_left: u64,
}

/// The memory together with the payload of the request at hand.
pub(super) struct Env<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) payload: &'a [u8],
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            region: vec![0; REGION],
            receives: VecDeque::new(),
            taken: Vec::new(),
            capacity: 0,
            received: Vec::new(),
            writes: Vec::new(),
            scatter_fails: false,
            reads_left: u64::MAX,
        }
    }

    pub(super) fn post(&mut self, wr_id: u64, capacity: u64) {
        self.receives
            .push_back(TakeReceive::Taken { wr_id, capacity });
    }

    fn offset(&self, rkey: u32, va: u64, len: u32) -> Result<usize, AccessError> {
        let offset = va.checked_sub(BASE).ok_or(AccessError)?;
        let end = offset.checked_add(u64::from(len)).ok_or(AccessError)?;
        if rkey != RKEY || end > REGION as u64 {
            return Err(AccessError);
        }
        Ok(offset as usize)
    }

    pub(super) fn read(&mut self, rkey: u32, va: u64, len: u32) -> Result<Vec<u8>, AccessError> {
        if len == 0 {
            return Ok(Vec::new());
        }
        self.reads_left = self.reads_left.checked_sub(1).ok_or(AccessError)?;
        let offset = self.offset(rkey, va, len)?;
        Ok(self.region[offset..offset + len as usize].to_vec())
    }
}

impl ResponderEnv for Env<'_> {
    fn take_receive(&mut self) -> TakeReceive {
        self.memory.taken.clear();
        let next = self.memory.receives.pop_front();
        if let Some(TakeReceive::Taken { capacity, .. }) = next {
            self.memory.capacity = capacity;
        }
        next.unwrap_or(TakeReceive::Empty)
    }

    fn check_remote(
        &mut self,
        _access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        assert_ne!(len, 0, "an empty range needs no right");
        self.memory.offset(rkey, va, len).map(|_| ())
    }

    fn write_remote(&mut self, rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        assert_eq!(self.payload.len(), len as usize);
        let offset = self.memory.offset(rkey, va, len)?;
        self.memory.region[offset..offset + len as usize].copy_from_slice(self.payload);
        self.memory.writes.push((va, len));
        Ok(())
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        assert_eq!(self.payload.len(), len as usize);
        if self.memory.scatter_fails {
            return Err(AccessError);
        }
        assert_eq!(self.memory.taken.len(), offset as usize);
        assert!(u64::from(offset) + u64::from(len) <= self.memory.capacity);
        self.memory.taken.extend_from_slice(self.payload);
        Ok(())
    }

    fn complete(&mut self, completion: RecvCompletion) {
        let data = core::mem::take(&mut self.memory.taken);
        self.memory.received.push((completion, data));
    }
}

/// What is on the way.
#[derive(Clone)]
enum Frame {
    Packet(Vec<u8>),
    Request(IncomingRequest, Vec<u8>),
    Read(ReadSegment, Vec<u8>),
}

/// One QP.
pub(super) struct Host {
    pub(super) requester: Requester<Vec<SendSlot>>,
    pub(super) responder: Responder,
    pub(super) memory: Memory,
    /// Local buffers of the send queue, by wr_id.
    pub(super) buffers: BTreeMap<u64, Vec<u8>>,
    wr_ids: Vec<u64>,
    pub(super) sent: Vec<SendCompletion>,
    pub(super) fatal: Option<Fatal>,
    pub(super) send_fatal: bool,
    pub(super) bad: u32,
    /// Work requests whose memory is not accessible any more.
    pub(super) broken: Vec<u64>,
}

impl Host {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            requester: Requester::new(vec![SendSlot::default(); slots]),
            responder: Responder::new(),
            memory: Memory::new(),
            buffers: BTreeMap::new(),
            wr_ids: vec![0; slots],
            sent: Vec::new(),
            fatal: None,
            send_fatal: false,
            bad: 0,
            broken: Vec::new(),
        }
    }

    pub(super) fn post(&mut self, request: SendRequest, data: Vec<u8>) {
        let slot = self.requester.push(request).unwrap();
        self.wr_ids[slot as usize] = request.wr_id;
        self.buffers.insert(request.wr_id, data);
    }

    fn note(&mut self, progress: Progress) {
        self.send_fatal |= progress.fatal;
    }
}

/// How bad the network is.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    pub(super) loss: u64,
    pub(super) double: u64,
    pub(super) reorder: u64,
    /// How often a segment cannot even leave.
    pub(super) stuck: u64,
    /// Most packets that move at once.
    pub(super) max_span: u32,
}

pub(super) const CALM: Weather = Weather {
    loss: 0,
    double: 0,
    reorder: 0,
    stuck: 0,
    max_span: 1,
};

/// Decides about a packet of a side.
type Filter = std::boxed::Box<dyn FnMut(usize, &Headers) -> bool>;

pub(super) struct Pair {
    pub(super) hosts: [Host; 2],
    frames: BTreeMap<(u64, u64), (usize, Frame)>,
    serial: u64,
    pub(super) now: u64,
    pub(super) rng: Rng,
    pub(super) weather: Weather,
    /// Packets that left.
    pub(super) packets: u64,
    /// Decides which packets are lost instead of the weather: side that sends, and opcode.
    pub(super) filter: Option<Filter>,
}

pub(super) fn requester_config(mtu: u32, psn: u32) -> RequesterConfig {
    RequesterConfig {
        mtu: Mtu::from_bytes(mtu).unwrap(),
        sq_psn: Psn::new(psn),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(1_000_000),
        max_rd_atomic: 4,
    }
}

pub(super) fn responder_config(mtu: u32, psn: u32) -> ResponderConfig {
    ResponderConfig {
        mtu: Mtu::from_bytes(mtu).unwrap(),
        rq_psn: Psn::new(psn),
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        allow_read: true,
        allow_write: true,
    }
}

impl Pair {
    pub(super) fn new(mtu: u32, seed: u64, weather: Weather) -> Self {
        let mut rng = Rng::new(seed);
        let psns = [0xff_fff0 + rng.below(16) as u32, rng.next() as u32];
        let mut hosts = [Host::new(64), Host::new(64)];
        for (side, host) in hosts.iter_mut().enumerate() {
            host.requester.connect(requester_config(mtu, psns[side]));
            host.responder
                .connect(responder_config(mtu, psns[1 - side]));
        }
        Self {
            hosts,
            frames: BTreeMap::new(),
            serial: 0,
            now: 1,
            rng,
            weather,
            packets: 0,
            filter: None,
        }
    }

    fn span(&mut self) -> u32 {
        1 + self.rng.below(u64::from(self.weather.max_span)) as u32
    }

    fn put(&mut self, from: usize, frame: Frame) {
        self.packets += 1;
        if let (Some(filter), Frame::Packet(bytes)) = (&mut self.filter, &frame) {
            let packet = parse(bytes, bytes.len()).unwrap();
            if filter(from, &Headers::from(&packet)) {
                return;
            }
        }
        if self.rng.percent(self.weather.loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.percent(self.weather.double));
        for _ in 0..copies {
            let mut delay = 5_000;
            if self.rng.percent(self.weather.reorder) {
                delay += self.rng.below(40_000);
            }
            self.serial += 1;
            self.frames
                .insert((self.now + delay, self.serial), (1 - from, frame.clone()));
        }
    }

    fn packet(headers: &Headers, payload: &[u8]) -> Frame {
        let mut buffer = [0; 64];
        let len = headers
            .emit(&mut buffer)
            .expect("the headers fit the opcode");
        let mut bytes = buffer[..len].to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + headers.pad as usize + 4, 0);
        Frame::Packet(bytes)
    }

    fn send_request(&mut self, side: usize, segment: &RequestSegment) {
        let host = &mut self.hosts[side];
        let wr_id = host.wr_ids[segment.slot as usize];
        if host.broken.contains(&wr_id) {
            let sent = &mut host.sent;
            let progress = host
                .requester
                .fail(segment.slot, Status::LocProtErr, &mut |c| sent.push(c));
            host.note(progress);
            return;
        }
        let data = &host.buffers[&wr_id];
        let offset = segment.offset as usize;
        let payload = data[offset..offset + segment.len as usize].to_vec();
        let frame = if segment.span == 1 {
            let mut headers = Headers::new(segment.opcode(), 0x11, segment.psn);
            headers.ack_req = segment.ack_req;
            headers.solicited = segment.solicited;
            headers.imm = segment.imm;
            headers.reth = segment.reth;
            headers.pad = pad_for(payload.len());
            Self::packet(&headers, &payload)
        } else {
            Frame::Request(IncomingRequest::from(segment), payload)
        };
        self.put(side, frame);
    }

    fn send_response(&mut self, side: usize, response: &Response) {
        let host = &mut self.hosts[side];
        let payload = match response {
            Response::Acknowledge { .. } => Vec::new(),
            Response::ReadResponse {
                segment, rkey, va, ..
            } => match host.memory.read(*rkey, *va, segment.len) {
                Ok(data) => data,
                Err(AccessError) => {
                    let outcome = host.responder.read_failed();
                    host.fatal = host.fatal.or(outcome.fatal);
                    return;
                }
            },
        };
        let frame = match response {
            Response::ReadResponse { segment, .. } if segment.span != 1 => {
                Frame::Read(*segment, payload)
            }
            _ => {
                let mut headers = Headers::new(response.opcode(), 0x11, response.psn());
                headers.aeth = response.aeth();
                headers.pad = pad_for(payload.len());
                Self::packet(&headers, &payload)
            }
        };
        self.put(side, frame);
    }

    /// Lets both sides send what they can.
    pub(super) fn pump(&mut self) {
        for side in 0..2 {
            loop {
                let span = self.span();
                let Some(response) = self.hosts[side].responder.next_response(span) else {
                    break;
                };
                self.send_response(side, &response);
            }
            assert!(!self.hosts[side].responder.has_response());
            loop {
                let span = self.span();
                let now = self.now;
                let Some(segment) = self.hosts[side].requester.next_segment(now, span) else {
                    break;
                };
                if self.rng.percent(self.weather.stuck) {
                    self.hosts[side].requester.unsend(&segment);
                    break;
                }
                self.send_request(side, &segment);
            }
        }
    }

    fn on_request(&mut self, side: usize, request: &IncomingRequest, payload: &[u8]) {
        let host = &mut self.hosts[side];
        let mut env = Env {
            memory: &mut host.memory,
            payload,
        };
        let outcome = host.responder.on_request(request, &mut env);
        host.fatal = host.fatal.or(outcome.fatal);
    }

    fn on_read(&mut self, side: usize, response: &ReadSegment, payload: &[u8]) {
        let now = self.now;
        let host = &mut self.hosts[side];
        let sent = &mut host.sent;
        let sink = &mut |c| sent.push(c);
        let progress = match host.requester.accept_read_response(response, now, sink) {
            Ok(place) => {
                let wr_id = host.wr_ids[place.slot as usize];
                if host.broken.contains(&wr_id) {
                    host.requester.fail(place.slot, Status::LocProtErr, sink)
                } else {
                    let offset = place.offset as usize;
                    let buffer = host.buffers.get_mut(&wr_id).unwrap();
                    buffer[offset..offset + place.len as usize].copy_from_slice(payload);
                    host.requester.read_response_placed(&place, now, sink)
                }
            }
            Err(refused) => {
                host.bad += u32::from(refused.reason == Ignored::Bad);
                refused.progress
            }
        };
        host.note(progress);
    }

    fn deliver(&mut self, side: usize, frame: &Frame) {
        match frame {
            Frame::Request(request, payload) => self.on_request(side, request, payload),
            Frame::Read(segment, payload) => self.on_read(side, segment, payload),
            Frame::Packet(bytes) => {
                let packet = parse(bytes, bytes.len()).expect("a packet that was emitted");
                let begin = packet.payload_offset;
                let payload = &bytes[begin..begin + packet.payload_len];
                if let Some(request) = IncomingRequest::from_packet(&packet) {
                    self.on_request(side, &request, payload);
                } else if let Some(response) = ReadSegment::from_packet(&packet) {
                    self.on_read(side, &response, payload);
                } else {
                    let syndrome = packet.aeth.unwrap().syndrome;
                    let now = self.now;
                    let host = &mut self.hosts[side];
                    let sent = &mut host.sent;
                    let progress =
                        host.requester
                            .on_acknowledge(packet.psn, syndrome, now, &mut |c| sent.push(c));
                    host.note(progress);
                }
            }
        }
    }

    pub(super) fn frames_on_the_way(&self) -> bool {
        !self.frames.is_empty()
    }

    /// One event. `false` when nothing is left to happen.
    pub(super) fn step(&mut self) -> bool {
        self.pump();
        let arrival = self.frames.keys().next().copied();
        let deadline = self
            .hosts
            .iter()
            .filter_map(|host| host.requester.deadline())
            .min();
        match (arrival, deadline) {
            (Some((at, _)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                let (_, (side, frame)) = self.frames.pop_first().unwrap();
                self.now = self.now.max(at);
                self.deliver(side, &frame);
            }
            (_, Some(deadline)) => {
                self.now = self.now.max(deadline);
                for host in &mut self.hosts {
                    let sent = &mut host.sent;
                    let progress = host.requester.on_deadline(self.now, &mut |c| sent.push(c));
                    host.note(progress);
                }
            }
            _ => return false,
        }
        true
    }

    /// Until nothing happens any more.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the endpoints never come to rest");
    }

    /// The nanoseconds that the RNR NAKs of [`responder_config`] ask for.
    pub(super) fn rnr_delay() -> u64 {
        rnr_delay_ns(12)
    }
}

/// A signaled request.
pub(super) fn request(wr_id: u64, op: SendOp, length: usize) -> SendRequest {
    SendRequest {
        wr_id,
        op,
        length: length as u32,
        signaled: true,
        remote_addr: BASE,
        rkey: RKEY,
        imm: (wr_id as u32).to_be_bytes(),
        ..SendRequest::default()
    }
}
