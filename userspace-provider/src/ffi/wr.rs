// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The extended posting interface, `ibv_wr_*`: the functions of `struct ibv_qp_ex`.
//!
//! From `wr_start` to `wr_complete` or `wr_abort` the send queue is locked, and what is made is in
//! slots that the module does not look at yet. Nothing but these two says anything to the
//! application, so what goes wrong in between is kept ([`Drafts`]).

use super::work_queue::{not_ready, WorkQueue};
use super::{ah, layout::*, library::library, memory::sg_list, probe, qp};
use crate::draft::{flush_operands, set_destination, set_inline, set_list, Drafts, Session};
use crate::refusal::reject;
use core::{
    ffi::{c_int, c_void},
    slice,
};
use ferroce_core::uabi::wqe::{self, Atomic, Bind, SendWqe, Sge};
use libc::{EINVAL, ENOMEM, EOPNOTSUPP};

/// Does something with the list that is being made; nothing without a send queue.
///
/// # Safety
///
/// Contract of the verb: between start and end.
#[inline]
unsafe fn with(qp: *mut IbvQpEx, what: impl FnOnce(&mut Drafts, &Session, &WorkQueue<IbvSendWr>)) {
    // SAFETY: Contract of the verb.
    if let (session, Some(queue)) = unsafe { qp::posting(qp.cast()) } {
        let mut list = session.list.get();
        what(&mut list, session, queue);
        session.list.set(list);
    }
}

/// An operation: `fill` makes its header.
///
/// # Safety
///
/// Contract of the verb: between start and end.
#[inline]
unsafe fn begin(qp: *mut IbvQpEx, opcode: u8, fill: impl FnOnce(&mut SendWqe)) {
    // SAFETY: Contract of the verb; these two are the application's.
    let (wr_id, wr_flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let what = (opcode, wr_id, wr_flags);
    // SAFETY: Contract of the verb.
    unsafe {
        with(qp, |list, session, queue| {
            // SAFETY: A header is no memory of the application.
            let slot = |index| queue.slot(index);
            if let Some(index) = list.begin(session.operations, what, queue.limits(), slot, fill) {
                probe::post_send_drafted(qp.cast(), (wr_id, opcode), index);
            }
        });
    }
}

/// # Safety
///
/// Contract of the verb: between start and end.
unsafe fn refuse(qp: *mut IbvQpEx, error: c_int, why: &str) {
    // SAFETY: Contract of the verb.
    unsafe { with(qp, |list, _, _| list.fail(reject(error, why))) };
}

unsafe extern "C" fn start(qp: *mut IbvQpEx) {
    // SAFETY: Contract of the verb.
    unsafe {
        if let (session, Some(queue)) = qp::posting(qp.cast()) {
            let mut list = Drafts::new(queue.open());
            if !qp::may_send(qp.cast()) {
                list.fail(not_ready());
            }
            session.list.set(list);
        }
    }
}

unsafe extern "C" fn complete(qp: *mut IbvQpEx) -> c_int {
    // SAFETY: Contract of the verb.
    let (session, Some(queue)) = (unsafe { qp::posting(qp.cast()) }) else {
        return ENOMEM;
    };
    let first = queue.open_at();
    // SAFETY: A header is no memory of the application.
    let slot = |index| unsafe { queue.slot(index) };
    let end = session.list.get().finish(slot);
    // SAFETY: Contract of the verb. Without an end nothing is posted.
    let posted = unsafe { queue.end_session(qp.cast(), end.unwrap_or(first)) };
    match end.and(posted) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

unsafe extern "C" fn abort(qp: *mut IbvQpEx) {
    // SAFETY: Contract of the verb.
    if let (_, Some(queue)) = unsafe { qp::posting(qp.cast()) } {
        // SAFETY: Contract of the verb. Nothing is posted, so there is nothing to say.
        let _ = unsafe { queue.end_session(qp.cast(), queue.open_at()) };
    }
}

unsafe extern "C" fn send(qp: *mut IbvQpEx) {
    // SAFETY: Contract of the verb.
    unsafe { begin(qp, wqe::OP_SEND, |_| ()) };
}

unsafe extern "C" fn send_imm(qp: *mut IbvQpEx, imm: u32) {
    // SAFETY: Contract of the verb.
    unsafe { begin(qp, wqe::OP_SEND_WITH_IMM, |header| header.set_imm(imm)) };
}

unsafe extern "C" fn rdma_write(qp: *mut IbvQpEx, rkey: u32, addr: u64) {
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_RDMA_WRITE, |header| {
            header.set_remote(addr, rkey)
        })
    };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut IbvQpEx, rkey: u32, addr: u64, imm: u32) {
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_RDMA_WRITE_WITH_IMM, |header| {
            header.set_remote(addr, rkey);
            header.set_imm(imm);
        });
    }
}

unsafe extern "C" fn rdma_read(qp: *mut IbvQpEx, rkey: u32, addr: u64) {
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_RDMA_READ, |header| {
            header.set_remote(addr, rkey)
        })
    };
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut IbvQpEx,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    let operands = Atomic {
        compare_add: compare,
        swap,
    };
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_ATOMIC_CMP_AND_SWP, |header| {
            header.set_remote(addr, rkey);
            header.set_atomic(operands);
        });
    }
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut IbvQpEx, rkey: u32, addr: u64, add: u64) {
    let operands = Atomic {
        compare_add: add,
        swap: 0,
    };
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_ATOMIC_FETCH_AND_ADD, |header| {
            header.set_remote(addr, rkey);
            header.set_atomic(operands);
        });
    }
}

unsafe extern "C" fn atomic_write(qp: *mut IbvQpEx, rkey: u32, addr: u64, value: *const c_void) {
    // SAFETY: Contract of the verb: there are 8 bytes, aligned as it happens.
    let value = unsafe { value.cast::<[u8; 8]>().read() };
    // SAFETY: Contract of the verb.
    unsafe {
        begin(qp, wqe::OP_ATOMIC_WRITE, |header| {
            header.set_remote(addr, rkey);
            header.set_atomic_write(value);
        });
    }
}

unsafe extern "C" fn flush(
    qp: *mut IbvQpEx,
    rkey: u32,
    addr: u64,
    length: usize,
    placement: u8,
    selectivity: u8,
) {
    match flush_operands(length, placement, selectivity) {
        // SAFETY: Contract of the verb.
        Ok(operands) => unsafe {
            begin(qp, wqe::OP_FLUSH, |header| {
                header.set_remote(addr, rkey);
                header.set_flush(operands);
            });
        },
        // SAFETY: Contract of the verb.
        Err(error) => unsafe { with(qp, |list, _, _| list.fail(error)) },
    }
}

unsafe extern "C" fn bind_mw(qp: *mut IbvQpEx, mw: *mut IbvMw, rkey: u32, info: *const MwBindInfo) {
    // SAFETY: Contract of the verb; the region may be null, for nothing of it.
    unsafe {
        begin(qp, wqe::OP_BIND_MW, |header| {
            let info = &*info;
            header.set_remote(info.addr, rkey);
            header.set_old_key((*mw).rkey);
            header.set_bind(Bind {
                length: info.length,
                lkey: info.mr.as_ref().map_or(0, |region| region.lkey),
                access: info.mw_access_flags,
            });
        });
    }
}

unsafe extern "C" fn local_inv(qp: *mut IbvQpEx, key: u32) {
    // SAFETY: Contract of the verb.
    unsafe { begin(qp, wqe::OP_LOCAL_INV, |header| header.set_old_key(key)) };
}

unsafe extern "C" fn send_inv(qp: *mut IbvQpEx, key: u32) {
    // SAFETY: Contract of the verb.
    unsafe { begin(qp, wqe::OP_SEND_WITH_INV, |header| header.set_old_key(key)) };
}

// Not supported (yet): reported at the end of the list.

unsafe extern "C" fn send_tso(qp: *mut IbvQpEx, _: Opaque, _: u16, _: u16) {
    // SAFETY: Contract of the verb.
    unsafe { refuse(qp, EOPNOTSUPP, "ibv_wr_send_tso is not served") };
}

unsafe extern "C" fn set_ud_addr(qp: *mut IbvQpEx, ah: *mut IbvAh, qpn: u32, qkey: u32) {
    // SAFETY: Contract of the verb, for the AH and the QP.
    unsafe {
        let number = ah::number(ah);
        with(qp, |list, _, queue| {
            // SAFETY: A header is no memory of the application.
            let slot = |index| queue.slot(index);
            let set = |header: &mut _| set_destination(header, queue.limits(), number, qpn, qkey);
            list.set(slot, |_, header| set(header));
        });
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut IbvQpEx, _: u32) {
    // SAFETY: Contract of the verb.
    unsafe { refuse(qp, EINVAL, "ibv_wr_set_xrc_srqn without an XRC queue pair") };
}

/// The setter of scatter/gather lists, which must be readable.
///
/// # Safety
///
/// Contract of the verb: between start and end.
#[inline]
unsafe fn set_sges(qp: *mut IbvQpEx, sges: Result<&[Sge], c_int>) {
    // SAFETY: Contract of the verb.
    unsafe {
        with(qp, |list, _, queue| {
            // SAFETY: A list is copied as it is; nothing that it names is read.
            let slot = |index| queue.slot(index);
            list.set(slot, |slot, header| {
                set_list(slot, header, sges?, queue.limits())
            });
        });
    }
}

unsafe extern "C" fn set_sge(qp: *mut IbvQpEx, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, length, lkey };
    // SAFETY: Contract of the verb.
    unsafe { set_sges(qp, Ok(slice::from_ref(&sge))) };
}

unsafe extern "C" fn set_sge_list(qp: *mut IbvQpEx, count: usize, list: *const Sge) {
    let count = c_int::try_from(count).unwrap_or(-1);
    // SAFETY: Contract of the verb: the list has that length.
    unsafe { set_sges(qp, sg_list(list, count)) };
}

/// A piece of inline data as the slots take it. One that is too long for any queue stays so.
fn piece(buf: &DataBuf) -> Sge {
    Sge {
        addr: buf.addr as u64,
        length: u32::try_from(buf.length).unwrap_or(u32::MAX),
        lkey: 0,
    }
}

unsafe extern "C" fn set_inline_data_list(qp: *mut IbvQpEx, count: usize, list: *const DataBuf) {
    let bufs = if count == 0 {
        &[]
    } else {
        // SAFETY: Contract of the verb: the list has that length.
        unsafe { slice::from_raw_parts(list, count) }
    };
    // SAFETY: Contract of the verb.
    unsafe {
        with(qp, |list, _, queue| {
            // SAFETY: Contract of the verb: the pieces are readable.
            let slot = |index| queue.slot(index);
            list.set(slot, |slot, header| {
                set_inline(slot, header, bufs.iter().map(piece), queue.limits())
            });
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut IbvQpEx, addr: *mut c_void, length: usize) {
    let buf = DataBuf { addr, length };
    // SAFETY: Contract of the verb.
    unsafe { set_inline_data_list(qp, 1, &buf) };
}

/// As [`qp::create_ex`]; the QP has this interface if the attributes say for which operations.
pub unsafe extern "C" fn create_ex(
    context: *mut IbvContext,
    attr: *mut QpInitAttrEx,
) -> *mut IbvQp {
    // SAFETY: Contract of the verb.
    unsafe {
        let qp = qp::create_ex(context, attr);
        if !qp.is_null() && (*attr).comp_mask & INIT_ATTR_SEND_OPS_FLAGS != 0 {
            extend(qp.cast());
        }
        qp
    }
}

/// Gives a new QP this interface: its functions, and the mark by which libibverbs knows it.
///
/// # Safety
///
/// `qp` is a QP that no other code knows yet, and that libibverbs has filled in its part of.
unsafe fn extend(qp: *mut VerbsQp) {
    let ex = qp.cast::<IbvQpEx>();
    // SAFETY: The caller's promise. A `struct verbs_qp` begins with a `struct ibv_qp_ex`, of which
    // every release has at least this.
    unsafe {
        (&raw mut (*ex).wr_atomic_cmp_swp).write(atomic_cmp_swp);
        (&raw mut (*ex).wr_atomic_fetch_add).write(atomic_fetch_add);
        (&raw mut (*ex).wr_bind_mw).write(bind_mw);
        (&raw mut (*ex).wr_local_inv).write(local_inv);
        (&raw mut (*ex).wr_rdma_read).write(rdma_read);
        (&raw mut (*ex).wr_rdma_write).write(rdma_write);
        (&raw mut (*ex).wr_rdma_write_imm).write(rdma_write_imm);
        (&raw mut (*ex).wr_send).write(send);
        (&raw mut (*ex).wr_send_imm).write(send_imm);
        (&raw mut (*ex).wr_send_inv).write(send_inv);
        (&raw mut (*ex).wr_send_tso).write(send_tso);
        (&raw mut (*ex).wr_set_ud_addr).write(set_ud_addr);
        (&raw mut (*ex).wr_set_xrc_srqn).write(set_xrc_srqn);
        (&raw mut (*ex).wr_set_inline_data).write(set_inline_data);
        (&raw mut (*ex).wr_set_inline_data_list).write(set_inline_data_list);
        (&raw mut (*ex).wr_set_sge).write(set_sge);
        (&raw mut (*ex).wr_set_sge_list).write(set_sge_list);
        (&raw mut (*ex).wr_start).write(start);
        (&raw mut (*ex).wr_complete).write(complete);
        (&raw mut (*ex).wr_abort).write(abort);
    }
    let mark = library().qp_comp_mask;
    // Members that came later are where older releases have their mark.
    let has_room = |at: usize| at < mark;
    // SAFETY: All of these are within a `VerbsQp`, aligned as the structure is, and before the mark
    // only members of `struct ibv_qp_ex`.
    unsafe {
        if has_room(WR_ATOMIC_WRITE) {
            let at = qp.byte_add(WR_ATOMIC_WRITE);
            at.cast::<WrAtomicWrite>().write(atomic_write);
        }
        if has_room(WR_FLUSH) {
            qp.byte_add(WR_FLUSH).cast::<WrFlush>().write(flush);
        }
        let mark = qp.byte_add(mark).cast::<u32>();
        mark.write(mark.read() | QP_EX);
    }
}
