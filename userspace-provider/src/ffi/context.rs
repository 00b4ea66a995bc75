// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Contexts and their queries.

use super::{
    ah, cq, cq_ex, domain,
    layout::*,
    library::{library, Library},
    memory::{fail, nanoseconds},
    qp, region, srq, window, wr,
};
use crate::abi::{Op, MAX_OPS};
use crate::refusal::{refuse, reject};
use core::{
    ffi::{c_char, c_int, c_void},
    ptr, slice,
};
use ferroce_core::uabi::{udata, DRIVER_ID};
use std::io::Write;

/// The operations, for the ABI of the loaded libibverbs.
fn operations(library: &Library) -> [Opaque; MAX_OPS] {
    // Each cast names a function with the prototype of its operation in `driver.h`.
    let table = [
        (Op::AllocMw, window::alloc as Opaque),
        (Op::AllocNullMr, region::alloc_null as Opaque),
        (Op::AllocParentDomain, domain::alloc_parent as Opaque),
        (Op::AllocPd, domain::alloc as Opaque),
        (Op::AllocTd, domain::alloc_thread as Opaque),
        (Op::AttachMcast, qp::attach as Opaque),
        (Op::BindMw, window::bind as Opaque),
        (Op::CreateAh, ah::create as Opaque),
        (Op::CreateCq, cq::create as Opaque),
        (Op::CreateCqEx, cq_ex::create as Opaque),
        (Op::CreateQp, qp::create as Opaque),
        (Op::CreateQpEx, wr::create_ex as Opaque),
        (Op::CreateSrq, srq::create as Opaque),
        (Op::DeallocMw, window::dealloc as Opaque),
        (Op::DeallocPd, domain::dealloc as Opaque),
        (Op::DeallocTd, domain::dealloc_thread as Opaque),
        (Op::DeregMr, region::deregister as Opaque),
        (Op::DestroyAh, ah::destroy as Opaque),
        (Op::DestroyCq, cq::destroy as Opaque),
        (Op::DestroyQp, qp::destroy as Opaque),
        (Op::DestroySrq, srq::destroy as Opaque),
        (Op::DetachMcast, qp::detach as Opaque),
        (Op::FreeContext, free_context as Opaque),
        (Op::ImportMr, region::import as Opaque),
        (Op::ImportPd, domain::import as Opaque),
        (Op::ModifyCq, cq::modify as Opaque),
        (Op::ModifyQp, qp::modify as Opaque),
        (Op::ModifySrq, srq::modify as Opaque),
        (Op::PollCq, cq::poll as Opaque),
        (Op::PostRecv, qp::post_recv as Opaque),
        (Op::PostSend, qp::post_send as Opaque),
        (Op::PostSrqRecv, srq::post_recv as Opaque),
        (Op::QueryDeviceEx, query_device_ex as Opaque),
        (Op::QueryPort, query_port as Opaque),
        (Op::QueryQp, qp::query as Opaque),
        (Op::QuerySrq, srq::query as Opaque),
        (Op::QueryRtValues, query_rt_values as Opaque),
        (Op::RegMr, region::register as Opaque),
        (Op::ReqNotifyCq, cq::req_notify as Opaque),
        (Op::ReregMr, region::reregister as Opaque),
        (Op::ResizeCq, cq::resize as Opaque),
        (Op::UnimportMr, region::unimport as Opaque),
        (Op::UnimportPd, domain::unimport as Opaque),
    ];
    let mut operations = [ptr::null_mut(); MAX_OPS];
    for (op, function) in table {
        operations[library.abi.slot(op)] = function;
    }
    operations
}

/// Opens a device. Owns `cmd_fd`: it is closed with the context, also on failure.
pub unsafe extern "C" fn alloc_context(
    device: Opaque,
    cmd_fd: c_int,
    _private_data: *mut c_void,
) -> *mut VerbsContext {
    let open = |library: &Library, context| {
        let mut cmd = GetContext {
            core: [0; 2],
            driver: udata::AllocUcontextReq { features: 0 },
        };
        let mut resp = GetContextResp {
            core: [0; 2],
            driver: udata::AllocUcontextResp::default(),
        };
        // SAFETY: The context is new.
        match unsafe { library.get_context(context, &mut cmd, &mut resp) } {
            // libibverbs matches by a number alone, which another driver may have, too.
            0 if resp.driver.signature != udata::SIGNATURE => reject(
                libc::EPROTO,
                "the device has ferroce's driver id, and another driver",
            ),
            error => error,
        }
    };
    // SAFETY: Contract of the verb.
    unsafe { new_context(device, cmd_fd, open) }
}

/// Shares the context of an open device file. Owns `cmd_fd` as [`alloc_context`] does.
///
/// What the module said when it was opened is not said again; a device with our id and another
/// driver was refused then.
pub unsafe extern "C" fn import_context(device: Opaque, cmd_fd: c_int) -> *mut VerbsContext {
    // SAFETY: Contract of the verb.
    unsafe {
        new_context(device, cmd_fd, |library, context| {
            let context = context.byte_add(library.abi.context_offset());
            (library.ibv_cmd_query_context)(context.cast(), ptr::null_mut())
        })
    }
}

/// Makes a context, which `open` connects with the module, and gives it its operations.
///
/// # Safety
///
/// `device` and `cmd_fd` are what libibverbs opens a device with.
unsafe fn new_context(
    device: Opaque,
    cmd_fd: c_int,
    open: impl FnOnce(&Library, *mut VerbsContext) -> c_int,
) -> *mut VerbsContext {
    let library = library();
    let len = library.abi.context_offset() + size_of::<IbvContext>();
    // libibverbs fills `struct verbs_context` in before it says how long it is.
    let room = len + 512;
    // SAFETY: `struct verbs_context` stands at the start, and fits.
    let context =
        unsafe { (library._verbs_init_and_alloc_context)(device, cmd_fd, room, 0, DRIVER_ID) };
    if context.is_null() {
        return context;
    }
    // SAFETY: The member before `struct ibv_context` is the length of the whole. In a structure of
    // another length this is another member, but still within the allocation.
    let sz = unsafe {
        context
            .cast::<usize>()
            .byte_add(library.abi.context_offset())
            .sub(1)
            .read()
    };
    let error = if sz == len {
        open(library, context)
    } else {
        reject(
            libc::EPROTO,
            format_args!("this libibverbs has a context of {sz} bytes, and not {len}"),
        )
    };
    if error != 0 {
        // SAFETY: The context is not in use, and no longer used.
        unsafe { release_context(library, context) };
        return fail(error);
    }
    let operations = operations(library);
    // SAFETY: The table has the order of this ABI, which the length of the context and the version
    // of the symbols have confirmed, and at least its length.
    unsafe { (library.verbs_set_ops)(context, operations.as_ptr()) };
    context
}

/// # Safety
///
/// `context` must be from `_verbs_init_and_alloc_context`, and no longer used.
unsafe fn release_context(library: &Library, context: *mut VerbsContext) {
    // SAFETY: The promise of the caller. libibverbs allocated the context with calloc and leaves
    // it to the provider to free it.
    unsafe {
        (library.verbs_uninit_context)(context);
        libc::free(context.cast());
    }
}

unsafe extern "C" fn free_context(context: *mut IbvContext) {
    let library = library();
    let offset = library.abi.context_offset();
    // SAFETY: `struct ibv_context` stands at this offset in the allocation of `alloc_context`.
    unsafe { release_context(library, context.cast::<u8>().sub(offset).cast()) }
}

unsafe extern "C" fn query_device_ex(
    context: *mut IbvContext,
    input: Opaque,
    attr: *mut c_char,
    attr_size: usize,
) -> c_int {
    let mut resp: QueryDeviceExResp = [0; 38];
    let mut resp_size = size_of_val(&resp);
    // SAFETY: Contract of the verb; the response has the size given.
    let error = unsafe {
        (library().ibv_cmd_query_device_any)(
            context,
            input,
            attr,
            attr_size,
            &mut resp,
            &mut resp_size,
        )
    };
    if error == 0 {
        // The first member of the attributes is the firmware version as text, in 64 bytes.
        // SAFETY: libibverbs has refused attributes too short for it, and has zeroed them.
        let text = unsafe { slice::from_raw_parts_mut(attr.cast::<u8>(), FW_VER_LEN) };
        write_fw_ver(resp[0], text);
    }
    error
}

/// Length of `fw_ver` in `struct ibv_device_attr`.
pub const FW_VER_LEN: usize = 64;

/// Writes the firmware version as text with a NUL behind it.
fn write_fw_ver(version: u64, text: &mut [u8]) {
    let part = |shift: u32| (version >> shift) & 0xffff;
    // Three numbers of at most five digits fit.
    let _ = write!(&mut text[..], "{}.{}.{}\0", part(32), part(16), part(0));
}

unsafe extern "C" fn query_port(context: *mut IbvContext, port: u8, attr: Opaque) -> c_int {
    let mut cmd: QueryPort = [0; 3];
    // SAFETY: Contract of the verb; the command has the size given.
    unsafe { (library().ibv_cmd_query_port)(context, port, attr, &mut cmd, size_of_val(&cmd)) }
}

/// Reads the clock of completions. As other providers do, all nanoseconds are in `tv_nsec`.
unsafe extern "C" fn query_rt_values(_: *mut IbvContext, values: *mut ValuesEx) -> c_int {
    // SAFETY: Contract of the verb.
    let values = unsafe { &mut *values };
    if values.comp_mask & !VALUES_RAW_CLOCK != 0 {
        let known = u64::from(VALUES_RAW_CLOCK);
        let mask = u64::from(values.comp_mask);
        return refuse(libc::EINVAL, "comp_mask of ibv_values_ex", mask, 0..=known);
    }
    if values.comp_mask & VALUES_RAW_CLOCK != 0 {
        values.raw_clock = [0, nanoseconds(udata::CLOCK as libc::clockid_t)];
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_core::uabi::MODULE_VERSION;

    #[test]
    fn a_firmware_version_is_three_numbers() {
        let mut text = [0xee; FW_VER_LEN];
        write_fw_ver(0x0001_0002_0003, &mut text);
        assert_eq!(&text[..6], b"1.2.3\0");
        let [major, minor, patch] = MODULE_VERSION.map(u64::from);
        write_fw_ver((major << 32) | (minor << 16) | patch, &mut text);
        let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
        assert_eq!(&text[..version.len()], version.as_bytes());
        write_fw_ver(u64::MAX, &mut text);
        assert_eq!(&text[..18], b"65535.65535.65535\0");
    }
}
