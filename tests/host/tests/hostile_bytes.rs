// SPDX-License-Identifier: GPL-2.0

//! Bytes from anybody, through the parser into both sides of a connection: what comes out stays
//! within what the peer may reach, and every request ends at most once.

use ferroce_core::transport::completion::RecvCompletion;
use ferroce_core::transport::env::{
    AccessError, Change, Placement, RemoteAccess, ResponderEnv, TakeReceive,
};
use ferroce_core::transport::message::Mtu;
use ferroce_core::transport::operation::{Brings, Operation};
use ferroce_core::transport::reliable::config::{RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::transport::reliable::requester::{Requester, SendSlot};
use ferroce_core::transport::reliable::responder::{Resource, Responder};
use ferroce_core::transport::request::SendRequest;
use ferroce_core::transport::segment::{IncomingRequest, ReadSegment, Response};
use ferroce_core::wire::packet::parse;
use ferroce_core::wire::psn::Psn;
use proptest::prelude::*;
use std::ops::Range;

const RKEY: u32 = 0x0102_0304;
const BASE: u64 = 0x7000_0000;
const LEN: u64 = 5000;
const RECEIVE: u64 = 700;
const READ_LEN: u32 = 900;

/// Memory that remembers what was done to it. A key with bit 8 turned may only be read.
#[derive(Default)]
struct Memory {
    written: Vec<Range<u64>>,
    scattered: Vec<Range<u64>>,
    changed: usize,
    receives: u64,
    taken: u64,
    completed: Vec<u64>,
}

fn reachable(access: RemoteAccess, rkey: u32, va: u64, len: u32) -> bool {
    let key = rkey == RKEY || (rkey == RKEY ^ 0x100 && access == RemoteAccess::Read);
    let end = u128::from(va) + u128::from(len);
    key && va >= BASE && end <= u128::from(BASE + LEN)
}

impl ResponderEnv for Memory {
    fn take_receive(&mut self) -> TakeReceive {
        if self.taken == self.receives {
            return TakeReceive::Empty;
        }
        self.taken += 1;
        TakeReceive::Taken {
            wr_id: self.taken,
            capacity: RECEIVE,
        }
    }

    fn check_remote(
        &mut self,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        assert_ne!(len, 0);
        reachable(access, rkey, va, len)
            .then_some(())
            .ok_or(AccessError)
    }

    fn write_remote(&mut self, rkey: u32, va: u64, len: u32) -> Result<(), AccessError> {
        self.check_remote(RemoteAccess::Write, rkey, va, len)?;
        self.written.push(va..va + u64::from(len));
        Ok(())
    }

    fn change_remote(&mut self, rkey: u32, va: u64, _: Change) -> Result<u64, AccessError> {
        assert_eq!(va % 8, 0);
        if !reachable(RemoteAccess::Write, rkey, va, 8) {
            return Err(AccessError);
        }
        self.changed += 1;
        Ok(7)
    }

    fn write_word(&mut self, rkey: u32, va: u64) -> Result<(), AccessError> {
        assert_eq!(va % 8, 0);
        self.write_remote(rkey, va, 8)
    }

    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        _: Placement,
    ) -> Result<(), AccessError> {
        let (va, len) = range.unwrap_or((BASE, 0));
        reachable(RemoteAccess::Read, rkey, va, len)
            .then_some(())
            .ok_or(AccessError)
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        let range = u64::from(offset)..u64::from(offset) + u64::from(len);
        assert!(range.end <= RECEIVE);
        self.scattered.push(range);
        Ok(())
    }

    fn complete(&mut self, completion: RecvCompletion) {
        self.completed.push(completion.wr_id);
    }
}

/// A packet most of whose bytes are by chance, but often with what lets it come far. Its PSN is a
/// distance, for whoever knows where the connection stands.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    (
        proptest::collection::vec(any::<u8>(), 12..340),
        prop_oneof![8 => 0u8..0x15, 1 => 0x1cu8..0x1e, 1 => any::<u8>()],
        prop_oneof![6 => 0u32..12, 1 => any::<u32>()],
        prop_oneof![
            2 => Just(RKEY),
            1 => Just(RKEY ^ 0x100),
            1 => any::<u32>()
        ],
        prop_oneof![
            4 => (0..LEN).prop_map(|n| BASE + n),
            1 => (0..LEN).prop_map(|n| u64::MAX - n)
        ],
        prop_oneof![4 => 0u32..1500, 1 => any::<u32>()],
        prop_oneof![3 => Just(256usize), 1 => 0usize..260],
    )
        .prop_map(
            move |(mut bytes, opcode, distance, rkey, va, length, payload)| {
                bytes[0] = opcode;
                let is_atomic = matches!(opcode, 0x13 | 0x14);
                let has_reth = is_atomic || matches!(opcode, 0x06 | 0x0a..=0x0c | 0x1d);
                let headers = match opcode {
                    0x0b => 32,
                    0x12 => 24,
                    0x1c => 32,
                    _ if is_atomic => 40,
                    _ if has_reth => 28,
                    0x03 | 0x05 | 0x09 | 0x0d | 0x0f..=0x11 => 16,
                    _ => 12,
                };
                let payload = if matches!(opcode, 0x0c | 0x11..=0x14 | 0x1c) {
                    0
                } else {
                    payload
                };
                let pad = payload.wrapping_neg() & 3;
                bytes[1] = (bytes[1] & 0xc0) | ((pad as u8) << 4);
                bytes.resize(headers + payload + pad + 4, 0x2a);
                let psn = distance.to_be_bytes();
                bytes[9..12].copy_from_slice(&psn[1..]);
                if has_reth {
                    // Of an atomic operation it is mostly aligned.
                    let va = if (is_atomic || opcode == 0x1d) && length % 8 != 0 {
                        va & !7
                    } else {
                        va
                    };
                    bytes[12..20].copy_from_slice(&va.to_be_bytes());
                    bytes[20..24].copy_from_slice(&rkey.to_be_bytes());
                    let fits = if length % 3 == 0 {
                        payload as u32
                    } else {
                        length
                    };
                    bytes[24..28].copy_from_slice(&fits.to_be_bytes());
                }
                bytes
            },
        )
}

fn mtu() -> Mtu {
    Mtu::from_bytes(256).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_responder_keeps_to_what_the_peer_may_reach(
        first_psn in prop_oneof![0u32..1 << 24, 0xff_fff8u32..0x100_0000],
        packets in proptest::collection::vec(packet(), 1..24),
        (write, atomic) in any::<(bool, bool)>(),
        receives in 0u64..6,
    ) {
        let mut responder = Responder::new(vec![Resource::default(); 4]);
        responder.connect(ResponderConfig {
            mtu: mtu(),
            rq_psn: Psn::new(first_psn),
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            rights: RemoteRights { write, atomic, ..RemoteRights::ALL },
        });
        let mut memory = Memory { receives, ..Memory::default() };
        for mut bytes in packets {
            let distance = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
            let psn = responder.expected_psn().add(distance / 2).sub(distance % 5 / 3);
            bytes[9..12].copy_from_slice(&psn.to_be_bytes());
            let Ok(parsed) = parse(&bytes, bytes.len()) else { continue };
            let Some(request) = IncomingRequest::from_packet(&parsed) else { continue };
            let _ = responder.on_request(&request, &mut memory);
            for _ in 0..100 {
                let Some(response) = responder.next_response(1) else { break };
                if let Response::ReadResponse { segment, rkey, va, .. } = response {
                    prop_assert!(segment.len <= 256);
                    // Memory that goes in between is found when the bytes are copied; none goes
                    // here.
                    prop_assert!(
                        segment.len == 0 || reachable(RemoteAccess::Read, rkey, va, segment.len)
                    );
                }
            }
        }
        responder.abort(&mut memory);
        for range in &memory.written {
            prop_assert!(write && range.start >= BASE && range.end <= BASE + LEN);
        }
        prop_assert!(atomic || memory.changed == 0);
        // Each receive that was taken completed once, in order.
        prop_assert_eq!(memory.completed, (1..=memory.taken).collect::<Vec<_>>());
    }

    #[test]
    fn a_requester_places_data_where_it_asked_for_it(
        first_psn in 0u32..1 << 24,
        answers in proptest::collection::vec(packet(), 1..24),
        ops in proptest::collection::vec(0usize..4, 1..8),
    ) {
        let mut requester = Requester::new(vec![SendSlot::default(); 8]);
        requester.connect(RequesterConfig {
            mtu: mtu(),
            sq_psn: Psn::new(first_psn),
            retry_cnt: 3,
            rnr_retry: 3,
            ack_timeout_ns: Some(1000),
            max_rd_atomic: 2,
        });
        for (wr_id, op) in ops.iter().enumerate() {
            let pushed = requester.push(SendRequest {
                wr_id: wr_id as u64,
                op: [Operation::Send, Operation::Write, Operation::Read, Operation::FetchAdd][*op],
                length: if *op == 3 { 8 } else { READ_LEN },
                signaled: true,
                ..SendRequest::default()
            });
            prop_assert!(pushed.is_ok());
        }
        let mut done = Vec::new();
        let mut at = Psn::new(first_psn);
        for mut bytes in answers {
            while requester.next_segment(0, 1).is_some() {}
            let distance = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
            bytes[9..12].copy_from_slice(&at.add(distance / 3).to_be_bytes());
            let Ok(parsed) = parse(&bytes, bytes.len()) else { continue };
            let sink = &mut |completion| done.push(completion);
            if let Some(segment) = ReadSegment::from_packet(&parsed) {
                if let Ok(place) = requester.accept_read_response(&segment, 0, sink) {
                    let original = segment.brings == Brings::Original;
                    let most = if original { 8 } else { READ_LEN };
                    prop_assert!(u64::from(place.offset) + u64::from(place.len) <= most.into());
                    let of = if original { 3 } else { 2 };
                    prop_assert!(ops[done.len()] == of, "data for what asked for none");
                    let sink = &mut |completion| done.push(completion);
                    let _ = requester.read_response_placed(&place, 0, sink);
                    at = parsed.psn.next();
                }
            } else if let Some(aeth) = parsed.extension.aeth() {
                let _ = requester.on_acknowledge(parsed.psn, aeth, 0, sink);
                at = parsed.psn;
            }
        }
        requester.flush(&mut |completion| done.push(completion));
        let ends: Vec<u64> = done.iter().map(|completion| completion.wr_id).collect();
        prop_assert_eq!(ends, (0..ops.len() as u64).collect::<Vec<_>>());
    }
}
