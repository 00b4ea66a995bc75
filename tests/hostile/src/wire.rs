// SPDX-License-Identifier: GPL-2.0

//! A device in a guest as a target: a packet socket, its counters in sysfs, and `hostile_victim`,
//! which owns the queue pairs, does what is asked and tells what it sees.

use crate::link::Link;
use ferroce_hostile::attack::Target;
use ferroce_hostile::case::{Completion, Fate, Qp, Region};
use ferroce_hostile::Result;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frames after which the victim is waited for: fewer than its queue of received packets holds.
const BURST: u64 = 500;

/// Counters of what the victim does by itself, and of how packets happen to lie in memory: they
/// do not say what became of a packet.
const NOT_JUDGED: &[&str] = &[
    "sent_pkts",
    "sent_bytes",
    "rcvd_bytes",
    "rx_linearized",
    "rx_steered",
    "retransmitted_pkts",
    "ack_timeout",
    "tail_probes",
    "lifespan",
    // Of packets whose traffic class says that they are marked.
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
];

type Values = BTreeMap<String, u64>;

/// The counters of a device, and between which bounds they have to grow.
pub struct Counters {
    folder: PathBuf,
    before: Values,
    bounds: BTreeMap<&'static str, (u64, u64)>,
    patience: Duration,
}

impl Counters {
    /// From a folder `hw_counters` of sysfs.
    pub fn new(folder: &str, patience: u32) -> Result<Self> {
        let mut counters = Self {
            folder: folder.into(),
            before: Values::new(),
            bounds: BTreeMap::new(),
            patience: Duration::from_secs(10) * patience,
        };
        counters.begin()?;
        Ok(counters)
    }

    fn read(&self) -> Result<Values> {
        let error = |e: std::io::Error| format!("{}: {e}", self.folder.display());
        let mut values = Values::new();
        for entry in fs::read_dir(&self.folder).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path()).map_err(error)?;
            if let Ok(value) = text.trim().parse() {
                if !NOT_JUDGED.contains(&&*name) {
                    values.insert(name, value);
                }
            }
        }
        Ok(values)
    }

    /// Forgets what was.
    pub fn begin(&mut self) -> Result<()> {
        // ib_core keeps values for 10 ms; older ones are not wanted here.
        sleep(Duration::from_millis(15));
        self.bounds.clear();
        self.before = self.read()?;
        Ok(())
    }

    /// A packet with this fate was sent.
    pub fn expect(&mut self, fate: Fate) {
        let (received, counted) = match fate {
            Fate::Outside => (false, None),
            Fate::Drop(reason) => (false, Some((reason, 1))),
            Fate::Perhaps(reason) => (false, Some((reason, 0))),
            Fate::Accepted => (true, None),
            Fate::Received(also) => (true, Some((also, 1))),
        };
        let received = received.then_some(("rcvd_pkts", 1));
        for (name, least) in received.into_iter().chain(counted) {
            let bounds = self.bounds.entry(name).or_default();
            bounds.0 += least;
            bounds.1 += 1;
        }
    }

    /// What differs from what was expected.
    fn differences(&self) -> Result<Vec<String>> {
        let now = self.read()?;
        let mut found = Vec::new();
        for (name, value) in &now {
            let grown = value - self.before.get(name).copied().unwrap_or(0);
            let (least, most) = self.bounds.get(&**name).copied().unwrap_or((0, 0));
            if grown < least || grown > most {
                found.push(format!("{name} grew by {grown}, not {least} to {most}"));
            }
        }
        let missing = self.bounds.keys().filter(|name| !now.contains_key(**name));
        found.extend(missing.map(|name| format!("there is no counter {name}")));
        Ok(found)
    }

    /// Waits until every counter has grown by what it should; more, or less in the end, is an
    /// error.
    pub fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.differences()?.is_empty() && began.elapsed() < self.patience {
            sleep(Duration::from_millis(11));
        }
        // What is too much may come a little later.
        sleep(Duration::from_millis(15));
        match &self.differences()?[..] {
            [] => self.begin(),
            found => Err(format!("counters: {}", found.join("; "))),
        }
    }
}

/// The device.
pub struct Wire {
    link: Link,
    counters: Counters,
    control: BufReader<TcpStream>,
    regions: BTreeMap<String, Region>,
    sent: u64,
    patience: u32,
}

fn fields<const N: usize>(line: &str) -> Result<[u64; N]> {
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    numbers
        .try_into()
        .map_err(|_| format!("the victim said \"{line}\""))
}

impl Wire {
    /// Connects to the victim, which listens there.
    pub fn new(link: Link, counters: Counters, address: &str, patience: u32) -> Result<Self> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut wire = Self {
            link,
            counters,
            control: BufReader::new(stream),
            regions: BTreeMap::new(),
            sent: 0,
            patience,
        };
        let hello = wire.answer()?;
        wire.learn_regions(&hello)?;
        Ok(wire)
    }

    fn learn_regions(&mut self, lines: &[String]) -> Result<()> {
        for line in lines {
            if let Some((name, rest)) = line.strip_prefix("mr ").and_then(|l| l.split_once(' ')) {
                let [at, len, rkey] = fields(rest)?;
                let rkey = rkey as u32;
                self.regions.insert(name.into(), Region { at, len, rkey });
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let got = self.control.read_line(&mut line);
            if got.map_err(|e| format!("the victim: {e}"))? == 0 {
                return Err(format!("the victim has gone, its last words: {lines:?}"));
            }
            match line.trim_end() {
                "done" => return Ok(lines),
                failed if failed.starts_with("failed ") => {
                    return Err(format!("the victim {failed}"))
                }
                other => lines.push(other.into()),
            }
        }
    }

    /// Asks the victim and waits for the answer.
    fn ask(&mut self, command: &str) -> Result<Vec<String>> {
        let stream = self.control.get_mut();
        let asked = stream.write_all(format!("{command}\n").as_bytes());
        asked.map_err(|e| format!("the victim: {e}"))?;
        self.answer()
    }
}

impl Target for Wire {
    fn regions(&self) -> BTreeMap<String, Region> {
        self.regions.clone()
    }

    fn make(&mut self, n: usize, kind: &str) -> Result<Vec<Qp>> {
        self.ask("renew")?;
        let mut found = Vec::new();
        for line in self.ask(&format!("make {n} {kind}"))? {
            let [index, rest @ ..] = fields::<6>(&line)?;
            let [qpn, peer_qpn, rq_psn, sq_psn, window] = rest.map(|n| n as u32);
            found.push(Qp {
                index: index as usize,
                qpn,
                peer_qpn,
                rq_psn,
                sq_psn,
                window,
            });
        }
        // Nothing is on the wire any more.
        self.hear(0)?;
        self.counters.begin()?;
        Ok(found)
    }

    fn post(&mut self, index: usize, op: &str, len: u32) -> Result<()> {
        self.ask(&format!("post {index} {op} {len}")).map(|_| ())
    }

    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()> {
        self.counters.expect(fate);
        self.link.send(frame).map_err(|e| format!("send: {e}"))?;
        self.sent += 1;
        if self.sent % BURST == 0 {
            sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.counters.settle()
    }

    /// And all that come in a short time after those that are wanted.
    fn hear(&mut self, wanted: usize) -> Result<Vec<Vec<u8>>> {
        let began = Instant::now();
        let mut heard = Vec::new();
        let limit = Duration::from_secs(2) * self.patience;
        loop {
            let next = self.link.receive(Duration::from_millis(40));
            match next.map_err(|e| format!("receive: {e}"))? {
                Some(frame) => heard.push(frame),
                None if heard.len() >= wanted || began.elapsed() > limit => return Ok(heard),
                None => {}
            }
        }
    }

    fn states(&mut self) -> Result<Vec<u64>> {
        let lines = self.ask("states")?;
        let state = |line: &String| fields::<3>(line).map(|[_, state, _]| state);
        lines.iter().map(state).collect()
    }

    fn completions(&mut self) -> Result<BTreeMap<usize, Vec<Completion>>> {
        let mut found: BTreeMap<usize, Vec<Completion>> = BTreeMap::new();
        for line in self.ask("completions")? {
            let [index, wr_id, status, bytes] = fields(&line)?;
            let all = found.entry(index as usize).or_default();
            all.push((wr_id, status as u32, bytes as u32));
        }
        Ok(found)
    }

    fn events(&mut self) -> Result<Vec<String>> {
        self.ask("events")
    }

    fn check_memory(&mut self, may_change: &[(&'static str, u64, u64)]) -> Result<()> {
        for (name, from, to) in may_change {
            self.ask(&format!("allow {name} {from} {}", to - from))?;
        }
        match self.ask("check")?.first() {
            Some(changed) => Err(format!("memory was written: {changed}")),
            None => Ok(()),
        }
    }

    fn register(&mut self, name: &str, again: bool) -> Result<()> {
        let word = if again { "rereg" } else { "dereg" };
        let lines = self.ask(&format!("{word} {name}"))?;
        self.learn_regions(&lines)
    }

    fn has_ip(&self) -> bool {
        true
    }
}
