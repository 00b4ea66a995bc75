// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Completion queues: the extended interface, which reads a completion field by field.
//!
//! `start_poll` takes the lock of the queue and the first completion, `next_poll` the next one;
//! `end_poll` gives the slots and the lock back. After a `start_poll` that found nothing the lock
//! is not held. See `ibv_create_cq_ex(3)`.
//!
//! Fields that only flow steering and tag matching have (flow tags, tags) cannot be asked for.

use super::{
    cq::{cmd_fd, refused, Cq},
    layout::*,
    library::library,
    memory::{fail, nanoseconds},
    probe,
};
use crate::completion::{public_flags, service_level};
use crate::refusal::reject;
use crate::ring::Scribbled;
use core::{ffi::c_int, mem::offset_of, ptr};
use ferroce_core::uabi::{cqe::Cqe, udata};
use libc::{EINVAL, EIO, ENOENT, EOPNOTSUPP};

/// IBV_WC_STANDARD_FLAGS.
const WC_STANDARD_FLAGS: u64 = 0x7f;
/// IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.
const WITH_TIMESTAMP: u64 = 1 << 7;
/// IBV_WC_EX_WITH_CVLAN.
const WITH_VLAN: u64 = 1 << 8;
/// IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.
const WITH_WALLCLOCK: u64 = 1 << 11;
/// The fields that a completion can be asked for.
pub const WC_FLAGS: u64 = WC_STANDARD_FLAGS | WITH_TIMESTAMP | WITH_VLAN | WITH_WALLCLOCK;
/// IBV_CQ_INIT_ATTR_MASK_FLAGS.
pub const MASK_FLAGS: u32 = 1 << 0;
/// IBV_CQ_INIT_ATTR_MASK_PD: a parent domain, which changes nothing here.
pub const MASK_PD: u32 = 1 << 1;
/// IBV_CREATE_CQ_ATTR_SINGLE_THREADED: nothing is locked.
pub const SINGLE_THREADED: u32 = 1 << 0;
/// IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: the module drops completions without room silently.
pub const IGNORE_OVERRUN: u32 = 1 << 1;

const FLAGS: u32 = SINGLE_THREADED | IGNORE_OVERRUN;

/// Makes a CQ with the extended interface.
pub unsafe extern "C" fn create(context: *mut IbvContext, attr: *mut CqInitAttrEx) -> *mut IbvCqEx {
    // SAFETY: Contract of the verb.
    let (wc_flags, comp_mask) = unsafe { ((*attr).wc_flags, (*attr).comp_mask) };
    let flags = if comp_mask & MASK_FLAGS != 0 {
        // SAFETY: Contract of the verb: the member is there if the mask says so.
        unsafe { (*attr).flags }
    } else {
        0
    };
    if wc_flags & !WC_FLAGS != 0 || comp_mask & !(MASK_FLAGS | MASK_PD) != 0 || flags & !FLAGS != 0
    {
        return fail(reject(
            EOPNOTSUPP,
            format_args!(
                "create_cq_ex: wc_flags {wc_flags:#x} may be of {WC_FLAGS:#x}, comp_mask \
                 {comp_mask:#x} of {:#x}, flags {flags:#x} of {FLAGS:#x}",
                MASK_FLAGS | MASK_PD
            ),
        ));
    }
    let cq = match Cq::new() {
        Ok(cq) => cq,
        Err(error) => return fail(error),
    };
    let mut resp = CreateCqExResp {
        core: [0; 4],
        driver: udata::CreateCqResp::default(),
    };
    // SAFETY: Contract of the verb; the CQ begins with what libibverbs fills in.
    let error = unsafe { library().create_cq_ex(context, attr, cq.as_ptr().cast(), &mut resp) };
    if error != 0 {
        // SAFETY: Contract of the verb.
        return fail(unsafe { refused(error, context, (*attr).cqe.into()) });
    }
    // SAFETY: The object is ours alone until it is handed out.
    let ibv = unsafe { &mut (*cq.as_ptr()).ibv };
    ibv.start_poll = Some(if wc_flags & WITH_WALLCLOCK != 0 {
        start_poll_by_wallclock
    } else {
        start_poll
    });
    ibv.next_poll = Some(next_poll);
    ibv.end_poll = Some(end_poll);
    ibv.read_opcode = Some(read_opcode);
    ibv.read_vendor_err = Some(read_vendor_err);
    ibv.read_wc_flags = Some(read_wc_flags);
    ibv.read_byte_len = Some(read_byte_len);
    ibv.read_imm_data = Some(read_imm_data);
    ibv.read_qp_num = Some(read_qp_num);
    ibv.read_src_qp = Some(read_src_qp);
    ibv.read_slid = Some(read_slid);
    ibv.read_sl = Some(read_sl);
    ibv.read_dlid_path_bits = Some(read_dlid_path_bits);
    if wc_flags & WITH_TIMESTAMP != 0 {
        ibv.read_completion_ts = Some(read_completion_ts);
    }
    if wc_flags & WITH_VLAN != 0 {
        ibv.read_cvlan = Some(read_cvlan);
    }
    if wc_flags & WITH_WALLCLOCK != 0 {
        ibv.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
    let single = flags & SINGLE_THREADED != 0;
    // SAFETY: Contract of the verb.
    let fd = unsafe { cmd_fd(context) };
    Cq::finish(cq, fd, &resp.driver.cq, single).map_or_else(fail, |cq| cq.cast())
}

/// Makes the next completion the current one; ENOENT if there is none, EIO if the ring was
/// scribbled over.
///
/// # Safety
///
/// As `Cq::queue`, with the lock held.
unsafe fn advance(cq: *mut Cq) -> c_int {
    // SAFETY: The caller's promise.
    let cqe = match unsafe { Cq::next(cq) } {
        Ok(Some(cqe)) => cqe,
        Ok(None) => return ENOENT,
        Err(Scribbled) => return EIO,
    };
    // SAFETY: The lock is held, and only the thread that polls looks at these members.
    unsafe {
        (*cq).ibv.status = cqe.status;
        (*cq).ibv.wr_id = cqe.wr_id;
        (*cq).current = cqe;
    }
    probe::polled_current::<{ offset_of!(Cq, current) }>(cq.cast());
    0
}

unsafe extern "C" fn start_poll(cq: *mut IbvCqEx, attr: *mut PollCqAttr) -> c_int {
    // SAFETY: Contract of the verb.
    if unsafe { (*attr).comp_mask } != 0 {
        return EINVAL;
    }
    let cq = cq.cast::<Cq>();
    // SAFETY: Contract of the verb; the lock is taken for `advance`, and kept if that succeeds.
    unsafe {
        Cq::begin(cq);
        let error = advance(cq);
        if error != 0 {
            Cq::end(cq);
        }
        error
    }
}

/// As [`start_poll`], for a CQ whose completions tell the time of day. It is taken once for what is
/// polled together, so that the order of the times is that of the completions.
unsafe extern "C" fn start_poll_by_wallclock(cq: *mut IbvCqEx, attr: *mut PollCqAttr) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { start_poll(cq, attr) };
    if error == 0 {
        let raw = nanoseconds(udata::CLOCK as libc::clockid_t);
        let ahead = nanoseconds(libc::CLOCK_REALTIME).wrapping_sub(raw);
        // SAFETY: The lock is held, and only the thread that polls looks at this member.
        unsafe { (*cq.cast::<Cq>()).wallclock = ahead as u64 };
    }
    error
}

unsafe extern "C" fn next_poll(cq: *mut IbvCqEx) -> c_int {
    // SAFETY: Contract of the verb: `start_poll` has taken the lock.
    unsafe { advance(cq.cast()) }
}

unsafe extern "C" fn end_poll(cq: *mut IbvCqEx) {
    // SAFETY: Contract of the verb: `start_poll` has taken the lock.
    unsafe { Cq::end(cq.cast()) }
}

/// A field of the current completion.
///
/// # Safety
///
/// Between `start_poll` and `end_poll`, by the thread that polls.
unsafe fn current<T>(cq: *mut IbvCqEx, field: impl FnOnce(&Cqe) -> T) -> T {
    // SAFETY: The caller's promise; any other value of the slot would do too.
    field(&unsafe { ptr::read(&raw const (*cq.cast::<Cq>()).current) })
}

/// Makes the functions that read one field.
macro_rules! readers {
    ($($name:ident: $ret:ty = $field:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut IbvCqEx) -> $ret {
            // SAFETY: Contract of the verb.
            unsafe { current(cq, $field) }
        })*
    };
}

readers! {
    read_opcode: u32 = |cqe| cqe.opcode;
    read_vendor_err: u32 = |cqe| cqe.vendor_err;
    read_byte_len: u32 = |cqe| cqe.byte_len;
    read_imm_data: u32 = |cqe| cqe.imm;
    read_qp_num: u32 = |cqe| cqe.qp_num;
    read_src_qp: u32 = |cqe| cqe.src_qp;
    read_wc_flags: u32 = public_flags;
    read_slid: u32 = |_| 0;
    read_sl: u8 = service_level;
    read_dlid_path_bits: u8 = |_| 0;
    read_completion_ts: u64 = |cqe| cqe.timestamp;
    // 0 for a datagram that came by no VLAN.
    read_cvlan: u16 = |cqe| cqe.vlan;
}

unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut IbvCqEx) -> u64 {
    // SAFETY: Contract of the verb: only the thread that polls looks at this member.
    let ahead = unsafe { (*cq.cast::<Cq>()).wallclock };
    // SAFETY: Contract of the verb.
    unsafe { current(cq, |cqe| cqe.timestamp.wrapping_add(ahead)) }
}
