// SPDX-License-Identifier: GPL-2.0

//! `rdma link add ... type ferroce`, and `rdma link delete`.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use super::driver::{
    DeviceOf,
    Driver, //
};
use super::object::Object;
use crate::sys::bindings;
use crate::sys::net::NetDevice;
use core::ptr::NonNull;
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    str::CStrExt,
    sync::Arc, //
};

/// The creator of links.
pub trait LinkOps: Send + Sync + 'static {
    /// The driver type of the devices.
    type Driver: Driver;

    /// Makes an RDMA device `name` on `netdev`. May sleep; the RTNL is not held.
    ///
    /// There is no answer but the errno: ib_core keeps the netlink extack to itself.
    fn new_link(&self, name: &CStr, netdev: &NetDevice) -> Result;

    /// The link of `device` is deleted: ib_core unregisters the device next. May sleep; the RTNL is
    /// not held. This can come for as long as there are devices, also without a registration.
    fn delete_link(device: &DeviceOf<Self::Driver>);
}

/// A link type that is registered; dropping it waits for links that are just made.
pub struct LinkOpsRegistration<T: LinkOps> {
    // The context of the calls.
    _ops: Arc<T>,
}

impl<T: LinkOps> LinkOpsRegistration<T> {
    /// Registers `name` as a link type. Only one registration may exist.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already.
    pub fn new(name: &'static CStr, ops: Arc<T>) -> Result<Self> {
        // SAFETY: The name is static, and `ops`, which is kept here, outlives the registration.
        to_result(unsafe {
            bindings::ferroce_link_register(
                name.as_char_ptr(),
                Some(Self::new_link),
                Some(Self::delete_link),
                Arc::as_ptr(&ops).cast_mut().cast(),
            )
        })?;
        Ok(Self { _ops: ops })
    }

    /// # Safety
    ///
    /// Only for ib_core, through the shim: `context` is the `T` of a registration, `name` a C
    /// string, `netdev` a net device, all alive during the call.
    unsafe extern "C" fn new_link(
        context: *mut c_void,
        name: *const c_char,
        netdev: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: By the requirement above.
        let ops = unsafe { &*context.cast::<T>() };
        // SAFETY: By the requirement above.
        let name = unsafe { CStr::from_char_ptr(name) };
        // SAFETY: By the requirement above.
        let netdev = unsafe { NetDevice::from_raw(netdev) };

        from_result(|| {
            ops.new_link(name, &netdev.ok_or(ENODEV)?)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Only for ib_core, through the shim: `device` is one that [`super::device::register`] has
    /// made for `T::Driver`, and is alive during the call.
    unsafe extern "C" fn delete_link(device: *mut bindings::ib_device) {
        if let Some(device) = NonNull::new(device) {
            // SAFETY: By the requirement above; ib_core holds a reference.
            T::delete_link(unsafe { Object::private(device) });
        }
    }
}

impl<T: LinkOps> Drop for LinkOpsRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::ferroce_link_unregister() };
    }
}
