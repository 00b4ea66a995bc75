// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Short conversations of a requester and a responder, with nothing but `core`: they run on the
//! host and, by KUnit, in the kernel, where the code is compiled by other rules.
//!
//! The long and the random ones need collections and run on the host alone.

#![cfg(any(test, CONFIG_KUNIT = "y"))]

use crate::core::completion::{
    Carried,
    RecvCompletion,
    RecvOp,
    SendCompletion,
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
use crate::core::memory::Span;
use crate::core::message::Mtu;
use crate::core::operation::{
    Arguments,
    Operation, //
};
use crate::core::rc::requester::{
    Requester,
    SendSlot, //
};
use crate::core::rc::responder::{
    Resource,
    Responder, //
};
use crate::core::rc::{
    RemoteRights,
    RequesterConfig,
    ResponderConfig, //
};
use crate::core::segment::{
    IncomingRequest,
    ReadSegment,
    RequestSegment,
    Response, //
};
use crate::core::send::SendRequest;
use crate::core::wire::headers::Aeth;
use crate::core::wire::psn::Psn;

const SIZE: usize = 1024;
const RKEY: u32 = 0xbeef;
const BASE: u64 = 0x7000_0000_0000;
/// The numbers wrap in the middle of the first message.
const FIRST_PSN: u32 = 0xff_ffff;
const ACK_TIMEOUT: u64 = 1_000_000;
/// 1 becomes 2, or 1 is added.
const OPERANDS: [u64; 2] = [1, 2];

/// How one direction treats its packets: the bit of a packet's number says that it is lost.
type Lost = u32;

/// The memory and the receive queue of the responder's side.
struct Remote {
    region: [u8; SIZE],
    receive: [u8; SIZE],
    /// Receives posted, each of `SIZE` bytes.
    receives: u64,
    taken: u64,
    completed: Option<RecvCompletion>,
    completions: u32,
}

/// The remote side, with the payload of the request at hand.
struct Env<'a> {
    remote: &'a mut Remote,
    payload: &'a [u8],
}

/// The bytes of the region that a range names.
fn range(span: Span) -> Result<core::ops::Range<usize>, AccessError> {
    let from = span.offset_in(BASE, SIZE as u64).ok_or(AccessError)? as usize;
    if span.key.get() != RKEY {
        return Err(AccessError);
    }
    Ok(from..from + span.len as usize)
}

impl ReceiveEnv for Env<'_> {
    fn take_receive(&mut self) -> TakeReceive {
        if self.remote.taken == self.remote.receives {
            return TakeReceive::Empty;
        }
        self.remote.taken += 1;
        TakeReceive::Taken {
            wr_id: self.remote.taken,
            capacity: SIZE as u64,
        }
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        let offset = offset as usize;
        self.remote.receive[offset..offset + len as usize].copy_from_slice(self.payload);
        Ok(())
    }

    fn complete(&mut self, completion: RecvCompletion) {
        self.remote.completed = Some(completion);
        self.remote.completions += 1;
    }
}

impl WriteEnv for Env<'_> {
    fn check_remote(&mut self, _access: RemoteAccess, span: Span) -> Result<(), AccessError> {
        range(span).map(|_| ())
    }

    fn write_remote(&mut self, span: Span) -> Result<(), AccessError> {
        self.remote.region[range(span)?].copy_from_slice(self.payload);
        Ok(())
    }
}

impl ResponderEnv for Env<'_> {
    fn change_remote(&mut self, word: Span, change: AtomicOp) -> Result<u64, AccessError> {
        let word = &mut self.remote.region[range(word)?];
        let before = u64::from_ne_bytes(word.try_into().map_err(|_| AccessError)?);
        let after = match change {
            AtomicOp::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd(value) => before.wrapping_add(value),
        };
        word.copy_from_slice(&after.to_ne_bytes());
        Ok(before)
    }

    fn write_word(&mut self, word: Span) -> Result<(), AccessError> {
        self.write_remote(word)
    }

    fn flush(&mut self, flushed: FlushRange, _: FlushPlacement) -> Result<(), AccessError> {
        let span = match flushed {
            FlushRange::Range(span) => span,
            FlushRange::Region(key) => Span::new(key.get(), BASE, 0),
        };
        range(span).map(|_| ())
    }
}

/// What a requester and a responder keep.
struct Storage {
    slots: [SendSlot; 4],
    resources: [Resource; 4],
}

impl Storage {
    fn new() -> Self {
        Self {
            slots: [SendSlot::default(); 4],
            resources: [Resource::default(); 4],
        }
    }
}

/// One requester, one responder, and the time.
struct Conversation<'a> {
    requester: Requester<&'a mut [SendSlot]>,
    responder: Responder<&'a mut [Resource]>,
    remote: Remote,
    /// By slot: the key that a work request names.
    rkeys: [u32; 4],
    /// What is sent, and where READs arrive.
    local: [u8; SIZE],
    now: u64,
    requests: u32,
    responses: u32,
    lost_requests: Lost,
    lost_responses: Lost,
    /// Success and error, of the send queue.
    ended: [u32; 2],
    last: Option<SendCompletion>,
    fatal: bool,
}

impl<'a> Conversation<'a> {
    fn new(Storage { slots, resources }: &'a mut Storage) -> Self {
        let mtu = Mtu::MIN;
        let mut requester = Requester::new(slots.as_mut_slice());
        requester.connect(RequesterConfig {
            mtu,
            sq_psn: Psn::new(FIRST_PSN),
            retry_cnt: 3,
            rnr_retry: 2,
            ack_timeout_ns: Some(ACK_TIMEOUT),
            max_rd_atomic: 2,
            ecn: false,
        });
        let mut responder = Responder::new(resources.as_mut_slice());
        responder.connect(ResponderConfig {
            mtu,
            rq_psn: Psn::new(FIRST_PSN),
            max_dest_rd_atomic: 2,
            min_rnr_timer: 12,
            rights: RemoteRights::ALL,
        });
        let mut local = [0; SIZE];
        for (at, byte) in local.iter_mut().enumerate() {
            *byte = (at * 7 + at / 256) as u8;
        }
        Self {
            requester,
            responder,
            remote: Remote {
                region: [0; SIZE],
                receive: [0; SIZE],
                receives: 0,
                taken: 0,
                completed: None,
                completions: 0,
            },
            rkeys: [0; 4],
            local,
            now: 1,
            requests: 0,
            responses: 0,
            lost_requests: 0,
            lost_responses: 0,
            ended: [0; 2],
            last: None,
            fatal: false,
        }
    }

    fn post(&mut self, op: Operation, length: u32, rkey: u32) {
        let request = SendRequest {
            wr_id: 77,
            length,
            op,
            signaled: true,
            ..SendRequest::default()
        };
        let slot = self.requester.push(request);
        self.rkeys[slot.unwrap().number() as usize] = rkey;
    }

    fn carry_request(&mut self, segment: &RequestSegment) {
        let lost = self.lost_requests.checked_shr(self.requests).unwrap_or(0) & 1 == 1;
        self.requests += 1;
        if lost {
            return;
        }
        let from = segment.offset as usize;
        let mut env = Env {
            remote: &mut self.remote,
            payload: &self.local[from..from + segment.len as usize],
        };
        let arguments = Arguments {
            remote_addr: BASE,
            rkey: self.rkeys[segment.slot.number() as usize],
            imm: [1, 2, 3, 4],
            invalidated: 0,
            operands: OPERANDS,
        };
        let request = IncomingRequest::local(segment, segment.extension(|| arguments));
        // What it refuses it says in its answers.
        let _ = self.responder.on_request(&request, &mut env);
    }

    fn carry_response(&mut self, response: &Response) {
        let lost = self.lost_responses.checked_shr(self.responses).unwrap_or(0) & 1 == 1;
        self.responses += 1;
        if lost {
            return;
        }
        let (ended, last) = (&mut self.ended, &mut self.last);
        let mut sink = |completion: SendCompletion| {
            ended[usize::from(!completion.status.is_success())] += 1;
            if last.is_none_or(|last| last.status.is_success()) {
                *last = Some(completion);
            }
        };
        let segment = match response {
            Response::Acknowledge { psn, syndrome, msn } => {
                let aeth = Aeth::new(*syndrome, *msn);
                let progress = self
                    .requester
                    .on_acknowledge(*psn, aeth, self.now, &mut sink);
                self.fatal |= progress.has_failed();
                return;
            }
            Response::ReadResponse { segment, .. } => *segment,
            Response::Atomic { psn, .. } => ReadSegment::original(*psn),
            Response::Missing { .. } => panic!("nobody says that it keeps packets"),
        };
        let Ok(place) = self
            .requester
            .accept_read_response(&segment, self.now, &mut sink)
        else {
            return;
        };
        let to = place.offset as usize..place.offset as usize + place.len as usize;
        match response {
            Response::ReadResponse { source, .. } => {
                let Ok(from) = range(*source) else {
                    return;
                };
                self.local[to].copy_from_slice(&self.remote.region[from]);
            }
            Response::Atomic { original, .. } => {
                self.local[to].copy_from_slice(&original.to_ne_bytes());
            }
            Response::Acknowledge { .. } | Response::Missing { .. } => {}
        }
        let progress = self
            .requester
            .read_response_placed(&place, self.now, &mut sink);
        self.fatal |= progress.has_failed();
    }

    /// Until neither side has anything to send.
    fn talk(&mut self) {
        for _ in 0..100 {
            let segment = self.requester.next_segment(self.now, 1);
            if let Some(segment) = &segment {
                self.carry_request(segment);
            }
            let response = self.responder.next_response(1);
            if let Some(response) = &response {
                self.carry_response(response);
            }
            if segment.is_none() && response.is_none() {
                return;
            }
        }
        // It would go on for ever.
        self.fatal = true;
    }

    /// Goes to the next deadline, if there is one, and talks.
    fn wait(&mut self) -> bool {
        let Some(deadline) = self.requester.deadline() else {
            return false;
        };
        self.now = self.now.max(deadline);
        let (ended, last) = (&mut self.ended, &mut self.last);
        let progress = self.requester.on_deadline(self.now, &mut |completion| {
            ended[usize::from(!completion.status.is_success())] += 1;
            *last = Some(completion);
        });
        self.fatal |= progress.has_failed();
        self.talk();
        true
    }

    /// How the last work request of the send queue ended.
    fn status(&self) -> Option<Status> {
        self.last.map(|last| last.status)
    }

    fn is_quiet(&self) -> bool {
        self.requester.pushed() == self.requester.retired() && self.requester.deadline().is_none()
    }
}

#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_conversation)
)]
mod tests {
    use super::*;

    const LEN: usize = 700;

    #[test]
    fn a_message_of_three_packets() {
        let mut slots = Storage::new();
        let mut talk = Conversation::new(&mut slots);
        talk.remote.receives = 1;
        talk.post(Operation::SendImm, LEN as u32, 0);
        talk.talk();
        assert_eq!(talk.requests, 3);
        assert_eq!(talk.remote.receive[..LEN], talk.local[..LEN]);
        let received = talk.remote.completed.unwrap();
        assert!(received.status.is_success() && received.op == RecvOp::Send);
        assert_eq!((received.wr_id, received.byte_len), (1, LEN as u32));
        assert_eq!(received.carried, Carried::Imm([1, 2, 3, 4]));
        assert_eq!((talk.ended, talk.status()), ([1, 0], Some(Status::Success)));
        assert_eq!(talk.responder.expected_psn(), Psn::new(2));
        assert!(talk.is_quiet() && !talk.fatal);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut slots = Storage::new();
        let mut talk = Conversation::new(&mut slots);
        talk.post(Operation::Write, LEN as u32, RKEY);
        talk.talk();
        assert_eq!(talk.remote.region[..LEN], talk.local[..LEN]);
        assert_eq!(talk.remote.region[LEN..], [0; SIZE - LEN]);
        talk.local = [0; SIZE];
        talk.post(Operation::Read, SIZE as u32, RKEY);
        talk.talk();
        assert_eq!(talk.local, talk.remote.region);
        assert_eq!((talk.ended, talk.remote.completions), ([2, 0], 0));
        assert!(talk.is_quiet());
    }

    /// Whatever is lost, and however often it is asked for again, it is done once.
    #[test]
    fn an_atomic_operation_is_done_once() {
        for (op, before, after) in [
            (Operation::FetchAdd, 41u64, 42u64),
            (Operation::FetchAdd, u64::MAX, 0),
            (Operation::CompareSwap, 1, 2),
            (Operation::CompareSwap, 3, 3),
        ] {
            for (requests, responses) in [(0, 0), (1, 0), (0, 1), (1, 3)] {
                let mut slots = Storage::new();
                let mut talk = Conversation::new(&mut slots);
                talk.lost_requests = requests;
                talk.lost_responses = responses;
                talk.remote.region[..8].copy_from_slice(&before.to_ne_bytes());
                talk.post(op, 8, RKEY);
                talk.talk();
                while !talk.is_quiet() {
                    assert!(talk.wait());
                }
                assert_eq!(talk.ended, [1, 0]);
                assert_eq!(talk.local[..8], before.to_ne_bytes());
                assert_eq!(talk.remote.region[..8], after.to_ne_bytes());
                assert_eq!(talk.remote.region[8..], [0; SIZE - 8]);
            }
        }
    }

    /// The responder reports a gap; if it cannot, for the last packet is the lost one, time does.
    #[test]
    fn a_lost_packet_is_retransmitted() {
        for lost in 0..3 {
            let mut slots = Storage::new();
            let mut talk = Conversation::new(&mut slots);
            talk.remote.receives = 1;
            talk.lost_requests = 1 << lost;
            talk.post(Operation::Send, LEN as u32, 0);
            talk.talk();
            while !talk.is_quiet() {
                assert!(talk.wait());
            }
            assert_eq!(talk.remote.receive[..LEN], talk.local[..LEN]);
            assert_eq!((talk.ended, talk.remote.completions), ([1, 0], 1));
            assert!(talk.requester.counters().retransmitted > 0);
        }
    }

    #[test]
    fn a_receiver_that_is_not_ready_is_waited_for() {
        let mut slots = Storage::new();
        let mut talk = Conversation::new(&mut slots);
        talk.post(Operation::Send, 5, 0);
        talk.talk();
        assert_eq!(talk.requester.counters().rnr_naks, 1);
        talk.remote.receives = 1;
        talk.talk();
        assert_eq!(talk.remote.completions, 0);
        assert!(talk.wait());
        assert_eq!((talk.ended, talk.remote.completions), ([1, 0], 1));
        assert!(talk.is_quiet());
    }

    #[test]
    fn a_wrong_key_is_refused_and_the_rest_flushed() {
        for (length, rkey) in [(5, RKEY + 1), (SIZE as u32 + 1, RKEY)] {
            for op in [Operation::Write, Operation::Read] {
                let mut slots = Storage::new();
                let mut talk = Conversation::new(&mut slots);
                // Only the length that is announced can be too long: one packet is sent.
                talk.lost_requests = Lost::MAX << 1;
                talk.post(op, length, rkey);
                talk.post(Operation::Send, 1, 0);
                talk.talk();
                assert_eq!(talk.status(), Some(Status::RemAccessErr));
                assert!(talk.fatal && talk.responder.has_fatal_nak());
                assert_eq!(talk.remote.region, [0; SIZE]);
                let mut flushed = 0;
                talk.requester.flush(&mut |completion| {
                    flushed += u32::from(completion.status == Status::WrFlushErr);
                });
                assert_eq!((flushed, talk.ended), (1, [0, 1]));
            }
        }
    }
}
