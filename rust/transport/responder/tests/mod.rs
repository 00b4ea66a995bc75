// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The rules of the responder one by one.

extern crate std;

mod access;
mod form;
mod order;
mod read;
mod receive;

use super::*;
use crate::transport::completion::RecvCompletion;
use crate::transport::completion::Status;
use crate::transport::segment::ReadSegment;
use crate::transport::segment::Reth;
use std::collections::VecDeque;
use std::vec::Vec;

const MTU: u32 = 256;
/// First PSN: it wraps after two packets.
const PSN: u32 = 0xff_fffe;
const RKEY: u32 = 77;
const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x10_0000;

/// What the responder asked for.
#[derive(Debug, PartialEq, Eq)]
enum Did {
    Check(u64, u32),
    Write(u64, u32),
    Scatter(u32, u32),
    Complete(u64, Status, u32),
}

#[derive(Default)]
struct Env {
    receives: VecDeque<TakeReceive>,
    did: Vec<Did>,
    completions: Vec<RecvCompletion>,
    scatter_fails: bool,
    write_fails: bool,
}

impl ResponderEnv for Env {
    fn take_receive(&mut self) -> TakeReceive {
        self.receives.pop_front().unwrap_or(TakeReceive::Empty)
    }

    fn check_remote(
        &mut self,
        _access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.did.push(Did::Check(va, len));
        let end = va.checked_add(u64::from(len)).ok_or(AccessError)?;
        if rkey == RKEY && va >= BASE && end <= BASE + SIZE {
            Ok(())
        } else {
            Err(AccessError)
        }
    }

    fn write_remote(&mut self, _rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        if self.write_fails {
            return Err(AccessError);
        }
        self.did.push(Did::Write(va, len));
        Ok(())
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

struct Rig {
    responder: Responder,
    env: Env,
}

fn config() -> ResponderConfig {
    ResponderConfig {
        mtu: Mtu::from_bytes(MTU).unwrap(),
        rq_psn: Psn::new(PSN),
        max_dest_rd_atomic: 2,
        min_rnr_timer: 12,
        allow_read: true,
        allow_write: true,
    }
}

fn psn(n: u32) -> Psn {
    Psn::new(PSN).add(n)
}

fn packet(n: u32, kind: Kind, first: bool, last: bool, len: u32) -> IncomingRequest {
    IncomingRequest {
        kind,
        first,
        last,
        psn: psn(n),
        span: 1,
        ack_req: last,
        solicited: false,
        imm: None,
        reth: None,
        payload_len: len,
    }
}

fn send(n: u32, first: bool, last: bool, len: u32) -> IncomingRequest {
    packet(n, Kind::Send, first, last, len)
}

fn write(n: u32, first: bool, last: bool, len: u32, total: u32) -> IncomingRequest {
    let mut request = packet(n, Kind::Write, first, last, len);
    request.reth = first.then_some(Reth {
        va: BASE,
        rkey: RKEY,
        length: total,
    });
    request
}

fn read(n: u32, va: u64, length: u32) -> IncomingRequest {
    let mut request = packet(n, Kind::ReadRequest, true, true, 0);
    let rkey = RKEY;
    request.reth = Some(Reth { va, rkey, length });
    request
}

fn with_imm(mut request: IncomingRequest) -> IncomingRequest {
    request.imm = Some([9, 8, 7, 6]);
    request
}

/// The syndrome of an acknowledge packet; or first, last and length of a READ response.
type Answer = Result<AethSyndrome, (bool, bool, u32)>;

impl Rig {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: ResponderConfig) -> Self {
        let mut responder = Responder::new();
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
    fn answers(&mut self) -> Vec<(u32, Answer)> {
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
            });
        }
        assert!(!self.responder.has_response());
        answers
    }

    /// The only answer is this refusal, and nothing is accepted any more.
    fn refused(&mut self, n: u32, code: NakCode) {
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
        self.refused(n, NakCode::InvalidRequest);
    }
}

const ACK: AethSyndrome = AethSyndrome::Ack { credits: 31 };
const SEQUENCE: AethSyndrome = AethSyndrome::Nak(NakCode::PsnSequence);
const NOT_READY: AethSyndrome = AethSyndrome::RnrNak { timer: 12 };

const MAX: u32 = crate::transport::config::MAX_MESSAGE;
