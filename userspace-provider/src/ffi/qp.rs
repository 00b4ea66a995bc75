// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Queue pairs: their life, and the verbs that post work requests.

use super::{
    cq::{cmd_fd, Cq},
    domain::is_single_threaded,
    layout::*,
    library::library,
    limits::DeviceLimits,
    log,
    memory::{fail, Object},
    work_queue::{post, WorkQueue},
};
use crate::{
    draft::{has_operations, Session},
    refusal::{by_kernel, of_path, reject},
    request::{RecvLimits, SendLimits},
};
use core::{
    ffi::c_int,
    mem::{offset_of, zeroed},
    ptr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use ferroce_core::service::{Protocol, QpType, Service};
use ferroce_core::uabi::{
    udata,
    wqe::{self, recv_stride, send_stride},
};
use libc::{EOPNOTSUPP, EPROTO};

/// A queue pair. libibverbs and the application know it by its first member.
#[repr(C)]
struct Qp {
    ibv: VerbsQp,
    queues: Option<Queues>,
}

/// The provider's part of a queue pair.
struct Queues {
    /// The state that the last [`modify`] has brought. That of `struct ibv_qp` will not do: a query
    /// writes it too, and one that a change has overtaken writes an old state, which then stays.
    state: AtomicU32,
    sq: Option<WorkQueue<IbvSendWr>>,
    rq: Option<WorkQueue<IbvRecvWr>>,
    /// Where sends and receives complete; null or ours. They outlive the QP.
    cqs: [*mut Cq; 2],
    /// The extended posting interface.
    session: Session,
}

/// What a QP was made with.
struct Granted {
    service: Service,
    cap: QpCap,
    sig_all: bool,
    cqs: [*mut IbvCq; 2],
    /// The operations of the extended posting interface, as in `send_ops_flags`.
    operations: u64,
}

impl Queues {
    /// Maps the queues of a QP that the kernel has made; one thread at a time uses them if
    /// `single`.
    fn map(
        cmd_fd: c_int,
        single: bool,
        resp: &udata::CreateQpResp,
        granted: &Granted,
    ) -> Result<Self, c_int> {
        let cap = &granted.cap;
        if cap.max_send_sge > wqe::MAX_SGE
            || cap.max_recv_sge > wqe::MAX_SGE
            || cap.max_inline_data > wqe::MAX_INLINE
        {
            return Err(EPROTO);
        }
        let send = send_stride(cap.max_send_sge, cap.max_inline_data);
        let recv = recv_stride(cap.max_recv_sge);
        let send_limits = SendLimits {
            service: granted.service,
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            always: if granted.sig_all {
                wqe::SEND_SIGNALED
            } else {
                0
            },
        };
        let recv_limits = RecvLimits {
            max_sge: cap.max_recv_sge,
        };
        Ok(Self {
            state: AtomicU32::new(QPS_RESET),
            sq: WorkQueue::map(cmd_fd, &resp.sq, cap.max_send_wr, send, send_limits, single)?,
            rq: WorkQueue::map(cmd_fd, &resp.rq, cap.max_recv_wr, recv, recv_limits, single)?,
            cqs: granted.cqs.map(|cq| cq.cast()),
            session: Session::new(granted.operations),
        })
    }

    /// The state as the application has set it. The module may know better (it may be in error),
    /// and deals with what is posted then.
    #[inline]
    fn state(&self) -> u32 {
        self.state.load(Relaxed)
    }

    /// Takes the completions of a QP that is reset or gone out of its CQs: the application frees
    /// what they point to.
    ///
    /// # Safety
    ///
    /// The CQs are alive. The module completes nothing more under this number.
    unsafe fn forget_completions(cqs: [*mut Cq; 2], qp_num: u32) {
        let [send, recv] = cqs;
        for cq in [Some(send), Some(recv).filter(|recv| *recv != send)] {
            if let Some(cq) = cq.filter(|cq| !cq.is_null()) {
                // SAFETY: The caller's promise.
                unsafe { Cq::forget(cq, qp_num) };
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
    fn finish(qp: Object<Qp>, resp: &CreateQpResp, granted: &Granted) -> Result<*mut IbvQp, c_int> {
        let address = qp.as_ptr();
        // SAFETY: The object is ours alone, and libibverbs has filled in its C part, the open
        // context among it.
        let fd = unsafe { cmd_fd((*address).ibv.qp.context) };
        // SAFETY: As above: its domain is the one that the application gave.
        let single = unsafe { is_single_threaded((*address).ibv.qp.pd) };
        match Queues::map(fd, single, &resp.driver, granted) {
            Ok(queues) => {
                // SAFETY: The object is ours alone until it is handed out.
                unsafe { (&raw mut (*address).queues).write(Some(queues)) };
                Ok(qp.leak().cast())
            }
            Err(error) => {
                // SAFETY: The kernel has made this QP, and no other code knows it.
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

/// The row of a QP type, if it is served.
fn service_of(qp_type: u32) -> Option<Service> {
    QpType::from_raw(qp_type).map(QpType::service)
}

#[cold]
fn no_such_type(qp_type: u32) -> c_int {
    reject(
        EOPNOTSUPP,
        format_args!("create_qp: qp_type is {qp_type}, and may be 2 (RC), 3 (UC) or 4 (UD)"),
    )
}

/// Says why the module has refused a QP; the error.
///
/// # Safety
///
/// `context` must be open.
#[cold]
unsafe fn refused(error: c_int, context: *mut IbvContext, cap: &QpCap, service: Service) -> c_int {
    if !log::is_wanted() {
        return error;
    }
    // SAFETY: The caller's promise.
    let limits = unsafe { DeviceLimits::query(context) };
    let asked = [
        ("max_send_wr", cap.max_send_wr, limits.qp_wr),
        ("max_recv_wr", cap.max_recv_wr, limits.qp_wr),
        ("max_send_sge", cap.max_send_sge, limits.sge),
        ("max_recv_sge", cap.max_recv_sge, limits.sge),
        (
            "max_inline_data",
            cap.max_inline_data,
            wqe::MAX_INLINE.into(),
        ),
    ]
    .map(|(attribute, value, most)| (attribute, u64::from(value), most));
    let ring = |wr: u32, stride: u32| u64::from(wr.max(1)).next_power_of_two() * u64::from(stride);
    let sge = |wanted: u32| wanted.clamp(1, wqe::MAX_SGE);
    let inline = cap.max_inline_data.min(wqe::MAX_INLINE);
    let bytes = ring(cap.max_send_wr, send_stride(sge(cap.max_send_sge), inline))
        + ring(cap.max_recv_wr, recv_stride(sge(cap.max_recv_sge)));
    let verb = match service.protocol {
        Protocol::Reliable => "create_qp of RC",
        Protocol::Datagram => "create_qp of UD",
        _ => "create_qp of UC",
    };
    by_kernel(error, verb, &asked, bytes)
}

fn empty_resp() -> CreateQpResp {
    CreateQpResp {
        core: [0; 8],
        driver: udata::CreateQpResp::default(),
    }
}

/// Creates a QP; `attr.cap` becomes the granted capacity.
pub unsafe extern "C" fn create(pd: *mut IbvPd, attr: *mut QpInitAttr) -> *mut IbvQp {
    // SAFETY: Contract of the verb.
    let Some(service) = service_of(unsafe { (*attr).qp_type }) else {
        // SAFETY: As above.
        return fail(no_such_type(unsafe { (*attr).qp_type }));
    };
    let qp = match Qp::new() {
        Ok(qp) => qp,
        Err(error) => return fail(error),
    };
    // SAFETY: Contract of the verb.
    let wanted = unsafe { (*attr).cap };
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
        // SAFETY: Contract of the verb.
        return fail(unsafe { refused(error, (*pd).context, &wanted, service) });
    }
    // SAFETY: Contract of the verb.
    let attr = unsafe { *attr };
    let granted = Granted {
        service,
        cap: attr.cap,
        sig_all: attr.sq_sig_all != 0,
        cqs: [attr.send_cq, attr.recv_cq],
        operations: 0,
    };
    Qp::finish(qp, &resp, &granted).unwrap_or_else(fail)
}

/// Copies the attributes that the application gives. One that was built with older headers has a
/// shorter structure: what is behind `comp_mask` is there only if that says so.
///
/// # Safety
///
/// `attr` is readable up to `comp_mask`, and has the members that it says.
unsafe fn read_attr(attr: *const QpInitAttrEx) -> QpInitAttrEx {
    // SAFETY: All zeros are valid: there are integers and pointers in it.
    let mut inner: QpInitAttrEx = unsafe { zeroed() };
    // SAFETY: The caller's promise; both are plain data, of which these are the first bytes.
    unsafe {
        ptr::copy_nonoverlapping(
            attr.cast::<u8>(),
            (&raw mut inner).cast::<u8>(),
            offset_of!(QpInitAttrEx, pd),
        );
    }
    if inner.comp_mask & INIT_ATTR_PD != 0 {
        // SAFETY: The caller's promise.
        inner.pd = unsafe { (&raw const (*attr).pd).read() };
    }
    if inner.comp_mask & INIT_ATTR_CREATE_FLAGS != 0 {
        // SAFETY: The caller's promise.
        inner.create_flags = unsafe { (&raw const (*attr).create_flags).read() };
    }
    if inner.comp_mask & INIT_ATTR_SEND_OPS_FLAGS != 0 {
        // SAFETY: The caller's promise.
        inner.send_ops_flags = unsafe { (&raw const (*attr).send_ops_flags).read() };
    }
    inner
}

/// The attributes of the extended kind that are served.
const INIT_ATTRS: u32 = INIT_ATTR_PD | INIT_ATTR_CREATE_FLAGS | INIT_ATTR_SEND_OPS_FLAGS;

/// Makes a QP with attributes of the extended kind: those that say no more than [`create`], and for
/// which operations it is to have the extended posting interface.
pub unsafe extern "C" fn create_ex(
    context: *mut IbvContext,
    attr: *mut QpInitAttrEx,
) -> *mut IbvQp {
    // SAFETY: Contract of the verb.
    let mut inner = unsafe { read_attr(attr) };
    let Some(service) = service_of(inner.qp_type) else {
        return fail(no_such_type(inner.qp_type));
    };
    if inner.comp_mask & !INIT_ATTRS != 0
        || inner.create_flags != 0
        || !has_operations(&service, inner.send_ops_flags)
    {
        return fail(reject(
            EOPNOTSUPP,
            format_args!(
                "create_qp_ex: comp_mask {:#x} may be of {INIT_ATTRS:#x}, create_flags {:#x} must \
                 be 0, send_ops_flags {:#x} must be operations of the type {}",
                inner.comp_mask, inner.create_flags, inner.send_ops_flags, inner.qp_type
            ),
        ));
    }
    let operations = inner.send_ops_flags;
    inner.comp_mask &= !(INIT_ATTR_CREATE_FLAGS | INIT_ATTR_SEND_OPS_FLAGS);
    let qp = match Qp::new() {
        Ok(qp) => qp,
        Err(error) => return fail(error),
    };
    let wanted = inner.cap;
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
        // SAFETY: Contract of the verb.
        return fail(unsafe { refused(error, context, &wanted, service) });
    }
    // SAFETY: Contract of the verb.
    unsafe { (&raw mut (*attr).cap).write(inner.cap) };
    let granted = Granted {
        service,
        cap: inner.cap,
        sig_all: inner.sq_sig_all != 0,
        cqs: [inner.send_cq, inner.recv_cq],
        operations,
    };
    Qp::finish(qp, &resp, &granted).unwrap_or_else(fail)
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

/// Says why the kernel has refused a change of a QP; the error.
///
/// # Safety
///
/// `qp` must be valid, and `attr` have what `attr_mask` says.
#[cold]
unsafe fn not_modified(
    error: c_int,
    qp: *mut IbvQp,
    attr: *const QpAttr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: The caller's promise.
    let now = unsafe { Qp::queues(qp) }.state();
    let states = if attr_mask & QP_STATE != 0 {
        // SAFETY: The caller's promise.
        format!("from state {now} to {}", unsafe { (*attr).qp_state })
    } else {
        format!("in state {now}")
    };
    let verb = format!("modify_qp {states} with attr_mask {attr_mask:#x}");
    if attr_mask & QP_AV == 0 {
        return by_kernel(error, &verb, &[], 0);
    }
    // SAFETY: The caller's promise.
    let path = unsafe { (&raw const (*attr).ah_attr).read() };
    of_path(error, &verb, &path)
}

/// Modifies a QP. libibverbs notes the new state, too, after this returns.
pub unsafe extern "C" fn modify(qp: *mut IbvQp, attr: *mut QpAttr, attr_mask: c_int) -> c_int {
    let mut cmd: ModifyQp = [0; 15];
    // SAFETY: Contract of the verb; the command has the size given.
    let error =
        unsafe { (library().ibv_cmd_modify_qp)(qp, attr, attr_mask, &mut cmd, size_of_val(&cmd)) };
    if error != 0 {
        // SAFETY: Contract of the verb.
        return unsafe { not_modified(error, qp, attr, attr_mask) };
    }
    if attr_mask & QP_STATE == 0 {
        return 0;
    }
    // SAFETY: Contract of the verb.
    let (queues, state) = unsafe { (Qp::queues(qp), (*attr).qp_state) };
    queues.state.store(state, Relaxed);
    if state == QPS_RESET {
        // SAFETY: Contract of the verb. The module has emptied the QP.
        unsafe { Queues::forget_completions(queues.cqs, (*qp).qp_num) };
        if let Some(sq) = &queues.sq {
            sq.reset();
        }
        if let Some(rq) = &queues.rq {
            rq.reset();
        }
    }
    0
}

/// Destroys a QP; libibverbs waits in there until its events are acknowledged.
pub unsafe extern "C" fn destroy(qp: *mut IbvQp) -> c_int {
    // SAFETY: Contract of the verb.
    let (cqs, qp_num) = unsafe { (Qp::queues(qp).cqs, (*qp).qp_num) };
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_destroy_qp)(qp) };
    if error == 0 {
        // SAFETY: The QP is gone for the module; the application destroys its CQs after it.
        unsafe { Queues::forget_completions(cqs, qp_num) };
        // SAFETY: It is from `Qp::finish`, and gone for the application.
        drop(unsafe { Object::reclaim(qp.cast::<Qp>()) });
    }
    error
}

/// Attaches a QP to a multicast group; the module does all of it.
pub unsafe extern "C" fn attach(qp: *mut IbvQp, gid: Opaque, lid: u16) -> c_int {
    // SAFETY: Contract of the verb.
    match unsafe { (library().ibv_cmd_attach_mcast)(qp, gid, lid) } {
        0 => 0,
        error => by_kernel(error, "attach_mcast", &[], 0),
    }
}

/// Detaches it.
pub unsafe extern "C" fn detach(qp: *mut IbvQp, gid: Opaque, lid: u16) -> c_int {
    // SAFETY: Contract of the verb.
    unsafe { (library().ibv_cmd_detach_mcast)(qp, gid, lid) }
}

/// State of the extended posting interface of a QP.
///
/// # Safety
///
/// As [`Qp::queues`].
#[inline]
pub unsafe fn posting<'a>(qp: *mut IbvQp) -> (&'a Session, Option<&'a WorkQueue<IbvSendWr>>) {
    // SAFETY: The caller's promise.
    let queues: &Queues = unsafe { Qp::queues(qp) };
    (&queues.session, queues.sq.as_ref())
}

/// Whether the QP takes send requests in its state.
///
/// # Safety
///
/// As [`Qp::queues`].
#[inline]
pub unsafe fn may_send(qp: *mut IbvQp) -> bool {
    // SAFETY: The caller's promise.
    unsafe { Qp::queues(qp) }.state() >= QPS_RTS
}

/// Posts a list of send requests: EINVAL for a QP that cannot send yet or a malformed request,
/// EOPNOTSUPP for an operation that ferroce does not have, ENOMEM for a full queue.
pub unsafe extern "C" fn post_send(
    qp: *mut IbvQp,
    list: *mut IbvSendWr,
    bad_wr: *mut *mut IbvSendWr,
) -> c_int {
    // SAFETY: Contract of the verb.
    unsafe {
        let ready = may_send(qp);
        post(Qp::queues(qp).sq.as_ref(), ready, qp, list, bad_wr)
    }
}

/// Posts a list of receive requests: EINVAL in the state RESET, for a malformed request, and with a
/// shared receive queue; ENOMEM for a full queue.
pub unsafe extern "C" fn post_recv(
    qp: *mut IbvQp,
    list: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: Contract of the verb.
    unsafe {
        let queues = Qp::queues(qp);
        let ready = queues.state() != QPS_RESET && (*qp).srq.is_null();
        post(queues.rq.as_ref(), ready, qp, list, bad_wr)
    }
}
