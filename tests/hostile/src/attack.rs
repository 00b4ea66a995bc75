// SPDX-License-Identifier: GPL-2.0

//! Sends cases, and judges everything that can be seen of them: answers, counters, states,
//! completions, memory.

use crate::answer::{self, Answer};
use crate::counters::{Counters, Fate};
use crate::frame::Hosts;
use crate::link::Link;
use crate::random::Random;
use crate::victim::{Completion, Qp, Result, State, Victim};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One attack on a fresh queue pair, and what is to become of it.
pub struct Case {
    /// For the message when it fails.
    pub name: String,
    pub frames: Vec<(Vec<u8>, Fate)>,
    /// After so many frames the victim is asked to do this.
    pub pause: Option<(usize, String)>,
    /// What the victim sends, in this order.
    pub answers: Vec<Answer>,
    /// The state of the queue pair afterwards.
    pub state: State,
    /// In this order. Receives that are flushed when the queue pair goes to ERR are not named here.
    pub completions: Vec<Completion>,
    /// Bytes that may change: region, offset, length.
    pub writes: Vec<(&'static str, u64, u64)>,
}

impl Case {
    /// Frames that lead to nothing.
    pub fn silent(name: String, frames: Vec<(Vec<u8>, Fate)>) -> Self {
        Self {
            name,
            frames,
            pause: None,
            answers: Vec::new(),
            state: State::Rts,
            completions: Vec::new(),
            writes: Vec::new(),
        }
    }
}

/// How to make a case when the queue pair is known.
pub struct Plan {
    /// What the victim posts before: operation, bytes.
    pub post: Option<(&'static str, u32)>,
    pub build: Box<dyn Fn(&Qp) -> Case>,
}

impl Plan {
    /// A case in which the victim does nothing by itself.
    pub fn new(build: impl Fn(&Qp) -> Case + 'static) -> Self {
        Self {
            post: None,
            build: Box::new(build),
        }
    }

    /// A case in which the victim waits for an answer.
    pub fn posted(op: &'static str, len: u32, build: impl Fn(&Qp) -> Case + 'static) -> Self {
        Self {
            post: Some((op, len)),
            build: Box::new(build),
        }
    }
}

/// Queue pairs that the victim keeps at a time.
const AT_ONCE: usize = 128;
/// Receives have numbers from here on.
const FIRST_RECEIVE: u64 = 1000;
const FLUSHED: u32 = 5;
/// Frames after which the victim is waited for: fewer than its queue of received packets holds.
const BURST: u64 = 500;

/// The attacker.
pub struct Attack {
    pub hosts: Hosts,
    pub victim: Victim,
    pub random: Random,
    /// A tenth of the rounds.
    pub short: bool,
    link: Link,
    pub counters: Counters,
    /// Frames sent, and packets that came back, in this family.
    pub sent: u64,
    pub answered: u64,
    patience: u32,
}

impl Attack {
    pub fn new(
        hosts: Hosts,
        victim: Victim,
        random: Random,
        link: Link,
        counters: Counters,
        (short, patience): (bool, u32),
    ) -> Self {
        Self {
            hosts,
            victim,
            random,
            short,
            link,
            counters,
            sent: 0,
            answered: 0,
            patience,
        }
    }

    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()> {
        self.counters.expect(fate);
        self.link.send(frame).map_err(|e| format!("send: {e}"))?;
        self.sent += 1;
        if self.sent % BURST == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Packets of the victim by the queue pair that they are for: at least `wanted` unless they do
    /// not come, and all that come in a short time after them.
    fn listen(&mut self, wanted: usize) -> Result<BTreeMap<u32, Vec<Answer>>> {
        let began = Instant::now();
        let mut heard: BTreeMap<u32, Vec<Answer>> = BTreeMap::new();
        let mut count = 0;
        loop {
            let Some(frame) = self
                .link
                .receive(Duration::from_millis(40))
                .map_err(|e| format!("receive: {e}"))?
            else {
                if count >= wanted || began.elapsed() > Duration::from_secs(2) * self.patience {
                    return Ok(heard);
                }
                continue;
            };
            if let Some((qpn, answer)) = answer::read(&frame, &self.hosts)? {
                heard.entry(qpn).or_default().push(answer);
                count += 1;
                self.answered += 1;
            }
        }
    }

    /// Begins with fresh memory and counters, and nothing on the wire.
    fn begin(&mut self, n: usize, kind: &str) -> Result<Vec<Qp>> {
        self.victim.ask("renew")?;
        let qps = self.victim.make(n, kind)?;
        self.listen(0)?;
        self.counters.begin()?;
        Ok(qps)
    }

    /// Many frames for some queue pairs of a kind, all of which stay as they are and say nothing.
    ///
    /// `fire` is called with each queue pair's number and sends the frames by its last argument.
    pub fn bombard(
        &mut self,
        kind: &str,
        state: State,
        frames: impl Fn(&Qp, &mut Random, &mut dyn FnMut(Vec<u8>, Fate) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let qp = self.begin(1, kind)?[0];
        let mut random = self.random.fork();
        frames(&qp, &mut random, &mut |frame, fate| self.send(&frame, fate))?;
        self.finish(kind, state)
    }

    fn finish(&mut self, kind: &str, state: State) -> Result<()> {
        self.counters.settle().map_err(|e| format!("{kind}: {e}"))?;
        let heard = self.listen(0)?;
        if let Some((qpn, answers)) = heard.first_key_value() {
            return Err(format!("{kind}: answered {answers:?} to {qpn:#x}"));
        }
        let states = self.victim.states()?;
        if states.iter().any(|s| *s != state as u64) {
            return Err(format!("{kind}: states {states:?}, not all {state:?}"));
        }
        let completions = self.victim.completions()?;
        if !completions.is_empty() {
            return Err(format!("{kind}: completed {completions:?}"));
        }
        let events = self.victim.ask("events")?;
        if !events.is_empty() {
            return Err(format!("{kind}: asynchronous events: {events:?}"));
        }
        self.victim
            .check_memory()
            .map_err(|e| format!("{kind}: {e}"))
    }

    /// Runs cases, each on a queue pair of its own.
    pub fn run(&mut self, kind: &str, plans: Vec<Plan>) -> Result<()> {
        for plans in plans.chunks(AT_ONCE) {
            self.run_chunk(kind, plans)?;
        }
        Ok(())
    }

    fn run_chunk(&mut self, kind: &str, plans: &[Plan]) -> Result<()> {
        let qps = self.begin(plans.len(), kind)?;
        for (qp, plan) in qps.iter().zip(plans) {
            if let Some((op, len)) = plan.post {
                self.victim.ask(&format!("post {} {op} {len}", qp.index))?;
            }
        }
        let cases: Vec<Case> = qps
            .iter()
            .zip(plans)
            .map(|(qp, plan)| (plan.build)(qp))
            .collect();
        self.allow(&cases)?;
        for case in &cases {
            for (n, (frame, fate)) in case.frames.iter().enumerate() {
                if let Some((_, command)) = case.pause.as_ref().filter(|(at, _)| *at == n) {
                    self.counters
                        .settle()
                        .map_err(|e| format!("{kind}: {}: {e}", case.name))?;
                    self.victim.ask(command)?;
                }
                self.send(frame, *fate)?;
            }
        }
        let settled = self.counters.settle();
        let heard = self.listen(cases.iter().map(|case| case.answers.len()).sum())?;
        let states = self.victim.states()?;
        let completions = self.victim.completions()?;
        for (qp, case) in qps.iter().zip(&cases) {
            let nothing = Vec::new();
            let heard = heard.get(&qp.peer_qpn).unwrap_or(&nothing);
            let what = format!("{kind}: {}", case.name);
            if *heard != case.answers {
                return Err(format!(
                    "{what}: the victim answered {heard:x?}, not {:x?}",
                    case.answers
                ));
            }
            if states[qp.index] != case.state as u64 {
                let state = states[qp.index];
                return Err(format!(
                    "{what}: the state is {state}, not {:?}",
                    case.state
                ));
            }
            let completed: Vec<Completion> = completions
                .get(&qp.index)
                .unwrap_or(&Vec::new())
                .iter()
                .filter(|c| case.state != State::Err || c.0 < FIRST_RECEIVE || c.1 != FLUSHED)
                .copied()
                .collect();
            if completed != case.completions {
                return Err(format!(
                    "{what}: completed {completed:?}, not {:?}",
                    case.completions
                ));
            }
        }
        let known: Vec<u32> = qps.iter().map(|qp| qp.peer_qpn).collect();
        if let Some((qpn, answers)) = heard.iter().find(|(qpn, _)| !known.contains(qpn)) {
            return Err(format!(
                "{kind}: answered {answers:?} to {qpn:#x}, which is nobody"
            ));
        }
        settled.map_err(|e| {
            let first = cases.first().map_or("", |case| &case.name);
            let last = cases.last().map_or("", |case| &case.name);
            format!("{kind}, from \"{first}\" to \"{last}\": {e}")
        })?;
        self.victim
            .check_memory()
            .map_err(|e| format!("{kind}: {e}"))
    }

    /// Tells the victim which bytes may change, and no others.
    fn allow(&mut self, cases: &[Case]) -> Result<()> {
        let mut writes: Vec<_> = cases
            .iter()
            .flat_map(|case| &case.writes)
            .map(|(name, offset, len)| (name, *offset, offset + len))
            .collect();
        writes.sort_unstable();
        // Those that overlap or touch are said as one.
        writes.dedup_by(|next, whole| {
            let joined = next.0 == whole.0 && next.1 <= whole.2;
            if joined {
                whole.2 = whole.2.max(next.2);
            }
            joined
        });
        for (name, from, to) in writes {
            self.victim
                .ask(&format!("allow {name} {from} {}", to - from))?;
        }
        Ok(())
    }
}
