// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Whole conversations: every message arrives exactly once, in order, byte for byte, and every
//! signaled work request completes exactly once, whatever the network does.

extern crate std;

use super::pair::*;
use crate::transport::completion::RecvOp;
use crate::transport::completion::SendOp;
use crate::transport::completion::Status;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

const OPS: [SendOp; 5] = [
    SendOp::Send,
    SendOp::SendImm,
    SendOp::Write,
    SendOp::WriteImm,
    SendOp::Read,
];

/// Data (of SENDs), immediate data and length of what takes a receive, and whether it is solicited.
type Received = (Vec<u8>, Option<[u8; 4]>, u32, bool);

/// What the other side must see.
struct Expected {
    /// wr_ids of signaled requests.
    completions: Vec<(u64, u32)>,
    /// Data (of SENDs), immediate data and length of what takes receives.
    receives: VecDeque<Received>,
    /// Where WRITEs go in the region of the other side.
    writes: Vec<(usize, Vec<u8>)>,
    /// READs: wr_id and what they must bring.
    reads: Vec<(u64, Vec<u8>)>,
}

/// Posts `count` random messages from both sides while the network runs, and checks everything.
fn converse(mtu: u32, seed: u64, weather: Weather, count: u64, max_packets: u64, late: bool) {
    let mut pair = Pair::new(mtu, seed, weather);
    let mut expected = [0, 1].map(|_| Expected {
        completions: Vec::new(),
        receives: VecDeque::new(),
        writes: Vec::new(),
        reads: Vec::new(),
    });
    // READs come from the upper half of a region, WRITEs go to the lower one, each to its own place.
    for side in 0..2 {
        let upper = bytes(&mut pair.rng, REGION / 2);
        pair.hosts[side].memory.region[REGION / 2..].copy_from_slice(&upper);
    }
    let mut posted = [0u64; 2];
    let mut free = [0usize; 2];
    let mut receives = [0u64; 2];
    let mut turns = 0u64;
    while posted.iter().any(|&n| n < count)
        || pair.frames_on_the_way()
        || pair
            .hosts
            .iter()
            .any(|host| host.requester.retired() != host.requester.pushed())
    {
        turns += 1;
        assert!(turns < 3_000_000, "no end");
        for side in 0..2 {
            let other = 1 - side;
            // Receives: in time, or only when it is too late.
            let due = expected[side].receives.len() as u64 + u64::from(!late);
            while receives[other] < count && receives[other] < due {
                if late && !pair.rng.percent(3) {
                    break;
                }
                let wr_id = receives[other];
                pair.hosts[other].memory.post(wr_id, 1 << 20);
                receives[other] += 1;
            }
            // Now and then the send queue is drained, and goes on.
            if pair.rng.percent(2) {
                pair.hosts[side].requester.drain(true);
            } else if pair.hosts[side].requester.is_drained() || pair.rng.percent(2) {
                pair.hosts[side].requester.drain(false);
            }
            let host = &pair.hosts[side];
            let used = host
                .requester
                .pushed()
                .wrapping_sub(host.requester.retired());
            if posted[side] == count || used >= 60 || !pair.rng.percent(20) {
                continue;
            }
            let rng = &mut pair.rng;
            let wr_id = posted[side];
            posted[side] += 1;
            let op = OPS[rng.below(5) as usize];
            let length = match rng.below(5) {
                0 => 0,
                1 => mtu as usize * rng.below(max_packets + 1) as usize,
                _ => rng.below(max_packets * u64::from(mtu)) as usize,
            };
            let mut r = request(wr_id, op, length);
            r.signaled = rng.percent(60);
            r.fence = rng.percent(20);
            r.solicited = rng.percent(50);
            let mut data = bytes(rng, length);
            let plan = &mut expected[side];
            match op {
                SendOp::Send | SendOp::SendImm => {
                    let imm = op.has_imm().then_some(r.imm);
                    plan.receives
                        .push_back((data.clone(), imm, r.length, r.solicited));
                }
                SendOp::Write | SendOp::WriteImm => {
                    if free[side] + length > REGION / 2 {
                        free[side] = 0;
                        plan.writes.clear();
                    }
                    r.remote_addr = BASE + free[side] as u64;
                    plan.writes.push((free[side], data.clone()));
                    free[side] += length;
                    if op.has_imm() {
                        plan.receives
                            .push_back((Vec::new(), Some(r.imm), r.length, r.solicited));
                    }
                }
                SendOp::Read => {
                    let from = REGION / 2 + rng.below((REGION / 2 - length) as u64) as usize;
                    r.remote_addr = BASE + from as u64;
                    let there = &pair.hosts[other].memory.region[from..from + length];
                    plan.reads.push((wr_id, there.to_vec()));
                    data = vec![0; length];
                }
            }
            if r.signaled {
                plan.completions.push((wr_id, r.length));
            }
            pair.hosts[side].post(r, data);
        }
        pair.step();
    }

    for (side, plan) in expected.iter().enumerate() {
        let here = &pair.hosts[side];
        let there = &pair.hosts[1 - side];
        assert!(!here.send_fatal && here.fatal.is_none() && here.bad == 0);
        let sent: Vec<_> = here.sent.iter().map(|c| (c.wr_id, c.byte_len)).collect();
        assert_eq!(sent, plan.completions);
        assert!(here.sent.iter().all(|c| c.status == Status::Success));
        assert_eq!(there.memory.received.len(), plan.receives.len());
        for (n, (want, got)) in plan.receives.iter().zip(&there.memory.received).enumerate() {
            let (completion, data) = got;
            assert_eq!(completion.wr_id, n as u64);
            assert_eq!(completion.status, Status::Success);
            assert_eq!(completion.imm, want.1);
            assert_eq!(completion.byte_len, want.2);
            assert_eq!(completion.solicited, want.3);
            if completion.op == RecvOp::Send {
                assert_eq!(data, &want.0);
            }
        }
        for (at, data) in &plan.writes {
            assert_eq!(&there.memory.region[*at..*at + data.len()], &data[..]);
        }
        for (wr_id, data) in &plan.reads {
            assert_eq!(&here.buffers[wr_id], data);
        }
        let expected_psn = there.responder.expected_psn();
        assert_eq!(here.requester.next_psn(), expected_psn);
        assert!(here.requester.is_drained());
        assert_eq!(here.requester.deadline(), None);
    }
}

#[test]
fn a_quiet_network() {
    for (seed, mtu) in [256, 512, 1024, 2048, 4096].into_iter().enumerate() {
        converse(mtu, seed as u64, CALM, 60, 8, false);
    }
}

#[test]
fn long_messages() {
    for seed in 0..3 {
        converse(256, seed, CALM, 20, 1500, false);
    }
}

#[test]
fn mixed_spans() {
    for seed in 0..20 {
        let max_span = [2, 3, 16, 4000][seed as usize % 4];
        let weather = Weather { max_span, ..CALM };
        converse(256, seed, weather, 60, 40, false);
    }
}

#[test]
fn receives_come_late() {
    for seed in 0..20 {
        let max_span = [1, 1, 4, 100][seed as usize % 4];
        let weather = Weather { max_span, ..CALM };
        converse(512, seed, weather, 60, 8, true);
    }
}

#[test]
fn loss() {
    for seed in 0..40 {
        let weather = Weather {
            loss: 1 + seed % 8,
            ..CALM
        };
        converse(256, seed, weather, 60, 30, false);
    }
}

#[test]
fn doubles() {
    for seed in 0..20 {
        let weather = Weather { double: 20, ..CALM };
        converse(256, seed, weather, 60, 30, false);
    }
}

#[test]
fn reordering() {
    for seed in 0..20 {
        let weather = Weather { reorder: 1, ..CALM };
        converse(256, seed, weather, 60, 30, false);
    }
}

#[test]
fn a_device_that_is_often_full() {
    for seed in 0..20 {
        let max_span = [1, 8][seed as usize % 2];
        let weather = Weather {
            stuck: 30,
            max_span,
            ..CALM
        };
        converse(256, seed, weather, 60, 30, false);
    }
}

#[test]
fn everything_at_once() {
    for seed in 0..60 {
        let weather = Weather {
            loss: 3,
            double: 5,
            reorder: 2,
            stuck: 5,
            max_span: [1, 1, 1, 8][seed as usize % 4],
        };
        converse(256, seed, weather, 50, 20, seed % 2 == 0);
    }
}
