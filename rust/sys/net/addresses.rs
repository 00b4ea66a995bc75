// SPDX-License-Identifier: GPL-2.0

//! Addresses of IPv4 and IPv6 that net devices get, in every namespace.
//!
//! C header: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h)

use super::NetDevice;
use crate::sys::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// Address event subscriber.
pub trait AddressListener: Send + Sync + 'static {
    /// `netdev` has got an address. It may be called in softirq, and with locks of the net device's
    /// IP configuration held: it must not sleep or take any of these.
    fn address_added(this: ArcBorrow<'_, Self>, netdev: &NetDevice);
}

/// A listener that is registered; dropping it waits until no call is in progress.
pub struct AddressNotifier<T: AddressListener> {
    // The context of the calls.
    _listener: Arc<T>,
}

impl<T: AddressListener> AddressNotifier<T> {
    /// Begins to listen. Only one may do so.
    ///
    /// # Errors
    ///
    /// `EBUSY` when there is one already.
    pub fn new(listener: Arc<T>) -> Result<Self> {
        // SAFETY: The listener, which is kept here, outlives the registration.
        to_result(unsafe {
            bindings::ferroce_addresses_listen(
                Some(Self::added),
                Arc::as_ptr(&listener).cast_mut().cast(),
            )
        })?;
        Ok(Self {
            _listener: listener,
        })
    }

    /// # Safety
    ///
    /// Only for the shim: `context` is the listener of a notifier, `netdev` a net device, both
    /// alive during the call.
    unsafe extern "C" fn added(context: *mut c_void, netdev: *mut bindings::net_device) {
        // SAFETY: By the requirement above; it came out of an `Arc`.
        let listener = unsafe { ArcBorrow::from_raw(context.cast_const().cast::<T>()) };
        // SAFETY: By the requirement above.
        if let Some(netdev) = unsafe { NetDevice::from_raw(netdev) } {
            T::address_added(listener, &netdev);
        }
    }
}

impl<T: AddressListener> Drop for AddressNotifier<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`.
        unsafe { bindings::ferroce_addresses_ignore() };
    }
}
