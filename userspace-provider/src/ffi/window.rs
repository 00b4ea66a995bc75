// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Memory windows.

use super::{
    layout::*,
    library::library,
    memory::{fail, Object},
    qp,
};
use crate::request::next_key;
use core::{
    ffi::c_int,
    mem::zeroed,
    ptr, //
};
use ferroce_core::uabi::wqe::OP_BIND_MW;

/// Makes a window of this type. The kernel knows types 1 and 2.
pub unsafe extern "C" fn alloc(pd: *mut IbvPd, mw_type: u32) -> *mut IbvMw {
    // SAFETY: All zeros are a valid window.
    let mw = match unsafe { Object::<IbvMw>::zeroed() } {
        Ok(mw) => mw,
        Err(error) => return fail(error),
    };
    let (mut cmd, mut resp): (AllocMw, AllocMwResp) = ([0; 3], [0; 2]);
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_alloc_mw)(
            pd,
            mw_type,
            mw.as_ptr(),
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        return fail(error);
    }
    mw.leak()
}

/// Ends a window, bound or not.
pub unsafe extern "C" fn dealloc(mw: *mut IbvMw) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_dealloc_mw)(mw) };
    if error == 0 {
        // SAFETY: It is from `alloc`, and gone for the application.
        drop(unsafe { Object::reclaim(mw) });
    }
    error
}

/// Binds a window of type 1, by a request like that of type 2. The window has the new key when this
/// returns, as `ibv_bind_mw(3)` has it; peers may use it when the request is complete.
pub unsafe extern "C" fn bind(qp: *mut IbvQp, mw: *mut IbvMw, bind: *mut MwBind) -> c_int {
    // SAFETY: Contract of the verb.
    let (mw, bind) = unsafe { (&mut *mw, &*bind) };
    let key = next_key(mw.rkey);
    // SAFETY: All zeros are a valid request.
    let mut request: IbvSendWr = unsafe { zeroed() };
    request.wr_id = bind.wr_id;
    request.opcode = OP_BIND_MW.into();
    request.send_flags = bind.send_flags;
    request.mw = mw;
    request.mw_rkey = key;
    request.bind_info = bind.bind_info;
    let mut bad = ptr::null_mut();
    // SAFETY: Contract of the verb; the request is a list of one.
    let error = unsafe { qp::post_send(qp, &mut request, &mut bad) };
    if error == 0 {
        mw.rkey = key;
    }
    error
}
