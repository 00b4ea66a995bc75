// SPDX-License-Identifier: GPL-2.0

//! Work requests of ULPs, and how they become slots of a queue: the same that a provider writes for
//! a process.

use crate::core::uabi::wqe::{
    self,
    Parts,
    RecvWqe,
    SendWqe,
    Sge, //
};
use crate::sys::bindings;
use crate::sys::ib::object::Object;
use crate::sys::ib::{
    BadWr,
    WorkRequests, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;
use zerocopy::{
    IntoBytes,
    Unalign, //
};

/// Words of the longest slot.
const SLOT_WORDS: usize = {
    let send = wqe::send_stride(wqe::MAX_SGE, wqe::MAX_INLINE);
    let recv = wqe::recv_stride(wqe::MAX_SGE);
    (if send > recv { send } else { recv }) as usize / 8
};

/// A slot, filled.
pub struct WqeSlot {
    words: [u64; SLOT_WORDS],
    len: usize,
}

impl WqeSlot {
    fn new() -> Self {
        Self {
            words: [0; SLOT_WORDS],
            len: 0,
        }
    }

    /// Its content.
    pub fn words(&self) -> &[u64] {
        self.words.get(..self.len).unwrap_or(&[])
    }

    /// Appends so many bytes, filled up to a whole word.
    fn put(&mut self, bytes: &[u8]) -> Result {
        let rest = self.words.get_mut(self.len..).ok_or(EINVAL)?;
        let to = rest.as_mut_bytes().get_mut(..bytes.len()).ok_or(EINVAL)?;
        to.copy_from_slice(bytes);
        self.len = self.len.wrapping_add(bytes.len().div_ceil(8));
        Ok(())
    }

    /// Appends what lies in these pieces of the kernel's memory; returns how many bytes.
    fn put_inline(&mut self, pieces: &[Unalign<Sge>], most: u32) -> Result<u16> {
        let mut total = 0u32;
        let room = self.words.get_mut(self.len..).ok_or(EINVAL)?;
        let room = room.as_mut_bytes();
        for piece in pieces.iter().map(Unalign::get) {
            let end = total.checked_add(piece.length).filter(|end| *end <= most);
            let end = end.ok_or(EINVAL)?;
            let to = room.get_mut(total as usize..end as usize).ok_or(EINVAL)?;
            let from = piece.addr as usize as *const c_void;
            // SAFETY: The ULP vouches for these bytes; `to` is as long.
            unsafe { bindings::ferroce_memmove(to.as_mut_ptr().cast(), from, to.len()) };
            total = end;
        }
        self.len = self.len.wrapping_add((total as usize).div_ceil(8));
        Ok(total as u16)
    }
}

/// The scatter/gather list of a request, of at most so many entries. It may be at any address: that
/// of ib_iser is in a packed structure.
///
/// # Safety
///
/// `list` must lead to `count` entries that live for `'a`.
unsafe fn pieces<'a>(
    list: *const bindings::ib_sge,
    count: c_int,
    most: u32,
) -> Result<&'a [Unalign<Sge>]> {
    const {
        assert!(size_of::<bindings::ib_sge>() == size_of::<Sge>());
        assert!(core::mem::offset_of!(bindings::ib_sge, lkey) == 12);
    }
    let count = u32::try_from(count).map_err(|_| EINVAL)?;
    match count {
        0 => Ok(&[]),
        count if count > most || list.is_null() => Err(EINVAL),
        // SAFETY: By the requirement; the two structures are the same.
        count => Ok(unsafe { core::slice::from_raw_parts(list.cast(), count as usize) }),
    }
}

/// Send requests of a ULP, for a QP that names address handles that are `A`s to the driver.
pub struct SendWrs<'a, A> {
    list: WorkRequests<bindings::ib_send_wr>,
    refused: BadWr<bindings::ib_send_wr>,
    kind: bindings::ib_qp_type,
    handles: PhantomData<&'a A>,
}

impl<A> SendWrs<'_, A> {
    pub(super) fn new(
        list: WorkRequests<bindings::ib_send_wr>,
        refused: BadWr<bindings::ib_send_wr>,
        kind: bindings::ib_qp_type,
    ) -> Self {
        Self {
            list,
            refused,
            kind,
            handles: PhantomData,
        }
    }

    /// Calls `take` with one after the other. One that is refused is the last, and the user learns
    /// which it is.
    pub fn each(self, mut take: impl FnMut(SendWr<'_, A>) -> Result) -> Result {
        let kind = self.kind;
        self.list.each(
            self.refused,
            |wr| wr.next,
            |wr| {
                take(SendWr {
                    wr,
                    is_datagram: matches!(
                        kind,
                        bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
                    ),
                    handles: PhantomData,
                })
            },
        )
    }

    /// Refuses all of them.
    pub fn refuse(self, why: Error) -> Result {
        self.each(|_| Err(why))
    }
}

/// A send WR.
pub struct SendWr<'a, A> {
    wr: &'a bindings::ib_send_wr,
    is_datagram: bool,
    handles: PhantomData<&'a A>,
}

/// The flags that are the same in a slot.
const FLAGS: u32 = wqe::SEND_ALL as u32;

// Numbers of the kernel alone, which are handed on as they are.
const _: () = {
    assert!(bindings::ib_wr_opcode_IB_WR_REG_MR == wqe::OP_REG_MR as u32);
    assert!(bindings::ib_send_flags_IB_SEND_FENCE as u32 == wqe::SEND_FENCE as u32);
    assert!(bindings::ib_send_flags_IB_SEND_SIGNALED as u32 == wqe::SEND_SIGNALED as u32);
    assert!(bindings::ib_send_flags_IB_SEND_SOLICITED as u32 == wqe::SEND_SOLICITED as u32);
    assert!(bindings::ib_send_flags_IB_SEND_INLINE as u32 == wqe::SEND_INLINE as u32);
};

impl<'a, A> SendWr<'a, A> {
    /// The structure that this request is a part of.
    ///
    /// # Safety
    ///
    /// It must be of the kind that begins a `T`.
    unsafe fn whole<T>(&self) -> &'a T {
        // SAFETY: By the requirement.
        unsafe { &*core::ptr::from_ref(self.wr).cast::<T>() }
    }

    /// The request as a slot of a queue whose requests have at most so many entries or inline
    /// bytes. `number` is that of an address handle.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that the queue cannot hold. What it can, and does not serve, completes in
    /// error.
    pub fn slot(
        &self,
        max_sge: u32,
        max_inline: u32,
        number: impl FnOnce(&A) -> u32,
    ) -> Result<WqeSlot> {
        let wr = self.wr;
        let opcode = u8::try_from(wr.opcode).map_err(|_| EINVAL)?;
        let parts = Parts::of(opcode).ok_or(EINVAL)?;
        let flags = wr.send_flags as u32;
        if flags & !FLAGS != 0 {
            return Err(EINVAL);
        }
        let list = match opcode {
            // They have none, whatever the fields say.
            wqe::OP_LOCAL_INV | wqe::OP_REG_MR => &[],
            // SAFETY: ULPs vouch for the number of entries.
            _ => unsafe { pieces(wr.sg_list, wr.num_sge, wqe::MAX_SGE) }?,
        };
        let mut header = self.header(opcode, parts, flags as u8, number)?;
        let mut slot = WqeSlot::new();
        // The header is written last, when its count is known.
        slot.put(header.as_bytes())?;
        if flags as u8 & wqe::SEND_INLINE != 0 {
            header.count = slot.put_inline(list, max_inline)?;
        } else if list.len() <= max_sge as usize {
            header.count = list.len() as u16;
            slot.put(list.as_bytes())?;
        } else {
            return Err(EINVAL);
        }
        let filled = core::mem::replace(&mut slot.len, 0);
        slot.put(header.as_bytes())?;
        slot.len = filled;
        Ok(slot)
    }

    /// The header of its slot, but for the count of what follows.
    fn header(
        &self,
        opcode: u8,
        parts: Parts,
        flags: u8,
        number: impl FnOnce(&A) -> u32,
    ) -> Result<SendWqe> {
        let wr = self.wr;
        // SAFETY: Either field is a `u64`.
        let wr_id = unsafe { wr.__bindgen_anon_1.wr_id };
        let mut header = SendWqe::new(wr_id, opcode, flags);
        let sends = matches!(opcode, wqe::OP_SEND | wqe::OP_SEND_WITH_IMM);
        // `ib_drain_sq` posts an RDMA WRITE to any QP, to have it flushed.
        if self.is_datagram && sends {
            // SAFETY: SENDs to such a QP are `ib_ud_wr`s; the handle lives until the request is
            // complete, and what it is to the driver is in the table of operations.
            let (ud, handle) = unsafe {
                let ud = self.whole::<bindings::ib_ud_wr>();
                let handle = NonNull::new(ud.ah).ok_or(EINVAL)?;
                (ud, Object::<bindings::ib_ah, A>::private(handle))
            };
            if ud.pkey_index != 0 {
                return Err(EINVAL);
            }
            header.set_destination(number(handle), ud.remote_qpn, ud.remote_qkey);
        } else if opcode == wqe::OP_REG_MR {
            // SAFETY: Requests of this kind are `ib_reg_wr`s, and the region stays until they are
            // complete. Its ULP does not map it during the post.
            let (wr, mr) = unsafe {
                let wr = self.whole::<bindings::ib_reg_wr>();
                (wr, wr.mr.as_ref().ok_or(EINVAL)?)
            };
            header.set_remote(mr.iova, wr.key);
            header.set_bind(wqe::Bind {
                length: mr.length,
                lkey: mr.rkey,
                access: wr.access as u32,
            });
        } else if parts.has(Parts::OPERANDS) {
            self.set_operands(&mut header, opcode)?;
        } else if parts.has(Parts::TARGET) {
            // SAFETY: Requests of these kinds are `ib_rdma_wr`s.
            let rdma = unsafe { self.whole::<bindings::ib_rdma_wr>() };
            header.set_remote(rdma.remote_addr, rdma.rkey);
        }
        if parts.has(Parts::EXTRA) {
            // SAFETY: Either field is a `u32`: immediate data in the order of the wire, or a key.
            header.set_imm(unsafe { wr.ex.imm_data });
        }
        Ok(header)
    }

    /// Target and operands of an atomic operation.
    fn set_operands(&self, header: &mut SendWqe, opcode: u8) -> Result {
        let compares = match opcode {
            wqe::OP_ATOMIC_CMP_AND_SWP => true,
            wqe::OP_ATOMIC_FETCH_AND_ADD => false,
            // There is no structure for the others.
            _ => return Err(EINVAL),
        };
        // SAFETY: Requests of these kinds are `ib_atomic_wr`s.
        let atomic = unsafe { self.whole::<bindings::ib_atomic_wr>() };
        header.set_remote(atomic.remote_addr, atomic.rkey);
        header.set_atomic(wqe::Atomic {
            compare_add: atomic.compare_add,
            swap: if compares { atomic.swap } else { 0 },
        });
        Ok(())
    }
}

/// Receives of a ULP.
pub struct RecvWrs {
    list: WorkRequests<bindings::ib_recv_wr>,
    refused: BadWr<bindings::ib_recv_wr>,
}

impl RecvWrs {
    pub(super) fn new(
        list: WorkRequests<bindings::ib_recv_wr>,
        refused: BadWr<bindings::ib_recv_wr>,
    ) -> Self {
        Self { list, refused }
    }

    /// Like [`SendWrs::each`].
    pub fn each(self, mut take: impl FnMut(RecvWr<'_>) -> Result) -> Result {
        self.list
            .each(self.refused, |wr| wr.next, |wr| take(RecvWr(wr)))
    }

    /// Refuses all of them.
    pub fn refuse(self, why: Error) -> Result {
        self.each(|_| Err(why))
    }
}

/// A receive WR.
pub struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl RecvWr<'_> {
    /// Like [`SendWr::slot`].
    pub fn slot(&self, max_sge: u32) -> Result<WqeSlot> {
        let wr = self.0;
        // SAFETY: ULPs vouch for the number of entries.
        let list = unsafe { pieces(wr.sg_list, wr.num_sge, max_sge) }?;
        let header = RecvWqe {
            // SAFETY: Either field is a `u64`.
            wr_id: unsafe { wr.__bindgen_anon_1.wr_id },
            num_sge: list.len() as u32,
            reserved: 0,
        };
        let mut slot = WqeSlot::new();
        slot.put(header.as_bytes())?;
        slot.put(list.as_bytes())?;
        Ok(slot)
    }
}
