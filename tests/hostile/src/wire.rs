// SPDX-License-Identifier: GPL-2.0

//! A device in a guest as a target. What goes by the wire, and what `victim.py` is asked, is a line
//! of standard output each; who has started this program does it, and answers by lines of standard
//! input, the last of which is "done" (`tests/scenarios/hostile/generator.py`).

use ferroce_hostile::attack::Target;
use ferroce_hostile::case::{Completion, Fate, Qp, Region};
use ferroce_hostile::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::stdin;

/// The device.
pub struct Wire {
    regions: BTreeMap<String, Region>,
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
    /// One whose regions the victim has told.
    pub fn new() -> Result<Self> {
        let regions = BTreeMap::new();
        let mut wire = Self { regions };
        let hello = wire.ask("hello")?;
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

    /// Has something done and waits for the answer.
    fn ask(&mut self, command: &str) -> Result<Vec<String>> {
        println!("{command}");
        let lines = stdin().lines().map_while(std::result::Result::ok);
        let mut answer = Vec::new();
        for line in lines {
            match &*line {
                "done" => return Ok(answer),
                failed if failed.starts_with("failed ") => return Err(failed.into()),
                _ => answer.push(line),
            }
        }
        Err(format!("{command}: no answer"))
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
        self.ask("begin")?;
        Ok(found)
    }

    fn post(&mut self, index: usize, op: &str, len: u32) -> Result<()> {
        self.ask(&format!("post {index} {op} {len}")).map(|_| ())
    }

    fn send(&mut self, frame: &[u8], fate: Fate) -> Result<()> {
        // Under what it is counted, and with a "?" what it may be counted under.
        let counted = match fate {
            Fate::Outside => "-".into(),
            Fate::Drop(reason) => reason.into(),
            Fate::Perhaps(reason) => format!("{reason}?"),
            Fate::Accepted => "rcvd_pkts".into(),
            Fate::Received(also) => format!("rcvd_pkts,{also}"),
        };
        let mut hex = String::new();
        for byte in frame {
            write!(hex, "{byte:02x}").map_err(|e| e.to_string())?;
        }
        println!("send {counted} {hex}");
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.ask("settle").map(|_| ())
    }

    fn hear(&mut self, wanted: usize) -> Result<Vec<Vec<u8>>> {
        let frames = self.ask(&format!("hear {wanted}"))?;
        let byte = |hex: &str| u8::from_str_radix(hex, 16).map_err(|e| e.to_string());
        let bytes = |line: &String| {
            (0..line.len() / 2)
                .map(|n| byte(&line[2 * n..][..2]))
                .collect()
        };
        frames.iter().map(bytes).collect()
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
