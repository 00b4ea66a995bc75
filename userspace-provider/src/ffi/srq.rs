// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Shared receive queues: their life, and posting to them. The module takes what it needs when a
//! message comes, so there is no doorbell.

use super::{
    cq::cmd_fd,
    domain::is_single_threaded,
    layout::*,
    library::library,
    limits::DeviceLimits,
    log,
    mapping::Ring,
    memory::{fail, Object},
    probe,
    work_queue::WorkQueue,
};
use crate::{lock::Lock, refusal::by_kernel, request::RecvLimits};
use core::{cell::UnsafeCell, ffi::c_int};
use ferroce_core::uabi::{
    udata,
    wqe::{self, recv_stride},
};
use libc::EPROTO;

/// A shared receive queue. libibverbs and the application know it by its first member.
#[repr(C)]
struct Srq {
    ibv: IbvSrq,
    shared: Option<Shared>,
}

/// The provider's part.
struct Shared {
    lock: Lock,
    /// Used with the lock held.
    queue: UnsafeCell<WorkQueue<IbvRecvWr>>,
    /// Bytes of a slot.
    stride: u32,
}

impl Shared {
    /// Maps a queue that the kernel has made with `attr`, for one thread at a time if `single`.
    fn map(fd: c_int, map: &udata::RingMap, attr: &SrqAttr, single: bool) -> Result<Self, c_int> {
        if attr.max_sge > wqe::MAX_SGE {
            return Err(EPROTO);
        }
        let limits = RecvLimits {
            max_sge: attr.max_sge,
        };
        let stride = recv_stride(attr.max_sge);
        // This lock is for both: a change of the ring needs exclusive access to the queue.
        let queue = WorkQueue::map(fd, map, attr.max_wr, stride, limits, true)?.ok_or(EPROTO)?;
        Ok(Self {
            lock: Lock::new(single),
            queue: UnsafeCell::new(queue),
            stride,
        })
    }

    /// Maps the ring that the module has moved a closed queue to.
    fn follow(&self, queue: &mut WorkQueue<IbvRecvWr>, fd: c_int) -> Result<(), c_int> {
        let ring = Ring::map(fd, &queue.ring().successor(), self.stride)?;
        queue.move_to(ring);
        Ok(())
    }

    /// Runs `f` on the queue with the lock held.
    fn with<R>(&self, f: impl FnOnce(&mut WorkQueue<IbvRecvWr>) -> R) -> R {
        // SAFETY: The lock is held, so nothing else refers to the queue.
        self.lock.with(|| f(unsafe { &mut *self.queue.get() }))
    }
}

impl Srq {
    /// The provider's part of a queue.
    ///
    /// # Safety
    ///
    /// `srq` must be from [`create`] and not destroyed in `'a`.
    unsafe fn shared<'a>(srq: *mut IbvSrq) -> &'a Shared {
        // SAFETY: The caller's promise. Only this member is borrowed: the C part changes under us.
        let shared = unsafe { &(*srq.cast::<Srq>()).shared };
        shared.as_ref().expect("a queue in use has its ring")
    }
}

/// Says why the kernel has refused a queue, or a change of it, with so many receives of so many
/// pieces; the error. What was not asked for is 0.
///
/// # Safety
///
/// `context` must be open.
#[cold]
unsafe fn refused(
    error: c_int,
    verb: &str,
    context: *mut IbvContext,
    [wr, sge]: [u32; 2],
    stride: u32,
) -> c_int {
    if !log::is_wanted() {
        return error;
    }
    // SAFETY: The caller's promise.
    let limits = unsafe { DeviceLimits::query(context) };
    let (wr, sge) = (u64::from(wr), u64::from(sge));
    let asked = [
        ("max_wr", wr, limits.srq_wr),
        ("max_sge", sge, limits.srq_sge),
    ];
    let bytes = wr.next_power_of_two() * u64::from(stride);
    by_kernel(error, verb, &asked, bytes)
}

/// Creates a queue; `attr.attr` becomes the granted size. Its limit is ignored.
pub unsafe extern "C" fn create(pd: *mut IbvPd, attr: *mut SrqInitAttr) -> *mut IbvSrq {
    // SAFETY: All zeros are valid: there are integers and pointers in the C part, and `shared` is
    // written before anything reads it.
    let srq = match unsafe { Object::<Srq>::zeroed() } {
        Ok(srq) => srq,
        Err(error) => return fail(error),
    };
    let address = srq.as_ptr();
    // SAFETY: The object is ours alone.
    unsafe { (&raw mut (*address).shared).write(None) };
    let mut cmd: CreateSrq = [0; 5];
    let mut resp = CreateSrqResp {
        core: [0; 4],
        driver: udata::CreateSrqResp::default(),
    };
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_create_srq)(
            pd,
            address.cast(),
            attr,
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        // SAFETY: Contract of the verb.
        let (context, wanted) = unsafe { ((*pd).context, (*attr).attr) };
        let stride = recv_stride(wanted.max_sge.clamp(1, wqe::MAX_SGE));
        let wanted = [wanted.max_wr, wanted.max_sge];
        // SAFETY: Contract of the verb.
        return fail(unsafe { refused(error, "create_srq", context, wanted, stride) });
    }
    // SAFETY: Contract of the verb.
    let (fd, granted, single) =
        unsafe { (cmd_fd((*pd).context), (*attr).attr, is_single_threaded(pd)) };
    match Shared::map(fd, &resp.driver.srq, &granted, single) {
        Ok(shared) => {
            // SAFETY: The object is ours alone until it is handed out.
            unsafe { (&raw mut (*address).shared).write(Some(shared)) };
            srq.leak().cast()
        }
        Err(error) => {
            // SAFETY: The kernel has made this queue, and no other code knows it.
            unsafe { (library().ibv_cmd_destroy_srq)(address.cast()) };
            fail(error)
        }
    }
}

/// Arms the limit, and resizes: EINVAL for less room than there are receives. If the new ring
/// cannot be mapped the error says so, and the queue takes no more receives until the next resize
/// has found room for it.
pub unsafe extern "C" fn modify(srq: *mut IbvSrq, attr: *mut SrqAttr, mask: c_int) -> c_int {
    // SAFETY: Contract of the verb.
    let (shared, fd) = unsafe { (Srq::shared(srq), cmd_fd((*srq).context)) };
    shared.with(|queue| {
        if mask & SRQ_MAX_WR != 0 && queue.is_closed() {
            // The module stores the successor in the old ring.
            if let Err(error) = shared.follow(queue, fd) {
                return error;
            }
        }
        let mut cmd: ModifySrq = [0; 3];
        // SAFETY: Contract of the verb; the command has the size given.
        let error =
            unsafe { (library().ibv_cmd_modify_srq)(srq, attr, mask, &mut cmd, size_of_val(&cmd)) };
        if error != 0 {
            // Its other members are what the application has left there.
            let wr = if mask & SRQ_MAX_WR != 0 {
                // SAFETY: Contract of the verb.
                unsafe { (*attr).max_wr }
            } else {
                0
            };
            let stride = shared.stride;
            // SAFETY: Contract of the verb.
            return unsafe { refused(error, "modify_srq", (*srq).context, [wr, 0], stride) };
        }
        if mask & SRQ_MAX_WR == 0 {
            return 0;
        }
        queue.close();
        shared.follow(queue, fd).err().unwrap_or(0)
    })
}

/// Queries a queue.
pub unsafe extern "C" fn query(srq: *mut IbvSrq, attr: *mut SrqAttr) -> c_int {
    let mut cmd: QuerySrq = [0; 3];
    // SAFETY: Contract of the verb; the command has the size given.
    unsafe { (library().ibv_cmd_query_srq)(srq, attr, &mut cmd, size_of_val(&cmd)) }
}

/// Destroys a queue; libibverbs waits in there until its events are acknowledged.
pub unsafe extern "C" fn destroy(srq: *mut IbvSrq) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_destroy_srq)(srq) };
    if error == 0 {
        // SAFETY: It is from `create`, and gone for the application.
        drop(unsafe { Object::reclaim(srq.cast::<Srq>()) });
    }
    error
}

/// Posts a list of receive requests: EINVAL for a malformed request, ENOMEM for a full queue.
pub unsafe extern "C" fn post_recv(
    srq: *mut IbvSrq,
    list: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: Contract of the verb; the queue is used with the lock held.
    let (_, taken) = unsafe {
        let posted = |wr: &IbvRecvWr, index| probe::post_srq_recv(srq, wr, index);
        Srq::shared(srq).with(|queue| queue.publish(list, posted))
    };
    match taken {
        Ok(()) => 0,
        Err((bad, error)) => {
            // SAFETY: Contract of the verb.
            unsafe { bad_wr.write(bad) };
            error
        }
    }
}
