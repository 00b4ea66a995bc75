// SPDX-License-Identifier: GPL-2.0

//! Peers that send anything at all, and [processes](process) that post anything at all. What they
//! do is drawn from a [`Chance`]: dice, for tests that are the same each time, or the bytes of a
//! fuzzer.

mod process;

pub use process::work_requests;

use crate::model::dice::Dice;
use crate::model::memory::{Env, Memory};
use crate::model::plan::{BASE, RKEY};
use ferroce_core::transport::completion::{RecvOp, Status};
use ferroce_core::transport::datagram;
use ferroce_core::transport::message::Mtu;
use ferroce_core::transport::operation::{Brings, Operation};
use ferroce_core::transport::reliable::config::{RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::transport::reliable::requester::{Requester, SendSlot};
use ferroce_core::transport::reliable::responder::{Resource, Responder};
use ferroce_core::transport::request::SendRequest;
use ferroce_core::transport::segment::{IncomingRequest, ReadSegment, Response};
use ferroce_core::transport::unreliable;
use ferroce_core::wire::headers::{Aeth, AethSyndrome, AtomicEth, Deth, Feth, Reth};
use ferroce_core::wire::opcode::{AtomicKind, Kind, Opcode};
use ferroce_core::wire::packet::{Extension, Packet};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::{ICRC_LEN, MAX_PAYLOAD};

/// Where decisions come from.
pub trait Chance {
    /// Any number.
    fn throw(&mut self) -> u64;
    /// A number below `n`, or 0.
    fn below(&mut self, n: u64) -> u64;
    /// Nothing more is to be decided.
    fn is_over(&self) -> bool;

    /// True so often in a hundred times.
    fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }
}

impl Chance for Dice {
    fn throw(&mut self) -> u64 {
        Dice::throw(self)
    }

    fn below(&mut self, n: u64) -> u64 {
        Dice::below(self, n)
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// What every caller of `parse` relies on, without the code of `parse`.
pub fn assert_consistent(packet: &Packet, udp_payload_len: usize) {
    let info = packet.opcode.info();
    let extension = packet.extension;
    assert_eq!(extension.kind(), info.extension);
    let extended = 16 * usize::from(extension.reth().is_some())
        + 8 * usize::from(extension.deth().is_some())
        + 4 * usize::from(extension.aeth().is_some())
        + 4 * usize::from(extension.imm().is_some())
        + 4 * usize::from(extension.invalidated().is_some())
        + 20 * usize::from(extension.flush().is_some())
        + 28 * usize::from(extension.atomic().is_some())
        + 8 * usize::from(extension.original().is_some());
    assert_eq!(packet.payload_offset, 12 + extended);
    let pad = usize::from(packet.pad);
    assert_eq!(
        packet.payload_offset + packet.payload_len + pad + ICRC_LEN,
        udp_payload_len
    );
    assert!(pad <= 3);
    assert_eq!((packet.payload_len + pad) % 4, 0);
    assert!(packet.payload_len <= MAX_PAYLOAD || info.kind == Kind::Unsupported);
    if !info.has_payload() {
        assert_eq!((packet.payload_len, pad), (0, 0));
    }
    assert!(packet.dest_qpn < 1 << 24 && packet.psn.get() < 1 << 24);
    assert!(extension.aeth().is_none_or(|aeth| aeth.msn() < 1 << 24));
}

/// Bytes of the region that the peer may reach.
pub const REGION: usize = 1 << 16;

/// A responder in RTR with room for four READs.
pub fn connected_responder(first_psn: u32) -> Responder<Vec<Resource>> {
    let mut responder = Responder::new(vec![Resource::default(); 4]);
    responder.connect(ResponderConfig {
        mtu: Mtu::MIN,
        rq_psn: Psn::new(first_psn),
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        rights: RemoteRights::ALL,
    });
    responder
}

fn connected_requester(first_psn: u32) -> Requester<Vec<SendSlot>> {
    let mut requester = Requester::new(vec![SendSlot::default(); 16]);
    requester.connect(RequesterConfig {
        mtu: Mtu::MIN,
        sq_psn: Psn::new(first_psn),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(1_000_000),
        max_rd_atomic: 4,
    });
    requester
}

/// A number near something interesting.
fn number(rng: &mut impl Chance) -> u32 {
    let near = [
        0,
        1,
        255,
        256,
        257,
        512,
        1 << 23,
        1 << 24,
        1 << 31,
        u32::MAX,
    ];
    match rng.below(3) {
        0 => near[rng.below(near.len() as u64) as usize],
        1 => rng.below(600) as u32,
        _ => rng.throw() as u32,
    }
}

fn address(rng: &mut impl Chance) -> u64 {
    match rng.below(4) {
        0 => BASE + rng.below(REGION as u64),
        1 => BASE + REGION as u64 - rng.below(300),
        2 => u64::MAX - rng.below(300),
        _ => rng.throw() << 11,
    }
}

fn near_psn(rng: &mut impl Chance, psn: Psn) -> Psn {
    match rng.below(10) {
        0..6 => psn,
        6 => psn.add(rng.below(3) as u32),
        7 | 8 => psn.sub(rng.below(600) as u32),
        _ => psn.add(number(rng)),
    }
}

fn aeth(syndrome: u8, msn: u32) -> Aeth {
    Aeth::new(AethSyndrome::decode(syndrome), msn)
}

/// A request, often one that the responder expects; `open` is the message that it is in the middle of.
pub fn any_request(rng: &mut impl Chance, expected: Psn, open: Option<Kind>) -> IncomingRequest {
    let sane = rng.percent(95);
    let kinds = [
        Kind::Send,
        Kind::Write,
        Kind::ReadRequest,
        Kind::Atomic(AtomicKind::CompareSwap),
        Kind::Atomic(AtomicKind::FetchAdd),
        Kind::AtomicWrite,
        Kind::Flush,
    ];
    let mut kind = kinds[rng.below(kinds.len() as u64) as usize];
    let mut first = rng.percent(60);
    if sane {
        kind = open.unwrap_or(kind);
        first = open.is_none();
    }
    let is_answered = !matches!(kind, Kind::Send | Kind::Write);
    let last = is_answered || rng.percent(if kind == Kind::Send { 50 } else { 90 });
    let payload_len = match (sane, is_answered, last) {
        (true, ..) if kind == Kind::AtomicWrite => 8,
        (true, true, _) => 0,
        (true, _, false) => 256,
        (true, _, true) => 1 + rng.below(256) as u32,
        _ => number(rng).min(100_000),
    };
    let length = if sane && last {
        payload_len
    } else {
        number(rng)
    };
    let imm = (rng.percent(20) && (last || !sane)).then_some([1, 2, 3, 4]);
    let reth = rng.percent(90).then(|| {
        let va = match kind {
            Kind::AtomicWrite if sane => BASE + 8,
            _ if sane => BASE + 5,
            _ => address(rng),
        };
        let rkey = if sane { RKEY } else { number(rng) };
        Reth::new(va, rkey, length)
    });
    let opcode = match kind {
        _ if rng.percent(1) => Opcode::RcSendOnlyInvalidate,
        Kind::Atomic(AtomicKind::CompareSwap) => Opcode::RcCompareSwap,
        Kind::Atomic(AtomicKind::FetchAdd) => Opcode::RcFetchAdd,
        Kind::AtomicWrite => Opcode::RcAtomicWrite,
        Kind::Flush => Opcode::RcFlush,
        Kind::Send => Opcode::for_send(first, last, imm.is_some()),
        Kind::Write => Opcode::for_write(first, last, imm.is_some()),
        _ => Opcode::RcReadRequest,
    };
    IncomingRequest {
        opcode,
        psn: near_psn(rng, expected),
        span: if sane { 1 } else { number(rng) },
        ack_req: rng.percent(50),
        solicited: rng.percent(50),
        // Not always what the opcode has.
        extension: match (reth, imm) {
            (Some(reth), _) if matches!(kind, Kind::Atomic(_)) => {
                let va = if sane { BASE + 8 } else { reth.va() };
                let operand = rng.below(3);
                Extension::Atomic(AtomicEth::new(va, reth.rkey(), rng.throw(), operand))
            }
            (Some(reth), _) if kind == Kind::Flush => {
                let feth = match sane {
                    true => Feth::new(Feth::GLOBAL, Feth::RANGE),
                    false => Feth::new(rng.throw() as u8, rng.throw() as u8),
                };
                Extension::Flush(feth, reth)
            }
            (None, None) => Extension::None,
            (None, Some(imm)) => Extension::Imm(imm),
            (Some(reth), None) => Extension::Reth(reth),
            (Some(reth), Some(imm)) => Extension::RethImm(reth, imm),
        },
        payload_len,
    }
}

/// Posts a receive of less than `room` bytes, or not, and draws the next request with its payload.
fn next_request(
    rng: &mut impl Chance,
    memory: &mut Memory,
    room: u64,
    expected: Psn,
    open: Option<Kind>,
) -> (IncomingRequest, Vec<u8>) {
    if rng.percent(50) {
        memory.post(rng.below(room) as usize);
    }
    let request = any_request(rng, expected, open);
    let payload = vec![7; request.payload_len as usize];
    (request, payload)
}

/// A responder gets requests of any kind. Returns how many of them it accepted.
pub fn requests(rng: &mut impl Chance, steps: usize) -> usize {
    let mut accepted = 0;
    let mut memory = Memory::unplanned(REGION);
    let mut responder = connected_responder(rng.throw() as u32);
    let mut open = None;
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        let (request, payload) =
            next_request(rng, &mut memory, 8000, responder.expected_psn(), open);
        let mut env = Env {
            memory: &mut memory,
            payload: &payload,
        };
        let outcome = responder.on_request(&request, &mut env);
        if outcome == Default::default() {
            let info = request.opcode.info();
            open = (!info.last).then_some(info.kind);
            accepted += 1;
        }
        for _ in 0..rng.below(4) {
            let span = number(rng);
            match responder.next_response(span) {
                Some(Response::ReadResponse {
                    segment, rkey, va, ..
                }) => {
                    assert!(segment.span > 0 && u64::from(segment.len) <= 1 << 31);
                    // What was checked when it was accepted is within what was checked.
                    assert!(memory.read(rkey, va, segment.len).is_ok());
                }
                Some(Response::Acknowledge { msn, .. } | Response::Atomic { msn, .. }) => {
                    assert!(msn < 1 << 24);
                }
                None => break,
            }
        }
    }
    let payload = [];
    responder.abort(&mut Env {
        memory: &mut memory,
        payload: &payload,
    });
    each_receive_came_back(&memory);
    assert!(!responder.has_response());
    accepted
}

/// A responder of UC gets packets of any kind. Returns how many of them it executed.
pub fn unreliable_requests(rng: &mut impl Chance, steps: usize) -> usize {
    let mut executed = 0;
    let mut memory = Memory::unplanned(REGION);
    let mut responder = unreliable::responder::Responder::default();
    let allow_write = rng.percent(90);
    responder.connect(Mtu::MIN, Psn::new(rng.throw() as u32), allow_write);
    let mut open = None;
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        // The same opcodes; those that UC has not are refused by their kind.
        let (request, payload) =
            next_request(rng, &mut memory, 3000, responder.expected_psn(), open);
        let mut env = Env {
            memory: &mut memory,
            payload: &payload,
        };
        let written = env.memory.written;
        let outcome = responder.on_request(&request, &mut env);
        let info = request.opcode.info();
        if outcome == unreliable::responder::Outcome::Executed {
            assert!(matches!(info.kind, Kind::Send | Kind::Write));
            open = (!info.last).then_some(info.kind);
            executed += 1;
        } else {
            assert_eq!(memory.written, written, "{outcome:?}");
            open = None;
        }
        assert!(allow_write || memory.written == 0);
    }
    let payload = [];
    responder.abort(&mut Env {
        memory: &mut memory,
        payload: &payload,
    });
    each_receive_came_back(&memory);
    executed
}

/// A responder of UD gets datagrams of any length, and of any Q_Key. Returns how many it took.
pub fn datagrams(rng: &mut impl Chance, steps: usize) -> usize {
    let mut taken = 0;
    let mut memory = Memory::unplanned(0);
    let mut responder = datagram::Responder::default();
    let mut qkey = rng.throw() as u32;
    responder.connect(qkey);
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        if rng.percent(50) {
            memory.post(rng.below(3000) as usize);
        }
        if rng.percent(2) {
            qkey = rng.throw() as u32;
            responder.set_qkey(qkey);
        }
        let said = if rng.percent(90) {
            qkey
        } else {
            rng.throw() as u32
        };
        assert_eq!(responder.admits(said), said == qkey);
        if said != qkey {
            continue;
        }
        let deth = Deth::new(said, rng.throw() as u32);
        let imm = rng.percent(50);
        let request = IncomingRequest {
            opcode: if imm {
                Opcode::UdSendOnlyImm
            } else {
                Opcode::UdSendOnly
            },
            psn: Psn::new(rng.throw() as u32),
            span: 1,
            ack_req: rng.percent(50),
            solicited: rng.percent(50),
            extension: if imm {
                Extension::DethImm(deth, [1, 2, 3, 4])
            } else {
                Extension::Deth(deth)
            },
            payload_len: number(rng).min(100_000),
        };
        let payload = vec![7; request.payload_len as usize];
        let mut env = Env {
            memory: &mut memory,
            payload: &payload,
        };
        let outcome = responder.on_datagram(&request, deth.source_qp(), &mut env);
        taken += usize::from(outcome == unreliable::responder::Outcome::Executed);
    }
    let payload = [];
    responder.abort(&mut Env {
        memory: &mut memory,
        payload: &payload,
    });
    each_receive_came_back(&memory);
    taken
}

/// Each that was taken did once, and nothing happened that may not.
fn each_receive_came_back(memory: &Memory) {
    let back: Vec<_> = memory.received.iter().map(|r| r.done.wr_id).collect();
    assert_eq!(back, (0..memory.taken as u64).collect::<Vec<_>>());
    assert_eq!(memory.violation, None);
    for received in &memory.received {
        let receive = memory.receive(received.done.wr_id as usize);
        let is_write = received.done.op == RecvOp::WriteImm;
        assert!(is_write || received.done.byte_len as usize <= receive.capacity);
    }
}

/// A requester gets responses of any kind. Returns how many of its requests succeeded.
pub fn responses(rng: &mut impl Chance, steps: usize) -> usize {
    let psn = rng.throw() as u32;
    let mut requester = connected_requester(psn);
    let mut done = Vec::new();
    let mut now = 0;
    let mut wr_id = 0;
    let mut oldest = Psn::new(psn);
    for _ in 0..steps {
        if rng.is_over() {
            break;
        }
        let ops = [
            Operation::Send,
            Operation::Write,
            Operation::Read,
            Operation::CompareSwap,
            Operation::FetchAdd,
            Operation::AtomicWrite,
            Operation::Flush,
        ];
        if rng.percent(35) {
            let op = ops[rng.below(ops.len() as u64) as usize];
            let length = number(rng).min(1 << 31) >> (rng.below(3) * 8);
            let pushed = requester.push(SendRequest {
                wr_id,
                op,
                length: if op.has_length(length) { length } else { 8 },
                signaled: true,
                fence: rng.percent(20),
                ..SendRequest::default()
            });
            wr_id += u64::from(pushed.is_ok());
        }
        for _ in 0..rng.below(5) {
            let span = number(rng);
            match requester.next_segment(now, span) {
                Some(segment) => {
                    assert!(segment.span > 0 && segment.slot < 16);
                    if rng.percent(5) {
                        requester.unsend(&segment, now);
                    }
                }
                None => break,
            }
        }
        if rng.percent(20) {
            oldest = requester.next_psn().sub(rng.below(40) as u32);
        }
        let at = near_psn(rng, oldest);
        let before = done.len();
        let sink = &mut |c| done.push(c);
        let msn = match rng.percent(90) {
            true => rng.below(wr_id + 1) as u32,
            false => number(rng),
        };
        match rng.below(8) {
            0 | 1 => {
                let byte = if rng.percent(70) {
                    0x1f
                } else {
                    rng.throw() as u8
                };
                let _ = requester.on_acknowledge(at, aeth(byte, msn), now, sink);
            }
            2 => {
                let _ = requester.on_acknowledge(at, aeth(0x60, msn), now, sink);
            }
            3..6 => {
                let response = ReadSegment {
                    brings: if rng.percent(50) {
                        Brings::Data
                    } else {
                        Brings::Original
                    },
                    psn: at,
                    span: if rng.percent(90) { 1 } else { number(rng) },
                    first: rng.percent(70),
                    last: rng.percent(50),
                    len: match rng.below(10) {
                        0..6 => 256,
                        // To an ATOMIC WRITE or a FLUSH.
                        6..8 => 0,
                        _ => number(rng),
                    },
                };
                let response = match response.brings {
                    Brings::Original => ReadSegment::original(at),
                    Brings::Data => response,
                };
                if let Ok(place) = requester.accept_read_response(&response, now, sink) {
                    assert!(place.slot < 16 && place.len == response.len);
                    assert!(u64::from(place.offset) + u64::from(place.len) <= 1 << 31);
                    oldest = at.next();
                    let _ = requester.read_response_placed(&place, now, sink);
                    let _ = requester.read_response_placed(&place, now, sink);
                }
            }
            6 => {
                now += rng.below(2_000_000);
                let _ = requester.on_deadline(now, sink);
            }
            _ => {
                if rng.percent(5) {
                    let slot = number(rng);
                    let status = Status::LocProtErr;
                    let _ = requester.fail(slot, status, sink);
                }
            }
        }
        assert!(done.len() - before <= 16);
    }
    let succeeded = done.iter().filter(|c| c.status.is_success()).count();
    requester.flush(&mut |c| done.push(c));
    // Every work request ended once, in order.
    let ends: Vec<_> = done.iter().map(|c| c.wr_id).collect();
    assert_eq!(ends, (0..wr_id).collect::<Vec<_>>());
    assert_eq!(requester.deadline(), None);
    succeeded
}
