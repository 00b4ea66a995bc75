// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The rules of the responder one by one.

extern crate std;

mod access;
mod atomic;
mod keep;
mod order;

use super::*;
use crate::core::completion::{
    RecvCompletion,
    Status, //
};
use crate::core::env::{
    AccessError,
    AtomicOp,
    FlushPlacement,
    FlushRange,
    ReceiveEnv,
    RemoteAccess,
    ResponderEnv,
    TakeReceive,
    WriteEnv, //
};
use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::segment::ReadSegment;
use crate::core::wire::headers::Reth;
use crate::core::wire::opcode::Opcode;
use crate::core::wire::packet::Extension;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

const MTU: u32 = 256;
/// First PSN: it wraps after two packets.
const PSN: u32 = 0xff_fffe;
const RKEY: u32 = 77;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x200_0000;

/// Requests of the responder.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    Check(u64, u32),
    Write(u64, u32),
    Change(u64, AtomicOp),
    Word(u64),
    Flush(FlushRange, FlushPlacement),
    Scatter(u32, u32),
    Complete(u64, Status, u32),
    Invalidate(u32),
}

#[derive(Default)]
struct Env {
    receives: VecDeque<TakeReceive>,
    did: Vec<Did>,
    completions: Vec<RecvCompletion>,
    scatter_fails: bool,
    write_fails: bool,
    is_gone: bool,
    /// What the peer may invalidate.
    keys: Vec<u32>,
    /// What becomes of a request that is to be kept.
    keep: Option<Keep>,
}

impl Env {
    fn permits(&self, span: Span) -> Result<(), AccessError> {
        let is_within = span.offset_in(BASE, SIZE).is_some();
        if !self.is_gone && span.key.get() == RKEY && is_within {
            Ok(())
        } else {
            Err(AccessError)
        }
    }
}

impl ReceiveEnv for Env {
    fn take_receive(&mut self) -> TakeReceive {
        self.receives.pop_front().unwrap_or(TakeReceive::Empty)
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        if self.scatter_fails {
            return Err(AccessError);
        }
        self.did.push(Did::Scatter(offset, len));
        Ok(())
    }

    fn complete(&mut self, c: RecvCompletion) {
        self.did.push(Did::Complete(c.wr_id, c.status, c.byte_len));
        self.completions.push(c);
    }
}

impl WriteEnv for Env {
    fn check_remote(&mut self, _access: RemoteAccess, span: Span) -> Result<(), AccessError> {
        self.did.push(Did::Check(span.va, span.len as u32));
        self.permits(span)
    }

    fn write_remote(&mut self, span: Span) -> Result<(), AccessError> {
        if self.write_fails {
            return Err(AccessError);
        }
        self.permits(span)?;
        self.did.push(Did::Write(span.va, span.len as u32));
        Ok(())
    }
}

impl ResponderEnv for Env {
    fn keep(&mut self, _sequence: u64) -> Keep {
        self.keep.unwrap_or(Keep::NoRoom)
    }

    fn change_remote(&mut self, word: Span, change: AtomicOp) -> Result<u64, AccessError> {
        self.permits(word)?;
        assert_eq!(word.len, 8);
        self.did.push(Did::Change(word.va, change));
        Ok(self.did.len() as u64)
    }

    fn write_word(&mut self, word: Span) -> Result<(), AccessError> {
        self.permits(word)?;
        assert_eq!(word.len, 8);
        self.did.push(Did::Word(word.va));
        Ok(())
    }

    fn flush(&mut self, range: FlushRange, placement: FlushPlacement) -> Result<(), AccessError> {
        self.permits(match range {
            FlushRange::Range(span) => span,
            FlushRange::Region(key) => Span::new(key.get(), BASE, 0),
        })?;
        self.did.push(Did::Flush(range, placement));
        Ok(())
    }

    fn invalidate(&mut self, key: MemoryKey) -> Result<(), AccessError> {
        let key = key.get();
        self.did.push(Did::Invalidate(key));
        let count = self.keys.len();
        self.keys.retain(|own| *own != key);
        if self.keys.len() == count {
            return Err(AccessError);
        }
        Ok(())
    }
}

struct Rig<A: Spare = InPlace> {
    responder: Responder<Vec<Resource>, A>,
    env: Env,
}

fn config() -> ResponderConfig {
    ResponderConfig {
        mtu: Mtu::from_bytes(MTU).unwrap(),
        rq_psn: Psn::new(PSN),
        max_dest_rd_atomic: 2,
        min_rnr_timer: 12,
        rights: RemoteRights::ALL,
    }
}

fn psn(n: u32) -> Psn {
    Psn::new(PSN).add(n)
}

fn packet(n: u32, opcode: Opcode, len: u32) -> IncomingRequest {
    IncomingRequest {
        opcode,
        psn: psn(n),
        span: 1,
        ack_req: opcode.info().last,
        keeps: false,
        solicited: false,
        extension: Extension::None,
        payload_len: len,
    }
}

fn send(n: u32, first: bool, last: bool, len: u32) -> IncomingRequest {
    packet(n, Opcode::for_send(first, last, false), len)
}

fn write(n: u32, first: bool, last: bool, len: u32, total: u32) -> IncomingRequest {
    let mut request = packet(n, Opcode::for_write(first, last, false), len);
    if first {
        request.extension = Extension::Reth(Reth::new(BASE, RKEY, total));
    }
    request
}

fn read(n: u32, va: u64, length: u32) -> IncomingRequest {
    let mut request = packet(n, Opcode::RcReadRequest, 0);
    request.extension = Extension::Reth(Reth::new(va, RKEY, length));
    request
}

fn with_imm(mut request: IncomingRequest) -> IncomingRequest {
    const IMM: [u8; 4] = [9, 8, 7, 6];
    let info = request.opcode.info();
    request.opcode = match info.kind {
        Kind::Send => Opcode::for_send(info.first, info.last, true),
        _ => Opcode::for_write(info.first, info.last, true),
    };
    request.extension = match request.extension.reth() {
        Some(reth) => Extension::RethImm(reth, IMM),
        None => Extension::Imm(IMM),
    };
    request
}

/// The last packet of a SEND that invalidates a key.
fn invalidating(n: u32, first: bool, len: u32, key: u32) -> IncomingRequest {
    let mut request = packet(n, Opcode::for_send_invalidate(first, true), len);
    request.extension = Extension::Ieth(key);
    request
}

/// The syndrome of an acknowledge packet; or first, last and length of a READ response.
type Reply = Result<AethSyndrome, (bool, bool, u32)>;

impl Rig {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: ResponderConfig) -> Self {
        Self::with_spare(config)
    }
}

impl<A: Spare> Rig<A> {
    fn with_spare(config: ResponderConfig) -> Self {
        let mut responder = Responder::with_spare(vec![Resource::default(); 16]);
        responder.connect(config);
        Self {
            responder,
            env: Env::default(),
        }
    }

    fn receive(&mut self, wr_id: u64, capacity: u64) {
        self.env
            .receives
            .push_back(TakeReceive::Taken { wr_id, capacity });
    }

    fn on(&mut self, request: IncomingRequest) -> Outcome {
        self.responder.on_request(&request, &mut self.env)
    }

    fn ok(&mut self, request: IncomingRequest) {
        assert_eq!(self.on(request), Outcome::default());
    }

    /// All responses: number of the packet and its syndrome, or of a READ response and its length.
    fn answers(&mut self) -> Vec<(u32, Reply)> {
        let mut answers = Vec::new();
        while let Some(response) = self.responder.next_response(1) {
            let n = response.psn().distance_from(psn(0)) as u32;
            answers.push(match response {
                Response::Acknowledge { syndrome, .. } => (n, Ok(syndrome)),
                Response::ReadResponse { segment, .. } => {
                    let ReadSegment {
                        first, last, len, ..
                    } = segment;
                    (n, Err((first, last, len)))
                }
                Response::Missing { .. } => panic!("nobody says that it keeps packets"),
                Response::Atomic { .. } => (n, Err((true, true, 8))),
            });
        }
        assert!(!self.responder.has_response());
        answers
    }

    /// The only response is this NAK, and nothing more is accepted.
    fn ends_with_nak(&mut self, n: u32, code: NakCode) {
        assert_eq!(self.answers(), [(n, Ok(AethSyndrome::Nak(code)))]);
        self.receive(99, 1000);
        let expected = self.responder.expected_psn();
        let next = IncomingRequest {
            psn: expected,
            ..send(0, true, true, 1)
        };
        assert_eq!(self.on(next).dropped, Some(DropReason::NotReady));
        assert_eq!(self.answers(), []);
    }

    fn invalid(&mut self, request: IncomingRequest) {
        let n = request.psn.distance_from(psn(0)) as u32;
        let outcome = self.on(request);
        assert_eq!(outcome.fatal, Some(Fatal::InvalidRequest), "{request:?}");
        self.ends_with_nak(n, NakCode::InvalidRequest);
    }
}

const ACK: AethSyndrome = AethSyndrome::Ack { credits: 31 };
const SEQUENCE: AethSyndrome = AethSyndrome::Nak(NakCode::PsnSequence);
const NOT_READY: AethSyndrome = AethSyndrome::RnrNak { timer: 12 };

const MAX: u32 = crate::core::message::MAX_MESSAGE;
