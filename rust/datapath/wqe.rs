// SPDX-License-Identifier: GPL-2.0

//! Private copies of work requests: what a process has put into a ring is copied once and then
//! checked, so that it cannot change any more. Pure: where the copies are is the owner's matter.

use crate::transport::completion::Status;
use crate::transport::env::TakeReceive;
use crate::transport::message::MAX_MESSAGE;
use crate::transport::operation::{
    Answer,
    Arguments,
    Operation, //
};
use crate::transport::request::SendRequest;
use crate::transport::service::{
    Protocol,
    Service, //
};
use crate::uabi::words::Ring;
use crate::uabi::wqe::{
    Parts,
    RecvWqe,
    SendWqe,
    Sge,
    SEND_ALL,
    SEND_FENCE,
    SEND_INLINE,
    SEND_SIGNALED,
    SEND_SOLICITED, //
};
use crate::wire::headers::Feth;
use core::ops::DerefMut;
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

/// The first `num_sge` entries in `words`, which follow a header.
fn sges_in(words: &[u64], num_sge: usize) -> Option<&[Sge]> {
    let (sges, _) = <[Sge]>::ref_from_prefix_with_elems(words.as_bytes(), num_sge).ok()?;
    Some(sges)
}

/// Bytes of a list of entries. They are few, so that it cannot overflow.
#[inline]
fn total_length(sges: &[Sge]) -> u64 {
    if let [sge] = sges {
        return u64::from(sge.length);
    }
    let mut total = 0u64;
    for sge in sges {
        total = total.wrapping_add(u64::from(sge.length));
    }
    total
}

/// Whether the operands are such as the operation has.
fn has_good_operands(op: Operation, wqe: &SendWqe) -> bool {
    match op {
        Operation::AtomicWrite => wqe.atomic_write().1 == 0,
        Operation::Flush => {
            let flush = wqe.flush();
            let placements = Feth::GLOBAL | Feth::PERSISTENT;
            flush.placement != 0
                && flush.placement & !placements == 0
                && flush.selectivity <= Feth::REGION
                && flush.reserved == [0; 5]
        }
        _ => true,
    }
}

/// What a send request carries, or where an answer to it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// The message itself.
    Inline(&'a [u8]),
    /// Local memory.
    Pieces(&'a [Sge]),
}

/// What a request that asks no peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Invalidates this key.
    Invalidate(u32),
    /// Binds a window.
    Bind(Binding),
    /// Registers what is mapped, for a user in the kernel.
    Register(Registration),
}

/// How memory of a user in the kernel is to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// A key of the region, as it was when this was posted.
    pub of: u32,
    /// Its key from then on.
    pub key: u32,
    /// The address of its first byte.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What may be done to it: `enum ib_access_flags`.
    pub access: u32,
}

/// How a window is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its key as it is.
    pub old_key: u32,
    /// Its key from then on.
    pub new_key: u32,
    /// The key of the region below.
    pub lkey: u32,
    /// Where it begins in the region.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// What may be done to it: `enum ibv_access_flags`.
    pub access: u32,
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Number of the address handle.
    pub ah: u32,
    /// Number of the QP there.
    pub qpn: u32,
    /// The Q_Key that the user says.
    pub qkey: u32,
}

/// Copies of the send requests that are not complete, slot by slot of the ring, in `words`.
pub struct SendWqes<W> {
    words: W,
    /// Words of a slot.
    stride: usize,
    max_sge: usize,
    max_inline: usize,
    /// The operations that the queue takes, a bit for each ([`bit`]).
    operations: u32,
    /// What every request uses of the header besides.
    parts: Parts,
    signal_all: bool,
}

/// The bit of an operation.
const fn bit(op: Operation) -> u32 {
    1u32.wrapping_shl(op as u32)
}

/// Words of a [`SendWqe`].
const SEND_HEADER: usize = core::mem::size_of::<SendWqe>() / 8;

impl<W: DerefMut<Target = [u64]>> SendWqes<W> {
    /// Copies, in `words`, of as many slots of `stride` bytes as that has room for, for a queue of
    /// `service`.
    pub fn new(
        words: W,
        stride: u32,
        max_sge: u32,
        max_inline: u32,
        service: Service,
        signal_all: bool,
    ) -> Self {
        Self {
            words,
            stride: stride as usize / 8,
            max_sge: max_sge as usize,
            max_inline: max_inline as usize,
            parts: match service.requester {
                Protocol::Datagram => Parts::DATAGRAM,
                _ => Parts::NONE,
            },
            operations: service.operations.iter().fold(0, |all, op| all | bit(*op)),
            signal_all,
        }
    }

    #[inline(always)]
    fn slot(&self, slot: u32) -> &[u64] {
        let start = (slot as usize).wrapping_mul(self.stride);
        self.words
            .get(start..start.wrapping_add(self.stride))
            .unwrap_or(&[])
    }

    fn slot_mut(&mut self, slot: u32) -> &mut [u64] {
        let start = (slot as usize).wrapping_mul(self.stride);
        self.words
            .get_mut(start..start.wrapping_add(self.stride))
            .unwrap_or(&mut [])
    }

    /// Takes the request at `index` of the ring into `slot`: copied once, then checked. An error is
    /// its id, and the status that it completes with.
    #[inline]
    pub fn take(
        &mut self,
        ring: &impl Ring,
        index: u32,
        slot: u32,
    ) -> Result<SendRequest, (u64, Status)> {
        self.copy(ring, index, slot);
        let request = self.parse(slot)?;
        if request.op == Operation::AtomicWrite {
            self.carry_word(slot);
        }
        Ok(request)
    }

    /// What an ATOMIC WRITE writes is an inline message from here on.
    fn carry_word(&mut self, slot: u32) {
        let words = self.slot_mut(slot);
        let Ok((wqe, rest)) = SendWqe::mut_from_prefix(words.as_mut_bytes()) else {
            return;
        };
        let (value, _) = wqe.atomic_write();
        wqe.flags |= SEND_INLINE;
        wqe.count = value.len() as u16;
        if let Some(to) = rest.first_chunk_mut() {
            *to = value;
        }
    }

    /// Copies a slot of the ring: the header, then what it says stands behind it.
    fn copy(&mut self, ring: &impl Ring, index: u32, slot: u32) {
        let (max_sge, max_inline) = (self.max_sge, self.max_inline);
        let Some((header, rest)) = self.slot_mut(slot).split_at_mut_checked(SEND_HEADER) else {
            return;
        };
        ring.read_slot(index, 0, header);
        let Ok(wqe) = SendWqe::read_from_bytes(header.as_bytes()) else {
            return;
        };
        let bytes = if wqe.flags & SEND_INLINE != 0 {
            usize::from(wqe.count).min(max_inline)
        } else {
            usize::from(wqe.count)
                .min(max_sge)
                .wrapping_mul(core::mem::size_of::<Sge>())
        };
        let words = bytes.div_ceil(8).min(rest.len());
        if let Some(rest) = rest.get_mut(..words) {
            ring.read_slot(index, SEND_HEADER, rest);
        }
    }

    /// Checks the copy of a slot.
    fn parse(&self, slot: u32) -> Result<SendRequest, (u64, Status)> {
        let words = self.slot(slot);
        let Ok((wqe, _)) = SendWqe::ref_from_prefix(words.as_bytes()) else {
            return Err((0, Status::LocQpOpErr));
        };
        let bad = |status| Err((wqe.wr_id, status));
        let served = |op: &Operation| self.operations & bit(*op) != 0;
        let Some(op) = Operation::from_wqe(wqe.opcode).filter(served) else {
            return bad(Status::LocQpOpErr);
        };
        // A part that the operation does not use must be zero.
        let clean = Parts::of(wqe.opcode).is_some_and(|parts| wqe.uses_only(parts.and(self.parts)))
            && has_good_operands(op, wqe);
        if wqe.flags & !SEND_ALL != 0 || !clean {
            return bad(Status::LocQpOpErr);
        }
        let count = usize::from(wqe.count);
        // What asks no peer carries nothing.
        if op.answer() == Answer::Here && (count != 0 || wqe.flags & SEND_INLINE != 0) {
            return bad(Status::LocQpOpErr);
        }
        let length = if wqe.flags & SEND_INLINE != 0 {
            let carries_data = op.answer() != Answer::Response;
            if !carries_data || count > self.max_inline {
                return bad(Status::LocQpOpErr);
            }
            u64::from(wqe.count)
        } else {
            let rest = words.get(SEND_HEADER..).unwrap_or(&[]);
            let Some(sges) = sges_in(rest, count).filter(|_| count <= self.max_sge) else {
                return bad(Status::LocQpOpErr);
            };
            total_length(sges)
        };
        let length = match u32::try_from(length) {
            Ok(length) if length <= MAX_MESSAGE && op.has_length(length) => length,
            _ => return bad(Status::LocLenErr),
        };
        Ok(SendRequest {
            wr_id: wqe.wr_id,
            length,
            op,
            signaled: self.signal_all || wqe.flags & SEND_SIGNALED != 0,
            fence: wqe.flags & SEND_FENCE != 0,
            solicited: wqe.flags & SEND_SOLICITED != 0,
        })
    }

    /// What the extended headers of a request that was checked are filled from.
    #[inline(always)]
    pub fn arguments(&self, slot: u32) -> Arguments {
        let wqe = SendWqe::ref_from_prefix(self.slot(slot).as_bytes());
        wqe.map_or(Arguments::default(), |(wqe, _)| Arguments {
            remote_addr: wqe.remote_addr(),
            rkey: wqe.rkey(),
            // The field is big-endian already.
            imm: wqe.imm().to_ne_bytes(),
            invalidated: wqe.old_key(),
            operands: wqe.operands(),
        })
    }

    /// What a request that was checked, and asks no peer, does to a key.
    pub fn key_change(&self, slot: u32) -> Option<KeyChange> {
        let (wqe, _) = SendWqe::ref_from_prefix(self.slot(slot).as_bytes()).ok()?;
        match Operation::from_wqe(wqe.opcode)? {
            Operation::LocalInv => Some(KeyChange::Invalidate(wqe.old_key())),
            Operation::BindMw => {
                let bind = wqe.bind();
                Some(KeyChange::Bind(Binding {
                    old_key: wqe.old_key(),
                    new_key: wqe.rkey(),
                    lkey: bind.lkey,
                    addr: wqe.remote_addr(),
                    len: bind.length,
                    access: bind.access,
                }))
            }
            Operation::RegMr => {
                let bind = wqe.bind();
                Some(KeyChange::Register(Registration {
                    of: bind.lkey,
                    key: wqe.rkey(),
                    addr: wqe.remote_addr(),
                    len: bind.length,
                    access: bind.access,
                }))
            }
            _ => None,
        }
    }

    /// Where a datagram goes whose request was checked.
    pub fn destination(&self, slot: u32) -> Destination {
        let wqe = SendWqe::ref_from_prefix(self.slot(slot).as_bytes());
        wqe.map_or(Destination::default(), |(wqe, _)| {
            let [qpn, qkey] = wqe.destination();
            Destination {
                ah: wqe.ah(),
                qpn: qpn & 0xff_ffff,
                qkey,
            }
        })
    }

    /// What a request that was checked carries, or where the answer goes.
    #[inline(always)]
    pub fn data(&self, slot: u32) -> Data<'_> {
        let words = self.slot(slot);
        let rest = words.get(SEND_HEADER..).unwrap_or(&[]);
        match SendWqe::ref_from_prefix(words.as_bytes()) {
            Err(_) => Data::Inline(&[]),
            Ok((wqe, _)) if wqe.flags & SEND_INLINE != 0 => Data::Inline(rest.as_bytes()),
            Ok((wqe, _)) => Data::Pieces(sges_in(rest, usize::from(wqe.count)).unwrap_or(&[])),
        }
    }
}

/// The receives of a QP: how far its own ring was taken, and a copy of the one that is being
/// filled, which may come from a ring that it shares.
pub struct RecvWqes<W> {
    /// Index of the next receive to be taken from its own ring.
    consumer: u32,
    /// Copy of the slot taken last.
    current: W,
    max_sge: usize,
    /// The process's index is one that cannot be, and the QP has not been failed for it yet.
    scribbled: bool,
}

/// Words of a [`RecvWqe`].
const RECV_HEADER: usize = core::mem::size_of::<RecvWqe>() / 8;

impl<W: DerefMut<Target = [u64]>> RecvWqes<W> {
    /// Nothing taken yet. `current` has room for a slot.
    pub fn new(current: W, max_sge: u32) -> Self {
        Self {
            consumer: 0,
            current,
            max_sge: max_sge as usize,
            scribbled: false,
        }
    }

    /// Starts again with an empty ring.
    pub fn reset(&mut self) {
        self.consumer = 0;
        self.scribbled = false;
    }

    /// The ring cannot be trusted.
    pub fn set_scribbled(&mut self) {
        self.scribbled = true;
    }

    /// Whether the last look at the ring found an index that cannot be.
    pub fn is_scribbled(&self) -> bool {
        self.scribbled
    }

    /// As [`Self::is_scribbled`]; asked once.
    pub fn take_scribbled(&mut self) -> bool {
        core::mem::take(&mut self.scribbled)
    }

    fn first_sges(&self, num_sge: usize) -> Option<&[Sge]> {
        sges_in(self.current.get(RECV_HEADER..)?, num_sge)
    }

    fn header(&self) -> RecvWqe {
        RecvWqe::read_from_prefix(self.current.as_bytes())
            .map_or(RecvWqe::default(), |(wqe, _)| wqe)
    }

    /// Copies a slot of the ring: the header, then the entries that it says stand behind it.
    fn copy(&mut self, ring: &impl Ring, index: u32) {
        let Some((header, rest)) = self.current.split_at_mut_checked(RECV_HEADER) else {
            return;
        };
        ring.read_slot(index, 0, header);
        let num_sge = RecvWqe::read_from_bytes(header.as_bytes()).map_or(0, |wqe| wqe.num_sge);
        let words = (num_sge as usize)
            .min(self.max_sge)
            .wrapping_mul(core::mem::size_of::<Sge>() / 8);
        let words = words.min(rest.len());
        if let Some(rest) = rest.get_mut(..words) {
            ring.read_slot(index, RECV_HEADER, rest);
        }
    }

    /// Takes the next receive of the QP's own ring: copied once, then checked.
    pub fn take(&mut self, ring: &impl Ring) -> TakeReceive {
        let mut consumer = self.consumer;
        let receive = self.take_at(ring, &mut consumer);
        self.consumer = consumer;
        receive
    }

    /// How many receives of its own ring it has not taken.
    pub fn left(&self, ring: &impl Ring) -> u32 {
        let left = ring.load_producer().wrapping_sub(self.consumer);
        left.min(ring.entries())
    }

    /// As [`Self::take`], from a ring that was consumed so far.
    #[inline]
    pub fn take_at(&mut self, ring: &impl Ring, consumer: &mut u32) -> TakeReceive {
        let posted = ring.load_producer().wrapping_sub(*consumer);
        // More than the ring holds is not what a provider of ours posts: there is nothing to trust.
        self.scribbled = posted > ring.entries();
        if posted == 0 || self.scribbled {
            return TakeReceive::Empty;
        }
        self.copy(ring, *consumer);
        *consumer = consumer.wrapping_add(1);
        ring.store_consumer(*consumer);
        let wqe = self.header();
        let num_sge = wqe.num_sge as usize;
        match self.first_sges(num_sge) {
            Some(sges) if num_sge <= self.max_sge && wqe.reserved == 0 => TakeReceive::Taken {
                wr_id: wqe.wr_id,
                capacity: total_length(sges),
            },
            _ => TakeReceive::Malformed {
                wr_id: wqe.wr_id,
                status: Status::LocQpOpErr,
            },
        }
    }

    /// Where the receive taken last puts its data.
    pub fn sges(&self) -> &[Sge] {
        let num_sge = self.header().num_sge as usize;
        self.first_sges(num_sge).unwrap_or(&[])
    }
}
