// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The functions of libibverbs that only providers call, found by name when the provider is loaded.
//!
//! They are looked up and not linked because a linked reference carries the version of one private
//! ABI, and no libibverbs of another ABI would load us. Prototypes: `libibverbs/driver.h`.

use super::{layout::*, loader::Scope};
use crate::abi::Abi;
use core::{
    ffi::{c_char, c_int, c_void, CStr},
    mem::transmute_copy,
    ptr,
};
use std::sync::OnceLock;

/// Makes the table of functions: the members, and how they are found.
macro_rules! functions {
    ($($(#[$doc:meta])* $symbol:ident: fn($($arg:ty),* $(,)?) $(+ $more:tt)? $(-> $ret:ty)?;)*) => {
        /// The functions of the loaded libibverbs.
        pub struct Library {
            /// The ABI that it speaks.
            pub abi: Abi,
            /// Where `comp_mask` is in its `struct verbs_qp`: one of [`QP_COMP_MASK`].
            pub qp_comp_mask: usize,
            $($(#[$doc])* pub $symbol: unsafe extern "C" fn($($arg),* $(, $more)?) $(-> $ret)?,)*
        }

        impl Library {
            /// Finds every function; the name of a missing one is the error.
            ///
            /// # Safety
            ///
            /// The libibverbs of `scope` must speak `abi`.
            unsafe fn find(
                scope: Scope,
                abi: Abi,
                qp_comp_mask: usize,
            ) -> Result<Self, &'static CStr> {
                Ok(Self {
                    abi,
                    qp_comp_mask,
                    $($symbol: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!(stringify!($symbol), "\0").as_bytes(),
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("the name of a function holds no NUL"),
                        };
                        let address = scope.symbol(NAME, abi.private_version());
                        if address.is_null() {
                            return Err(NAME);
                        }
                        // SAFETY: It is the function of that name, which has this prototype in
                        // the ABI that the caller vouches for. Where the ABIs differ the member
                        // has the older prototype, and `Library` has a method to call it.
                        unsafe {
                            transmute_copy::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),* $(, $more)?) $(-> $ret)?,
                            >(&address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Takes the device, `cmd_fd` (which it closes on failure), the length to allocate, the offset
    /// of `struct verbs_context` in it, and the driver id.
    _verbs_init_and_alloc_context: fn(Opaque, c_int, usize, usize, u32) -> *mut VerbsContext;
    verbs_uninit_context: fn(*mut VerbsContext);
    verbs_set_ops: fn(*mut VerbsContext, *const Opaque);
    /// Of ABI 34: to be called by [`Library::get_context`].
    ibv_cmd_get_context:
        fn(*mut VerbsContext, *mut GetContext, usize, *mut GetContextResp, usize) -> c_int;
    ibv_cmd_query_device_any: fn(
        *mut IbvContext, Opaque, *mut c_char, usize, *mut QueryDeviceExResp, *mut usize,
    ) -> c_int;
    /// Takes attributes of the driver; we have none.
    ibv_cmd_query_context: fn(*mut IbvContext, Opaque) -> c_int;
    ibv_cmd_query_port: fn(*mut IbvContext, u8, Opaque, *mut QueryPort, usize) -> c_int;
    ibv_cmd_alloc_pd: fn(
        *mut IbvContext, *mut IbvPd, *mut AllocPd, usize, *mut AllocPdResp, usize,
    ) -> c_int;
    ibv_cmd_dealloc_pd: fn(*mut IbvPd) -> c_int;
    ibv_cmd_reg_mr: fn(
        *mut IbvPd, Opaque, usize, u64, c_int, *mut VerbsMr, *mut RegMr, usize, *mut RegMrResp,
        usize,
    ) -> c_int;
    ibv_cmd_rereg_mr: fn(
        *mut VerbsMr, u32, Opaque, usize, u64, c_int, *mut IbvPd, *mut ReregMr, usize,
        *mut ReregMrResp, usize,
    ) -> c_int;
    ibv_cmd_query_mr: fn(*mut IbvPd, *mut VerbsMr, u32) -> c_int;
    ibv_cmd_dereg_mr: fn(*mut VerbsMr) -> c_int;
    ibv_cmd_alloc_mw: fn(
        *mut IbvPd, u32, *mut IbvMw, *mut AllocMw, usize, *mut AllocMwResp, usize,
    ) -> c_int;
    ibv_cmd_dealloc_mw: fn(*mut IbvMw) -> c_int;
    ibv_cmd_create_cq: fn(
        *mut IbvContext, c_int, Opaque, c_int, *mut IbvCq, Opaque, usize, *mut CreateCqResp, usize,
    ) -> c_int;
    /// Of ABI 34 and 57: to be called by [`Library::create_cq_ex`].
    ibv_cmd_create_cq_ex: fn(
        *mut IbvContext, *const CqInitAttrEx, *mut IbvCqEx, Opaque, usize, *mut CreateCqExResp,
        usize, u32,
    ) -> c_int;
    ibv_cmd_resize_cq: fn(
        *mut IbvCq, c_int, *mut ResizeCq, usize, *mut ResizeCqResp, usize,
    ) -> c_int;
    ibv_cmd_modify_cq: fn(*mut IbvCq, Opaque, *mut ModifyCq, usize) -> c_int;
    ibv_cmd_destroy_cq: fn(*mut IbvCq) -> c_int;
    ibv_cmd_create_qp: fn(
        *mut IbvPd, *mut IbvQp, *mut QpInitAttr, *mut CreateQp, usize, *mut CreateQpResp, usize,
    ) -> c_int;
    ibv_cmd_create_qp_ex: fn(
        *mut IbvContext, *mut VerbsQp, *mut QpInitAttrEx, *mut CreateQp, usize, *mut CreateQpResp,
        usize,
    ) -> c_int;
    ibv_cmd_query_qp: fn(*mut IbvQp, Opaque, c_int, Opaque, *mut QueryQp, usize) -> c_int;
    ibv_cmd_modify_qp: fn(*mut IbvQp, *mut QpAttr, c_int, *mut ModifyQp, usize) -> c_int;
    ibv_cmd_destroy_qp: fn(*mut IbvQp) -> c_int;
    ibv_cmd_attach_mcast: fn(*mut IbvQp, Opaque, u16) -> c_int;
    ibv_cmd_detach_mcast: fn(*mut IbvQp, Opaque, u16) -> c_int;
    ibv_cmd_post_send: fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int;
    ibv_cmd_post_recv: fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int;
    ibv_cmd_create_srq: fn(
        *mut IbvPd, *mut IbvSrq, *mut SrqInitAttr, *mut CreateSrq, usize, *mut CreateSrqResp, usize,
    ) -> c_int;
    ibv_cmd_modify_srq: fn(*mut IbvSrq, *mut SrqAttr, c_int, *mut ModifySrq, usize) -> c_int;
    ibv_cmd_query_srq: fn(*mut IbvSrq, *mut SrqAttr, *mut QuerySrq, usize) -> c_int;
    ibv_cmd_destroy_srq: fn(*mut IbvSrq) -> c_int;
    ibv_cmd_create_ah: fn(*mut IbvPd, *mut IbvAh, Opaque, *mut CreateAhResp, usize) -> c_int;
    ibv_cmd_destroy_ah: fn(*mut IbvAh) -> c_int;
    /// Takes a context, at which it does not look, a level, and a format with its arguments.
    __verbs_log: fn(Opaque, u32, *const c_char) + ...;
}

impl Library {
    /// `ibv_cmd_get_context`: ABI 57 put an array of file descriptors before the response.
    ///
    /// # Safety
    ///
    /// `context` must be new from `_verbs_init_and_alloc_context`.
    pub unsafe fn get_context(
        &self,
        context: *mut VerbsContext,
        cmd: &mut GetContext,
        resp: &mut GetContextResp,
    ) -> c_int {
        type WithFds = unsafe extern "C" fn(
            *mut VerbsContext,
            *mut GetContext,
            usize,
            Opaque,
            *mut GetContextResp,
            usize,
        ) -> c_int;
        let call = self.ibv_cmd_get_context;
        if !self.abi.has_fds() {
            // SAFETY: The prototype of this ABI; the structures have the sizes given.
            return unsafe { call(context, cmd, size_of_val(cmd), resp, size_of_val(resp)) };
        }
        // SAFETY: Since ABI 57 the function has this prototype; both are function pointers.
        let call: WithFds = unsafe { transmute_copy(&call) };
        // SAFETY: As above; no file descriptors are passed.
        unsafe {
            call(
                context,
                cmd,
                size_of_val(cmd),
                ptr::null_mut(),
                resp,
                size_of_val(resp),
            )
        }
    }

    /// `ibv_cmd_create_cq_ex`: ABI 59 put attributes of the provider before the CQ.
    ///
    /// # Safety
    ///
    /// `context`, `attr` and `cq` must be valid.
    pub unsafe fn create_cq_ex(
        &self,
        context: *mut IbvContext,
        attr: *const CqInitAttrEx,
        cq: *mut IbvCqEx,
        resp: &mut CreateCqExResp,
    ) -> c_int {
        type WithAttr = unsafe extern "C" fn(
            *mut IbvContext,
            *const CqInitAttrEx,
            Opaque,
            *mut IbvCqEx,
            Opaque,
            usize,
            *mut CreateCqExResp,
            usize,
            u32,
        ) -> c_int;
        let (call, none) = (self.ibv_cmd_create_cq_ex, ptr::null_mut());
        if !self.abi.has_provider_attr() {
            // SAFETY: The prototype of this ABI; the caller vouches for the arguments.
            return unsafe { call(context, attr, cq, none, 0, resp, size_of_val(resp), 0) };
        }
        // SAFETY: Since ABI 59 the function has this prototype; both are function pointers.
        let call: WithAttr = unsafe { transmute_copy(&call) };
        // SAFETY: As above.
        unsafe { call(context, attr, none, cq, none, 0, resp, size_of_val(resp), 0) }
    }
}

/// Where `comp_mask` is in the `struct verbs_qp` of the loaded libibverbs, one of [`QP_COMP_MASK`].
///
/// The library itself is asked: `ibv_qp_to_qp_ex` returns its argument if it finds the bit there.
///
/// # Safety
///
/// `to_qp_ex` must be null or that function.
unsafe fn qp_comp_mask(to_qp_ex: *mut c_void) -> Option<usize> {
    if to_qp_ex.is_null() {
        return None;
    }
    // SAFETY: It is the function of that name, which has this prototype in every ABI.
    let to_qp_ex = unsafe {
        transmute_copy::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> *mut c_void>(&to_qp_ex)
    };
    QP_COMP_MASK.into_iter().find(|at| {
        let mut qp = [0u32; size_of::<VerbsQp>() / 4];
        qp[at / 4] = QP_EX;
        // SAFETY: The function reads `comp_mask`, which is within for every known release, and
        // nothing else.
        !unsafe { to_qp_ex(qp.as_mut_ptr().cast()) }.is_null()
    })
}

/// `verbs_register_driver_<abi>`.
pub type Register = unsafe extern "C" fn(*const VerbsDeviceOps);

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// The loaded libibverbs.
///
/// Verbs run on devices that [`load`] has made possible, so it is there; were it not, the process
/// ends here.
#[inline]
pub fn library() -> &'static Library {
    LIBRARY.get().expect("libibverbs knows the provider")
}

/// The same, if there is one: unit tests run without.
pub fn loaded() -> Option<&'static Library> {
    LIBRARY.get()
}

/// The private ABI of the loaded libibverbs, for a person: `None` if it has none known by name.
fn other_abi(scope: Scope) -> Option<u32> {
    (1..200).find(|number| {
        std::ffi::CString::new(format!("verbs_register_driver_{number}"))
            .is_ok_and(|name| !scope.any_symbol(&name).is_null())
    })
}

/// Finds out which ABI the loaded libibverbs speaks, and its functions; returns the one that
/// registers a provider. The error is a sentence for a person.
///
/// By the versions of its symbols it is a libibverbs, not what has the same names elsewhere in the
/// process: the one that has loaded us, or else the one that we depend on.
pub fn load() -> Result<Register, String> {
    let marks = Abi::ALL.map(|abi| (abi.register_name(), abi.private_version()));
    let scope = Scope::of_loader(&marks).unwrap_or(Scope::OWN);
    let found = Abi::ALL.into_iter().find_map(|abi| {
        let address = scope.symbol(abi.register_name(), abi.private_version());
        let marked = abi
            .mark()
            .is_none_or(|name| !scope.symbol(name, abi.private_version()).is_null());
        (!address.is_null() && marked).then_some((abi, address))
    });
    let Some((abi, register)) = found else {
        return Err(match other_abi(scope) {
            Some(number) => format!(
                "this libibverbs has the private ABI {number}, but this provider knows only 34, \
                 57, 59, 64 and 65 (rdma-core 36 to 65)"
            ),
            None => "no libibverbs with a private ABI is loaded".to_string(),
        });
    };
    // rdma-core 34 and 35 have ABI 34 too, but a shorter table of operations.
    if scope
        .symbol(c"ibv_query_qp_data_in_order", c"IBVERBS_1.14")
        .is_null()
    {
        return Err("this libibverbs is older than rdma-core 36".to_string());
    }
    // SAFETY: It is null or that function.
    let found = unsafe { qp_comp_mask(scope.symbol(c"ibv_qp_to_qp_ex", c"IBVERBS_1.6")) };
    let Some(qp_comp_mask) = found else {
        return Err("this libibverbs has an unknown struct verbs_qp".to_string());
    };
    // SAFETY: The register function of `abi` exists, so this is the ABI.
    let library = unsafe { Library::find(scope, abi, qp_comp_mask) }.map_err(|name| {
        format!(
            "this libibverbs, of private ABI {}, has no {}",
            abi.number(),
            name.to_string_lossy()
        )
    })?;
    if LIBRARY.set(library).is_err() {
        return Err("the provider was loaded twice".to_string());
    }
    // SAFETY: The function of this name has this prototype in every ABI.
    Ok(unsafe { transmute_copy::<*mut c_void, Register>(&register) })
}
