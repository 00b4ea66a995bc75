// SPDX-License-Identifier: GPL-2.0

//! The memory of a QP's user: the region that the peer addresses, the buffers of both queues, and
//! the receive queue.

use super::content::Content;
use super::plan::{Plan, PlannedReceive, BASE, RKEY, UNTOUCHED};
use super::scenario::Fault;
use ferroce_core::completion::{RecvCompletion, Status};
use ferroce_core::env::{
    AccessError, AtomicOp, FlushPlacement, FlushRange, Keep, ReceiveEnv, RemoteAccess,
    ResponderEnv, TakeReceive, WriteEnv,
};
use ferroce_core::memory::{MemoryKey, Span};
use std::collections::BTreeMap;

/// A receive that completed.
#[derive(Clone, Debug)]
pub struct Received {
    pub done: RecvCompletion,
    /// How many bytes the peer's WRITEs had written by then.
    pub written: u64,
}

/// Memory and receive queue.
#[derive(Default)]
pub struct Memory {
    /// What the peer addresses, at [`BASE`] with [`RKEY`].
    pub region: Vec<u8>,
    pub region_gone: bool,
    pub local_gone: bool,
    /// Writes and atomic operations of the peer, in their order: offset and length.
    pub writes: Vec<(usize, usize)>,
    /// How many bytes they wrote.
    pub written: u64,
    /// The buffers of the receives, as long as they may be and a guard.
    pub buffers: Vec<Vec<u8>>,
    receives: Vec<PlannedReceive>,
    keys: Vec<u32>,
    pub invalidated: Vec<u32>,
    pub posted: usize,
    pub taken: usize,
    pub received: Vec<Received>,
    pub violation: Option<String>,
    /// The request that is being received, and those that are kept.
    pub arriving: Option<Content>,
    pub kept: BTreeMap<u64, Content>,
}

/// Bytes behind a receive's buffer, where nobody may write.
const GUARD: usize = 8;

impl Memory {
    /// Memory for this plan.
    pub fn new(plan: &Plan) -> Self {
        let buffers = plan
            .receives
            .iter()
            .map(|receive| vec![UNTOUCHED; receive.capacity + GUARD])
            .collect();
        Self {
            region: plan.region.clone(),
            buffers,
            receives: plan.receives.clone(),
            keys: plan.keys.clone(),
            ..Self::default()
        }
    }

    fn offset(&self, span: Span) -> Result<usize, AccessError> {
        if self.region_gone || span.key.get() != RKEY {
            return Err(AccessError);
        }
        let offset = span.offset_in(BASE, self.region.len() as u64);
        Ok(offset.ok_or(AccessError)? as usize)
    }

    /// The data of a READ response.
    pub fn read(&self, source: Span) -> Result<Vec<u8>, AccessError> {
        if source.len == 0 {
            return Ok(Vec::new());
        }
        let offset = self.offset(source)?;
        Ok(self.region[offset..][..source.len as usize].to_vec())
    }

    /// The receive with this number.
    pub fn receive(&self, number: usize) -> &PlannedReceive {
        &self.receives[number]
    }

    fn forbid(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }
}

/// The memory together with the payload of the request at hand.
pub struct Env<'a> {
    pub memory: &'a mut Memory,
    pub payload: &'a [u8],
}

impl ReceiveEnv for Env<'_> {
    fn take_receive(&mut self) -> TakeReceive {
        let memory = &mut self.memory;
        if memory.taken == memory.posted {
            return TakeReceive::Empty;
        }
        let number = memory.taken;
        memory.taken += 1;
        let receive = &memory.receives[number];
        let wr_id = number as u64;
        if receive.fault == Fault::Malformed {
            let status = Status::LocQpOpErr;
            return TakeReceive::Malformed { wr_id, status };
        }
        TakeReceive::Taken {
            wr_id,
            capacity: receive.capacity as u64,
        }
    }

    fn scatter(&mut self, offset: u32, len: u32) -> Result<(), AccessError> {
        let memory = &mut self.memory;
        let number = memory.taken.wrapping_sub(1);
        let Some(receive) = memory.receives.get(number) else {
            memory.forbid("data for no receive".into());
            return Err(AccessError);
        };
        let (offset, len) = (offset as usize, len as usize);
        if self.payload.len() != len || offset + len > receive.capacity {
            let what = format!("{len} bytes at {offset} of receive {number}");
            memory.forbid(what);
            return Err(AccessError);
        }
        if memory.local_gone || receive.fault == Fault::Gone {
            return Err(AccessError);
        }
        memory.buffers[number][offset..][..len].copy_from_slice(self.payload);
        Ok(())
    }

    fn complete(&mut self, done: RecvCompletion) {
        let written = self.memory.written;
        self.memory.received.push(Received { done, written });
    }
}

impl WriteEnv for Env<'_> {
    fn check_remote(&mut self, _access: RemoteAccess, span: Span) -> Result<(), AccessError> {
        if span.len == 0 {
            self.memory.forbid("an empty range was checked".into());
        }
        self.memory.offset(span).map(|_| ())
    }

    fn write_remote(&mut self, span: Span) -> Result<(), AccessError> {
        let memory = &mut self.memory;
        if self.payload.len() as u64 != span.len {
            memory.forbid(format!("{} bytes of {}", span.len, self.payload.len()));
            return Err(AccessError);
        }
        let offset = memory.offset(span)?;
        memory.region[offset..][..self.payload.len()].copy_from_slice(self.payload);
        memory.writes.push((offset, self.payload.len()));
        memory.written += span.len;
        Ok(())
    }
}

impl ResponderEnv for Env<'_> {
    fn keep(&mut self, sequence: u64) -> Keep {
        let Some(content) = self.memory.arriving.take() else {
            return Keep::NoRoom;
        };
        match self.memory.kept.get(&sequence) {
            Some(before) if before.says_the_same(&content) => Keep::Again,
            Some(_) => {
                self.memory.kept.remove(&sequence);
                Keep::Conflict
            }
            None => {
                self.memory.kept.insert(sequence, content);
                Keep::Kept
            }
        }
    }

    fn change_remote(&mut self, word: Span, change: AtomicOp) -> Result<u64, AccessError> {
        let memory = &mut self.memory;
        let offset = memory.offset(word)?;
        if word.va % 8 != 0 || word.len != 8 {
            memory.forbid(format!("an atomic operation on {word:x?}"));
        }
        let word = &mut memory.region[offset..][..8];
        let before = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let after = match change {
            AtomicOp::CompareSwap { compare, swap } if compare == before => swap,
            AtomicOp::CompareSwap { .. } => before,
            AtomicOp::FetchAdd(value) => before.wrapping_add(value),
        };
        word.copy_from_slice(&after.to_ne_bytes());
        memory.writes.push((offset, 8));
        memory.written += 8;
        Ok(before)
    }

    fn write_word(&mut self, word: Span) -> Result<(), AccessError> {
        self.write_remote(word)
    }

    fn flush(&mut self, range: FlushRange, to: FlushPlacement) -> Result<(), AccessError> {
        match range {
            FlushRange::Range(span) if to.global && !to.persistent => {
                self.memory.offset(span).map(|_| ())
            }
            other => {
                self.memory.forbid(format!("{other:?} flushed to {to:?}"));
                Err(AccessError)
            }
        }
    }

    fn invalidate(&mut self, key: MemoryKey) -> Result<(), AccessError> {
        let key = key.get();
        let is_ours = self.memory.keys.contains(&key);
        self.memory.invalidated.extend(is_ours.then_some(key));
        is_ours.then_some(()).ok_or(AccessError)
    }
}
