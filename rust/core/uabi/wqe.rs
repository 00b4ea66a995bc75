// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! WQEs as the provider writes them into the slots of send and receive queues.
//!
//! A slot begins with a header; the scatter/gather entries, or the inline data, follow. The stride
//! of a slot is a multiple of [`SLOT_ALIGN`] that holds the largest WQE the queue was created for:
//! [`send_stride`], [`recv_stride`]. Behind them the numbers of the operations.

use super::ring::SLOT_ALIGN;
use zerocopy::transmute;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Header of a send queue slot: 48 bytes, then [`Sge`]s or the bytes of an inline message.
///
/// The fields from offset 12 on depend on the operation ([`Parts`]) and are reached by methods.
/// A part that the operation does not use must be zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SendWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// One of `OP_*`.
    pub opcode: u8,
    /// `SEND_*` bits.
    pub flags: u8,
    /// Number of [`Sge`]s behind the header; with [`SEND_INLINE`] the number of bytes there.
    pub count: u16,
    srqn: u32,
    target: u64,
    key: u32,
    extra: u32,
    operands: [u64; 2],
}

impl SendWqe {
    /// A request without any part yet, and with nothing behind it.
    pub fn new(wr_id: u64, opcode: u8, flags: u8) -> Self {
        Self {
            wr_id,
            opcode,
            flags,
            ..Self::default()
        }
    }

    /// Whether all parts but `used` are zero.
    pub const fn uses_only(&self, used: Parts) -> bool {
        let [first, second] = self.operands;
        (self.srqn == 0 || used.has(Parts::SRQN))
            && (self.target == 0 || used.has(Parts::TARGET))
            && (self.key == 0 || used.has(Parts::KEY))
            && (self.extra == 0 || used.has(Parts::EXTRA))
            && (first | second == 0 || used.has(Parts::OPERANDS))
    }

    /// Number of the SRQ at the peer (XRC).
    pub const fn srqn(&self) -> u32 {
        self.srqn
    }

    /// Sets [`Self::srqn`].
    pub fn set_srqn(&mut self, srqn: u32) {
        self.srqn = srqn;
    }

    /// Remote address of an RDMA operation, or the address that a window is bound to.
    pub const fn remote_addr(&self) -> u64 {
        self.target
    }

    /// R_Key of the peer, or the new key of a window.
    pub const fn rkey(&self) -> u32 {
        self.key
    }

    /// Sets [`Self::remote_addr`] and [`Self::rkey`].
    pub fn set_remote(&mut self, addr: u64, rkey: u32) {
        (self.target, self.key) = (addr, rkey);
    }

    /// QPN and Q_Key of a datagram's destination.
    pub fn destination(&self) -> [u32; 2] {
        transmute!(self.target)
    }

    /// Number of the address handle of a datagram's destination.
    pub const fn ah(&self) -> u32 {
        self.key
    }

    /// Sets [`Self::ah`] and [`Self::destination`].
    pub fn set_destination(&mut self, ah: u32, qpn: u32, qkey: u32) {
        (self.target, self.key) = (transmute!([qpn, qkey]), ah);
    }

    /// Immediate data, big-endian.
    pub const fn imm(&self) -> u32 {
        self.extra
    }

    /// Sets [`Self::imm`].
    pub fn set_imm(&mut self, imm: u32) {
        self.extra = imm;
    }

    /// Key to be invalidated, or the old key of a window.
    pub const fn old_key(&self) -> u32 {
        self.extra
    }

    /// Sets [`Self::old_key`].
    pub fn set_old_key(&mut self, key: u32) {
        self.extra = key;
    }

    /// The operands, whatever they are.
    pub const fn operands(&self) -> [u64; 2] {
        self.operands
    }

    /// Operands of an atomic operation.
    pub fn atomic(&self) -> Atomic {
        transmute!(self.operands)
    }

    /// Sets [`Self::atomic`].
    pub fn set_atomic(&mut self, operands: Atomic) {
        self.operands = transmute!(operands);
    }

    /// Operands of a FLUSH.
    pub fn flush(&self) -> Flush {
        transmute!(self.operands)
    }

    /// Sets [`Self::flush`].
    pub fn set_flush(&mut self, operands: Flush) {
        self.operands = transmute!(operands);
    }

    /// Operands of a window's binding.
    pub fn bind(&self) -> Bind {
        transmute!(self.operands)
    }

    /// Sets [`Self::bind`].
    pub fn set_bind(&mut self, operands: Bind) {
        self.operands = transmute!(operands);
    }

    /// What an ATOMIC WRITE writes, in the order of memory; the rest of the operands must be 0.
    pub fn atomic_write(&self) -> ([u8; 8], u64) {
        let [value, reserved] = self.operands;
        (value.to_ne_bytes(), reserved)
    }

    /// Sets [`Self::atomic_write`].
    pub fn set_atomic_write(&mut self, value: [u8; 8]) {
        self.operands = [u64::from_ne_bytes(value), 0];
    }
}

/// Header of a receive queue slot: 16 bytes, then `num_sge` times [`Sge`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecvWqe {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Number of [`Sge`] behind the header.
    pub num_sge: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// A piece of local memory. A length of 0 is a piece of 0 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Sge {
    /// Virtual address, within the region of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

// The numbers are those of `enum ibv_send_flags`.

/// Wait until the RDMA READs before this request are complete.
pub const SEND_FENCE: u8 = 1 << 0;
/// Report a successful completion too.
pub const SEND_SIGNALED: u8 = 1 << 1;
/// Raise a solicited event at the receiver.
pub const SEND_SOLICITED: u8 = 1 << 2;
/// The payload is in the slot itself.
pub const SEND_INLINE: u8 = 1 << 3;
/// Let the device fill in the checksums of an IP packet. The module has no such packets yet.
pub const SEND_IP_CSUM: u8 = 1 << 4;
/// All that the module takes.
pub const SEND_ALL: u8 = SEND_FENCE | SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE;

/// Most scatter/gather entries of one request.
pub const MAX_SGE: u32 = 32;
/// Most inline bytes of one request.
pub const MAX_INLINE: u32 = 512;

const fn round_up(bytes: usize) -> u32 {
    (bytes.div_ceil(SLOT_ALIGN) * SLOT_ALIGN) as u32
}

/// Stride of a send queue whose requests have up to `max_sge` entries or `max_inline` bytes.
///
/// The arguments are at most [`MAX_SGE`] and [`MAX_INLINE`].
pub const fn send_stride(max_sge: u32, max_inline: u32) -> u32 {
    let sge = max_sge as usize * size_of::<Sge>();
    let inline = max_inline as usize;
    round_up(size_of::<SendWqe>() + if sge > inline { sge } else { inline })
}

/// Most inline bytes for which there is room in the slots of a send queue of this stride.
pub const fn inline_room(stride: u32) -> u32 {
    let room = stride.saturating_sub(size_of::<SendWqe>() as u32);
    if room < MAX_INLINE {
        room
    } else {
        MAX_INLINE
    }
}

/// Stride of a receive queue whose requests have up to `max_sge` (at most [`MAX_SGE`]) entries.
pub const fn recv_stride(max_sge: u32) -> u32 {
    round_up(size_of::<RecvWqe>() + max_sge as usize * size_of::<Sge>())
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<SendWqe>() == 48 && size_of::<RecvWqe>() == 16 && size_of::<Sge>() == 16);
    assert!(offset_of!(SendWqe, opcode) == 8 && offset_of!(SendWqe, flags) == 9);
    assert!(offset_of!(SendWqe, count) == 10 && offset_of!(SendWqe, srqn) == 12);
    assert!(offset_of!(SendWqe, target) == 16 && offset_of!(SendWqe, key) == 24);
    assert!(offset_of!(SendWqe, extra) == 28 && offset_of!(SendWqe, operands) == 32);
    assert!(MAX_INLINE <= u16::MAX as u32);
    assert!(send_stride(1, 0) == 64 && send_stride(MAX_SGE, MAX_INLINE) == 576);
    assert!(inline_room(64) == 16 && send_stride(1, 16) == 64 && inline_room(576) == MAX_INLINE);
    assert!(recv_stride(3) == 64 && recv_stride(MAX_SGE) == 576);
};

// The operations of a send queue: their numbers, and which parts of a request each uses.

// The numbers are those of `enum ib_uverbs_wr_opcode`, and of `enum ibv_wr_opcode` as far as that
// goes. 10 to 13 are operations that ferroce will not have (TSO, masked atomics).

/// RDMA WRITE.
pub const OP_RDMA_WRITE: u8 = 0;
/// RDMA WRITE with immediate data.
pub const OP_RDMA_WRITE_WITH_IMM: u8 = 1;
/// SEND.
pub const OP_SEND: u8 = 2;
/// SEND with immediate data.
pub const OP_SEND_WITH_IMM: u8 = 3;
/// RDMA READ.
pub const OP_RDMA_READ: u8 = 4;
/// Atomic compare and swap.
pub const OP_ATOMIC_CMP_AND_SWP: u8 = 5;
/// Atomic fetch and add.
pub const OP_ATOMIC_FETCH_AND_ADD: u8 = 6;
/// Invalidation of a local key.
pub const OP_LOCAL_INV: u8 = 7;
/// Binding of a memory window.
pub const OP_BIND_MW: u8 = 8;
/// SEND that invalidates a key of the peer.
pub const OP_SEND_WITH_INV: u8 = 9;
/// FLUSH.
pub const OP_FLUSH: u8 = 14;
/// ATOMIC WRITE.
pub const OP_ATOMIC_WRITE: u8 = 15;
/// From here on numbers belong to requests of the kernel: in a user's queue they are no operation.
pub const OP_KERNEL: u8 = 0x20;
/// Fast registration.
pub const OP_REG_MR: u8 = OP_KERNEL;
/// No operation has such a number or a greater one.
pub const OPERATIONS: u8 = OP_REG_MR + 1;

/// Parts of a send request's header ([`super::wqe::SendWqe`]), by their offsets in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// None of them.
    pub const NONE: Parts = Parts(0);
    /// 12..16: number of the SRQ at the peer (XRC).
    pub const SRQN: Parts = Parts(1 << 0);
    /// 16..24: remote address, QPN and Q_Key of a datagram's destination, or address to bind.
    pub const TARGET: Parts = Parts(1 << 1);
    /// 24..28: R_Key of the peer, number of an address handle, or new key of a window or region.
    pub const KEY: Parts = Parts(1 << 2);
    /// 28..32: immediate data, R_Key to invalidate, or old key of a window or region.
    pub const EXTRA: Parts = Parts(1 << 3);
    /// 32..48: [`Atomic`], [`Flush`], [`Bind`], or the 8 bytes of an ATOMIC WRITE and 8 of zero.
    pub const OPERANDS: Parts = Parts(1 << 4);

    /// What [`OP_SEND`], [`OP_SEND_WITH_IMM`] and [`OP_SEND_WITH_INV`] use beside [`Parts::of`] on
    /// a QP of datagrams. On an XRC QP every operation uses [`Parts::SRQN`] too.
    pub const DATAGRAM: Parts = Parts::TARGET.and(Parts::KEY);

    /// These and those.
    pub const fn and(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub const fn has(self, other: Parts) -> bool {
        self.0 & other.0 == other.0
    }

    /// What an operation uses on a connected QP; `None` for a number that is no operation of a send
    /// queue.
    #[expect(clippy::indexing_slicing, reason = "the length was looked at")]
    pub const fn of(opcode: u8) -> Option<Parts> {
        if opcode as usize >= USED.len() {
            return None;
        }
        USED[opcode as usize]
    }

    /// Like [`Self::of`], by a chain of comparisons.
    const fn used_by(opcode: u8) -> Option<Parts> {
        const RDMA: Parts = Parts::TARGET.and(Parts::KEY);
        Some(match opcode {
            OP_SEND => Parts::NONE,
            OP_SEND_WITH_IMM | OP_SEND_WITH_INV | OP_LOCAL_INV => Parts::EXTRA,
            OP_RDMA_WRITE | OP_RDMA_READ => RDMA,
            OP_RDMA_WRITE_WITH_IMM => RDMA.and(Parts::EXTRA),
            OP_ATOMIC_CMP_AND_SWP | OP_ATOMIC_FETCH_AND_ADD | OP_FLUSH | OP_ATOMIC_WRITE => {
                RDMA.and(Parts::OPERANDS)
            }
            OP_BIND_MW => RDMA.and(Parts::EXTRA).and(Parts::OPERANDS),
            OP_REG_MR => RDMA.and(Parts::OPERANDS),
            _ => return None,
        })
    }
}

/// The parts by the operation's number, so that finding them is a load: the kernel is built without
/// jump tables.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where a bad index is an error of the build"
)]
static USED: [Option<Parts>; OPERATIONS as usize] = {
    let mut parts = [None; OPERATIONS as usize];
    let mut number = 0u8;
    while number < OPERATIONS {
        parts[number as usize] = Parts::used_by(number);
        number += 1;
    }
    parts
};

/// Operands of [`OP_ATOMIC_CMP_AND_SWP`] and [`OP_ATOMIC_FETCH_AND_ADD`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Atomic {
    /// Value to compare with, or to add.
    pub compare_add: u64,
    /// Value to write if equal; 0 for an addition.
    pub swap: u64,
}

/// Operands of [`OP_FLUSH`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Flush {
    /// Bytes to flush.
    pub length: u32,
    /// Bits of `enum ibv_placement_type`.
    pub placement: u8,
    /// One of `enum ibv_selectivity_level`.
    pub selectivity: u8,
    /// Must be 0.
    pub reserved: [u16; 5],
}

/// Operands of [`OP_BIND_MW`]: the address is the target, the new key of the window the key, its
/// old one the extra. And of [`OP_REG_MR`], likewise; its key as it was is the key below.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Bind {
    /// Bytes of the window.
    pub length: u64,
    /// Local key of the region below.
    pub lkey: u32,
    /// Bits of `enum ibv_access_flags`.
    pub access: u32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Atomic>() == 16 && size_of::<Flush>() == 16 && size_of::<Bind>() == 16);
    assert!(offset_of!(Flush, placement) == 4 && offset_of!(Flush, selectivity) == 5);
    assert!(offset_of!(Bind, lkey) == 8 && offset_of!(Bind, access) == 12);
    assert!(OP_ATOMIC_WRITE < OP_KERNEL);
};

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_uabi_wqe))]
mod tests {
    use super::*;
    use zerocopy::{
        FromBytes,
        IntoBytes, //
    };

    /// A stride holds what it was asked for, is made of granules, and wastes less than one.
    #[test]
    fn strides_fit_and_waste_little() {
        let align = SLOT_ALIGN as u32;
        for max_sge in 0..=MAX_SGE {
            for max_inline in 0..=MAX_INLINE {
                let needs = 48 + (max_sge * 16).max(max_inline);
                let stride = send_stride(max_sge, max_inline);
                assert!(stride % align == 0 && stride >= needs && stride - needs < align);
            }
            let needs = 16 + max_sge * 16;
            let stride = recv_stride(max_sge);
            assert!(stride % align == 0 && stride >= needs && stride - needs < align);
        }
    }

    /// A header whose every field has another value, as bytes.
    fn sample() -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..8].copy_from_slice(&0x0102_0304_0506_0708u64.to_ne_bytes());
        bytes[8..10].copy_from_slice(&[OP_RDMA_WRITE_WITH_IMM, SEND_SIGNALED | SEND_FENCE]);
        bytes[10..12].copy_from_slice(&3u16.to_ne_bytes());
        bytes[12..16].copy_from_slice(&0x99u32.to_ne_bytes());
        bytes[16..24].copy_from_slice(&0x7f00_0000_1000u64.to_ne_bytes());
        bytes[24..28].copy_from_slice(&0xabcdu32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&[1, 2, 3, 4]);
        for (i, byte) in bytes.iter_mut().enumerate().skip(32) {
            *byte = i as u8;
        }
        bytes
    }

    #[test]
    fn a_request_is_its_bytes() {
        let bytes = sample();
        let wqe = SendWqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(wqe.wr_id, 0x0102_0304_0506_0708);
        assert_eq!(
            (wqe.opcode, wqe.flags, wqe.count, wqe.srqn()),
            (1, 3, 3, 0x99)
        );
        assert_eq!((wqe.remote_addr(), wqe.rkey()), (0x7f00_0000_1000, 0xabcd));
        assert_eq!((wqe.ah(), wqe.imm().to_ne_bytes()), (0xabcd, [1, 2, 3, 4]));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(wqe.destination(), [word(16), word(20)]);
        let atomic = wqe.atomic();
        assert_eq!((atomic.compare_add, atomic.swap), (long(32), long(40)));
        let flush = wqe.flush();
        assert_eq!(
            (flush.length, flush.placement, flush.selectivity),
            (word(32), 36, 37)
        );
        let bind = wqe.bind();
        assert_eq!(
            (bind.length, bind.lkey, bind.access),
            (long(32), word(40), word(44))
        );
        assert_eq!(
            wqe.atomic_write(),
            (bytes[32..40].try_into().unwrap(), long(40))
        );
        assert_eq!(wqe.as_bytes(), bytes);
    }

    /// What is set is what is read, and only that part is touched.
    #[test]
    fn parts_are_set_one_by_one() {
        let set = |fill: &dyn Fn(&mut SendWqe), part: Parts| {
            let mut wqe = SendWqe::default();
            fill(&mut wqe);
            assert!(wqe.uses_only(part) && !wqe.uses_only(Parts::NONE));
            wqe
        };
        assert_eq!(set(&|w| w.set_srqn(5), Parts::SRQN).srqn(), 5);
        let wqe = set(&|w| w.set_remote(1, 2), Parts::TARGET.and(Parts::KEY));
        assert_eq!((wqe.remote_addr(), wqe.rkey()), (1, 2));
        let wqe = set(&|w| w.set_destination(1, 2, 3), Parts::DATAGRAM);
        assert_eq!((wqe.ah(), wqe.destination()), (1, [2, 3]));
        assert_eq!(set(&|w| w.set_imm(7), Parts::EXTRA).imm(), 7);
        assert_eq!(set(&|w| w.set_old_key(8), Parts::EXTRA).old_key(), 8);
        let atomic = Atomic {
            compare_add: 0,
            swap: 9,
        };
        assert_eq!(
            set(&|w| w.set_atomic(atomic), Parts::OPERANDS).atomic(),
            atomic
        );
        let flush = Flush {
            selectivity: 1,
            ..Flush::default()
        };
        assert_eq!(set(&|w| w.set_flush(flush), Parts::OPERANDS).flush(), flush);
        let bind = Bind {
            length: 1,
            lkey: 2,
            access: 3,
        };
        assert_eq!(set(&|w| w.set_bind(bind), Parts::OPERANDS).bind(), bind);
        let value = [1, 2, 3, 4, 5, 6, 7, 8];
        let wqe = set(&|w| w.set_atomic_write(value), Parts::OPERANDS);
        assert_eq!(wqe.atomic_write(), (value, 0));
    }

    /// Any byte that is not zero shows, unless its part is used.
    #[test]
    fn every_byte_behind_the_count_belongs_to_a_part() {
        let parts = [
            (12..16, Parts::SRQN),
            (16..24, Parts::TARGET),
            (24..28, Parts::KEY),
            (28..32, Parts::EXTRA),
            (32..48, Parts::OPERANDS),
        ];
        let all = parts
            .iter()
            .fold(Parts::NONE, |all, (_, part)| all.and(*part));
        for at in 0..48 {
            let mut bytes = [0; 48];
            bytes[at] = 1;
            let wqe = SendWqe::read_from_bytes(&bytes).unwrap();
            assert_eq!(wqe.uses_only(Parts::NONE), at < 12);
            for (range, part) in &parts {
                let own = at < 12 || range.contains(&at);
                assert_eq!(wqe.uses_only(*part), own);
            }
            assert!(wqe.uses_only(all));
        }
    }

    /// Operations have their parts, other numbers have none; those of user space come first.
    #[test]
    fn numbers_that_are_no_operation() {
        for number in 0..=u8::MAX {
            let known = matches!(number, 0..=9 | 14 | 15);
            assert_eq!(Parts::of(number).is_some(), known || number == OP_REG_MR);
            assert!(!known || number < OP_KERNEL);
        }
        assert_eq!(Parts::of(OP_SEND), Some(Parts::NONE));
        let imm = Parts::TARGET.and(Parts::KEY).and(Parts::EXTRA);
        assert_eq!(Parts::of(OP_RDMA_WRITE_WITH_IMM), Some(imm));
    }
}
