// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Memory regions: registered, reregistered, imported, and the null region.

use super::{
    layout::*,
    library::library,
    memory::{fail, Object},
};
use crate::refusal::{by_kernel, reject};
use core::ffi::c_int;
use ferroce_core::uabi::udata::NULL_LKEY;
use libc::{EFAULT, EINVAL, EOPNOTSUPP};

/// A region of zeros.
fn new() -> Result<Object<VerbsMr>, c_int> {
    // SAFETY: All zeros are a valid MR.
    unsafe { Object::<VerbsMr>::zeroed() }
}

/// Hands a region to libibverbs: `struct ibv_mr` is the first member.
fn leak(mr: Object<VerbsMr>) -> *mut IbvMr {
    mr.leak().cast()
}

/// Says why the kernel has refused a region with these rights; the error. ib_core looks at them
/// first, and the module hears nothing of what it refuses.
#[cold]
fn refused(error: c_int, verb: &str, access: c_int, length: usize) -> c_int {
    let writes = access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) != 0;
    match error {
        EOPNOTSUPP => reject(
            error,
            format_args!("{verb}: access is {access:#x}, and may be of {ACCESS_SERVED:#x}"),
        ),
        EINVAL if writes && access & ACCESS_LOCAL_WRITE == 0 => reject(
            error,
            format_args!(
                "{verb}: access {access:#x} has remote write or atomic without local write"
            ),
        ),
        EFAULT => reject(
            error,
            format_args!("{verb}: not all of it is memory, or not all may be written"),
        ),
        _ => by_kernel(error, verb, &[], length as u64),
    }
}

/// Registers memory.
pub unsafe extern "C" fn register(
    pd: *mut IbvPd,
    addr: Opaque,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut IbvMr {
    let mr = match new() {
        Ok(mr) => mr,
        Err(error) => return fail(error),
    };
    let (mut cmd, mut resp): (RegMr, RegMrResp) = ([0; 6], [0; 3]);
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_reg_mr)(
            pd,
            addr,
            length,
            hca_va,
            access,
            mr.as_ptr(),
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        return fail(refused(error, "reg_mr", access, length));
    }
    leak(mr)
}

/// Reregisters a region. Its keys stay; on failure it is unchanged.
pub unsafe extern "C" fn reregister(
    mr: *mut VerbsMr,
    flags: c_int,
    pd: *mut IbvPd,
    addr: Opaque,
    length: usize,
    access: c_int,
) -> c_int {
    let (mut cmd, mut resp): (ReregMr, ReregMrResp) = ([0; 7], [0; 2]);
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_rereg_mr)(
            mr,
            flags as u32,
            addr,
            length,
            addr as u64,
            access,
            pd,
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    match error {
        0 => 0,
        error => refused(error, "rereg_mr", access, length),
    }
}

/// Deregisters a region.
pub unsafe extern "C" fn deregister(mr: *mut VerbsMr) -> c_int {
    // SAFETY: Contract of the verb.
    let error = match unsafe { (*mr).mr_type } {
        // The kernel knows nothing of it.
        MR_TYPE_NULL => 0,
        // SAFETY: Contract of the verb.
        _ => unsafe { (library().ibv_cmd_dereg_mr)(mr) },
    };
    if error == 0 {
        // SAFETY: It is from `leak`, and gone for the application.
        drop(unsafe { Object::reclaim(mr) });
    }
    error
}

/// The null region: reads return zeros, and writes are discarded. Its key is the same for all
/// domains.
pub unsafe extern "C" fn alloc_null(pd: *mut IbvPd) -> *mut IbvMr {
    let mr = match new() {
        Ok(mr) => mr,
        Err(error) => return fail(error),
    };
    // SAFETY: The object is ours alone; contract of the verb.
    unsafe {
        let mr = mr.as_ptr();
        (*mr).mr_type = MR_TYPE_NULL;
        (*mr).mr.context = (*pd).context;
        (*mr).mr.pd = pd;
        (*mr).mr.length = usize::MAX;
        (*mr).mr.lkey = NULL_LKEY;
    }
    leak(mr)
}

/// Shares a region that another process, or another part of this one, has registered.
pub unsafe extern "C" fn import(pd: *mut IbvPd, handle: u32) -> *mut IbvMr {
    let mr = match new() {
        Ok(mr) => mr,
        Err(error) => return fail(error),
    };
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_query_mr)(pd, mr.as_ptr(), handle) };
    if error != 0 {
        return fail(error);
    }
    leak(mr)
}

/// Ends the sharing of a region, which stays registered.
pub unsafe extern "C" fn unimport(mr: *mut IbvMr) {
    // SAFETY: It is from `import`, and gone for the application.
    drop(unsafe { Object::reclaim(mr.cast::<VerbsMr>()) });
}
