// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Queue pairs: their life, and posting work requests.

use super::{
    cq::cmd_fd,
    layout::*,
    library::library,
    mapping::Ring,
    memory::{errno, fail, sg_list, Object},
};
use crate::{
    doorbell::{self, Doorbell},
    lock::Lock,
    request::{encode_recv, encode_send, SendLimits},
    ring::Cursor,
};
use core::{
    ffi::c_int,
    ptr,
    sync::atomic::{fence, Ordering},
};
use ferroce_core::uabi::{
    ring::FLAG_NEED_DOORBELL,
    udata,
    wqe::{self, recv_stride, send_stride},
};
use libc::{EINVAL, ENOMEM, EOPNOTSUPP, EPROTO};
use zerocopy::IntoBytes;

/// A queue pair. libibverbs and the application know it by its first member.
#[repr(C)]
struct Qp {
    ibv: VerbsQp,
    queues: Option<Queues>,
}

/// The provider's part of a queue pair.
struct Queues {
    cmd_fd: c_int,
    handle: u32,
    sq: Option<WorkQueue>,
    rq: Option<WorkQueue>,
    send: SendLimits,
    max_recv_sge: u32,
}

/// A send or receive queue.
struct WorkQueue {
    ring: Ring,
    cursor: Cursor,
    /// Most requests at a time.
    limit: u32,
    lock: Lock,
}

impl WorkQueue {
    /// Maps a queue of `max_wr` requests; `None` if the module has none because none was asked for.
    fn map(
        cmd_fd: c_int,
        map: &udata::RingMap,
        max_wr: u32,
        stride: u32,
    ) -> Result<Option<Self>, c_int> {
        if map.length == 0 {
            return if max_wr == 0 { Ok(None) } else { Err(EPROTO) };
        }
        let ring = Ring::map(cmd_fd, map, stride)?;
        let cursor = Cursor::default();
        // The module begins at 0; but it has the last word on what was consumed.
        cursor.reset(ring.consumer());
        let limit = max_wr.min(ring.entries());
        Ok(Some(Self {
            ring,
            cursor,
            limit,
            lock: Lock::default(),
        }))
    }

    /// Whether slot `index` is free.
    #[inline]
    fn has_room(&self, index: u32) -> bool {
        self.cursor
            .has_room(index, self.limit, || self.ring.consumer())
    }

    /// Publishes the requests from the own index up to `end`; whether there are any.
    #[inline]
    fn publish(&self, end: u32) -> bool {
        let any = end != self.cursor.own();
        if any {
            self.cursor.set_own(end);
            self.ring.publish_producer(end);
        }
        any
    }

    /// Whether the module wants to be told of what was published.
    #[inline]
    fn needs_doorbell(&self) -> bool {
        // The module sets the flag and then looks at the index once more: either it sees the index
        // published before this barrier, or the flag is seen behind it.
        fence(Ordering::SeqCst);
        self.ring.flags() & FLAG_NEED_DOORBELL != 0
    }

    /// Forgets all requests: the module has emptied the queue.
    fn reset(&self) {
        self.lock.with(|| {
            let index = self.ring.consumer();
            self.cursor.reset(index);
            self.ring.publish_producer(index);
        });
    }
}

impl Queues {
    /// Maps the queues of a QP that the kernel has made with `cap`.
    fn map(
        cmd_fd: c_int,
        handle: u32,
        resp: &udata::CreateQpResp,
        cap: &QpCap,
        sig_all: bool,
    ) -> Result<Self, c_int> {
        if cap.max_send_sge > wqe::MAX_SGE
            || cap.max_recv_sge > wqe::MAX_SGE
            || cap.max_inline_data > wqe::MAX_INLINE
        {
            return Err(EPROTO);
        }
        let send = send_stride(cap.max_send_sge, cap.max_inline_data);
        let recv = recv_stride(cap.max_recv_sge);
        Ok(Self {
            cmd_fd,
            handle,
            sq: WorkQueue::map(cmd_fd, &resp.sq, cap.max_send_wr, send)?,
            rq: WorkQueue::map(cmd_fd, &resp.rq, cap.max_recv_wr, recv)?,
            send: SendLimits {
                max_sge: cap.max_send_sge,
                max_inline: cap.max_inline_data,
                always: if sig_all { wqe::SEND_SIGNALED } else { 0 },
            },
            max_recv_sge: cap.max_recv_sge,
        })
    }

    /// Makes the module look at a queue.
    ///
    /// # Errors
    ///
    /// What uverbs says, which is never for want of trying: an interrupted call and one that found
    /// no memory are repeated. What is left (EIO of a device that is gone, above all) means that
    /// nothing of this QP will run again.
    fn ring_doorbell(&self, queue: doorbell::Queue) -> Result<(), c_int> {
        /// Turns to wait for memory; the command needs less than a page.
        const TURNS: u32 = 1000;
        let mut response: doorbell::Response = 0;
        let address = (&raw mut response) as u64;
        let command = Doorbell::new(queue, self.handle, address);
        let bytes = command.as_bytes();
        let mut turn = 0;
        loop {
            // SAFETY: The command is readable for its length; uverbs writes the response, which is
            // as long as the command says and lives until the call returns.
            let written = unsafe { libc::write(self.cmd_fd, bytes.as_ptr().cast(), bytes.len()) };
            if written >= 0 {
                return Ok(());
            }
            match errno() {
                libc::EINTR => (),
                ENOMEM | libc::EAGAIN if turn < TURNS => {
                    turn += 1;
                    std::thread::yield_now();
                }
                error => return Err(error),
            }
        }
    }
}

impl Qp {
    /// A QP of zeros, not yet known to the kernel.
    fn new() -> Result<Object<Qp>, c_int> {
        // SAFETY: All zeros are valid: there are integers and pointers in the C part, and `queues`
        // is written before anything reads it.
        let qp = unsafe { Object::<Qp>::zeroed() }?;
        // SAFETY: The object is ours alone.
        unsafe { (&raw mut (*qp.as_ptr()).queues).write(None) };
        Ok(qp)
    }

    /// Maps the queues of a QP that the kernel has made. On failure the kernel's QP is destroyed.
    fn finish(
        qp: Object<Qp>,
        resp: &CreateQpResp,
        cap: &QpCap,
        sig_all: bool,
    ) -> Result<*mut IbvQp, c_int> {
        let address = qp.as_ptr();
        // SAFETY: The object is ours alone, and libibverbs has filled in its C part.
        let (context, handle) = unsafe { ((*address).ibv.qp.context, (*address).ibv.qp.handle) };
        // SAFETY: It is the context of the call.
        let fd = unsafe { cmd_fd(context) };
        match Queues::map(fd, handle, &resp.driver, cap, sig_all) {
            Ok(queues) => {
                // SAFETY: The object is ours alone until it is handed out.
                unsafe { (&raw mut (*address).queues).write(Some(queues)) };
                Ok(qp.leak().cast())
            }
            Err(error) => {
                // SAFETY: The kernel has made this QP, and nobody else knows it.
                unsafe { (library().ibv_cmd_destroy_qp)(address.cast()) };
                Err(error)
            }
        }
    }

    /// The provider's part of a QP.
    ///
    /// # Safety
    ///
    /// `qp` must be from [`Qp::finish`] and not destroyed in `'a`.
    #[inline]
    unsafe fn queues<'a>(qp: *mut IbvQp) -> &'a Queues {
        // SAFETY: The caller's promise. Only this member is borrowed: the C part changes under us.
        let queues = unsafe { &(*qp.cast::<Qp>()).queues };
        queues.as_ref().expect("a QP in use has its rings")
    }
}

/// The state of the QP as libibverbs knows it. The module may know better (it may be in error),
/// and deals with what is posted then.
///
/// # Safety
///
/// `qp` must be valid.
#[inline]
unsafe fn state(qp: *mut IbvQp) -> u32 {
    // SAFETY: The caller's promise. libibverbs may change it in another thread.
    unsafe { ptr::read_volatile(&raw const (*qp).state) }
}

fn empty_resp() -> CreateQpResp {
    CreateQpResp {
        core: [0; 8],
        driver: udata::CreateQpResp::default(),
    }
}

/// Makes a QP; `attr.cap` becomes what the module grants.
pub unsafe extern "C" fn create(pd: *mut IbvPd, attr: *mut QpInitAttr) -> *mut IbvQp {
    // SAFETY: Contract of the verb.
    let (qp_type, srq) = unsafe { ((*attr).qp_type, (*attr).srq) };
    if qp_type != QPT_RC || !srq.is_null() {
        return fail(EOPNOTSUPP);
    }
    let qp = match Qp::new() {
        Ok(qp) => qp,
        Err(error) => return fail(error),
    };
    let (mut cmd, mut resp): (CreateQp, _) = ([0; 8], empty_resp());
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_create_qp)(
            pd,
            qp.as_ptr().cast(),
            attr,
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        return fail(error);
    }
    // SAFETY: Contract of the verb.
    let (cap, sig_all) = unsafe { ((*attr).cap, (*attr).sq_sig_all != 0) };
    Qp::finish(qp, &resp, &cap, sig_all).unwrap_or_else(fail)
}

/// Makes a QP with attributes of the extended kind: those that say no more than [`create`].
pub unsafe extern "C" fn create_ex(
    context: *mut IbvContext,
    attr: *mut QpInitAttrEx,
) -> *mut IbvQp {
    // SAFETY: Contract of the verb; it is plain data.
    let mut inner = unsafe { ptr::read(attr) };
    let plain_flags = inner.comp_mask & INIT_ATTR_CREATE_FLAGS == 0 || inner.create_flags == 0;
    if inner.qp_type != QPT_RC
        || !inner.srq.is_null()
        || inner.comp_mask & !(INIT_ATTR_PD | INIT_ATTR_CREATE_FLAGS) != 0
        || !plain_flags
    {
        return fail(EOPNOTSUPP);
    }
    inner.comp_mask &= !INIT_ATTR_CREATE_FLAGS;
    let qp = match Qp::new() {
        Ok(qp) => qp,
        Err(error) => return fail(error),
    };
    let (mut cmd, mut resp): (CreateQp, _) = ([0; 8], empty_resp());
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_create_qp_ex)(
            context,
            qp.as_ptr().cast(),
            &mut inner,
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        return fail(error);
    }
    // SAFETY: Contract of the verb.
    unsafe { (*attr).cap = inner.cap };
    Qp::finish(qp, &resp, &inner.cap, inner.sq_sig_all != 0).unwrap_or_else(fail)
}

/// Queries a QP.
pub unsafe extern "C" fn query(
    qp: *mut IbvQp,
    attr: Opaque,
    attr_mask: c_int,
    init_attr: Opaque,
) -> c_int {
    let mut cmd: QueryQp = [0; 3];
    // SAFETY: Contract of the verb; the command has the size given.
    unsafe {
        (library().ibv_cmd_query_qp)(qp, attr, attr_mask, init_attr, &mut cmd, size_of_val(&cmd))
    }
}

/// Modifies a QP. libibverbs notes the new state after this returns.
pub unsafe extern "C" fn modify(qp: *mut IbvQp, attr: *mut QpAttr, attr_mask: c_int) -> c_int {
    let mut cmd: ModifyQp = [0; 15];
    // SAFETY: Contract of the verb; the command has the size given.
    let error =
        unsafe { (library().ibv_cmd_modify_qp)(qp, attr, attr_mask, &mut cmd, size_of_val(&cmd)) };
    // SAFETY: Contract of the verb.
    let resets = || unsafe { (*attr).qp_state } == QPS_RESET;
    if error == 0 && attr_mask & QP_STATE != 0 && resets() {
        // SAFETY: Contract of the verb.
        let queues = unsafe { Qp::queues(qp) };
        [&queues.sq, &queues.rq]
            .into_iter()
            .flatten()
            .for_each(WorkQueue::reset);
    }
    error
}

/// Destroys a QP; libibverbs waits in there until its events are acknowledged.
pub unsafe extern "C" fn destroy(qp: *mut IbvQp) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_destroy_qp)(qp) };
    if error == 0 {
        // SAFETY: It is from `Qp::finish`, and gone for the application.
        drop(unsafe { Object::reclaim(qp.cast::<Qp>()) });
    }
    error
}

/// Posts a list of send requests.
///
/// Returns 0, or a positive errno with `*bad_wr` at the first request that was not taken: EINVAL
/// for a QP that cannot send yet or a malformed request, EOPNOTSUPP for an operation that ferroce
/// does not have, ENOMEM for a full queue. The requests before it are under way. A doorbell that
/// fails for good is reported at the first request, for then none of them will run.
pub unsafe extern "C" fn post_send(
    qp: *mut IbvQp,
    list: *mut IbvSendWr,
    bad_wr: *mut *mut IbvSendWr,
) -> c_int {
    // SAFETY: Contract of the verb.
    let queues = unsafe { Qp::queues(qp) };
    // SAFETY: Contract of the verb.
    let ready = unsafe { state(qp) } >= QPS_RTS;
    let sq = queues.sq.as_ref().filter(|_| ready);
    let (Some(sq), false) = (sq, list.is_null()) else {
        let error = if ready { ENOMEM } else { EINVAL };
        return refuse_unless_empty(list, bad_wr, error);
    };
    let mut wr = list;
    let mut error = 0;
    sq.lock.acquire();
    let mut index = sq.cursor.own();
    while !wr.is_null() {
        // SAFETY: Contract of the verb: a valid request, with a list of the length that it says.
        let result = unsafe {
            let request = &*wr;
            sg_list(request.sg_list, request.num_sge).and_then(|sges| {
                if !sq.has_room(index) {
                    return Err(ENOMEM);
                }
                encode_send(&sq.ring.slot_for_post(index), request, sges, &queues.send)
            })
        };
        if let Err(why) = result {
            error = why;
            break;
        }
        index = index.wrapping_add(1);
        // SAFETY: As above.
        wr = unsafe { (*wr).next };
    }
    let published = sq.publish(index);
    sq.lock.release();
    if published && sq.needs_doorbell() {
        if let Err(why) = queues.ring_doorbell(doorbell::Queue::Send) {
            (error, wr) = (why, list);
        }
    }
    if error != 0 {
        // SAFETY: Contract of the verb.
        unsafe { bad_wr.write(wr) };
    }
    error
}

/// Posts a list of receive requests. Returns as [`post_send`] does; EINVAL in the state RESET.
pub unsafe extern "C" fn post_recv(
    qp: *mut IbvQp,
    list: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: Contract of the verb.
    let queues = unsafe { Qp::queues(qp) };
    // SAFETY: Contract of the verb.
    let ready = unsafe { state(qp) } != QPS_RESET;
    let rq = queues.rq.as_ref().filter(|_| ready);
    let (Some(rq), false) = (rq, list.is_null()) else {
        let error = if ready { ENOMEM } else { EINVAL };
        return refuse_unless_empty(list, bad_wr, error);
    };
    let mut wr = list;
    let mut error = 0;
    rq.lock.acquire();
    let mut index = rq.cursor.own();
    while !wr.is_null() {
        // SAFETY: Contract of the verb: a valid request, with a list of the length that it says.
        let result = unsafe {
            let request = &*wr;
            sg_list(request.sg_list, request.num_sge).and_then(|sges| {
                if !rq.has_room(index) {
                    return Err(ENOMEM);
                }
                let slot = rq.ring.slot_for_post(index);
                encode_recv(&slot, request, sges, queues.max_recv_sge)
            })
        };
        if let Err(why) = result {
            error = why;
            break;
        }
        index = index.wrapping_add(1);
        // SAFETY: As above.
        wr = unsafe { (*wr).next };
    }
    let published = rq.publish(index);
    rq.lock.release();
    if published && rq.needs_doorbell() {
        if let Err(why) = queues.ring_doorbell(doorbell::Queue::Recv) {
            (error, wr) = (why, list);
        }
    }
    if error != 0 {
        // SAFETY: Contract of the verb.
        unsafe { bad_wr.write(wr) };
    }
    error
}

/// Refuses a list as a whole; an empty one is no error.
fn refuse_unless_empty<T>(list: *mut T, bad_wr: *mut *mut T, error: c_int) -> c_int {
    if list.is_null() {
        return 0;
    }
    // SAFETY: Contract of the verb: every caller hands through the argument of its own.
    unsafe { bad_wr.write(list) };
    error
}
