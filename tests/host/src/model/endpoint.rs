// SPDX-License-Identifier: GPL-2.0

//! A QP: the transport of the core. Its send queue is kicked, and sends, by the code of the module
//! ([`kick`], [`send::send`]); its receive queue is driven as the module's data path drives it.
//!
//! Each run has a budget; what is left waits for a worker. The timer is armed as the module arms
//! it: only ever to an earlier time, and looked at again when it fires. Nothing here looks for
//! something to do without having been told, so a wake-up that the transport forgets is missed here
//! as it would be there.

use super::content::Content;
use super::memory::{Env, Memory};
use super::network::US;
use super::plan::{Kinds, Plan, UNTOUCHED};
use super::scenario::{Scenario, Side};
use ferroce_core::completion::{Carried, RecvCompletion, RecvOp, SendCompletion, Status};
use ferroce_core::env::{ReceiveEnv, TakeReceive};
use ferroce_core::kick::{kick, Activity, Kick, KickEnv};
use ferroce_core::message::Mtu;
use ferroce_core::offload::budget::HelperVerdict;
use ferroce_core::offload::stream::Position;
use ferroce_core::offload::{Decision, InFlight, Offload, SchedPoint, Worker, WorkerCall};
use ferroce_core::operation::Arguments;
use ferroce_core::rc::requester::{Requester, SendSlot};
use ferroce_core::rc::responder::{DropReason, Fatal, Resource, Responder};
use ferroce_core::rc::{ack_timeout_ns, RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::segment::{ReadSegment, RequestSegment, Response};
use ferroce_core::send::{self, SendEnv, SendError, Transmit};
use ferroce_core::send::{
    Progress,
    PushError, //
};
use ferroce_core::storage::{Slot, Spare};
use ferroce_core::wire::headers::{AethSyndrome, NakCode};
use ferroce_core::wire::opcode::Opcode;
use ferroce_core::wire::psn::Psn;

use super::dice::{Chance, Dice};
use std::cell::Cell;

/// How long a worker takes to get its turn.
const WORKER: u64 = US;

/// Nanoseconds after which is tried again what the device refused.
pub const DEVICE_PAUSE: u64 = 1000 * US;

/// Where a QP is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Init,
    Rtr,
    Rts,
    Sqd,
    Err,
    Gone,
}

/// Memory for losses. In a quarter of the runs there is none two times in three.
pub struct Scarce;

thread_local! {
    static SCARCE: Cell<Option<Dice>> = const { Cell::new(None) };
}

impl Scarce {
    /// Whether memory is scarce in a scenario with this seed.
    pub fn befalls(seed: u64) -> bool {
        seed % 4 == 0
    }

    /// A run of this thread begins.
    pub fn begin(seed: u64) {
        SCARCE.set(Self::befalls(seed).then(|| Dice::of(&[seed, 0x6d65_6d00])));
    }
}

impl Spare for Scarce {
    type Array<T: Copy + Default, const N: usize> = Box<[T; N]>;

    fn array<T: Copy + Default, const N: usize>() -> Option<Box<[T; N]>> {
        let mut dice = SCARCE.get();
        let is_there = dice.as_mut().is_none_or(|dice| dice.below(3) == 0);
        SCARCE.set(dice);
        is_there.then(|| Box::new([T::default(); N]))
    }
}

/// What leaves.
#[derive(Debug)]
pub struct Outgoing {
    /// The segment, if it is a request.
    pub segment: Option<RequestSegment>,
    pub content: Content,
}

/// A QP.
pub struct Endpoint {
    span: u32,
    config: Side,
    mtu: Mtu,
    peer_psn: u32,
    dice: Dice,
    pub requester: Requester<Vec<SendSlot>, Scarce>,
    pub responder: Responder<Vec<Resource>, Scarce>,
    pub memory: Memory,
    pub state: State,
    pub sent: Vec<SendCompletion>,
    /// Local buffers of the send queue.
    pub buffers: Vec<Vec<u8>>,
    /// Requests whose local memory is not accessible.
    gone: Vec<bool>,
    /// Which request a slot of the send queue holds.
    slots: Vec<usize>,
    /// What the extended headers of the requests are filled from.
    arguments: Vec<Arguments>,
    /// Requests that asked no peer and were done, in that order.
    pub local_ops: Vec<usize>,
    pub pushed: usize,
    /// What the responder died of.
    pub fatal: Option<Fatal>,
    /// A work request ended in error.
    failing: bool,
    pub timer: Option<u64>,
    offload: Offload<u32>,
    /// When a worker looks at the sending half.
    pub send_worker: Option<u64>,
    /// When a worker looks at the receiving half.
    pub recv_worker: Option<u64>,
    /// What the requester had counted in earlier lives.
    timeouts_before: u32,
    probes_before: u32,
    /// Segments and responses that found the device full.
    pub stuck: u64,
    /// When responses are tried again.
    refused_until: u64,
    /// The gap that it has said last.
    said: Option<Psn>,
    /// Segments that leave as one.
    batch: Vec<(RequestSegment, Content)>,
    /// What left and was not fetched.
    pub out: Vec<Outgoing>,
    pub violation: Option<String>,
}

impl Endpoint {
    /// A QP in INIT.
    pub fn new(scenario: &Scenario, side: usize, plan: &Plan) -> Self {
        let config = scenario.sides[side].clone();
        let entries = 1usize << config.send_log;
        let buffers = plan.messages.iter().map(|message| {
            let op = message.request.op;
            if op.is_read() || op.is_atomic() {
                vec![UNTOUCHED; message.request.length as usize]
            } else {
                message.data.clone()
            }
        });
        Self {
            span: scenario.span,
            mtu: Mtu::from_bytes(scenario.mtu).expect("an MTU"),
            peer_psn: scenario.sides[1 - side].first_psn,
            dice: Dice::of(&[scenario.seed, 0x7175 + side as u64]),
            requester: Requester::with_spare(vec![SendSlot::default(); entries]),
            responder: Responder::with_spare(vec![Resource::default(); 128]),
            memory: Memory::new(plan),
            state: State::Init,
            sent: Vec::new(),
            buffers: buffers.collect(),
            gone: plan.messages.iter().map(|m| m.work.gone).collect(),
            slots: vec![0; entries],
            arguments: Vec::new(),
            local_ops: Vec::new(),
            pushed: 0,
            fatal: None,
            failing: false,
            timer: None,
            offload: Offload::default(),
            send_worker: None,
            recv_worker: None,
            timeouts_before: 0,
            probes_before: 0,
            stuck: 0,
            refused_until: 0,
            said: None,
            batch: Vec::new(),
            out: Vec::new(),
            violation: None,
            config,
        }
    }

    /// Begins another life with the state machines of the one before: RESET, then INIT.
    pub fn inherit(&mut self, before: Endpoint) {
        if self.slots.len() == before.slots.len() {
            self.requester = before.requester;
            self.requester.reset();
            self.timeouts_before = self.requester.counters().timeouts;
            self.probes_before = self.requester.counters().tail_probes;
        }
        self.responder = before.responder;
        self.responder.reset();
    }

    /// To RTR.
    pub fn ready_to_receive(&mut self) {
        self.responder.connect(ResponderConfig {
            mtu: self.mtu,
            rq_psn: Psn::new(self.peer_psn),
            max_dest_rd_atomic: self.config.max_dest_rd_atomic,
            min_rnr_timer: self.config.rnr_timer,
            rights: RemoteRights {
                read: self.config.allow_read,
                write: self.config.allow_write,
                atomic: self.config.allow_atomic,
                ..RemoteRights::ALL
            },
        });
        self.state = State::Rtr;
    }

    /// To RTS.
    pub fn ready_to_send(&mut self) {
        self.requester.connect(RequesterConfig {
            mtu: self.mtu,
            sq_psn: Psn::new(self.config.first_psn),
            retry_cnt: self.config.retry_cnt,
            rnr_retry: self.config.rnr_retry,
            ack_timeout_ns: ack_timeout_ns(self.config.timeout),
            max_rd_atomic: self.config.max_rd_atomic,
            ecn: false,
        });
        self.state = State::Rts;
    }

    /// How often the ACK timeout ran out in this life.
    pub fn timeouts(&self) -> u64 {
        (self.requester.counters().timeouts - self.timeouts_before).into()
    }

    /// How many tail-loss probes it sent in this life.
    pub fn probes(&self) -> u64 {
        (self.requester.counters().tail_probes - self.probes_before).into()
    }

    /// Whether packets of the peer are looked at.
    pub fn serves(&self) -> bool {
        matches!(self.state, State::Rtr | State::Rts | State::Sqd)
    }

    fn sends(&self) -> bool {
        matches!(self.state, State::Rts | State::Sqd)
    }

    /// How many requests are in the send queue.
    pub fn in_queue(&self) -> u32 {
        let requester = &self.requester;
        requester.pushed().wrapping_sub(requester.retired())
    }

    /// Whether another request fits.
    pub fn has_send_room(&self) -> bool {
        (self.in_queue() as usize) < self.slots.len()
    }

    /// Whether another receive fits.
    pub fn has_recv_room(&self) -> bool {
        self.memory.posted - self.memory.taken < 1 << self.config.recv_log
    }

    /// The user posts the next request of the plan. The doorbell is [`Self::doorbell`].
    pub fn post_send(&mut self, plan: &Plan) {
        let index = self.pushed;
        let request = plan.messages[index].request;
        self.arguments.push(plan.messages[index].arguments);
        self.pushed += 1;
        let entries = self.slots.len();
        self.slots[self.requester.pushed() as usize % entries] = index;
        let sink = &mut |done| self.sent.push(done);
        if self.state == State::Err {
            let status = Status::WrFlushErr;
            let pushed = self.requester.push_failed(request.wr_id, status, sink);
            self.requester.flush(sink);
            if pushed.is_err() {
                self.forbid("no room in a flushed queue".into());
            }
            return;
        }
        match self.requester.push(request) {
            Ok(slot) if slot.number() as usize == index % entries => {}
            Err(PushError::NoReads) if request.op.is_answered() => {
                let status = Status::LocQpOpErr;
                match self.requester.push_failed(request.wr_id, status, sink) {
                    Ok(progress) => self.failing |= progress.has_failed(),
                    Err(error) => self.forbid(format!("{error:?}")),
                }
            }
            other => self.forbid(format!("request {index} pushed: {other:?}")),
        }
    }

    /// The user posts the next receive of the plan.
    pub fn post_receive(&mut self) {
        self.memory.posted += 1;
        if self.state == State::Err {
            self.flush_receives();
        }
    }

    /// The user rings the doorbell of the send queue.
    pub fn doorbell(&mut self, now: u64) {
        self.ring(now);
        self.end_turn();
    }

    fn ring(&mut self, now: u64) {
        if self.sends() && self.kick(Kick::Doorbell, now) {
            let again = self.kick(Kick::DoorbellAgain { last: true }, now);
            if again {
                self.forbid("nobody continues after a doorbell".into());
            }
        }
    }

    fn kick(&mut self, why: Kick, now: u64) -> bool {
        kick(&mut Network { qp: self, now }, why)
    }

    /// What a packet or segment of the peer leads to, behind which `more` of its batch comes. The
    /// answer is why it had no effect.
    pub fn receive(&mut self, content: &Content, more: bool, now: u64) -> Option<DropReason> {
        let mut dropped = Some(DropReason::NotReady);
        let mut progress = None;
        let unexpected = self.requester.counters().unexpected_responses;
        match content {
            Content::Request(..) if self.serves() => {
                dropped = self.execute(content);
                if !more {
                    self.respond(now);
                }
            }
            Content::Acknowledge(psn, aeth) if self.sends() => {
                let sink = &mut |done| self.sent.push(done);
                progress = Some(self.requester.on_acknowledge(*psn, *aeth, now, sink));
            }
            Content::Missing(psn, aeth, map) if self.sends() && self.config.keeps => {
                let sink = &mut |done| self.sent.push(done);
                progress = Some(self.requester.on_missing(*psn, *aeth, map, now, sink));
            }
            Content::Read(segment, payload) if self.sends() => {
                progress = Some(self.take_read(segment, payload, now));
            }
            _ if !more => {
                self.finish_batch(now);
                return dropped;
            }
            _ => {}
        }
        if self.requester.counters().unexpected_responses != unexpected {
            self.forbid("the peer was taken for a forger".into());
        }
        if let Some(progress) = progress {
            dropped = None;
            if progress.has_failed() || !more {
                self.kick(Kick::Progress(progress), now);
            }
        }
        self.end_turn();
        dropped
    }

    /// The last of a batch was dropped: what the others have left to it is done.
    fn finish_batch(&mut self, now: u64) {
        if self.serves() {
            self.respond(now);
        }
        if self.sends() {
            self.kick(Kick::Progress(Progress::default()), now);
        }
        self.end_turn();
    }

    /// Executes what was kept and has its turn, and answers.
    fn respond(&mut self, now: u64) {
        while let Some(sequence) = self.responder.next_kept() {
            match self.memory.kept.remove(&sequence) {
                Some(kept) => {
                    self.execute(&kept);
                }
                None => self.responder.kept_is_gone(),
            }
        }
        if self.responder.keeps_nothing() {
            self.memory.kept.clear();
        }
        if self.recv_worker.is_none() {
            self.answer(now);
        }
    }

    /// A request, of the network or one that was kept.
    fn execute(&mut self, content: &Content) -> Option<DropReason> {
        let Content::Request(request, payload) = content else {
            return None;
        };
        let mut request = *request;
        request.keeps &= self.config.keeps;
        self.memory.arriving = Some(content.clone());
        let mut env = Env {
            memory: &mut self.memory,
            payload,
        };
        let outcome = self.responder.on_request(&request, &mut env);
        self.fatal = self.fatal.or(outcome.fatal);
        outcome.dropped
    }

    /// The timer fires.
    pub fn expire(&mut self, now: u64) {
        self.timer = None;
        if self.sends() {
            if self.requester.deadline().is_some_and(|at| at <= now) {
                let sink = &mut |done| self.sent.push(done);
                let progress = self.requester.on_deadline(now, sink);
                self.kick(Kick::Deadline(progress), now);
            } else {
                Network { qp: self, now }.publish();
            }
        }
        self.end_turn();
    }

    /// A worker has its turn.
    pub fn work(&mut self, now: u64) {
        if self.send_worker.is_some_and(|at| at <= now) {
            self.send_worker = None;
            let (worker, alone) = (Worker::Near, true);
            if self.kick(Kick::Worker { worker, alone }, now) {
                self.forbid("a work item is queued, not run again at once".into());
            }
        }
        if self.recv_worker.is_some_and(|at| at <= now) {
            self.recv_worker = None;
            if self.serves() {
                self.answer(now);
            }
        }
        self.end_turn();
    }

    /// To SQD, or back to RTS.
    pub fn drain(&mut self, on: bool, now: u64) {
        self.requester.drain(on);
        self.state = if on { State::Sqd } else { State::Rts };
        self.ring(now);
        self.end_turn();
    }

    /// To ERR: everything that was posted completes.
    pub fn enter_error(&mut self) {
        if matches!(self.state, State::Err | State::Gone) {
            return;
        }
        self.state = State::Err;
        self.memory.kept.clear();
        self.timer = None;
        self.offload.reset();
        self.send_worker = None;
        self.recv_worker = None;
        self.requester.flush(&mut |done| self.sent.push(done));
        if let Some(done) = self.responder.abort() {
            let memory = &mut self.memory;
            Env {
                memory,
                payload: &[],
            }
            .complete(done);
        }
        self.flush_receives();
    }

    /// It is gone, and nothing of it moves any more.
    pub fn destroy(&mut self) {
        self.state = State::Gone;
        self.timer = None;
        self.send_worker = None;
        self.recv_worker = None;
    }

    fn flush_receives(&mut self) {
        let mut env = Env {
            memory: &mut self.memory,
            payload: &[],
        };
        while let TakeReceive::Taken { wr_id, .. } | TakeReceive::Malformed { wr_id, .. } =
            env.take_receive()
        {
            env.complete(RecvCompletion {
                wr_id,
                status: Status::WrFlushErr,
                op: RecvOp::Send,
                byte_len: 0,
                carried: Carried::Nothing,
                solicited: false,
                vendor_err: 0,
            });
        }
    }

    fn forbid(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn is_gone(&self, index: usize) -> bool {
        self.memory.local_gone || self.gone[index]
    }

    fn next_span(&mut self) -> u32 {
        1 + self.dice.below(u64::from(self.span)) as u32
    }

    /// Puts a segment on the network.
    fn transmit(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        if self.batch.len() >= usize::from(self.config.batch) {
            self.flush_batch().map_err(SendError::Refused)?;
        }
        let index = self.slots[segment.slot.number() as usize];
        let range = segment.offset as usize..segment.offset as usize + segment.len as usize;
        // What an ATOMIC WRITE carries stands in the request.
        let is_copied = segment.opcode != Opcode::RcAtomicWrite;
        if is_copied && segment.len != 0 && self.is_gone(index) {
            return Err(SendError::Local(Status::LocProtErr));
        }
        let Some(payload) = self.buffers[index].get(range) else {
            self.forbid(format!("{segment:?} is not in the message"));
            return Ok(());
        };
        let arguments = &self.arguments[index];
        let content = Content::request(segment, self.config.keeps, arguments, payload);
        self.batch.push((*segment, content));
        Ok(())
    }

    /// Puts the batch on the network, or none of it: then the error is its first segment.
    fn flush_batch(&mut self) -> Result<(), RequestSegment> {
        let batch = std::mem::take(&mut self.batch);
        let Some((first, _)) = batch.first() else {
            return Ok(());
        };
        if self.dice.percent(self.config.stuck) {
            // The kernel says so, and has nobody call when there is room again.
            self.stuck += 1;
            return Err(*first);
        }
        let sent = batch.into_iter().map(|(segment, content)| Outgoing {
            segment: Some(segment),
            content,
        });
        self.out.extend(sent);
        Ok(())
    }

    fn take_read(&mut self, segment: &ReadSegment, payload: &[u8], now: u64) -> Progress {
        let sink = &mut |done| self.sent.push(done);
        let place = match self.requester.accept_read_response(segment, now, sink) {
            Ok(place) => place,
            Err(refused) => return refused.progress,
        };
        let index = self.slots[place.slot.number() as usize];
        if place.len != 0 && (self.memory.local_gone || self.gone[index]) {
            return self.requester.fail(place.slot, Status::LocProtErr, sink);
        }
        let range = place.offset as usize..place.offset as usize + place.len as usize;
        match self.buffers[index].get_mut(range) {
            Some(to) if to.len() == payload.len() => to.copy_from_slice(payload),
            _ => self.violation = Some(format!("{place:?} is not in the message")),
        }
        self.requester.read_response_placed(&place, now, sink)
    }

    /// Sends what there is to answer, within the budget.
    fn answer(&mut self, now: u64) {
        if self.refused_until > now {
            self.recv_worker = Some(self.refused_until);
            return;
        }
        let mut batch = Vec::new();
        self.responder.begin_run();
        for _ in 0..self.config.budget.max(1) {
            let span = self.next_span();
            let Some(response) = self.responder.next_response(span) else {
                break;
            };
            let payload = match &response {
                // What an atomic operation found stands in a header.
                Response::Acknowledge { .. } | Response::Atomic { .. } => Ok(Vec::new()),
                Response::Missing { .. } => {
                    let words = self.responder.kept_words();
                    Ok(words.flat_map(u64::to_le_bytes).collect())
                }
                Response::ReadResponse { source, .. } => self.memory.read(*source),
            };
            match payload {
                Ok(payload) => {
                    let content = Content::response(&response, &payload);
                    let ends_part = response.ends_part();
                    batch.push((response, content));
                    if ends_part && !self.flush(&mut batch, now) {
                        return;
                    }
                }
                Err(_) => {
                    let outcome = self.responder.read_failed();
                    self.fatal = self.fatal.or(outcome.fatal);
                }
            }
        }
        if !self.flush(&mut batch, now) {
            return;
        }
        if self.responder.has_ended() {
            self.failing = true;
        }
        if self.responder.has_response() {
            self.recv_worker = Some(now + WORKER);
        }
    }

    /// Puts responses on the network. Where the device refuses one, that and all behind it stay,
    /// and `false` is returned.
    fn flush(&mut self, batch: &mut Vec<(Response, Content)>, now: u64) -> bool {
        for (response, content) in batch.drain(..) {
            if self.config.terse && self.was_said(&content) {
                continue;
            }
            if self.dice.percent(self.config.stuck) {
                self.stuck += 1;
                self.responder.unsend(&response);
                self.refused_until = now + DEVICE_PAUSE;
                self.recv_worker = Some(self.refused_until);
                return false;
            }
            self.out.push(Outgoing {
                segment: None,
                content,
            });
        }
        true
    }

    /// Whether a response says of a gap what was said before; if not, it is said now.
    fn was_said(&mut self, content: &Content) -> bool {
        let Content::Acknowledge(psn, aeth) = content else {
            return false;
        };
        let is_gap = aeth.syndrome() == AethSyndrome::Nak(NakCode::PsnSequence);
        is_gap && self.said.replace(*psn) == Some(*psn)
    }

    /// What a turn leaves for its end: the way to ERR.
    fn end_turn(&mut self) {
        if std::mem::take(&mut self.failing) {
            self.enter_error();
        }
    }
}

/// The network of the model, as what a QP transmits on.
struct Network<'a> {
    qp: &'a mut Endpoint,
    now: u64,
}

impl KickEnv<u32> for Network<'_> {
    fn offload(&mut self) -> &mut Offload<u32> {
        &mut self.qp.offload
    }

    /// There is one CPU.
    fn point(&self) -> SchedPoint<u32> {
        SchedPoint {
            here: 0,
            now: self.now,
            in_flight: InFlight::Nothing,
        }
    }

    fn activity(&self) -> Activity {
        match self.qp.state {
            State::Rts | State::Sqd => Activity::Transmit,
            State::Err => Activity::Flush,
            State::Init | State::Rtr | State::Gone => Activity::None,
        }
    }

    fn has_work(&self) -> bool {
        self.qp.requester.has_unsent()
    }

    fn fetched(&self) -> u32 {
        self.qp.requester.pushed()
    }

    /// The process has no CPU that could help, and does not wait for completions.
    fn doorbell(&mut self, point: SchedPoint<u32>) -> Decision<u32> {
        let (offload, fetched) = (&mut self.qp.offload, self.qp.requester.pushed());
        offload.doorbell(point, fetched, false, Position::default, |_| None)
    }

    fn invite(&mut self, call: WorkerCall<u32>) {
        self.qp.forbid(format!("{call:?} on one CPU"));
    }

    fn judge(&mut self, cpu: u32, verdict: HelperVerdict) {
        self.qp
            .forbid(format!("CPU {cpu}: {verdict:?}, on one CPU"));
    }

    fn call(&mut self, call: WorkerCall<u32>) {
        if call.worker != Worker::Near {
            self.qp.forbid(format!("{call:?} on one CPU"));
        }
        let at = self.now + WORKER + u64::from(self.qp.config.late) * US;
        self.qp.send_worker.get_or_insert(at);
    }

    fn stop_doorbells(&mut self) {
        self.qp.forbid("a queue of one CPU waits to move".into());
    }

    /// What is posted is in the queue at once.
    fn ask_for_doorbells(&mut self) -> bool {
        false
    }

    fn transmit(&mut self) -> bool {
        let budget = u32::from(self.qp.config.budget.max(1));
        // The loop has the requester and the rest of the QP, each for itself.
        let mut requester =
            std::mem::replace(&mut self.qp.requester, Requester::with_spare(Vec::new()));
        let more = send::send(&mut requester, self, budget);
        self.qp.requester = requester;
        more
    }

    /// [`Endpoint::enter_error`] has flushed all.
    fn flush(&mut self) -> bool {
        false
    }

    fn fail(&mut self) {
        self.qp.failing = true;
    }

    fn worked(&mut self, _: Worker) -> u32 {
        1
    }

    fn publish(&mut self) {
        if let Some(at) = self.qp.requester.deadline() {
            let timer = self.qp.timer.map_or(at, |timer| timer.min(at));
            self.qp.timer = Some(timer);
        }
    }
}

impl SendEnv for Network<'_> {
    fn now(&self) -> u64 {
        self.now
    }

    fn may_move(&self) -> bool {
        true
    }

    fn may_move_beyond(&self, _: u32) -> bool {
        true
    }

    fn complete(&mut self, done: SendCompletion) {
        self.qp.sent.push(done);
    }

    fn fail(&mut self) {
        self.qp.failing = true;
    }

    /// The timer of the requester goes on.
    fn will_retry(&mut self) {}

    fn execute_local_op(&mut self, slot: Slot) -> Status {
        let index = self.qp.slots[slot.number() as usize];
        let done = &mut self.qp.local_ops;
        if done.last().is_some_and(|last| *last >= index) {
            self.qp
                .forbid(format!("{index} was done again, or out of order"));
        }
        self.qp.local_ops.push(index);
        if self.qp.gone[index] {
            Status::MwBindErr
        } else {
            Status::Success
        }
    }
}

impl Transmit<Requester<Vec<SendSlot>, Scarce>> for Network<'_> {
    type Env = Self;
    const REQUESTS_ACK: bool = true;

    fn env(&mut self) -> &mut Self {
        self
    }

    fn max_span(&mut self) -> u32 {
        self.qp.next_span()
    }

    fn send(&mut self, segment: &RequestSegment) -> Result<(), SendError> {
        self.qp.transmit(segment)
    }

    fn flush(&mut self) -> Result<(), RequestSegment> {
        self.qp.flush_batch()
    }
}
