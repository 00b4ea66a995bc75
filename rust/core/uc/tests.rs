// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Requester and responder alone, and together over a network that loses, duplicates and reorders.
//! What single packets of a peer can be, and what becomes of each, is in `tests/hostile`.

use super::requester::{
    UnreliableRequester,
    UnreliableSlot, //
};
use super::responder::UnreliableResponder;
use crate::core::completion::{
    Carried,
    RecvCompletion,
    SendCompletion,
    Status, //
};
use crate::core::env::{
    AccessError,
    ReceiveEnv,
    RemoteAccess,
    TakeReceive,
    WriteEnv, //
};
use crate::core::memory::Span;
use crate::core::message::Mtu;
use crate::core::operation::{
    Arguments,
    Operation, //
};
use crate::core::segment::{
    IncomingRequest,
    RequestSegment, //
};
use crate::core::send::{
    PushError,
    SendRequest, //
};
use crate::core::storage::Slot;
use crate::core::uc::{
    UnreliableDrop,
    UnreliableOutcome, //
};
use crate::core::wire::opcode::{
    Opcode,
    OpcodeService, //
};
use crate::core::wire::psn::Psn;

extern crate std;
use std::vec;
use std::vec::Vec;

const RKEY: u32 = 7;
const MTU: u32 = 256;

/// The receives, memory and completions of a QP. What a packet carries is its number in each byte.
#[derive(Default)]
struct Memory {
    receives: Vec<(u64, usize)>,
    taken: Vec<u8>,
    written: Vec<u8>,
    done: Vec<(RecvCompletion, Vec<u8>)>,
    payload: Vec<u8>,
    broken: bool,
}

impl ReceiveEnv for Memory {
    fn take_receive(&mut self) -> TakeReceive {
        if self.receives.is_empty() {
            return TakeReceive::Empty;
        }
        let (wr_id, len) = self.receives.remove(0);
        if len == usize::MAX {
            return TakeReceive::Malformed {
                wr_id,
                status: Status::LocQpOpErr,
            };
        }
        self.taken = vec![0; len];
        TakeReceive::Taken {
            wr_id,
            capacity: len as u64,
        }
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        if self.broken {
            return Err(AccessError);
        }
        let offset = offset as usize;
        self.taken[offset..offset + len as usize].copy_from_slice(&self.payload);
        Ok(())
    }

    fn complete(&mut self, done: RecvCompletion) {
        self.done.push((done, self.taken.clone()));
    }
}

impl WriteEnv for Memory {
    fn check_remote(&mut self, access: RemoteAccess, span: Span) -> Result<(), AccessError> {
        let is_within = span.offset_in(0, self.written.len() as u64).is_some();
        let fits = is_within && access == RemoteAccess::Write;
        (span.key.get() == RKEY && fits)
            .then_some(())
            .ok_or(AccessError)
    }

    fn write_remote(&mut self, span: Span) -> Result<(), AccessError> {
        self.check_remote(RemoteAccess::Write, span)?;
        self.written[span.va as usize..][..span.len as usize].copy_from_slice(&self.payload);
        Ok(())
    }
}

fn mtu() -> Mtu {
    Mtu::from_bytes(MTU).unwrap()
}

fn responder() -> UnreliableResponder {
    let mut responder = UnreliableResponder::default();
    responder.connect(mtu(), Psn::new(0xff_fffe), true);
    responder
}

fn requester(service: OpcodeService) -> UnreliableRequester<Vec<UnreliableSlot>> {
    let mut requester = UnreliableRequester::new(vec![UnreliableSlot::default(); 8], service);
    requester.connect(mtu(), Psn::new(0xff_fffe));
    requester
}

fn request(wr_id: u64, op: Operation, length: u32) -> SendRequest {
    SendRequest {
        wr_id,
        length,
        op,
        signaled: true,
        ..SendRequest::default()
    }
}

/// Sends all there is: the segments, and what completed.
fn drain(
    requester: &mut UnreliableRequester<Vec<UnreliableSlot>>,
    span: u32,
) -> Vec<RequestSegment> {
    let mut segments = Vec::new();
    while let Some(segment) = requester.next_segment(span) {
        segments.push(segment);
        assert!(!requester.left(&segment, &mut |_| {}).has_failed());
    }
    segments
}

fn incoming(segment: &RequestSegment, arguments: Arguments) -> IncomingRequest {
    IncomingRequest::local(segment, segment.extension(|| arguments))
}

/// The packets of one message, as they arrive.
fn message(op: Operation, length: u32, psn: u32) -> Vec<IncomingRequest> {
    let mut requester = requester(OpcodeService::Uc);
    requester.connect(mtu(), Psn::new(psn));
    requester.push(request(1, op, length)).unwrap();
    let arguments = Arguments {
        remote_addr: 0x10,
        rkey: RKEY,
        imm: [1, 2, 3, 4],
        invalidated: 0,
        operands: [0; 2],
    };
    drain(&mut requester, 1)
        .iter()
        .map(|segment| incoming(segment, arguments))
        .collect()
}

fn give(
    responder: &mut UnreliableResponder,
    memory: &mut Memory,
    packet: &IncomingRequest,
) -> UnreliableOutcome {
    memory.payload = vec![packet.psn.get() as u8; packet.payload_len as usize];
    responder.on_request(packet, memory)
}

#[test]
fn a_request_completes_when_its_last_packet_has_left() {
    let mut requester = requester(OpcodeService::Uc);
    requester
        .push(request(5, Operation::SendImm, 2 * MTU + 1))
        .unwrap();
    let mut quiet = request(6, Operation::Write, 0);
    quiet.signaled = false;
    requester.push(quiet).unwrap();
    let mut done: Vec<SendCompletion> = Vec::new();
    let mut opcodes = Vec::new();
    while let Some(segment) = requester.next_segment(1) {
        assert_eq!(requester.next_segment(1), Some(segment));
        assert!(!segment.ack_req);
        assert_eq!(segment.psn, Psn::new(0xff_fffe).add(opcodes.len() as u32));
        opcodes.push(segment.opcode);
        let before = done.len();
        let _ = requester.left(&segment, &mut |completion| done.push(completion));
        assert_eq!(done.len() - before, usize::from(opcodes.len() == 3));
    }
    assert_eq!(
        opcodes,
        [
            Opcode::UcSendFirst,
            Opcode::UcSendMiddle,
            Opcode::UcSendLastImm,
            Opcode::UcWriteOnly
        ]
    );
    assert_eq!(
        (done[0].wr_id, done[0].retired, done[0].byte_len),
        (5, 1, 513)
    );
    assert_eq!((requester.retired(), requester.pushed()), (2, 2));
    assert_eq!(requester.next_psn(), Psn::new(2));
}

#[test]
fn an_error_ends_the_queue_until_it_is_resumed() {
    let mut requester = requester(OpcodeService::Uc);
    for wr_id in 0..3 {
        requester
            .push(request(wr_id, Operation::Send, 2 * MTU))
            .unwrap();
    }
    let segment = requester.next_segment(1).unwrap();
    let _ = requester.left(&segment, &mut |_| panic!("half of it"));
    let mut done: Vec<(u64, Status)> = Vec::new();
    let mut sink = |completion: SendCompletion| done.push((completion.wr_id, completion.status));
    assert!(requester.fail(Status::LocProtErr, &mut sink).has_failed());
    assert_eq!(requester.next_segment(1), None);
    assert!(requester.is_drained() && !requester.has_unsent());
    assert_eq!(requester.flush_some(1, &mut sink), 1);
    requester.flush(&mut sink);
    // What is posted meanwhile is flushed as well.
    requester.push(request(3, Operation::Send, 1)).unwrap();
    requester.flush(&mut sink);
    requester.resume();
    requester.push(request(4, Operation::Send, 1)).unwrap();
    // The PSN goes on behind what has left.
    let segment = requester.next_segment(1).unwrap();
    assert_eq!(
        (segment.opcode, segment.psn.get()),
        (Opcode::UcSendOnly, 0xff_ffff)
    );
    assert!(!requester.left(&segment, &mut sink).has_failed());
    let flushed = |wr_id| (wr_id, Status::WrFlushErr);
    assert_eq!(
        done,
        [
            (0, Status::LocProtErr),
            flushed(1),
            flushed(2),
            flushed(3),
            (4, Status::Success)
        ]
    );
}

#[test]
fn what_cannot_be_done_waits_for_its_turn() {
    let mut requester = requester(OpcodeService::Uc);
    let mut done = Vec::new();
    let mut sink = |completion: SendCompletion| done.push((completion.wr_id, completion.status));
    requester.push(request(1, Operation::Send, 1)).unwrap();
    let progress = requester
        .push_failed(2, Status::LocQpOpErr, &mut sink)
        .unwrap();
    assert!(!progress.has_failed());
    requester.push(request(3, Operation::Send, 1)).unwrap();
    let segment = requester.next_segment(1).unwrap();
    assert!(requester.left(&segment, &mut sink).has_failed());
    assert_eq!(requester.next_segment(1), None);
    requester.flush(&mut sink);
    assert_eq!(
        done,
        [
            (1, Status::Success),
            (2, Status::LocQpOpErr),
            (3, Status::WrFlushErr)
        ]
    );
}

#[test]
fn a_drained_queue_finishes_what_it_began() {
    let mut requester = requester(OpcodeService::Uc);
    requester
        .push(request(1, Operation::Send, 2 * MTU))
        .unwrap();
    requester.push(request(2, Operation::Send, 1)).unwrap();
    let first = requester.next_segment(1).unwrap();
    let _ = requester.left(&first, &mut |_| {});
    requester.drain(true);
    assert!(!requester.is_drained());
    let last = requester.next_segment(1).unwrap();
    let _ = requester.left(&last, &mut |_| {});
    assert!(requester.is_drained() && requester.next_segment(1).is_none());
    requester.drain(false);
    assert_eq!(requester.next_segment(1).unwrap().len, 1);
}

#[test]
fn only_what_takes_a_receive_asks_for_a_solicited_event() {
    for (service, op, asks) in [
        (OpcodeService::Ud, Operation::Send, true),
        (OpcodeService::Uc, Operation::SendImm, true),
        (OpcodeService::Uc, Operation::WriteImm, true),
        (OpcodeService::Uc, Operation::Write, false),
    ] {
        let mut requester = requester(service);
        let mut wanted = request(1, op, 1);
        wanted.solicited = true;
        requester.push(wanted).unwrap();
        let segment = requester.next_segment(1).unwrap();
        assert_eq!(segment.solicited, asks, "{op:?}");
    }
}

#[test]
fn a_datagram_is_one_packet() {
    let mut requester = requester(OpcodeService::Ud);
    let too_long = request(1, Operation::Send, MTU + 1);
    assert_eq!(requester.push(too_long), Err(PushError::TooLong));
    requester.push(request(1, Operation::Send, MTU)).unwrap();
    requester.push(request(2, Operation::SendImm, 0)).unwrap();
    let opcodes: Vec<Opcode> = drain(&mut requester, 16).iter().map(|s| s.opcode).collect();
    assert_eq!(opcodes, [Opcode::UdSendOnly, Opcode::UdSendOnlyImm]);
}

/// Also one that is pushed while the path MTU is not known yet, or no longer.
#[test]
fn a_datagram_pushed_before_rts_is_one_packet() {
    let mut requester =
        UnreliableRequester::new(vec![UnreliableSlot::default(); 8], OpcodeService::Ud);
    let two_packets = request(1, Operation::Send, MTU + 1);
    for _ in 0..2 {
        assert_eq!(requester.push(two_packets), Err(PushError::TooLong));
        requester.push(request(2, Operation::Send, MTU)).unwrap();
        requester.connect(mtu(), Psn::new(5));
        assert_eq!(drain(&mut requester, 16).len(), 1);
        requester.connect(Mtu::from_bytes(4096).unwrap(), Psn::new(5));
        requester.push(two_packets).unwrap();
        requester.reset();
    }
}

#[test]
fn the_ring_has_its_slots() {
    let mut requester = requester(OpcodeService::Uc);
    for n in 0..8 {
        assert_eq!(
            requester.push(request(n, Operation::Send, 1)),
            Ok(Slot::of(n as u32, 8))
        );
    }
    let one_more = request(8, Operation::Send, 1);
    assert_eq!(requester.push(one_more), Err(PushError::Full));
    let too_long = request(8, Operation::Send, u32::MAX);
    assert_eq!(requester.push(too_long), Err(PushError::TooLong));
    requester.reset();
    assert_eq!((requester.pushed(), requester.next_segment(1)), (0, None));
}

#[test]
fn a_receive_that_cannot_be_used_ends_the_qp() {
    let packets = message(Operation::Send, 300, 0xff_fffe);
    let (mut responder, mut memory) = (responder(), Memory::default());
    memory.receives.push((1, 300));
    memory.broken = true;
    assert_eq!(
        give(&mut responder, &mut memory, &packets[0]),
        UnreliableOutcome::Failed
    );
    assert_eq!(memory.done[0].0.status, Status::LocProtErr);
    let after = give(&mut responder, &mut memory, &packets[1]);
    assert_eq!(after, UnreliableOutcome::Dropped(UnreliableDrop::NotReady));
    assert!(responder.abort().is_none());

    responder.connect(mtu(), Psn::new(0xff_fffe), true);
    let mut memory = Memory::default();
    memory.receives.push((2, usize::MAX));
    assert_eq!(
        give(&mut responder, &mut memory, &packets[0]),
        UnreliableOutcome::Failed
    );
    assert_eq!(memory.done[0].0.status, Status::LocQpOpErr);
}

#[test]
fn a_receive_in_use_is_flushed() {
    let (mut responder, mut memory) = (responder(), Memory::default());
    memory.receives.push((1, 300));
    let packets = message(Operation::Send, 300, 0xff_fffe);
    assert_eq!(
        give(&mut responder, &mut memory, &packets[0]),
        UnreliableOutcome::Executed
    );
    let done = responder.abort().unwrap();
    assert_eq!((done.wr_id, done.status), (1, Status::WrFlushErr));
}

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Messages over a network that loses, doubles and delays packets: what arrives is whole, in the
/// order in which it was sent, each once, and with nothing lost everything arrives.
#[test]
fn what_arrives_is_whole_and_in_order() {
    let mut arrived_of_lossy = 0;
    for seed in 1..200u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let lossy = seed % 4 != 0;
        let (mut requester, mut responder) = (requester(OpcodeService::Uc), responder());
        let mut memory = Memory::default();
        let mut lengths = Vec::new();
        // Packets in the network, with their payload.
        let mut wire: Vec<(IncomingRequest, Vec<u8>)> = Vec::new();
        while lengths.len() < 60 || !wire.is_empty() {
            if lengths.len() < 60 {
                let number = lengths.len() as u64;
                let length = dice.below(u64::from(4 * MTU)) as u32;
                requester
                    .push(request(number, Operation::SendImm, length))
                    .unwrap();
                lengths.push(length);
                for segment in drain(&mut requester, 1 + dice.below(3) as u32) {
                    let arguments = Arguments {
                        imm: (number as u32).to_be_bytes(),
                        ..Arguments::default()
                    };
                    let packet = incoming(&segment, arguments);
                    let data = (segment.offset..segment.offset + segment.len)
                        .map(|at| (at as u8) ^ number as u8)
                        .collect::<Vec<u8>>();
                    let copies = match dice.below(20) {
                        0 if lossy => 0,
                        1 if lossy => 2,
                        _ => 1,
                    };
                    for _ in 0..copies {
                        wire.push((packet, data.clone()));
                    }
                }
            }
            while wire.len() > dice.below(6) as usize {
                let late = if lossy && dice.below(10) == 0 { 1 } else { 0 };
                let (packet, data) = wire.remove(late.min(wire.len() - 1));
                if memory.receives.is_empty() {
                    memory.receives.push((0, 4 * MTU as usize));
                }
                memory.payload = data;
                let outcome = responder.on_request(&packet, &mut memory);
                assert!(outcome != UnreliableOutcome::Failed);
                if lengths.len() == 60 && wire.is_empty() {
                    break;
                }
            }
        }
        let mut last = None;
        for (done, bytes) in &memory.done {
            let Carried::Imm(imm) = done.carried else {
                panic!("{done:?}");
            };
            let number = u32::from_be_bytes(imm);
            assert!(
                last.is_none_or(|last| last < number),
                "{number} after {last:?}"
            );
            last = Some(number);
            assert_eq!(done.byte_len, lengths[number as usize]);
            for (at, byte) in bytes[..done.byte_len as usize].iter().enumerate() {
                assert_eq!(*byte, at as u8 ^ number as u8);
            }
        }
        if lossy {
            assert!(memory.done.len() < lengths.len(), "nothing was lost");
            arrived_of_lossy += memory.done.len();
        } else {
            assert_eq!(memory.done.len(), lengths.len());
        }
    }
    // Not everything is lost either.
    assert!(arrived_of_lossy > 1000, "{arrived_of_lossy}");
}
