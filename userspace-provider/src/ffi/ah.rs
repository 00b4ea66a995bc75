// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Address handles.

use super::{
    layout::*,
    library::library,
    memory::{fail, Object},
};
use crate::refusal::of_path;
use core::ffi::c_int;
use ferroce_core::uabi::udata;

/// An address handle. libibverbs and the application know it by its first member.
#[repr(C)]
struct Ah {
    ibv: IbvAh,
    /// What the module calls it.
    number: u32,
}

/// The number of an address handle for the module.
///
/// # Safety
///
/// `ah` must be null, for which it is 0, or from [`create`] and not destroyed.
#[inline]
pub unsafe fn number(ah: *const IbvAh) -> u32 {
    // SAFETY: The caller's promise.
    unsafe { ah.cast::<Ah>().as_ref() }.map_or(0, |ah| ah.number)
}

/// Makes an address handle.
pub unsafe extern "C" fn create(pd: *mut IbvPd, attr: Opaque) -> *mut IbvAh {
    // SAFETY: All zeros are a valid AH.
    let ah = match unsafe { Object::<Ah>::zeroed() } {
        Ok(ah) => ah,
        Err(error) => return fail(error),
    };
    let mut resp = CreateAhResp {
        core: [0; 1],
        driver: udata::CreateAhResp::default(),
    };
    // SAFETY: Contract of the verb; the response has the size given.
    let error = unsafe {
        (library().ibv_cmd_create_ah)(pd, ah.as_ptr().cast(), attr, &mut resp, size_of_val(&resp))
    };
    if error != 0 {
        // SAFETY: Contract of the verb.
        let path = unsafe { attr.cast::<AhAttr>().read() };
        return fail(of_path(error, "create_ah", &path));
    }
    // SAFETY: The object is ours alone until it is handed out.
    unsafe { (*ah.as_ptr()).number = resp.driver.number };
    ah.leak().cast()
}

/// Destroys an address handle.
pub unsafe extern "C" fn destroy(ah: *mut IbvAh) -> c_int {
    // SAFETY: Contract of the verb.
    let error = unsafe { (library().ibv_cmd_destroy_ah)(ah) };
    if error == 0 {
        // SAFETY: It is from `create`, and gone for the application.
        drop(unsafe { Object::reclaim(ah.cast::<Ah>()) });
    }
    error
}
