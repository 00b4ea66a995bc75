// SPDX-License-Identifier: GPL-2.0

//! Peers that send anything at all, and processes that post anything at all. What they do is drawn
//! from a [`Chance`]: dice, for tests that are the same each time, or the bytes of a fuzzer.

use crate::model::dice::Dice;
use crate::model::memory::{Env, Memory};
use crate::model::plan::{BASE, RKEY};
use ferroce_core::datapath::wqe::{Binding, Data, KeyChange, RecvWqes, SendWqes};
use ferroce_core::transport::completion::{RecvOp, Status};
use ferroce_core::transport::datagram;
use ferroce_core::transport::env::TakeReceive;
use ferroce_core::transport::message::Mtu;
use ferroce_core::transport::operation::{Brings, Operation};
use ferroce_core::transport::reliable::config::{RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::transport::reliable::requester::{Requester, SendSlot};
use ferroce_core::transport::reliable::responder::{Resource, Responder};
use ferroce_core::transport::request::SendRequest;
use ferroce_core::transport::segment::{IncomingRequest, ReadSegment, Response};
use ferroce_core::transport::service::QpType;
use ferroce_core::transport::unreliable;
use ferroce_core::uabi::words::{Module, Ring, Word, Words};
use ferroce_core::uabi::wqe::{
    recv_stride, send_stride, OP_ATOMIC_CMP_AND_SWP, OP_ATOMIC_FETCH_AND_ADD, OP_ATOMIC_WRITE,
    OP_BIND_MW, OP_FLUSH, OP_LOCAL_INV, OP_RDMA_READ, OP_RDMA_WRITE, OP_RDMA_WRITE_WITH_IMM,
    OP_SEND, OP_SEND_WITH_IMM, OP_SEND_WITH_INV, SEND_ALL, SEND_FENCE, SEND_INLINE, SEND_SIGNALED,
    SEND_SOLICITED,
};
use ferroce_core::wire::headers::{Aeth, AethSyndrome, AtomicEth, Deth, Feth, Reth};
use ferroce_core::wire::opcode::{AtomicKind, Kind, Opcode};
use ferroce_core::wire::packet::{Extension, Packet};
use ferroce_core::wire::psn::Psn;
use ferroce_core::wire::{ICRC_LEN, MAX_PAYLOAD};
use std::cell::{Cell, RefCell};
use zerocopy::IntoBytes;

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
        if rng.percent(50) {
            memory.post(rng.below(8000) as usize);
        }
        let request = any_request(rng, responder.expected_psn(), open);
        let payload = vec![7; request.payload_len as usize];
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
        if rng.percent(50) {
            memory.post(rng.below(3000) as usize);
        }
        // The same opcodes; those that UC has not are refused by their kind.
        let request = any_request(rng, responder.expected_psn(), open);
        let payload = vec![7; request.payload_len as usize];
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

/// A slot of a ring, whose words may be read once.
struct Slot {
    words: Vec<u64>,
    read: RefCell<Vec<bool>>,
    producer: u32,
    consumer: Cell<u32>,
}

/// Slots of the ring.
const SLOTS: u32 = 4;

impl Slot {
    fn new(words: Vec<u64>, producer: u32) -> Self {
        Self {
            read: RefCell::new(vec![false; words.len()]),
            words,
            producer,
            consumer: Cell::new(0),
        }
    }
}

impl Words for Slot {
    fn load(&self, _: Word) -> u32 {
        unreachable!("in no order")
    }
    fn load_acquire(&self, word: Word) -> u32 {
        assert_eq!(word, Word::Producer);
        self.producer
    }
    fn store(&self, _: Word, _: u32) {
        unreachable!("in no order")
    }
    fn store_release(&self, word: Word, value: u32) {
        assert_eq!(word, Word::Consumer);
        self.consumer.set(value);
    }
    fn full_barrier(&self) {}
}

impl Module for Slot {
    fn swap(&self, _: Word, _: u32) -> u32 {
        unreachable!("nobody waits")
    }
}

impl Ring for Slot {
    fn entries(&self) -> u32 {
        SLOTS
    }
    fn read_slot(&self, _: u32, first: usize, out: &mut [u64]) {
        for (at, word) in out.iter_mut().enumerate() {
            *word = self.words[first + at];
            let before = std::mem::replace(&mut self.read.borrow_mut()[first + at], true);
            assert!(!before, "word {} was read twice", first + at);
        }
    }
    fn write_slot(&self, _: u32, _: &[u64]) {
        unreachable!("the process writes here")
    }
}

/// Words of a slot: `header`, and what may stand behind it.
fn slot(rng: &mut impl Chance, header: &[u64], stride: u32) -> Vec<u64> {
    let mut words = header.to_vec();
    while words.len() < stride as usize / 8 {
        words.push(rng.throw());
        // The length and the key of an entry.
        let length = u64::from(number(rng) >> (rng.below(4) * 8));
        words.push(length | (rng.below(256) << 32));
    }
    words.truncate(stride as usize / 8);
    words
}

/// The lengths of the first entries behind a header.
fn lengths(words: &[u64], count: usize) -> Vec<u32> {
    let entries = words.chunks_exact(2).take(count);
    entries
        .map(|entry| entry[1].as_bytes())
        .map(first_word)
        .collect()
}

fn first_word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(*bytes.first_chunk().expect("four bytes"))
}

/// What becomes of a send request, said without the code that decides it: its length, or why not.
fn verdict(words: &[u64], max_sge: usize, max_inline: usize) -> Result<u32, Status> {
    let bytes = words.as_bytes();
    let (opcode, flags) = (bytes[8], bytes[9]);
    let count = usize::from(u16::from_ne_bytes([bytes[10], bytes[11]]));
    // Remote address and key; immediate data.
    // Of an atomic operation the operands, too; but not between them.
    let is_atomic = matches!(opcode, OP_ATOMIC_CMP_AND_SWP | OP_ATOMIC_FETCH_AND_ADD);
    let has_operands = is_atomic || matches!(opcode, OP_FLUSH | OP_ATOMIC_WRITE);
    let used = match opcode {
        _ if has_operands => 16..48,
        OP_SEND => 48..48,
        OP_SEND_WITH_IMM => 28..32,
        OP_RDMA_WRITE | OP_RDMA_READ => 16..28,
        OP_RDMA_WRITE_WITH_IMM => 16..32,
        OP_SEND_WITH_INV | OP_LOCAL_INV => 28..32,
        OP_BIND_MW => 16..48,
        _ => return Err(Status::LocQpOpErr),
    };
    let unused = |at: &usize| !used.contains(at) || (has_operands && (28..32).contains(at));
    let fine = match opcode {
        OP_FLUSH => {
            matches!(bytes[36..38], [1..=3, 0 | 1]) && bytes[38..48].iter().all(|byte| *byte == 0)
        }
        OP_ATOMIC_WRITE => bytes[40..48].iter().all(|byte| *byte == 0),
        _ => true,
    };
    let clean = fine && (12..48).filter(unused).all(|at| bytes[at] == 0);
    let inline = flags & SEND_INLINE != 0;
    let most = match (inline, opcode) {
        (true, OP_RDMA_READ) => return Err(Status::LocQpOpErr),
        // They carry nothing.
        (true, OP_LOCAL_INV | OP_BIND_MW) => return Err(Status::LocQpOpErr),
        (false, OP_LOCAL_INV | OP_BIND_MW) => 0,
        (true, _) if has_operands => return Err(Status::LocQpOpErr),
        (true, _) => max_inline,
        (false, _) => max_sge,
    };
    if !clean || flags & !SEND_ALL != 0 || count > most {
        return Err(Status::LocQpOpErr);
    }
    let length: u64 = if inline {
        count as u64
    } else {
        let lengths = lengths(&words[6..], count);
        lengths.into_iter().map(u64::from).sum()
    };
    match u32::try_from(length) {
        Ok(length) if is_atomic && length != 8 => Err(Status::LocLenErr),
        Ok(length) if has_operands && !is_atomic && length != 0 => Err(Status::LocLenErr),
        Ok(length) if length <= 1 << 31 => Ok(length),
        _ => Err(Status::LocLenErr),
    }
}

/// A process posts requests of any kind. Returns how many of them were taken.
pub fn work_requests(rng: &mut impl Chance, steps: usize) -> usize {
    let (max_sge, max_inline) = (rng.below(5) as u32, rng.below(80) as u32);
    let stride = send_stride(max_sge, max_inline);
    let signal_all = rng.percent(50);
    let room = vec![0; (SLOTS * stride) as usize / 8];
    let mut sends = SendWqes::new(
        room,
        stride,
        max_sge,
        max_inline,
        QpType::Rc.service(),
        signal_all,
    );
    let stride_recv = recv_stride(max_sge);
    let mut receives = RecvWqes::new(vec![0; stride_recv as usize / 8], max_sge);
    let mut taken = 0;
    let mut received = 0u32;
    for step in 0..steps {
        if rng.is_over() {
            break;
        }
        if rng.percent(30) {
            received = take_receive(rng, &mut receives, stride_recv, max_sge, received);
            continue;
        }
        let sane = rng.percent(80);
        let served = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15];
        let opcode = match sane {
            true => served[rng.below(12) as usize],
            false => rng.below(256),
        };
        let flags = rng.below(if sane { 16 } else { 256 });
        let count = rng.below(if sane { 5 } else { 1 << 16 });
        let mut part = |free: &[u64]| match sane && !free.contains(&opcode) {
            true => 0,
            false => rng.throw(),
        };
        let remote = [0; 2].map(|_: u64| part(&[0, 1, 4, 5, 6, 8, 14, 15]));
        let remote = [remote[0], remote[1] & 0xffff_ffff];
        let imm = part(&[1, 3, 7, 8, 9]) << 32;
        let srqn = if sane { 0 } else { rng.below(2) << 32 };
        let first = opcode | (flags << 8) | (count << 16) | srqn;
        let operands = match (sane, opcode) {
            (true, 5 | 6 | 8 | 15) => rng.throw(),
            // Length; placement; selectivity.
            (true, 14) => rng.below(1 << 32) | ((1 + rng.below(3)) << 32) | (rng.below(2) << 40),
            (true, _) => 0,
            (false, _) => rng.below(2),
        };
        let wr_id = rng.throw();
        // As a little-endian machine has it, which is all that the tests run on.
        let header = [wr_id, first, remote[0], remote[1] | imm, operands, 0];
        let mut words = slot(rng, &header, stride);
        if sane && opcode > 9 {
            words[1] &= 0xffff_ffff_0000_ffff;
        } else if sane && matches!(opcode, 5 | 6) && words.len() >= 8 {
            // One entry of eight bytes, as atomic operations want it.
            words[1] = words[1] & 0xffff_ffff_0000_ffff | (1 << 16);
            words[7] = words[7] & !0xffff_ffff | 8;
        }
        let count = (words[1] >> 16) & 0xffff;
        let ring = Slot::new(words, 1);
        let at = step as u32 % SLOTS;
        let result = sends.take(&ring, at, at);
        let want = verdict(&ring.words, max_sge as usize, max_inline as usize);
        let request = match (result, want) {
            (Ok(request), Ok(length)) => {
                assert_eq!((request.wr_id, request.length), (wr_id, length));
                request
            }
            (Err(got), Err(status)) => {
                assert_eq!(got, (wr_id, status));
                continue;
            }
            other => panic!("{other:?} of {:x?}", ring.words),
        };
        taken += 1;
        let flag = |bit: u8| flags & u64::from(bit) != 0;
        assert_eq!(request.signaled, signal_all || flag(SEND_SIGNALED));
        assert_eq!(
            (request.fence, request.solicited),
            (flag(SEND_FENCE), flag(SEND_SOLICITED))
        );
        let arguments = sends.arguments(at);
        assert_eq!(arguments.remote_addr, remote[0]);
        assert_eq!(u64::from(arguments.rkey), remote[1]);
        assert_eq!(u64::from(u32::from_ne_bytes(arguments.imm)), imm >> 32);
        assert_eq!(u64::from(arguments.invalidated), imm >> 32);
        let change = match opcode {
            7 => Some(KeyChange::Invalidate(arguments.invalidated)),
            8 => Some(KeyChange::Bind(Binding {
                old_key: arguments.invalidated,
                new_key: arguments.rkey,
                lkey: 0,
                addr: remote[0],
                len: operands,
                access: 0,
            })),
            _ => None,
        };
        assert_eq!(sends.key_change(at), change);
        assert_eq!(arguments.operands, [operands, 0]);
        if opcode == u64::from(OP_ATOMIC_WRITE) {
            // What it writes is carried like an inline message.
            let data = operands.to_ne_bytes();
            assert!(matches!(sends.data(at), Data::Inline(bytes) if bytes[..8] == data));
            continue;
        }
        match sends.data(at) {
            Data::Inline(bytes) => {
                let length = request.length as usize;
                assert!(flag(SEND_INLINE));
                assert_eq!(bytes[..length], ring.words[6..].as_bytes()[..length]);
            }
            Data::Pieces(sges) => {
                assert!(!flag(SEND_INLINE));
                let got: Vec<_> = sges.iter().map(|sge| sge.length).collect();
                assert_eq!(got, lengths(&ring.words[6..], count as usize));
            }
        }
    }
    taken
}

/// One look at the receive queue, of which `received` were taken; returns how many are then.
fn take_receive(
    rng: &mut impl Chance,
    receives: &mut RecvWqes<Vec<u64>>,
    stride: u32,
    max_sge: u32,
    received: u32,
) -> u32 {
    let sane = rng.percent(80);
    let posted = rng.below(if sane { 6 } else { 1 << 32 }) as u32;
    let num_sge = rng.below(if sane { 5 } else { 1 << 32 });
    let reserved = if sane { 0 } else { rng.below(2) << 32 };
    let wr_id = rng.throw();
    let words = slot(rng, &[wr_id, num_sge | reserved], stride);
    let ring = Slot::new(words, received.wrapping_add(posted));
    let got = receives.take(&ring);
    assert_eq!(receives.take_scribbled(), posted > SLOTS);
    if posted == 0 || posted > SLOTS {
        assert_eq!(got, TakeReceive::Empty);
        return received;
    }
    assert_eq!(ring.consumer.get(), received.wrapping_add(1));
    let want = if num_sge <= u64::from(max_sge) && reserved == 0 {
        let lengths = lengths(&ring.words[2..], num_sge as usize);
        let got: Vec<_> = receives.sges().iter().map(|sge| sge.length).collect();
        assert_eq!(got, lengths);
        let capacity = lengths.into_iter().map(u64::from).sum();
        TakeReceive::Taken { wr_id, capacity }
    } else {
        let status = Status::LocQpOpErr;
        TakeReceive::Malformed { wr_id, status }
    };
    assert_eq!(got, want);
    received.wrapping_add(1)
}
