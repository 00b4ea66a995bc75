// SPDX-License-Identifier: GPL-2.0

//! Events of net devices, and addresses of IPv4 and IPv6 that they get, in every namespace.
//!
//! C headers: [`include/linux/notifier.h`](srctree/include/linux/notifier.h) and
//! [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h).

use crate::sys::bindings;
use crate::sys::net::NetDevice;
use kernel::container_of;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::types::Opaque;

/// Event of a netdev that a listener hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetdevEvent {
    /// It is about to leave: for good, or for another namespace.
    Unregister,
    /// It was set up.
    Up,
    /// It was set down.
    Down,
    /// Its carrier or another property changed.
    Change,
}

impl NetdevEvent {
    fn from_raw(event: usize) -> Option<Self> {
        Some(match u32::try_from(event).ok()? {
            bindings::netdev_cmd_NETDEV_UNREGISTER => Self::Unregister,
            bindings::netdev_cmd_NETDEV_UP => Self::Up,
            bindings::netdev_cmd_NETDEV_DOWN => Self::Down,
            bindings::netdev_cmd_NETDEV_CHANGE => Self::Change,
            _ => return None,
        })
    }
}

/// Netdev event subscriber.
pub trait NetdevListener: Send + Sync {
    /// Called with the RTNL held; it may sleep but must not wait for anything that takes the RTNL.
    fn event(&self, event: NetdevEvent, netdev: &NetDevice);
}

/// Before IPv6 (`ADDRCONF_NOTIFY_PRIORITY` is 0), which takes the addresses of a net device away
/// that goes down: the event of the port is queued before those of its GIDs.
const PRIORITY: c_int = 1;

/// A listener that is registered; dropping it waits until no call is in progress.
///
/// The kernel plays the events of the present on registration (`Up`) and the reverse on removal,
/// for every net device.
#[pin_data(PinnedDrop)]
pub struct NetdevNotifier<T: NetdevListener> {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    listener: Arc<T>,
}

// SAFETY: Only `drop` touches the block.
unsafe impl<T: NetdevListener> Send for NetdevNotifier<T> {}
// SAFETY: As above.
unsafe impl<T: NetdevListener> Sync for NetdevNotifier<T> {}

impl<T: NetdevListener> NetdevNotifier<T> {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// What `register_netdevice_notifier` answers.
    pub fn new(listener: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            listener,
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block {
                    notifier_call: Some(Self::call),
                    priority: PRIORITY,
                    ..pin_init::zeroed()
                };

                // SAFETY: `slot` is valid for writes.
                unsafe { slot.write(block) };
                // SAFETY: The block is pinned with the object around it, whose listener is set
                // already, and is removed from the chain before it is dropped.
                to_result(unsafe { bindings::register_netdevice_notifier(slot) })
            }),
        })
    }

    /// # Safety
    ///
    /// Only for the notifier chain of net devices; `block` must be that of a [`NetdevNotifier`].
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: usize,
        info: *mut c_void,
    ) -> c_int {
        let Some(event) = NetdevEvent::from_raw(event) else {
            return bindings::NOTIFY_DONE as c_int;
        };
        // SAFETY: By the requirement above `block` is the field of a pinned notifier, which is
        // alive: its drop takes the block out of the chain first.
        let notifier = unsafe { &*container_of!(Opaque::cast_from(block), Self, block) };
        // SAFETY: The chain passes a `netdev_notifier_info`; its net device is alive in the call.
        let netdev = unsafe { NetDevice::from_raw(bindings::ferroce_notifier_netdev(info)) };
        let Some(netdev) = netdev else {
            return bindings::NOTIFY_DONE as c_int;
        };
        notifier.listener.event(event, &netdev);
        bindings::NOTIFY_DONE as c_int
    }
}

#[pinned_drop]
impl<T: NetdevListener> PinnedDrop for NetdevNotifier<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The block was registered by `new`.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}

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
