// SPDX-License-Identifier: GPL-2.0

//! Processes that post anything at all into the rings that are mapped into them.

use crate::dice::Chance;
use ferroce_core::completion::Status;
use ferroce_core::env::TakeReceive;
use ferroce_core::memory::{MemoryKey, Span};
use ferroce_core::operation::Arguments;
use ferroce_core::queue::wqe::{Binding, Data, KeyChange, RecvWqes, SendWqes};
use ferroce_core::service::QpType;
use ferroce_core::storage;
use ferroce_core::uabi::ring::{
    Module,
    RingOps,
    Word,
    Words, //
};
use ferroce_core::uabi::wqe::{
    recv_stride, send_stride, OP_ATOMIC_CMP_AND_SWP, OP_ATOMIC_FETCH_AND_ADD, OP_ATOMIC_WRITE,
    OP_BIND_MW, OP_FLUSH, OP_LOCAL_INV, OP_RDMA_READ, OP_RDMA_WRITE, OP_RDMA_WRITE_WITH_IMM,
    OP_SEND, OP_SEND_WITH_IMM, OP_SEND_WITH_INV, SEND_ALL, SEND_FENCE, SEND_INLINE, SEND_SIGNALED,
    SEND_SOLICITED,
};
use std::cell::{Cell, RefCell};
use zerocopy::IntoBytes;

/// A slot of a ring, whose words may be read once.
struct Slot {
    words: Vec<u64>,
    read: RefCell<Vec<bool>>,
    producer: u32,
    consumer: Cell<u32>,
}

/// Slots of the ring.
const SLOTS: u32 = 4;

impl Slot {
    fn new(words: Vec<u64>, producer: u32) -> Self {
        Self {
            read: RefCell::new(vec![false; words.len()]),
            words,
            producer,
            consumer: Cell::new(0),
        }
    }
}

impl Words for Slot {
    fn load(&self, _: Word) -> u32 {
        unreachable!("in no order")
    }
    fn load_acquire(&self, word: Word) -> u32 {
        assert_eq!(word, Word::Producer);
        self.producer
    }
    fn store(&self, _: Word, _: u32) {
        unreachable!("in no order")
    }
    fn store_release(&self, word: Word, value: u32) {
        assert_eq!(word, Word::Consumer);
        self.consumer.set(value);
    }
    fn full_barrier(&self) {}
}

impl Module for Slot {
    fn swap(&self, _: Word, _: u32) -> u32 {
        unreachable!("nobody waits")
    }
}

impl RingOps for Slot {
    fn entries(&self) -> u32 {
        SLOTS
    }
    fn read_slot(&self, _: u32, first: usize, out: &mut [u64]) {
        for (at, word) in out.iter_mut().enumerate() {
            *word = self.words[first + at];
            let before = std::mem::replace(&mut self.read.borrow_mut()[first + at], true);
            assert!(!before, "word {} was read twice", first + at);
        }
    }
    fn write_slot(&self, _: u32, _: &[u64]) {
        unreachable!("the process writes here")
    }
}

/// Words of a slot: `header`, and what may stand behind it.
fn slot(rng: &mut impl Chance, header: &[u64], stride: u32) -> Vec<u64> {
    let mut words = header.to_vec();
    while words.len() < stride as usize / 8 {
        words.push(rng.throw());
        // The length and the key of an entry.
        let length = u64::from(rng.number() >> (rng.below(4) * 8));
        words.push(length | (rng.below(256) << 32));
    }
    words.truncate(stride as usize / 8);
    words
}

/// The lengths of the first entries behind a header.
fn lengths(words: &[u64], count: usize) -> Vec<u32> {
    let entries = words.chunks_exact(2).take(count);
    entries.map(|entry| entry[1] as u32).collect()
}

/// What becomes of a send request, said without the code that decides it: its length, or why not.
fn verdict(words: &[u64], max_sge: usize, max_inline: usize) -> Result<u32, Status> {
    let bytes = words.as_bytes();
    let (opcode, flags) = (bytes[8], bytes[9]);
    let count = usize::from(u16::from_ne_bytes([bytes[10], bytes[11]]));
    // Remote address and key; immediate data; of an atomic operation the operands, too, but not what
    // is between them.
    let is_atomic = matches!(opcode, OP_ATOMIC_CMP_AND_SWP | OP_ATOMIC_FETCH_AND_ADD);
    let has_operands = is_atomic || matches!(opcode, OP_FLUSH | OP_ATOMIC_WRITE);
    let used = match opcode {
        _ if has_operands => 16..48,
        OP_SEND => 48..48,
        OP_SEND_WITH_IMM => 28..32,
        OP_RDMA_WRITE | OP_RDMA_READ => 16..28,
        OP_RDMA_WRITE_WITH_IMM => 16..32,
        OP_SEND_WITH_INV | OP_LOCAL_INV => 28..32,
        OP_BIND_MW => 16..48,
        _ => return Err(Status::LocQpOpErr),
    };
    let unused = |at: &usize| !used.contains(at) || (has_operands && (28..32).contains(at));
    let fine = match opcode {
        OP_FLUSH => {
            matches!(bytes[36..38], [1..=3, 0 | 1]) && bytes[38..48].iter().all(|byte| *byte == 0)
        }
        OP_ATOMIC_WRITE => bytes[40..48].iter().all(|byte| *byte == 0),
        _ => true,
    };
    let clean = fine && (12..48).filter(unused).all(|at| bytes[at] == 0);
    let inline = flags & SEND_INLINE != 0;
    // They carry nothing.
    let is_local = matches!(opcode, OP_LOCAL_INV | OP_BIND_MW);
    let most = match inline {
        true if is_local || has_operands || opcode == OP_RDMA_READ => None,
        true => Some(max_inline),
        false if is_local => Some(0),
        false => Some(max_sge),
    };
    if !clean || flags & !SEND_ALL != 0 || most.is_none_or(|most| count > most) {
        return Err(Status::LocQpOpErr);
    }
    let length: u64 = match inline {
        true => count as u64,
        false => lengths(&words[6..], count).into_iter().map(u64::from).sum(),
    };
    match u32::try_from(length) {
        Ok(length) if is_atomic && length != 8 => Err(Status::LocLenErr),
        Ok(length) if has_operands && !is_atomic && length != 0 => Err(Status::LocLenErr),
        Ok(length) if length <= 1 << 31 => Ok(length),
        _ => Err(Status::LocLenErr),
    }
}

/// A process posts requests of any kind.
pub fn any_work_requests(rng: &mut impl Chance, steps: usize) {
    let (max_sge, max_inline) = (rng.below(5) as u32, rng.below(80) as u32);
    let stride = send_stride(max_sge, max_inline);
    let signal_all = rng.percent(50);
    let room = vec![0; (SLOTS * stride) as usize / 8];
    let mut sends = SendWqes::new(room, max_sge, max_inline, QpType::Rc.service(), signal_all);
    let stride_recv = recv_stride(max_sge);
    let mut receives = RecvWqes::new(vec![0; stride_recv as usize / 8], max_sge);
    let mut received = 0u32;
    for step in 0..steps {
        if rng.is_over() {
            break;
        }
        if rng.percent(30) {
            received = take_receive(rng, &mut receives, stride_recv, max_sge, received);
            continue;
        }
        let sane = rng.percent(80);
        let served = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15];
        let opcode = match sane {
            true => served[rng.below(12) as usize],
            false => rng.below(256),
        };
        let flags = rng.below(if sane { 16 } else { 256 });
        let count = rng.below(if sane { 5 } else { 1 << 16 });
        let mut part = |free: &[u64]| match sane && !free.contains(&opcode) {
            true => 0,
            false => rng.throw(),
        };
        let remote = [0; 2].map(|_: u64| part(&[0, 1, 4, 5, 6, 8, 14, 15]));
        let remote = [remote[0], remote[1] & 0xffff_ffff];
        let imm = part(&[1, 3, 7, 8, 9]) << 32;
        let srqn = if sane { 0 } else { rng.below(2) << 32 };
        let first = opcode | (flags << 8) | (count << 16) | srqn;
        let operands = match (sane, opcode) {
            (true, 5 | 6 | 8 | 15) => rng.throw(),
            // Length; placement; selectivity.
            (true, 14) => rng.below(1 << 32) | ((1 + rng.below(3)) << 32) | (rng.below(2) << 40),
            (true, _) => 0,
            (false, _) => rng.below(2),
        };
        let wr_id = rng.throw();
        // As a little-endian machine has it, which is all that the tests run on.
        let header = [wr_id, first, remote[0], remote[1] | imm, operands, 0];
        let mut words = slot(rng, &header, stride);
        if sane && opcode > 9 {
            words[1] &= 0xffff_ffff_0000_ffff;
        } else if sane && matches!(opcode, 5 | 6) && words.len() >= 8 {
            // One entry of eight bytes, as atomic operations want it.
            words[1] = words[1] & 0xffff_ffff_0000_ffff | (1 << 16);
            words[7] = words[7] & !0xffff_ffff | 8;
        }
        let count = (words[1] >> 16) & 0xffff;
        let ring = Slot::new(words, 1);
        let at = step as u32 % SLOTS;
        let slot = storage::Slot::of(at, SLOTS);
        let result = sends.take(&ring, at, slot);
        let want = verdict(&ring.words, max_sge as usize, max_inline as usize);
        let request = match (result, want) {
            (Ok(request), Ok(length)) => {
                assert_eq!((request.wr_id, request.length), (wr_id, length));
                request
            }
            (Err(got), Err(status)) => {
                assert_eq!(got, (wr_id, status));
                continue;
            }
            other => panic!("{other:?} of {:x?}", ring.words),
        };
        let flag = |bit: u8| flags & u64::from(bit) != 0;
        let asked = (request.signaled, request.fence, request.solicited);
        let signaled = signal_all || flag(SEND_SIGNALED);
        assert_eq!(asked, (signaled, flag(SEND_FENCE), flag(SEND_SOLICITED)));
        let (rkey, imm) = (remote[1] as u32, (imm >> 32) as u32);
        let arguments = Arguments {
            remote_addr: remote[0],
            rkey,
            imm: imm.to_ne_bytes(),
            invalidated: imm,
            operands: [operands, 0],
        };
        assert_eq!(sends.arguments(slot), arguments);
        let change = match opcode {
            7 => Some(KeyChange::Invalidate(MemoryKey::new(imm))),
            8 => Some(KeyChange::Bind(Binding {
                old_key: MemoryKey::new(imm),
                new_key: MemoryKey::new(rkey),
                span: Span {
                    key: MemoryKey::new(0),
                    va: remote[0],
                    len: operands,
                },
                access: 0,
            })),
            _ => None,
        };
        assert_eq!(sends.key_change(slot), change);
        if opcode == u64::from(OP_ATOMIC_WRITE) {
            // What it writes is carried like an inline message.
            let data = operands.to_ne_bytes();
            assert!(matches!(sends.data(slot), Data::Inline(bytes) if bytes[..8] == data));
            continue;
        }
        match sends.data(slot) {
            Data::Inline(bytes) => {
                let length = request.length as usize;
                assert!(flag(SEND_INLINE));
                assert_eq!(bytes[..length], ring.words[6..].as_bytes()[..length]);
            }
            Data::Sges(sges) => {
                assert!(!flag(SEND_INLINE));
                let got: Vec<_> = sges.iter().map(|sge| sge.length).collect();
                assert_eq!(got, lengths(&ring.words[6..], count as usize));
            }
        }
    }
}

/// One look at the receive queue, of which `received` were taken; returns how many are then.
fn take_receive(
    rng: &mut impl Chance,
    receives: &mut RecvWqes<Vec<u64>>,
    stride: u32,
    max_sge: u32,
    received: u32,
) -> u32 {
    let sane = rng.percent(80);
    let posted = rng.below(if sane { 6 } else { 1 << 32 }) as u32;
    let num_sge = rng.below(if sane { 5 } else { 1 << 32 });
    let reserved = if sane { 0 } else { rng.below(2) << 32 };
    let wr_id = rng.throw();
    let words = slot(rng, &[wr_id, num_sge | reserved], stride);
    let ring = Slot::new(words, received.wrapping_add(posted));
    let got = receives.take(&ring);
    assert_eq!(receives.take_corrupt(), posted > SLOTS);
    if posted == 0 || posted > SLOTS {
        assert_eq!(got, TakeReceive::Empty);
        return received;
    }
    assert_eq!(ring.consumer.get(), received.wrapping_add(1));
    let want = if num_sge <= u64::from(max_sge) && reserved == 0 {
        let lengths = lengths(&ring.words[2..], num_sge as usize);
        let got: Vec<_> = receives.sges().iter().map(|sge| sge.length).collect();
        assert_eq!(got, lengths);
        let capacity = lengths.into_iter().map(u64::from).sum();
        TakeReceive::Taken { wr_id, capacity }
    } else {
        let status = Status::LocQpOpErr;
        TakeReceive::Malformed { wr_id, status }
    };
    assert_eq!(got, want);
    received.wrapping_add(1)
}
