// SPDX-License-Identifier: GPL-2.0

//! The clock: what happens next, and to whom.

use super::content::Content;
use super::endpoint::{Endpoint, Scarce, State};
use super::network::{Arrival, Network, US};
use super::plan::{plans, Plan};
use super::scenario::{Scenario, What};
use super::witness::{Standing, Witness};
use ferroce_core::completion::Status;
use ferroce_core::rc::responder::DropReason;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Events after which a run is said to be without end.
const MAX_EVENTS: u64 = 1_000_000;

/// RNR NAKs in a row after which the peer that asks for ever gets its receives.
const PATIENCE: u32 = 20;

thread_local! {
    /// Runs of this thread print what happens in them.
    pub static TRACE: Cell<bool> = const { Cell::new(false) };
}

/// Something that a user does, or that happens to a QP.
#[derive(Clone, Copy, Debug)]
enum Action {
    ToRtr,
    ToRts,
    PostSend,
    PostReceive,
    Happens(What),
    Resume,
}

/// A completion of the send queue as its user sees it, and what the peer had done by then.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub at: u64,
    /// Bytes that had been written to the region of the peer.
    pub written: u64,
    /// Receives of the peer that had completed.
    pub received: usize,
}

/// A run.
pub struct World {
    pub scenario: Scenario,
    pub plans: [Plan; 2],
    pub endpoints: [Endpoint; 2],
    pub network: Network,
    pub witnesses: [Witness; 2],
    pub now: u64,
    /// For each completion of the send queues, what the peer had done.
    pub seen: [Vec<Seen>; 2],
    /// The receives of a side were completed with patience for the other.
    pub rescued: [bool; 2],
    /// The user or an event ended this side.
    pub ended_by_user: [bool; 2],
    actions: BTreeMap<(u64, u64), (usize, Action)>,
    number: u64,
    /// Requests and receives that are due and find no room.
    due: [(usize, usize); 2],
    /// In ERR, or gone.
    silent: [bool; 2],
    /// How long after it drained a QP in SQD goes on.
    pause: [Option<u64>; 2],
}

impl World {
    /// The beginning of a run.
    pub fn new(scenario: &Scenario) -> Self {
        Scarce::begin(scenario.seed);
        let plans = plans(scenario);
        let endpoints = [0, 1].map(|side: usize| Endpoint::new(scenario, side, &plans[side]));
        let mut world = Self {
            scenario: scenario.clone(),
            endpoints,
            network: Network::new(scenario),
            witnesses: [0, 1].map(|side| Witness::new(scenario, side)),
            now: 0,
            seen: [Vec::new(), Vec::new()],
            rescued: [false; 2],
            ended_by_user: [false; 2],
            actions: BTreeMap::new(),
            number: 0,
            due: [(0, 0); 2],
            silent: [false; 2],
            pause: [None; 2],
            plans,
        };
        world.schedule();
        world
    }

    /// The beginning of a run with the state machines of another.
    pub fn after(scenario: &Scenario, before: World) -> Self {
        let mut world = Self::new(scenario);
        for (endpoint, old) in world.endpoints.iter_mut().zip(before.endpoints) {
            endpoint.inherit(old);
        }
        world
    }

    fn plan_action(&mut self, at_us: u64, side: usize, action: Action) {
        self.number += 1;
        self.actions
            .insert((at_us * US, self.number), (side, action));
    }

    fn schedule(&mut self) {
        for side in 0..2 {
            let config = self.scenario.sides[side].clone();
            let rtr = u64::from(config.rtr_at);
            self.plan_action(rtr, side, Action::ToRtr);
            let due: Vec<_> = self.plans[side].receives.iter().map(|r| r.due).collect();
            let count = config.starve.map_or(due.len(), usize::from);
            for at in due.into_iter().take(count) {
                self.plan_action(at, side, Action::PostReceive);
            }
            self.plan_action(rtr + u64::from(config.rts_after), side, Action::ToRts);
            for at in self.plans[side].due.clone() {
                self.plan_action(at, side, Action::PostSend);
            }
        }
        for event in self.scenario.events.clone() {
            let action = Action::Happens(event.what);
            self.plan_action(u64::from(event.at), event.side, action);
        }
    }

    /// Runs until nothing happens any more.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..MAX_EVENTS {
            let more = self.step();
            for side in 0..2 {
                let endpoint = &self.endpoints[side];
                let violations = [
                    &self.witnesses[side].violation,
                    &endpoint.violation,
                    &endpoint.memory.violation,
                ];
                if let Some(what) = violations.into_iter().flatten().next() {
                    return Err(format!("side {side} at {} ns: {what}", self.now));
                }
            }
            if !more? {
                return Ok(());
            }
        }
        Err("the QPs never come to rest".into())
    }

    /// The next event. `false` when there is none.
    fn step(&mut self) -> Result<bool, String> {
        let action = self.actions.keys().next().map(|(at, _)| *at);
        let timers = self.endpoints.iter().filter_map(|e| e.timer).min();
        let workers = self
            .endpoints
            .iter()
            .flat_map(|e| [e.send_worker, e.recv_worker])
            .flatten()
            .min();
        let arrival = self.network.next().map(|(at, ..)| at);
        let next = [action, workers, arrival, timers]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        if action == Some(next) {
            // What is posted at the same time is posted as one list, with one doorbell.
            while let Some(entry) = self.actions.first_entry() {
                if entry.key().0 > next {
                    break;
                }
                let (side, action) = entry.remove();
                self.act(side, action);
            }
        } else if workers == Some(next) {
            for endpoint in &mut self.endpoints {
                endpoint.work(self.now);
            }
        } else if arrival == Some(next) {
            self.arrive()?;
        } else {
            for endpoint in &mut self.endpoints {
                if endpoint.timer.is_some_and(|at| at <= next) {
                    endpoint.expire(self.now);
                }
            }
        }
        for side in 0..2 {
            self.serve_user(side);
            let silent = matches!(self.endpoints[side].state, State::Err | State::Gone);
            if silent && !std::mem::replace(&mut self.silent[side], true) {
                self.witnesses[1 - side].peer_fell_silent();
            }
        }
        Ok(true)
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if TRACE.get() {
            println!("{:>10} {}", self.now, what());
        }
    }

    fn act(&mut self, side: usize, action: Action) {
        self.tell(|| format!("{side} {action:?}"));
        let endpoint = &mut self.endpoints[side];
        match action {
            Action::ToRtr if endpoint.state == State::Init => endpoint.ready_to_receive(),
            Action::ToRts if endpoint.state == State::Rtr => endpoint.ready_to_send(),
            Action::ToRtr | Action::ToRts => {}
            Action::PostSend => self.due[side].0 += 1,
            Action::PostReceive => self.due[side].1 += 1,
            Action::Resume => {
                if endpoint.state == State::Sqd {
                    self.witnesses[side].drained = false;
                    endpoint.drain(false, self.now);
                }
            }
            Action::Happens(What::Error) => {
                self.ended_by_user[side] = true;
                endpoint.enter_error();
            }
            Action::Happens(What::Destroy) => {
                self.ended_by_user[side] = true;
                endpoint.destroy();
            }
            Action::Happens(What::RegionGone) => endpoint.memory.region_gone = true,
            Action::Happens(What::LocalGone) => endpoint.memory.local_gone = true,
            Action::Happens(What::Marked) => endpoint.requester.slow_down(),
            Action::Happens(What::Drain(pause)) => {
                if endpoint.state == State::Rts {
                    self.pause[side] = Some(u64::from(pause));
                    endpoint.drain(true, self.now);
                }
            }
        }
    }

    /// A packet arrives, and those that come as one batch with it.
    fn arrive(&mut self) -> Result<(), String> {
        let began = self.now;
        while let Some(arrival) = self.network.take() {
            let (to, is_request) = (arrival.to, arrival.content.is_request());
            let until = began + self.network.gather(to);
            let next = self.network.next();
            let next = next.filter(|next| next.0 <= until && (next.1, next.2) == (to, is_request));
            self.take_in(arrival, next.is_some())?;
            match next {
                Some((at, ..)) => self.now = self.now.max(at),
                None => break,
            }
        }
        Ok(())
    }

    /// Something arrives, and `more` of its batch comes behind it.
    fn take_in(&mut self, arrival: Arrival, more: bool) -> Result<(), String> {
        let to = arrival.to;
        for (content, late) in &arrival.out_of_order {
            let concerned = Self::concerned(to, content);
            self.witnesses[concerned].out_of_order(content, *late, self.now);
        }
        let content = arrival.content;
        self.tell(|| format!("{to} <- {content:x?}"));
        if !content.is_request() {
            self.witnesses[to].hears(&self.plans[to], &content, self.now);
        }
        let dropped = self.endpoints[to].receive(&content, more, self.now);
        let oldest = self.endpoints[to].requester.oldest_psn();
        self.witnesses[to].has_placed(oldest, self.now);
        let mut deaf = matches!(
            dropped,
            Some(DropReason::NotReady | DropReason::OutsideWindow | DropReason::UnknownRead)
        );
        // A segment that was cut otherwise before, of which the peer has only the beginning. The
        // local path loses nothing, so there it does not happen.
        deaf |= dropped == Some(DropReason::Duplicate) && content.span() > 1;
        if content.is_request() && deaf {
            self.witnesses[1 - to].lost(&content, self.now);
        }
        if dropped == Some(DropReason::OutOfSequence) {
            self.witnesses[1 - to].not_kept(&content, self.now);
        }
        if self.witnesses[to].is_exhausted() && self.endpoints[to].serves() {
            return Err("RNR NAKs without end".into());
        }
        self.look(to);
        Ok(())
    }

    /// Whose requests something on its way to `to` is about: it is one, or answers one.
    fn concerned(to: usize, content: &Content) -> usize {
        if content.is_request() {
            1 - to
        } else {
            to
        }
    }

    /// After each event: what left goes to the network, completions are looked at, and what is due
    /// is posted as far as there is room.
    fn serve_user(&mut self, side: usize) {
        self.flush_out(side);
        loop {
            let endpoint = &mut self.endpoints[side];
            if endpoint.state == State::Gone {
                break;
            }
            while self.due[side].1 > 0 && endpoint.has_recv_room() {
                self.due[side].1 -= 1;
                endpoint.post_receive();
            }
            let before = self.due[side].0;
            while self.due[side].0 > 0 && endpoint.has_send_room() {
                self.due[side].0 -= 1;
                endpoint.post_send(&self.plans[side]);
            }
            if self.due[side].0 == before {
                break;
            }
            endpoint.doorbell(self.now);
            self.flush_out(side);
        }
        self.look(side);
        let endpoint = &self.endpoints[side];
        if endpoint.state == State::Sqd && endpoint.requester.is_drained() {
            self.witnesses[side].drained = true;
            if let Some(pause) = self.pause[side].take() {
                self.plan_action(self.now / US + pause + 1, side, Action::Resume);
            }
        }
        // A peer that is asked for ever posts at last.
        let patient = self.witnesses[side].refusals > PATIENCE;
        if patient && !self.rescued[1 - side] {
            self.rescued[1 - side] = true;
            let all = self.plans[1 - side].receives.len();
            let posted = self.scenario.sides[1 - side]
                .starve
                .map_or(all, usize::from);
            self.due[1 - side].1 += all.saturating_sub(posted);
        }
    }

    fn flush_out(&mut self, side: usize) {
        let endpoint = &mut self.endpoints[side];
        let standing = Standing {
            now: self.now,
            retired: endpoint.requester.retired() as usize,
            pushed: endpoint.pushed,
            timeouts: endpoint.timeouts(),
            probes: endpoint.probes(),
            draining: endpoint.state == State::Sqd,
            local_trouble: endpoint.memory.local_gone
                || self.scenario.sides[side].max_rd_atomic == 0
                || self.scenario.sides[side].work.iter().any(|w| w.gone),
        };
        for out in std::mem::take(&mut endpoint.out) {
            if let Some(segment) = &out.segment {
                self.witnesses[side].sends(&self.plans[side], segment, standing);
            }
            let content = out.content;
            if !content.is_request() {
                self.witnesses[1 - side].answers(&content, self.now);
            }
            let arrives = self.network.send(side, self.now, content.clone());
            self.tell(|| format!("{side} -> {content:x?}, arrives: {arrives}"));
            if !arrives {
                self.witnesses[Self::concerned(1 - side, &content)].lost(&content, self.now);
            }
        }
        // One that found no room is not seen.
        self.witnesses[side].probes = standing.probes;
    }

    /// The user polls the completion queue.
    fn look(&mut self, side: usize) {
        let peer = &self.endpoints[1 - side].memory;
        let seen = Seen {
            at: self.now,
            written: peer.written,
            received: peer.received.len(),
        };
        let sent = &self.endpoints[side].sent;
        for done in &sent[self.seen[side].len()..] {
            self.tell(|| format!("{side} {} {:?}", done.wr_id, done.status));
            if done.status != Status::WrFlushErr {
                self.witnesses[side].ended(done.status, self.now);
            }
        }
        self.seen[side].resize(sent.len(), seen);
    }

    /// After the run: both QPs go to ERR, so that whatever is left completes.
    pub fn finish(&mut self) {
        for side in 0..2 {
            self.endpoints[side].enter_error();
            self.look(side);
        }
    }
}
