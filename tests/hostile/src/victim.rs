// SPDX-License-Identifier: GPL-2.0

//! The victim's side of the conversation: `hostile_victim` does what is asked and tells what it
//! sees.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// An error is the text to fail with.
pub type Result<T> = std::result::Result<T, String>;

/// A memory region of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub at: u64,
    pub len: u64,
    pub rkey: u32,
}

/// A queue pair of the victim.
#[derive(Clone, Copy, Debug)]
pub struct Qp {
    pub index: usize,
    pub qpn: u32,
    /// What it believes the number of its peer to be.
    pub peer_qpn: u32,
    /// The PSN it expects first.
    pub rq_psn: u32,
    /// The PSN of its own first packet.
    pub sq_psn: u32,
    /// The key of its own memory window, over the bytes of "mw-own"; 0 if it has none.
    pub window: u32,
}

/// A state of `ibv_query_qp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Err = 6,
}

/// A completion: `wr_id`, status and bytes.
pub type Completion = (u64, u32, u32);

/// The other side.
pub struct Victim {
    lines: BufReader<TcpStream>,
    /// Its memory regions by name.
    pub regions: BTreeMap<String, Region>,
}

fn fields<const N: usize>(words: &[&str]) -> Result<[u64; N]> {
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    numbers
        .try_into()
        .map_err(|_| format!("the victim said {words:?}"))
}

impl Victim {
    /// Connects to a program that listens.
    pub fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut victim = Self {
            lines: BufReader::new(stream),
            regions: BTreeMap::new(),
        };
        let hello = victim.answer()?;
        victim.learn_regions(&hello)?;
        Ok(victim)
    }

    fn learn_regions(&mut self, lines: &[String]) -> Result<()> {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["mr", name, rest @ ..] = &words[..] {
                let [at, len, rkey] = fields(rest)?;
                let rkey = rkey as u32;
                self.regions
                    .insert((*name).into(), Region { at, len, rkey });
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let got = self.lines.read_line(&mut line);
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

    /// Asks and waits for the answer.
    pub fn ask(&mut self, command: &str) -> Result<Vec<String>> {
        let stream = self.lines.get_mut();
        stream
            .write_all(format!("{command}\n").as_bytes())
            .map_err(|e| format!("the victim: {e}"))?;
        self.answer()
    }

    /// A region by its name.
    pub fn region(&self, name: &str) -> Region {
        self.regions[name]
    }

    /// Queue pairs of a kind, in place of those there were.
    pub fn make(&mut self, n: usize, kind: &str) -> Result<Vec<Qp>> {
        let mut found = Vec::new();
        for line in self.ask(&format!("make {n} {kind}"))? {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            let [index, rest @ ..] = fields::<6>(&words)?;
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
        Ok(found)
    }

    /// The states of all queue pairs, by number.
    pub fn states(&mut self) -> Result<Vec<u64>> {
        let lines = self.ask("states")?;
        lines
            .iter()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').skip(1).collect();
                fields::<3>(&words).map(|[_, state, _]| state)
            })
            .collect()
    }

    /// What completed since the last call, by queue pair.
    pub fn completions(&mut self) -> Result<BTreeMap<usize, Vec<Completion>>> {
        let mut found: BTreeMap<usize, Vec<Completion>> = BTreeMap::new();
        for line in self.ask("completions")? {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            let [index, wr_id, status, bytes] = fields(&words)?;
            found
                .entry(index as usize)
                .or_default()
                .push((wr_id, status as u32, bytes as u32));
        }
        Ok(found)
    }

    /// Fails if a byte changed that may not.
    pub fn check_memory(&mut self) -> Result<()> {
        match self.ask("check")?.first() {
            Some(changed) => Err(format!("memory was written: {changed}")),
            None => Ok(()),
        }
    }

    /// It is back, with another key.
    pub fn register_again(&mut self, name: &str) -> Result<()> {
        let lines = self.ask(&format!("rereg {name}"))?;
        self.learn_regions(&lines)
    }
}
