// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The rules of the requester one by one.

extern crate std;

mod keep;
mod loss;
mod read;
mod send;
mod tail;

use super::*;
use crate::core::operation::{
    Arguments,
    Brings,
    Operation, //
};
use crate::core::segment::{
    ReadSegment,
    RequestSegment, //
};
use crate::core::send::{
    Next,
    SendSource, //
};
use crate::core::wire::headers::{
    rnr_delay_ns,
    Aeth,
    AethSyndrome,
    NakCode,
    Reth, //
};
use crate::core::wire::opcode::Opcode;
use std::vec;
use std::vec::Vec;

const ACK: AethSyndrome = AethSyndrome::Ack { credits: 31 };
const SEQUENCE: AethSyndrome = AethSyndrome::Nak(NakCode::PsnSequence);
const TIMEOUT: u64 = 1_000_000;

/// First PSN: it wraps after four packets.
const PSN: u32 = 0xff_fffc;

struct Rig<A: Spare = InPlace> {
    requester: Requester<Vec<SendSlot>, A>,
    done: Vec<SendCompletion>,
    now: u64,
}

fn config() -> RequesterConfig {
    RequesterConfig {
        mtu: Mtu::from_bytes(256).unwrap(),
        sq_psn: Psn::new(PSN),
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout_ns: Some(TIMEOUT),
        max_rd_atomic: 2,
        ecn: false,
    }
}

fn wr(wr_id: u64, op: Operation, length: u32) -> SendRequest {
    SendRequest {
        wr_id,
        op,
        length,
        signaled: true,
        ..SendRequest::default()
    }
}

const ARGUMENTS: Arguments = Arguments {
    remote_addr: 0x1000,
    rkey: 5,
    imm: [1, 2, 3, 4],
    invalidated: 0x5566_7788,
    operands: [7, 8],
};

fn reth_of(segment: &RequestSegment) -> Reth {
    segment.extension(|| ARGUMENTS).reth().unwrap()
}

/// Of the 16 of a [`Rig`].
fn slot(index: u32) -> Slot {
    Slot::of(index, 16)
}

fn psn(n: u32) -> Psn {
    Psn::new(PSN).add(n)
}

impl Rig {
    fn new() -> Self {
        Self::with(config())
    }

    fn with(config: RequesterConfig) -> Self {
        Self::with_spare(config)
    }
}

impl<A: Spare> Rig<A> {
    fn with_spare(config: RequesterConfig) -> Self {
        let mut requester = Requester::with_spare(vec![SendSlot::default(); 16]);
        requester.connect(config);
        Self {
            requester,
            done: Vec::new(),
            now: 100,
        }
    }

    fn push(&mut self, wr_id: u64, op: Operation, length: u32) {
        self.requester.push(wr(wr_id, op, length)).unwrap();
    }

    fn silent(&mut self, wr_id: u64, op: Operation, length: u32) {
        let mut request = wr(wr_id, op, length);
        request.signaled = false;
        self.requester.push(request).unwrap();
    }

    fn next(&mut self) -> Option<RequestSegment> {
        match self.requester.next(self.now, 1) {
            Next::Segment(segment) => Some(segment),
            Next::LocalOp(_) | Next::Idle => None,
        }
    }

    /// All that can be sent: number of the packet and whether it asks for an ACK.
    fn send(&mut self) -> Vec<(u32, bool)> {
        let mut sent = Vec::new();
        while let Some(segment) = self.next() {
            let number = segment.psn.distance_from(psn(0)) as u32;
            sent.push((number, segment.ack_req));
        }
        sent
    }

    fn numbers(&mut self) -> Vec<u32> {
        self.send().iter().map(|(n, _)| *n).collect()
    }

    fn on(&mut self, n: u32, syndrome: AethSyndrome) -> Progress {
        self.on_msn(n, syndrome, self.requester.messages_done)
    }

    fn on_msn(&mut self, n: u32, syndrome: AethSyndrome, msn: u32) -> Progress {
        let done = &mut self.done;
        let aeth = Aeth::new(syndrome, msn);
        self.requester
            .on_acknowledge(psn(n), aeth, self.now, &mut |c| done.push(c))
    }

    fn tick(&mut self, now: u64) -> Progress {
        self.now = now;
        let done = &mut self.done;
        self.requester.on_deadline(now, &mut |c| done.push(c))
    }

    fn accept(
        &mut self,
        n: u32,
        first: bool,
        last: bool,
        len: u32,
    ) -> Result<ReadPlacement, ReadIgnored> {
        self.take(&ReadSegment {
            brings: Brings::Data,
            psn: psn(n),
            span: 1,
            first,
            last,
            keeps: false,
            len,
        })
    }

    fn take(&mut self, response: &ReadSegment) -> Result<ReadPlacement, ReadIgnored> {
        let done = &mut self.done;
        self.requester
            .accept_read_response(response, self.now, &mut |c| done.push(c))
    }

    fn respond(&mut self, n: u32, first: bool, last: bool, len: u32) -> Progress {
        let place = self.accept(n, first, last, len).unwrap();
        let done = &mut self.done;
        self.requester
            .read_response_placed(&place, self.now, &mut |c| done.push(c))
    }

    fn fail(&mut self, slot: Slot) -> Progress {
        let done = &mut self.done;
        self.requester
            .fail(slot, Status::LocProtErr, &mut |c| done.push(c))
    }

    fn flush(&mut self) {
        let done = &mut self.done;
        self.requester.flush(&mut |c| done.push(c));
    }

    fn ended(&self) -> Vec<(u64, Status)> {
        self.done.iter().map(|c| (c.wr_id, c.status)).collect()
    }
}
