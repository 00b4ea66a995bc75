// SPDX-License-Identifier: GPL-2.0

//! Sends cases to a target, and judges everything that can be seen of them: answers, counters,
//! states, completions, memory.

use crate::answer::{self, Answer};
use crate::case::{Completion, Fate, Qp, Region, State};
use crate::dice::{Chance, Dice};
use crate::frame::{Hosts, Ib, Outer};
use crate::model::Model;
use crate::Result;
use std::collections::BTreeMap;

/// A device under attack.
pub trait Target {
    /// Its memory regions by name.
    fn regions(&self) -> BTreeMap<String, Region>;
    /// Queue pairs of a kind in place of those there were, all memory as it was, nothing counted.
    fn make(&mut self, n: usize, kind: &str) -> Result<Vec<Qp>>;
    /// A queue pair posts a SEND or a READ of so many bytes.
    fn post(&mut self, index: usize, op: &str, len: u32) -> Result<()>;
    /// A frame comes, to meet this fate.
    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()>;
    /// Fails unless each counter has grown by what the fates since the last time say.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
    /// The frames that it has sent; `wanted` of them are worth waiting for.
    fn hear(&mut self, wanted: usize) -> Result<Vec<Vec<u8>>>;
    /// States of its queue pairs.
    fn states(&mut self) -> Result<Vec<u64>>;
    /// What completed, by queue pair.
    fn completions(&mut self) -> Result<BTreeMap<usize, Vec<Completion>>>;
    /// Asynchronous events.
    fn events(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Fails if a byte changed that is not in one of these ranges: region, from, to.
    fn check_memory(&mut self, may_change: &[(&'static str, u64, u64)]) -> Result<()>;
    /// Deregisters a region, or brings it back with another key.
    fn register(&mut self, name: &str, again: bool) -> Result<()>;
    /// Whether a kernel with an IP layer stands before it.
    fn has_ip(&self) -> bool {
        false
    }
}

/// Queue pairs that the victim keeps at a time.
const AT_ONCE: usize = 128;

/// Ranges (region, offset, length) as region, from, to; those that overlap or touch as one.
pub fn joined(writes: &[(&'static str, u64, u64)]) -> Vec<(&'static str, u64, u64)> {
    let mut ranges: Vec<_> = (writes.iter())
        .map(|(name, offset, len)| (*name, *offset, offset + len))
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, whole| {
        let joined = next.0 == whole.0 && next.1 <= whole.2;
        if joined {
            whole.2 = whole.2.max(next.2);
        }
        joined
    });
    ranges
}

/// The attacker.
pub struct Attack {
    pub target: Box<dyn Target>,
    pub hosts: Hosts,
    pub random: Dice,
    /// Of so many cases one is sent; 1 sends all.
    pub one_of: u64,
    provoked: BTreeMap<&'static str, u64>,
    sent: u64,
    answered: u64,
}

/// A case: what is said to a fresh queue pair, and the model that predicts what comes of it.
pub struct Talk {
    /// For the message when it fails.
    pub name: String,
    pub outer: Outer,
    pub qp: Qp,
    pub model: Model,
    pub random: Dice,
    /// Numbers of all queue pairs there are.
    pub known: Vec<u32>,
    pub frames: Vec<(Vec<u8>, Fate)>,
    /// What the victim posts before: operation, bytes.
    pub post: Option<(&'static str, u32)>,
    /// Before a frame this region is deregistered.
    pub pause: Option<(usize, &'static str)>,
}

impl Talk {
    /// A request whose fate the model tells.
    pub fn say(&mut self, ib: &Ib) -> Fate {
        let fate = self.model.request(ib);
        self.push(ib, fate);
        fate
    }

    /// A packet with this fate.
    pub fn push(&mut self, ib: &Ib, fate: Fate) {
        self.frames.push((self.outer.frame(&ib.bytes()), fate));
    }
}

impl Attack {
    pub fn new(target: Box<dyn Target>, hosts: Hosts, random: Dice, one_of: u64) -> Self {
        Self {
            target,
            hosts,
            random,
            one_of,
            provoked: BTreeMap::new(),
            sent: 0,
            answered: 0,
        }
    }

    /// A family begins.
    pub fn begin(&mut self) {
        self.provoked.clear();
        (self.sent, self.answered) = (0, 0);
    }

    /// Fails if what was provoked is not of so many kinds; of a sample, which may lack any of them,
    /// if it is of one kind alone.
    pub fn has_provoked(&self, kinds: usize) -> Result<()> {
        let least = if self.one_of == 1 { kinds } else { 2 };
        match self.provoked.len() {
            n if n < least => Err(format!("{least} kinds were not provoked: {}", self.told())),
            _ => Ok(()),
        }
    }

    /// What was sent, answered and provoked.
    pub fn told(&self) -> String {
        let provoked: Vec<_> = (self.provoked.iter())
            .map(|(what, n)| format!("{what} {n}"))
            .collect();
        format!(
            "{} packets sent, {} answered; {}",
            self.sent,
            self.answered,
            provoked.join(", ")
        )
    }

    /// Whether chance leaves this one out.
    pub fn leaves_out(&mut self) -> bool {
        self.one_of > 1 && self.random.below(self.one_of) != 0
    }

    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()> {
        *self.provoked.entry(fate.name()).or_default() += 1;
        self.sent += 1;
        self.target.send(frame, fate)
    }

    fn hear(&mut self, wanted: usize) -> Result<BTreeMap<u32, Vec<Answer>>> {
        let mut heard: BTreeMap<u32, Vec<Answer>> = BTreeMap::new();
        for frame in self.target.hear(wanted)? {
            if let Some((qpn, answer)) = answer::read(&frame, &self.hosts)? {
                *self.provoked.entry(answer.name()).or_default() += 1;
                heard.entry(qpn).or_default().push(answer);
                self.answered += 1;
            }
        }
        Ok(heard)
    }

    /// Many frames for one queue pair of a kind, which stays as it is and says nothing.
    pub fn bombard(
        &mut self,
        kind: &str,
        state: State,
        frames: impl Iterator<Item = (u8, u8, usize)>,
        mut make: impl FnMut(&Qp, &mut Dice, (u8, u8, usize)) -> (Vec<u8>, Fate),
    ) -> Result<()> {
        let qp = self.target.make(1, kind)?[0];
        let mut random = self.random.fork();
        for what in frames {
            if self.leaves_out() {
                continue;
            }
            let (frame, fate) = make(&qp, &mut random, what);
            self.send(&frame, fate)
                .map_err(|e| format!("{kind}: {what:x?}: {e}"))?;
        }
        self.target.settle().map_err(|e| format!("{kind}: {e}"))?;
        let (heard, completions) = (self.hear(0)?, self.target.completions()?);
        let (states, events) = (self.target.states()?, self.target.events()?);
        let is_quiet = heard.is_empty() && completions.is_empty() && events.is_empty();
        if !is_quiet || states != [state as u64] {
            let seen = format!("{heard:x?}, {completions:?}, {events:?}, states {states:?}");
            return Err(format!("{kind}, which is to stay in {state:?}: {seen}"));
        }
        (self.target.check_memory(&[])).map_err(|e| format!("{kind}: {e}"))
    }

    /// For each of these a case, on a queue pair of its own; some of them, if not all are sent.
    pub fn each<S>(
        &mut self,
        kind: &'static str,
        mut specs: Vec<S>,
        build: impl Fn(&mut Talk, &S),
    ) -> Result<()> {
        specs.retain(|_| !self.leaves_out());
        for specs in specs.chunks(AT_ONCE) {
            let qps = self.target.make(specs.len(), kind)?;
            let regions = self.target.regions();
            let known: Vec<u32> = qps.iter().map(|qp| qp.qpn).collect();
            let mut talks = Vec::new();
            for (qp, spec) in qps.iter().zip(specs) {
                let mut talk = Talk {
                    name: String::new(),
                    outer: Outer::new(&self.hosts),
                    qp: *qp,
                    model: Model::new(kind, qp, &regions),
                    random: self.random.fork(),
                    known: known.clone(),
                    frames: Vec::new(),
                    post: None,
                    pause: None,
                };
                build(&mut talk, spec);
                talks.push(talk);
            }
            self.run(&talks).map_err(|e| format!("{kind}: {e}"))?;
        }
        Ok(())
    }

    fn run(&mut self, talks: &[Talk]) -> Result<()> {
        for talk in talks {
            if let Some((op, len)) = talk.post {
                self.target.post(talk.qp.index, op, len)?;
            }
        }
        for talk in talks {
            let at = |e| format!("{}: {e}", talk.name);
            for (n, (frame, fate)) in talk.frames.iter().enumerate() {
                if let Some((_, name)) = talk.pause.filter(|(at, _)| *at == n) {
                    self.target.settle().map_err(at)?;
                    self.target.register(name, false)?;
                }
                self.send(frame, *fate).map_err(at)?;
            }
        }
        let settled = self.target.settle();
        let mut heard = self.hear(talks.iter().map(|talk| talk.model.answers.len()).sum())?;
        let states = self.target.states()?;
        let completions = self.target.completions()?;
        for Talk {
            name, qp, model, ..
        } in talks
        {
            let heard = heard.remove(&qp.peer_qpn).unwrap_or_default();
            let completed = completions.get(&qp.index).into_iter().flatten();
            let completed: Vec<_> = completed
                .copied()
                .filter(|completion| model.tells(completion))
                .collect();
            let seen = (&heard, states[qp.index], &completed);
            let wanted = (&model.answers, model.state as u64, &model.completions);
            if seen != wanted {
                return Err(format!("{name}: {seen:x?}, not {wanted:x?}"));
            }
        }
        if !heard.is_empty() {
            return Err(format!("answered to nobody: {heard:?}"));
        }
        settled.map_err(|e| {
            let name = |talk: Option<&Talk>| talk.map_or("", |talk| &talk.name).to_string();
            let (first, last) = (name(talks.first()), name(talks.last()));
            format!("from \"{first}\" to \"{last}\": {e}")
        })?;
        let writes: Vec<_> = (talks.iter().flat_map(|talk| talk.model.writes.clone())).collect();
        self.target.check_memory(&joined(&writes))
    }
}
