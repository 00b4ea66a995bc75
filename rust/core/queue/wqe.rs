// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Private copies of WQEs. A WQE is copied once from the ring and then checked, so the process can
//! no longer change what was checked. The owner chooses the storage.

use crate::core::completion::Status;
use crate::core::env::TakeReceive;
use crate::core::memory::{
    MemoryKey,
    Span, //
};
use crate::core::message::MAX_MESSAGE;
use crate::core::operation::{
    Arguments,
    Operation,
    Reply, //
};
use crate::core::send::SendRequest;
use crate::core::service::{
    Protocol,
    Service, //
};
use crate::core::storage::Slot;
use crate::core::uabi::ring::RingOps;
use crate::core::uabi::wqe::{
    send_stride,
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
use crate::core::wire::headers::Feth;
use core::ops::{
    DerefMut,
    Range, //
};
use zerocopy::{
    FromBytes,
    IntoBytes, //
};

/// The first `num_sge` entries in `words`, after the header.
fn sges_in(words: &[u64], num_sge: usize) -> Option<&[Sge]> {
    let (sges, _) = <[Sge]>::ref_from_prefix_with_elems(words.as_bytes(), num_sge).ok()?;
    Some(sges)
}

/// Bytes of a scatter/gather list. Few entries: cannot overflow.
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

/// Whether these bytes of the list `own` have no address in common with the list `other`. Those of
/// several entries are looked at as one range: it may say no where yes is true.
pub fn are_apart(own: &[Sge], bytes: Range<u32>, other: &[Sge]) -> bool {
    let (mut begin, mut end, mut behind) = (u64::MAX, 0, 0u32);
    for sge in own {
        let at = behind;
        behind = behind.saturating_add(sge.length);
        let (first, last) = (bytes.start.max(at), bytes.end.min(behind));
        if first < last {
            let address = |byte: u32| sge.addr.saturating_add(byte.wrapping_sub(at).into());
            (begin, end) = (begin.min(address(first)), end.max(address(last)));
        }
    }
    (other.iter()).all(|sge| sge.addr >= end || sge.addr.saturating_add(sge.length.into()) <= begin)
}

/// Whether the operands fit the operation.
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

/// Source of the payload of a send WQE, or destination of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Inline data.
    Inline(&'a [u8]),
    /// Local memory.
    Sges(&'a [Sge]),
}

/// Effect of a local operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Invalidates this key.
    Invalidate(MemoryKey),
    /// Binds a memory window.
    Bind(Binding),
    /// Registers the mapped page list of a ULP (REG_MR).
    Register(FastRegistration),
}

/// Parameters of REG_MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastRegistration {
    /// Key of the FRMR at the time of the post.
    pub of: MemoryKey,
    /// Its new key, and its addresses.
    pub span: Span,
    /// Access rights: `enum ib_access_flags`.
    pub access: u32,
}

/// Parameters of BIND_MW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Current key.
    pub old_key: MemoryKey,
    /// New key.
    pub new_key: MemoryKey,
    /// The part of the underlying MR.
    pub span: Span,
    /// Access rights: `enum ibv_access_flags`.
    pub access: u32,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Number of the address handle.
    pub ah: u32,
    /// Destination QP number.
    pub qpn: u32,
    /// The Q_Key of the WR.
    pub qkey: u32,
}

/// The memory that a local operation names, by this key.
fn span_of(wqe: &SendWqe, key: u32) -> Span {
    Span {
        key: MemoryKey::new(key),
        va: wqe.remote_addr(),
        len: wqe.bind().length,
    }
}

/// Copies of the send WQEs that are not complete, one per slot of the ring, in `words`.
pub struct SendWqes<W> {
    words: W,
    /// Words of a slot.
    stride: u32,
    max_sge: u16,
    max_inline: u16,
    /// Operations that the queue accepts, a bit for each ([`bit`]).
    operations: u32,
    /// Header fields that every WQE uses.
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
    /// Copies in `words`, as many slots as fit, for a queue of `service`.
    pub fn new(
        words: W,
        max_sge: u32,
        max_inline: u32,
        service: Service,
        signal_all: bool,
    ) -> Self {
        Self {
            words,
            stride: send_stride(max_sge, max_inline) / 8,
            max_sge: u16::try_from(max_sge).unwrap_or(u16::MAX),
            max_inline: u16::try_from(max_inline).unwrap_or(u16::MAX),
            parts: match service.protocol {
                Protocol::Datagram => Parts::DATAGRAM,
                _ => Parts::NONE,
            },
            operations: service.operations.iter().fold(0, |all, op| all | bit(*op)),
            signal_all,
        }
    }

    /// The words of a slot.
    #[inline(always)]
    fn range(&self, slot: Slot) -> Range<usize> {
        let stride = self.stride as usize;
        let start = (slot.number() as usize).wrapping_mul(stride);
        start..start.wrapping_add(stride)
    }

    #[inline(always)]
    fn slot(&self, slot: Slot) -> &[u64] {
        self.words.get(self.range(slot)).unwrap_or(&[])
    }

    fn slot_mut(&mut self, slot: Slot) -> &mut [u64] {
        let range = self.range(slot);
        self.words.get_mut(range).unwrap_or(&mut [])
    }

    /// Fetches the WQE at `index` of the ring into `slot`: copies it once, then checks it. The
    /// error is its id and its completion status.
    #[inline]
    pub fn take(
        &mut self,
        ring: &impl RingOps,
        index: u32,
        slot: Slot,
    ) -> Result<SendRequest, (u64, Status)> {
        self.copy(ring, index, slot);
        let request = self.parse(slot)?;
        if request.op == Operation::AtomicWrite {
            self.carry_word(slot);
        }
        Ok(request)
    }

    /// The operand of an ATOMIC WRITE is inline data from here on.
    fn carry_word(&mut self, slot: Slot) {
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

    /// Copies a slot of the ring: the header, then as much as the header says.
    fn copy(&mut self, ring: &impl RingOps, index: u32, slot: Slot) {
        let (max_sge, max_inline) = (self.max_sge, self.max_inline);
        let Some((header, rest)) = self.slot_mut(slot).split_at_mut_checked(SEND_HEADER) else {
            return;
        };
        ring.read_slot(index, 0, header);
        let Ok(wqe) = SendWqe::read_from_bytes(header.as_bytes()) else {
            return;
        };
        let bytes = if wqe.flags & SEND_INLINE != 0 {
            usize::from(wqe.count.min(max_inline))
        } else {
            usize::from(wqe.count.min(max_sge)).wrapping_mul(core::mem::size_of::<Sge>())
        };
        let words = bytes.div_ceil(8).min(rest.len());
        if let Some(rest) = rest.get_mut(..words) {
            ring.read_slot(index, SEND_HEADER, rest);
        }
    }

    /// Checks the copy of a slot.
    #[inline(always)]
    fn parse(&self, slot: Slot) -> Result<SendRequest, (u64, Status)> {
        let words = self.slot(slot);
        let Ok((wqe, _)) = SendWqe::ref_from_prefix(words.as_bytes()) else {
            return Err((0, Status::LocQpOpErr));
        };
        let bad = |status| Err((wqe.wr_id, status));
        let served = |op: &Operation| self.operations & bit(*op) != 0;
        let Some(op) = Operation::from_wqe(wqe.opcode).filter(served) else {
            return bad(Status::LocQpOpErr);
        };
        // A field that the operation does not use must be zero.
        let clean = Parts::of(wqe.opcode).is_some_and(|parts| wqe.uses_only(parts.and(self.parts)))
            && has_good_operands(op, wqe);
        if wqe.flags & !SEND_ALL != 0 || !clean {
            return bad(Status::LocQpOpErr);
        }
        let count = usize::from(wqe.count);
        // A local operation carries no payload.
        if op.reply() == Reply::Local && (count != 0 || wqe.flags & SEND_INLINE != 0) {
            return bad(Status::LocQpOpErr);
        }
        let length = if wqe.flags & SEND_INLINE != 0 {
            let carries_data = op.reply() != Reply::Response;
            if !carries_data || wqe.count > self.max_inline {
                return bad(Status::LocQpOpErr);
            }
            u64::from(wqe.count)
        } else {
            let rest = words.get(SEND_HEADER..).unwrap_or(&[]);
            let Some(sges) = sges_in(rest, count).filter(|_| wqe.count <= self.max_sge) else {
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

    /// Operands for the extended headers of a checked WQE.
    #[inline(always)]
    pub fn arguments(&self, slot: Slot) -> Arguments {
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

    /// Effect of a checked local operation.
    pub fn key_change(&self, slot: Slot) -> Option<KeyChange> {
        let (wqe, _) = SendWqe::ref_from_prefix(self.slot(slot).as_bytes()).ok()?;
        match Operation::from_wqe(wqe.opcode)? {
            Operation::LocalInv => Some(KeyChange::Invalidate(MemoryKey::new(wqe.old_key()))),
            Operation::BindMw => Some(KeyChange::Bind(Binding {
                old_key: MemoryKey::new(wqe.old_key()),
                new_key: MemoryKey::new(wqe.rkey()),
                span: span_of(wqe, wqe.bind().lkey),
                access: wqe.bind().access,
            })),
            Operation::RegMr => Some(KeyChange::Register(FastRegistration {
                of: MemoryKey::new(wqe.bind().lkey),
                span: span_of(wqe, wqe.rkey()),
                access: wqe.bind().access,
            })),
            _ => None,
        }
    }

    /// Destination of a checked datagram.
    pub fn destination(&self, slot: Slot) -> Destination {
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

    /// Payload of a checked WQE, or destination of its response.
    #[inline(always)]
    pub fn data(&self, slot: Slot) -> Data<'_> {
        let words = self.slot(slot);
        let rest = words.get(SEND_HEADER..).unwrap_or(&[]);
        match SendWqe::ref_from_prefix(words.as_bytes()) {
            Err(_) => Data::Inline(&[]),
            Ok((wqe, _)) if wqe.flags & SEND_INLINE != 0 => Data::Inline(rest.as_bytes()),
            Ok((wqe, _)) => Data::Sges(sges_in(rest, usize::from(wqe.count)).unwrap_or(&[])),
        }
    }
}

/// The receives of a QP: the consumer index of its own ring, and a copy of the WQE in use, which
/// may come from an SRQ.
pub struct RecvWqes<W> {
    /// Index of the next receive of its own ring.
    consumer: u32,
    /// Copy of the WQE taken last.
    current: W,
    max_sge: usize,
    /// The process published an invalid index, and the QP has not been failed for it yet.
    corrupt: bool,
}

/// Words of a [`RecvWqe`].
const RECV_HEADER: usize = core::mem::size_of::<RecvWqe>() / 8;

impl<W: DerefMut<Target = [u64]>> RecvWqes<W> {
    /// No receive taken. `current` has room for one slot.
    pub fn new(current: W, max_sge: u32) -> Self {
        Self {
            consumer: 0,
            current,
            max_sge: max_sge as usize,
            corrupt: false,
        }
    }

    /// Starts again with an empty ring.
    pub fn reset(&mut self) {
        self.consumer = 0;
        self.corrupt = false;
    }

    /// Marks the ring as corrupt.
    pub fn set_corrupt(&mut self) {
        self.corrupt = true;
    }

    /// Whether the last look at the ring found an invalid index.
    pub fn is_corrupt(&self) -> bool {
        self.corrupt
    }

    /// Like [`Self::is_corrupt`], and clears the mark.
    pub fn take_corrupt(&mut self) -> bool {
        core::mem::take(&mut self.corrupt)
    }

    fn first_sges(&self, num_sge: usize) -> Option<&[Sge]> {
        sges_in(self.current.get(RECV_HEADER..)?, num_sge)
    }

    fn header(&self) -> RecvWqe {
        RecvWqe::read_from_prefix(self.current.as_bytes())
            .map_or(RecvWqe::default(), |(wqe, _)| wqe)
    }

    /// Copies a slot of the ring: the header, then as many entries as the header says.
    fn copy(&mut self, ring: &impl RingOps, index: u32) {
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

    /// Takes the next receive of the QP's own ring: copies it once, then checks it.
    pub fn take(&mut self, ring: &impl RingOps) -> TakeReceive {
        let mut consumer = self.consumer;
        let receive = self.take_at(ring, &mut consumer);
        self.consumer = consumer;
        receive
    }

    /// Receives in its own ring that are posted and not taken.
    pub fn left(&self, ring: &impl RingOps) -> u32 {
        let left = ring.load_producer().wrapping_sub(self.consumer);
        left.min(ring.entries())
    }

    /// Like [`Self::take`], from a ring with this consumer index.
    #[inline]
    pub fn take_at(&mut self, ring: &impl RingOps, consumer: &mut u32) -> TakeReceive {
        let posted = ring.load_producer().wrapping_sub(*consumer);
        // Our provider never posts more than the ring holds: the ring is corrupt.
        self.corrupt = posted > ring.entries();
        if posted == 0 || self.corrupt {
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

    /// Memory of the receive taken last.
    pub fn sges(&self) -> &[Sge] {
        let num_sge = self.header().num_sge as usize;
        self.first_sges(num_sge).unwrap_or(&[])
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_wqe))]
mod tests {
    use super::*;

    #[test]
    fn lists_are_apart_if_no_address_is_in_both() {
        let sge = |addr, length| Sge {
            addr,
            length,
            lkey: addr as u32,
        };
        let own = [sge(0x1000, 16), sge(0x2000, 16)];
        for (bytes, addr, apart) in [
            (0..16, 0xff8, true),
            (0..16, 0xff9, false),
            (1..16, 0xff9, true),
            (0..16, 0x100f, false),
            (0..16, 0x1010, true),
            (16..17, 0x1ff8, true),
            (16..17, 0x2001, true),
            (16..18, 0x2001, false),
            (15..17, 0x1800, false),
            (8..8, 0x1008, true),
        ] {
            assert_eq!(are_apart(&own, bytes, &[sge(addr, 8)]), apart);
        }
        assert!(are_apart(&own, 0..32, &[]));
    }
}
