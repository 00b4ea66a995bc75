// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A send queue: its requester, who transmits for it, and all that may happen to them, in any
//! order, by the code of the module ([`kick`], [`send::send`]). On the host only.
//!
//! The packets of one CPU stay in their order, those of different CPUs do not. Answers stay in
//! their order, and are received anywhere.

#![cfg(test)]

extern crate std;

use super::*;
use crate::core::completion::{
    RecvCompletion,
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
use crate::core::offload::budget::Helper;
use crate::core::offload::stream::Position;
use crate::core::offload::{
    InFlight,
    Moves,
    SenderKind, //
};
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
    RequesterCounters,
    ResponderConfig, //
};
use crate::core::segment::{
    IncomingRequest,
    RequestSegment,
    Response, //
};
use crate::core::send::{
    self,
    SendEnv,
    SendError,
    SendRequest,
    Transmit, //
};
use crate::core::storage::Slot;
use crate::core::wire::headers::Aeth;
use crate::core::wire::psn::Psn;
use std::collections::VecDeque;
use std::vec::Vec;
use std::{
    mem,
    vec, //
};

const CPUS: u32 = 3;
/// Requests that the ring holds.
const ENTRIES: u32 = 32;
const FETCHED_PER_RUN: u32 = 20;
const PACKETS_PER_RUN: u32 = 3;
const RUNS_PER_DOORBELL: u32 = 4;
const RUNS_PER_POLL: u32 = 2;
const FLUSHED_PER_RUN: u32 = 3;
const MTU: u32 = 256;
/// What is below happens in so many nanoseconds, on average.
const STEP: u64 = 500;
/// Far above what anything takes that is not lost.
const ACK_TIMEOUT: u64 = 100_000_000;
/// The shortest one of the module.
const SHORT_TIMEOUT: u64 = 8_000_000;
/// More of those than there are retries.
const LATE: u64 = 10 * SHORT_TIMEOUT;

/// A responder's memory that takes and has everything.
struct Anything;

impl ReceiveEnv for Anything {
    fn take_receive(&mut self) -> TakeReceive {
        TakeReceive::Taken {
            wr_id: 0,
            capacity: 1 << 20,
        }
    }

    fn scatter(&mut self, _: u32, _: u32) -> Result<(), AccessError> {
        Ok(())
    }

    fn complete(&mut self, _: RecvCompletion) {}
}

impl WriteEnv for Anything {
    fn check_remote(&mut self, _: RemoteAccess, _: Span) -> Result<(), AccessError> {
        Ok(())
    }

    fn write_remote(&mut self, _: Span) -> Result<(), AccessError> {
        Ok(())
    }
}

impl ResponderEnv for Anything {
    fn change_remote(&mut self, _: Span, _: AtomicOp) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn write_word(&mut self, _: Span) -> Result<(), AccessError> {
        Ok(())
    }

    fn flush(&mut self, _: FlushRange, _: FlushPlacement) -> Result<(), AccessError> {
        Ok(())
    }
}

/// What a CPU has to do besides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// Nothing.
    Free,
    /// Something else wants to run there.
    Wanted,
    /// A hypervisor has taken it away, which the kernel cannot see.
    Stolen,
}

/// What a life is like.
#[derive(Clone, Copy)]
struct Nature {
    seed: u64,
    /// One packet in so many is lost, if any.
    loses: Option<u32>,
    /// The local stack refuses one packet in so many, if any.
    refuses: Option<u32>,
    /// The ACK timeout of the QP.
    timeout: Option<u64>,
    /// Workers are late at times, by [`LATE`].
    late: bool,
    /// The process may run on one CPU only, so no worker is invited.
    alone: bool,
    /// All messages are of one packet, so a run is seldom too short.
    short: bool,
}

impl Nature {
    /// Nothing is lost or refused.
    fn calm(seed: u64) -> Self {
        Self {
            seed,
            loses: None,
            refuses: None,
            timeout: Some(ACK_TIMEOUT),
            late: false,
            alone: seed % 3 == 0,
            short: seed % 2 == 0,
        }
    }
}

/// A send queue, its process and its network.
struct Model {
    nature: Nature,
    offload: Offload<u32>,
    requester: Requester<Vec<SendSlot>>,
    responder: Responder<Vec<Resource>>,
    random: u64,
    now: u64,
    /// The QP is in ERR.
    failed: bool,
    /// Where the process runs, and whether it still posts.
    process: u32,
    posts: bool,
    /// The CPU where the far worker runs.
    other: Other,
    /// Requests in the ring that were not taken from it.
    posted: VecDeque<SendRequest>,
    /// The process has to ring, and did not yet.
    rings: bool,
    needs_doorbell: bool,
    /// What each CPU has sent that was not received.
    requests: [VecDeque<IncomingRequest>; CPUS as usize],
    /// What the responder has sent that was not received.
    responses: VecDeque<Response>,
    /// When the timer of the queue fires.
    timer: Option<u64>,
    /// Where work items are queued.
    near: Option<u32>,
    far: Option<u32>,
    /// Where the timer that polls is set.
    poll: Option<u32>,
    /// What workers on each CPU have shown.
    helpers: [Helper; CPUS as usize],
    /// Moves that were begun and waited, and those for a worker that was too slow.
    waits: u32,
    slow: u32,
}

impl Model {
    fn new(nature: Nature) -> Self {
        let mtu = Mtu::from_bytes(MTU).unwrap();
        let mut requester = Requester::new(vec![SendSlot::default(); ENTRIES as usize]);
        requester.connect(RequesterConfig {
            mtu,
            sq_psn: Psn::new(0xff_fff0),
            retry_cnt: 7,
            rnr_retry: 7,
            ack_timeout_ns: nature.timeout,
            max_rd_atomic: 2,
            ecn: false,
        });
        let mut responder = Responder::new(vec![Resource::default(); 8]);
        responder.connect(ResponderConfig {
            mtu,
            rq_psn: Psn::new(0xff_fff0),
            max_dest_rd_atomic: 2,
            min_rnr_timer: 12,
            rights: RemoteRights::ALL,
        });
        Self {
            nature,
            offload: Offload::default(),
            requester,
            responder,
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(nature.seed),
            now: 1,
            failed: false,
            process: 0,
            posts: true,
            other: Other::Free,
            posted: VecDeque::new(),
            rings: false,
            needs_doorbell: true,
            requests: Default::default(),
            responses: VecDeque::new(),
            timer: None,
            near: None,
            far: None,
            poll: None,
            helpers: Default::default(),
            waits: 0,
            slow: 0,
        }
    }

    fn below(&mut self, n: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as u32) % n
    }

    fn is_lost(&mut self) -> bool {
        self.nature
            .loses
            .is_some_and(|one_in| self.below(one_in) == 0)
    }

    fn is_refused(&mut self) -> bool {
        self.nature
            .refuses
            .is_some_and(|one_in| self.below(one_in) == 0)
    }

    /// As `SendQueue::sched_point` has it.
    fn sched_point(&self, here: u32) -> SchedPoint<u32> {
        let requester = &self.requester;
        let in_flight = if !requester.has_in_flight() {
            InFlight::Nothing
        } else if requester.is_answer_due() && requester.deadline().is_some() {
            InFlight::Awaited
        } else {
            InFlight::Unbounded
        };
        SchedPoint {
            here,
            now: self.now,
            in_flight,
        }
    }

    fn post(&mut self) {
        let requester = &self.requester;
        let used = requester.pushed().wrapping_sub(requester.retired()) + self.posted.len() as u32;
        if used == ENTRIES || !self.posts {
            return;
        }
        let op = match self.below(8) {
            0 => Operation::Read,
            1 => Operation::Send,
            _ => Operation::Write,
        };
        let request = SendRequest {
            op,
            length: self.below(if self.nature.short { 16 } else { 4 * MTU }),
            signaled: self.below(8) == 0,
            fence: self.below(8) == 0,
            ..SendRequest::default()
        };
        self.posted.push_back(request);
        self.rings |= self.needs_doorbell;
    }

    fn kick(&mut self, here: u32, why: Kick) -> bool {
        kick(&mut Kicked { model: self, here }, why)
    }

    fn doorbell(&mut self) {
        self.rings = false;
        let here = self.process;
        let mut again = self.kick(here, Kick::Doorbell);
        let measures = self.offload.wants_end();
        for run in 2..=RUNS_PER_DOORBELL {
            if !again {
                break;
            }
            let last = run == RUNS_PER_DOORBELL;
            again = self.kick(here, Kick::DoorbellAgain { last });
        }
        assert!(!again, "nobody continues");
        if measures {
            self.offload.served(self.now + STEP);
        }
    }

    /// The QP goes to ERR, as by `Qp::enter_error` and `Ctx::enter_error`.
    fn fail(&mut self, here: u32) {
        self.failed = true;
        self.offload.reset();
        self.needs_doorbell = true;
        let mut queue = Kicked { model: self, here };
        if KickEnv::flush(&mut queue) {
            let call = queue.offload().leave(here);
            queue.call(call);
        }
    }

    /// A packet that the CPU `from` has sent is executed and answered.
    fn receive_request(&mut self, from: u32) {
        let Some(request) = self.requests[from as usize].pop_front() else {
            return;
        };
        let _ = self.responder.on_request(&request, &mut Anything);
        while let Some(response) = self.responder.next_response(1) {
            if !self.is_lost() {
                self.responses.push_back(response);
            }
        }
    }

    fn receive_response(&mut self, here: u32) {
        let Some(response) = self.responses.pop_front().filter(|_| !self.failed) else {
            return;
        };
        let mut sink = |_| {};
        let progress = match response {
            Response::Acknowledge { psn, syndrome, msn } => {
                let aeth = Aeth::new(syndrome, msn);
                let requester = &mut self.requester;
                requester.on_acknowledge(psn, aeth, self.now, &mut sink)
            }
            Response::ReadResponse { segment, .. } => {
                let (requester, now) = (&mut self.requester, self.now);
                match requester.accept_read_response(&segment, now, &mut sink) {
                    Ok(place) => requester.read_response_placed(&place, now, &mut sink),
                    Err(refused) => refused.progress,
                }
            }
            Response::Missing { .. } | Response::Atomic { .. } => panic!("nobody asked for it"),
        };
        self.kick(here, Kick::Progress(progress));
    }

    /// The timer fires, as for `post::expired`.
    fn expire(&mut self, here: u32) {
        let Some(at) = self.timer.take().filter(|_| !self.failed) else {
            return;
        };
        self.now = self.now.max(at);
        if self.requester.deadline().is_none_or(|at| at > self.now) {
            return Kicked { model: self, here }.publish();
        }
        let progress = self.requester.on_deadline(self.now, &mut |_| {});
        self.kick(here, Kick::Deadline(progress));
        // Also if a worker is to send what is due: else it would fire until that has run.
        assert!(
            self.requester.deadline().is_none_or(|at| at > self.now),
            "the timer fires again at once"
        );
    }

    fn work(&mut self, worker: Worker) {
        let item = match worker {
            Worker::Near => self.near.take(),
            Worker::Far => self.far.take(),
            Worker::Timer => self.poll.take(),
        };
        let Some(here) = item else {
            return;
        };
        let alone = self.other != Other::Wanted;
        let back = self.offload.moves().back;
        for _ in 0..RUNS_PER_POLL {
            if !self.kick(here, Kick::Worker { worker, alone }) {
                break;
            }
        }
        self.slow += u32::from(alone && self.offload.moves().back != back);
    }

    /// The process posts one request after the other.
    fn stream(&mut self) {
        for _ in 0..self.below(ENTRIES) {
            self.now += STEP;
            self.post();
            if self.rings {
                self.doorbell();
            }
        }
    }

    fn step(&mut self) {
        self.now += u64::from(self.below(2 * STEP as u32));
        let here = self.below(CPUS);
        match self.below(24) {
            0..=5 => self.post(),
            6..=7 => self.stream(),
            8..=10 if self.rings => self.doorbell(),
            11..=13 => self.receive_request(here),
            14..=16 => self.receive_response(here),
            17..=18 => self.work(Worker::Near),
            19..=21 if self.other != Other::Stolen => self.work(Worker::Far),
            22 => self.work(Worker::Timer),
            23 => match self.below(16) {
                0 => self.process = here,
                1 => self.other = Other::Wanted,
                2 => self.other = Other::Stolen,
                3..=5 => self.other = Other::Free,
                6..=7 if self.nature.late => self.wait_for_workers(),
                _ => {}
            },
            _ => {}
        }
        if self.timer.is_some_and(|at| at <= self.now) {
            self.expire(here);
        }
    }

    /// For a while no worker runs, and everything else happens.
    fn wait_for_workers(&mut self) {
        let until = self.now + LATE;
        loop {
            let here = self.below(CPUS);
            if let Some(from) = self.requests.iter().position(|queue| !queue.is_empty()) {
                self.receive_request(from as u32);
            } else if !self.responses.is_empty() {
                self.receive_response(here);
            } else if self.timer.is_some_and(|at| at <= until) {
                self.expire(here);
            } else {
                break;
            }
        }
        self.now = self.now.max(until);
    }

    /// One thing that must happen, if there is any: nothing that hangs on a timer.
    fn go_on(&mut self) -> bool {
        self.now += STEP;
        let here = self.below(CPUS);
        if self.rings {
            self.doorbell();
        } else if self.near.is_some() {
            self.work(Worker::Near);
        } else if self.far.is_some() {
            self.work(Worker::Far);
        } else if self.poll.is_some() {
            self.work(Worker::Timer);
        } else if let Some(from) = self.requests.iter().position(|queue| !queue.is_empty()) {
            self.receive_request(from as u32);
        } else if !self.responses.is_empty() {
            self.receive_response(here);
        } else {
            return false;
        }
        true
    }

    fn is_done(&self) -> bool {
        self.posted.is_empty() && self.requester.pushed() == self.requester.retired()
    }

    /// Anything happens for a while, and then what must.
    fn live(&mut self) {
        for _ in 0..4000 {
            self.step();
        }
        self.finish();
    }

    /// Only what must happen happens: in the end nothing is left.
    fn finish(&mut self) {
        self.posts = false;
        for _ in 0..100_000 {
            if self.go_on() {
                continue;
            }
            if self.is_done() {
                return;
            }
            // Without a loss nothing needs a timer.
            let Nature { loses, refuses, .. } = self.nature;
            assert!(
                (loses.is_some() || refuses.is_some()) && self.timer.is_some(),
                "nothing goes on: {:?}, {} posted, {:?}",
                self.offload,
                self.posted.len(),
                self.requester.counters()
            );
            let here = self.below(CPUS);
            self.expire(here);
        }
        panic!(
            "no end: {:?}, {} posted, {:?}",
            self.offload,
            self.posted.len(),
            self.requester.counters()
        );
    }
}

/// The queue in one invocation on the CPU `here`.
struct Kicked<'a> {
    model: &'a mut Model,
    here: u32,
}

impl KickEnv<u32> for Kicked<'_> {
    fn offload(&mut self) -> &mut Offload<u32> {
        &mut self.model.offload
    }

    fn point(&self) -> SchedPoint<u32> {
        self.model.sched_point(self.here)
    }

    fn activity(&self) -> Activity {
        match self.model.failed {
            true => Activity::Flush,
            false => Activity::Transmit,
        }
    }

    fn has_work(&self) -> bool {
        self.model.requester.has_unsent() || !self.model.posted.is_empty()
    }

    fn fetched(&self) -> u32 {
        self.model.requester.pushed()
    }

    fn doorbell(&mut self, point: SchedPoint<u32>) -> Decision<u32> {
        let fetched = self.fetched();
        let other = (!self.model.nature.alone)
            .then_some((self.here + 1) % CPUS)
            .filter(|cpu| self.model.helpers[*cpu as usize].may_help(point.now));
        let offload = &mut self.model.offload;
        offload.doorbell(point, fetched, true, Position::default, |_| other)
    }

    fn invite(&mut self, call: WorkerCall<u32>) {
        let _ = self.model.far.get_or_insert(call.cpu);
    }

    fn call(&mut self, call: WorkerCall<u32>) {
        let model = &mut *self.model;
        model.needs_doorbell = false;
        // What is queued already stays where it is.
        let _ = match call.worker {
            Worker::Near => model.near.get_or_insert(call.cpu),
            Worker::Far => model.far.get_or_insert(call.cpu),
            Worker::Timer => model.poll.get_or_insert(call.cpu),
        };
    }

    fn stop_doorbells(&mut self) {
        self.model.waits += 1;
        self.model.needs_doorbell = false;
    }

    /// The process may post before the flag is set, and after.
    fn ask_for_doorbells(&mut self) -> bool {
        let model = &mut *self.model;
        if model.below(4) == 0 {
            model.post();
        }
        model.needs_doorbell = true;
        if model.below(4) == 0 {
            model.post();
        }
        !model.posted.is_empty()
    }

    fn transmit(&mut self) -> bool {
        let model = &mut *self.model;
        for _ in 0..FETCHED_PER_RUN {
            let Some(request) = model.posted.pop_front() else {
                break;
            };
            model.requester.push(request).unwrap();
        }
        // The loop has the requester and the rest of the model, each for itself.
        let mut requester = mem::replace(&mut model.requester, Requester::new(Vec::new()));
        let more = send::send(&mut requester, self, PACKETS_PER_RUN);
        self.model.requester = requester;
        more || !self.model.posted.is_empty()
    }

    /// As `Ctx::flush_sends` does it.
    fn flush(&mut self) -> bool {
        let model = &mut *self.model;
        let mut sink = |_| {};
        let mut left = FLUSHED_PER_RUN - model.requester.flush_some(FLUSHED_PER_RUN, &mut sink);
        while left != 0 {
            let Some(request) = model.posted.pop_front() else {
                return false;
            };
            let status = Status::WrFlushErr;
            let pushed = model
                .requester
                .push_failed(request.wr_id, status, &mut sink);
            assert!(pushed.is_ok());
            model.requester.flush(&mut sink);
            left -= 1;
        }
        true
    }

    fn fail(&mut self) {
        panic!("{:?}", self.model.requester.counters());
    }

    fn worked(&mut self, _: Worker) -> u32 {
        1
    }

    fn judge(&mut self, cpu: u32, verdict: HelperVerdict) {
        self.model.helpers[cpu as usize].judge(verdict, self.model.now);
    }

    fn publish(&mut self) {
        if let Some(at) = self.model.requester.deadline() {
            let timer = self.model.timer.map_or(at, |timer| timer.min(at));
            self.model.timer = Some(timer);
        }
    }
}

impl SendEnv for Kicked<'_> {
    fn now(&self) -> u64 {
        self.model.now
    }

    fn may_move(&self) -> bool {
        true
    }

    fn may_move_beyond(&self, _: u32) -> bool {
        true
    }

    fn complete(&mut self, _: SendCompletion) {}

    fn fail(&mut self) {
        panic!("nothing fails here");
    }

    fn will_retry(&mut self) {
        assert!(self.model.nature.refuses.is_some(), "nothing is refused");
    }

    fn execute_local_op(&mut self, _: Slot) -> Status {
        panic!("there are no local operations");
    }
}

impl Transmit<Requester<Vec<SendSlot>>> for Kicked<'_> {
    type Env = Self;
    const REQUESTS_ACK: bool = true;

    fn env(&mut self) -> &mut Self {
        self
    }

    fn max_span(&mut self) -> u32 {
        1
    }

    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        if self.model.is_refused() {
            return Err(SendError::Refused(*segment));
        }
        if self.model.is_lost() {
            return Ok(());
        }
        let arguments = Arguments {
            remote_addr: 0x1000,
            rkey: 7,
            imm: [0; 4],
            invalidated: 0,
            operands: [0; 2],
        };
        let request = IncomingRequest::local(segment, segment.extension(|| arguments));
        self.model.requests[self.here as usize].push_back(request);
        Ok(())
    }
}

/// What happened in many lives.
#[derive(Default)]
struct Sum {
    moves: Moves,
    waits: u32,
    slow: u32,
    /// CPUs that have declined, as all queues know.
    declined: usize,
    counters: RequesterCounters,
}

fn live(lives: u64, nature: impl Fn(u64) -> Nature) -> Sum {
    let mut sum = Sum::default();
    for seed in 1..=lives {
        let mut model = Model::new(nature(seed));
        model.live();
        let (moves, counters) = (model.offload.moves(), model.requester.counters());
        if model.nature.loses.is_none() {
            let repeated = counters.retransmitted + counters.tail_probes + counters.timeouts;
            assert_eq!(repeated, 0, "seed {seed}: {counters:?}");
            assert_eq!(counters.seq_naks, 0, "seed {seed}: overtaken");
        }
        sum.moves.away += moves.away;
        sum.moves.back += moves.back;
        sum.moves.polled += moves.polled;
        sum.waits += model.waits;
        sum.slow += model.slow;
        let has_declined = |helper: &&Helper| !helper.may_help(0);
        sum.declined += model.helpers.iter().filter(has_declined).count();
        sum.counters.timeouts += counters.timeouts;
        sum.counters.tail_probes += counters.tail_probes;
        sum.counters.seq_naks += counters.seq_naks;
    }
    // It has seen moves both ways, some that had to wait, and polls.
    assert!(sum.moves.away > 10 && sum.moves.back > 0 && sum.waits > 10);
    assert!(sum.moves.polled > 100, "{:?}", sum.moves);
    assert_ne!(sum.declined, 0);
    sum
}

/// Whatever happens, what was posted is sent and acknowledged in the end; nothing waits for a
/// timer, nothing is sent twice, and no packet overtakes another.
#[test]
fn a_network_that_loses_nothing_needs_no_timer() {
    let sum = live(1000, Nature::calm);
    // Queues came back for each of the reasons.
    assert!(sum.slow > 0 && sum.moves.back > sum.slow);
}

/// As above, without an ACK timeout: nothing can be repeated.
#[test]
fn a_queue_without_a_timeout_goes_on_too() {
    for seed in 1..=500 {
        let mut model = Model::new(Nature {
            timeout: None,
            ..Nature::calm(seed)
        });
        model.live();
    }
}

/// What is lost is found, in every state.
#[test]
fn what_is_lost_is_retransmitted() {
    let sum = live(1000, |seed| Nature {
        loses: Some(8 + (seed % 4) as u32 * 30),
        ..Nature::calm(seed)
    });
    assert!(sum.counters.tail_probes > 100 && sum.counters.seq_naks > 100);
    // Probes find nearly everything.
    assert!(
        sum.counters.timeouts < sum.counters.tail_probes / 5,
        "{:?}",
        sum.counters
    );
}

/// The ACK timeout spends no retry on what a worker has not sent: no lateness ends the connection.
#[test]
fn a_late_worker_costs_no_retries() {
    let sum = live(1000, |seed| Nature {
        loses: Some(8 + (seed % 4) as u32 * 30),
        timeout: Some(SHORT_TIMEOUT),
        late: true,
        ..Nature::calm(seed)
    });
    assert!(sum.counters.timeouts > 100, "{:?}", sum.counters);
}

/// What the local stack refuses leaves later, in every state, also where nobody else repeats it.
#[test]
fn what_is_refused_is_sent_later() {
    for timeout in [None, Some(ACK_TIMEOUT)] {
        for seed in 1..=500 {
            let mut model = Model::new(Nature {
                refuses: Some(2 + (seed % 4) as u32 * 30),
                timeout,
                ..Nature::calm(seed)
            });
            model.live();
            let counters = model.requester.counters();
            assert_eq!(
                (counters.timeouts, counters.seq_naks),
                (0, 0),
                "seed {seed} {timeout:?}: {counters:?}"
            );
        }
    }
}

/// Who is in charge, and what is still queued, does not matter: after a failure all is flushed,
/// also what is posted then, and nobody stays in charge.
#[test]
fn a_queue_that_fails_is_flushed() {
    let mut met = Vec::new();
    for seed in 1..=1000 {
        let mut model = Model::new(Nature::calm(seed));
        for _ in 0..1000 + model.below(100) {
            model.step();
        }
        met.push(model.offload.sender());
        let here = model.below(CPUS);
        model.fail(here);
        for _ in 0..100 {
            model.step();
        }
        model.finish();
        assert!(!model.offload.has_worker());
    }
    for sender in [
        SenderKind::Inline,
        SenderKind::Near,
        SenderKind::Far,
        SenderKind::Moving,
        SenderKind::Polling,
    ] {
        assert!(met.contains(&sender), "{sender:?} did not fail");
    }
}
