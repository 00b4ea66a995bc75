// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Protection domains, parent domains and thread domains.
//!
//! A parent domain is a protection domain under another address: the kernel knows the one below.
//! Its allocators are for memory that a provider gives its objects; what ours share with the module
//! is memory of the module, so they are never called.

use super::{
    layout::*,
    library::library,
    memory::{fail, Object},
};
use crate::refusal::{refuse, reject};
use core::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};
use libc::{EBUSY, EINVAL, EOPNOTSUPP};

/// A protection domain. libibverbs and the application know it by its first member.
#[repr(C)]
struct Domain {
    ibv: IbvPd,
    /// Parent domains around it; and an imported one until it is given up, for its end cannot be
    /// refused: the last of them frees it.
    users: AtomicU32,
    /// It was imported.
    imported: bool,
    /// A parent domain: the domain below, or null.
    below: *mut Domain,
    /// A parent domain: its thread domain, or null.
    thread: *mut Thread,
}

/// A thread domain: a promise that only one thread at a time uses the objects made with it.
/// libibverbs and the application know it by its first member.
#[repr(C)]
pub struct Thread {
    ibv: IbvTd,
    /// Parent domains with it.
    users: AtomicU32,
}

/// EBUSY for an object that has more users than `own`, its references to itself.
fn check_unused(users: &AtomicU32, own: u32) -> Result<(), c_int> {
    if users.load(Ordering::Acquire) == own {
        Ok(())
    } else {
        Err(EBUSY)
    }
}

/// Whether objects of this domain are used by one thread at a time.
///
/// # Safety
///
/// `pd` must be null or a domain of ours.
pub unsafe fn is_single_threaded(pd: *mut IbvPd) -> bool {
    // SAFETY: The caller's promise; neither member ever changes.
    !pd.is_null() && unsafe { !(*pd.cast::<Domain>()).thread.is_null() }
}

/// A domain of zeros.
fn new() -> Result<Object<Domain>, c_int> {
    // SAFETY: All zeros are a valid domain.
    unsafe { Object::<Domain>::zeroed() }
}

/// Makes a protection domain.
pub unsafe extern "C" fn alloc(context: *mut IbvContext) -> *mut IbvPd {
    let pd = match new() {
        Ok(pd) => pd,
        Err(error) => return fail(error),
    };
    let (mut cmd, mut resp): (AllocPd, AllocPdResp) = ([0; 2], [0; 1]);
    // SAFETY: Contract of the verb; command and response have the sizes given.
    let error = unsafe {
        (library().ibv_cmd_alloc_pd)(
            context,
            pd.as_ptr().cast(),
            &mut cmd,
            size_of_val(&cmd),
            &mut resp,
            size_of_val(&resp),
        )
    };
    if error != 0 {
        return fail(error);
    }
    pd.leak().cast()
}

/// Ends a protection domain or parent domain: EBUSY while there is a parent domain around it.
pub unsafe extern "C" fn dealloc(pd: *mut IbvPd) -> c_int {
    let domain = pd.cast::<Domain>();
    // SAFETY: Contract of the verb: it is a domain of ours, and those that it refers to are alive.
    unsafe {
        if let Err(error) = check_unused(&(*domain).users, (*domain).imported.into()) {
            return error;
        }
        let below = (*domain).below;
        if below.is_null() {
            let error = (library().ibv_cmd_dealloc_pd)(pd);
            if error != 0 {
                return error;
            }
        } else {
            leave(below);
            if let Some(thread) = (*domain).thread.as_ref() {
                thread.users.fetch_sub(1, Ordering::Release);
            }
        }
        // It is from `leak`, and gone for the application.
        drop(Object::reclaim(domain));
    }
    0
}

/// Makes a parent domain: a protection domain with a thread domain, with allocators, or just so.
pub unsafe extern "C" fn alloc_parent(
    _context: *mut IbvContext,
    attr: *mut ParentDomainInitAttr,
) -> *mut IbvPd {
    // SAFETY: Contract of the verb; what is behind `comp_mask` is there if that says so.
    let (below, thread, mask) = unsafe { ((*attr).pd, (*attr).td, (*attr).comp_mask) };
    if below.is_null() {
        return fail(reject(EINVAL, "alloc_parent_domain: there is no pd"));
    }
    let known = PARENT_ALLOCATORS | PARENT_CONTEXT;
    if mask & !known != 0 {
        let (mask, known) = (mask.into(), known.into());
        return fail(refuse(
            EOPNOTSUPP,
            "comp_mask of a parent domain",
            mask,
            0..=known,
        ));
    }
    if mask & PARENT_ALLOCATORS != 0 {
        // SAFETY: The mask says that they are there.
        let allocators = unsafe { [(*attr).alloc, (*attr).free] };
        if allocators.contains(&ptr::null_mut()) {
            return fail(reject(
                EINVAL,
                "alloc_parent_domain: alloc and free go together",
            ));
        }
    }
    let pd = match new() {
        Ok(pd) => pd,
        Err(error) => return fail(error),
    };
    let (below, thread) = (below.cast::<Domain>(), thread.cast::<Thread>());
    // SAFETY: The object is ours alone; contract of the verb: the others are ours, and alive.
    unsafe {
        let domain = pd.as_ptr();
        (*domain).ibv.context = (*below).ibv.context;
        (*domain).ibv.handle = (*below).ibv.handle;
        (*domain).below = below;
        (*domain).thread = thread;
        (*below).users.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = thread.as_ref() {
            thread.users.fetch_add(1, Ordering::Relaxed);
        }
    }
    pd.leak().cast()
}

/// Shares a protection domain that another process, or another part of this one, has made. Whether
/// there is one the kernel says when the domain is used.
pub unsafe extern "C" fn import(context: *mut IbvContext, handle: u32) -> *mut IbvPd {
    let pd = match new() {
        Ok(pd) => pd,
        Err(error) => return fail(error),
    };
    // SAFETY: The object is ours alone.
    unsafe {
        (*pd.as_ptr()).ibv.context = context;
        (*pd.as_ptr()).ibv.handle = handle;
        (*pd.as_ptr()).imported = true;
        (*pd.as_ptr()).users = AtomicU32::new(1);
    }
    pd.leak().cast()
}

/// Ends the sharing of a protection domain, which stays. Parent domains around it go on.
pub unsafe extern "C" fn unimport(pd: *mut IbvPd) {
    // SAFETY: It is from `import`, and gone for the application.
    unsafe { leave(pd.cast()) }
}

/// Takes a reference to a domain back; the last one to an imported domain frees it.
///
/// # Safety
///
/// `domain` is one of ours, and the reference the caller's.
unsafe fn leave(domain: *mut Domain) {
    // SAFETY: The caller's promise: it is there as long as the reference is.
    let (imported, left) = unsafe {
        let imported = (*domain).imported;
        (imported, (*domain).users.fetch_sub(1, Ordering::AcqRel))
    };
    if imported && left == 1 {
        // SAFETY: It is from `leak`, and nobody refers to it any more.
        drop(unsafe { Object::reclaim(domain) });
    }
}

/// Makes a thread domain.
pub unsafe extern "C" fn alloc_thread(
    context: *mut IbvContext,
    attr: *mut TdInitAttr,
) -> *mut IbvTd {
    // SAFETY: Contract of the verb.
    let mask = unsafe { (*attr).comp_mask };
    if mask != 0 {
        return fail(refuse(
            EOPNOTSUPP,
            "comp_mask of a thread domain",
            mask.into(),
            0..=0,
        ));
    }
    // SAFETY: All zeros are a valid thread domain.
    let td = match unsafe { Object::<Thread>::zeroed() } {
        Ok(td) => td,
        Err(error) => return fail(error),
    };
    // SAFETY: The object is ours alone.
    unsafe { (*td.as_ptr()).ibv.context = context };
    td.leak().cast()
}

/// Ends a thread domain: EBUSY while a parent domain has it.
pub unsafe extern "C" fn dealloc_thread(td: *mut IbvTd) -> c_int {
    let thread = td.cast::<Thread>();
    // SAFETY: Contract of the verb.
    if let Err(error) = check_unused(unsafe { &(*thread).users }, 0) {
        return error;
    }
    // SAFETY: It is from `alloc_thread`, and gone for the application.
    drop(unsafe { Object::reclaim(thread) });
    0
}
