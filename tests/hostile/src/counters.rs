// SPDX-License-Identifier: GPL-2.0

//! The counters of the victim's device, against what was sent: each packet under its one reason.

use crate::victim::Result;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The IP or UDP layer of the kernel drops it: the driver never sees it.
    Outside,
    /// Dropped, and counted under this reason alone.
    Drop(&'static str),
    /// Either of the two: it depends on what the IP layer thinks of the addresses.
    Perhaps(&'static str),
    /// Received, and counted under these as well.
    Received(&'static [&'static str]),
}

/// Received, and in order or an answer that was waited for: nothing else is counted.
pub const ACCEPTED: Fate = Fate::Received(&[]);

/// Counters of what the victim does by itself, and of how packets happen to lie in memory: they
/// do not say what became of a packet.
const NOT_JUDGED: &[&str] = &[
    "sent_pkts",
    "sent_bytes",
    "rcvd_bytes",
    "rx_linearized",
    "retransmitted_pkts",
    "ack_timeout",
    "tail_probes",
];

type Values = BTreeMap<String, u64>;

/// The counters, what they were, and between which bounds they have to grow.
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
                if name != "lifespan" && !NOT_JUDGED.contains(&&*name) {
                    values.insert(name, value);
                }
            }
        }
        Ok(values)
    }

    /// What one counter has come to.
    pub fn value(&self, name: &str) -> Result<u64> {
        std::thread::sleep(Duration::from_millis(15));
        let path = self.folder.join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let value = text.trim().parse();
        value.map_err(|_| format!("{}: \"{text}\"", path.display()))
    }

    /// Forgets what was.
    pub fn begin(&mut self) -> Result<()> {
        // ib_core keeps values for 10 ms; older ones are not wanted here.
        std::thread::sleep(Duration::from_millis(15));
        self.bounds.clear();
        self.before = self.read()?;
        Ok(())
    }

    /// A packet with this fate was sent.
    pub fn expect(&mut self, fate: Fate) {
        let (counted, least): (&[&'static str], u64) = match &fate {
            Fate::Outside => (&[], 0),
            Fate::Drop(reason) => (std::slice::from_ref(reason), 1),
            Fate::Perhaps(reason) => (std::slice::from_ref(reason), 0),
            Fate::Received(also) => {
                self.add("rcvd_pkts", 1);
                (also, 1)
            }
        };
        for name in counted {
            self.add(name, least);
        }
    }

    fn add(&mut self, name: &'static str, least: u64) {
        let bounds = self.bounds.entry(name).or_default();
        bounds.0 += least;
        bounds.1 += 1;
    }

    /// What differs from what was expected.
    fn differences(&self, now: &Values) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in now {
            let grown = value - self.before.get(name).copied().unwrap_or(0);
            let (least, most) = self.bounds.get(&**name).copied().unwrap_or((0, 0));
            if grown < least || grown > most {
                let wanted = if least == most {
                    least.to_string()
                } else {
                    format!("{least} to {most}")
                };
                found.push(format!("{name} grew by {grown}, not {wanted}"));
            }
        }
        for name in self.bounds.keys() {
            if !now.contains_key(*name) {
                found.push(format!("there is no counter {name}"));
            }
        }
        found
    }

    /// Waits until every counter has grown by what it should; more, or less in the end, is an
    /// error.
    pub fn settle(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.differences(&self.read()?).is_empty() {
            if began.elapsed() > self.patience {
                let all = self.differences(&self.read()?);
                return Err(format!("counters: {}", all.join("; ")));
            }
            std::thread::sleep(Duration::from_millis(11));
        }
        // What is too much may come a little later.
        std::thread::sleep(Duration::from_millis(15));
        let late = self.differences(&self.read()?);
        if !late.is_empty() {
            return Err(format!("counters: {}", late.join("; ")));
        }
        self.begin()
    }
}
