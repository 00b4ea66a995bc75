// SPDX-License-Identifier: GPL-2.0

//! Safe types over the network stack: net devices, namespaces, sockets, routes and packets.
//!
//! The order of lifetimes is the order of the files: a [`NetDevice`], which is here, is counted; a
//! [`Resident`] keeps the network namespace of one from ending; sockets and routes hold a resident.
//! Here are also the events of net devices, and the addresses of IPv4 and IPv6 that they get, in
//! every namespace.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h),
//! [`include/linux/notifier.h`](srctree/include/linux/notifier.h) and
//! [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h).

pub mod netns;
pub mod receive;
pub mod transmit;

pub use crate::sys::net::netns::{
    NetNs,
    Resident,
    Underlay, //
};
pub use crate::sys::net::receive::{
    KeptPacket,
    LinkHeader,
    Receiver,
    RxBatch,
    RxBatches,
    RxPacket,
    Unreadable,
    Verdict, //
};
pub use crate::sys::net::transmit::{
    arrived,
    Addresses,
    Astray,
    FilledPacket,
    Flow,
    Route,
    TxList,
    TxPacket,
    TxResult, //
};

use crate::sys::bindings;
use core::ptr::NonNull;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::types::Opaque;
use kernel::{
    container_of,
    fmt, //
};

/// The UDP port of RoCEv2 (IBTA annex A17.9.2).
pub const UDP_PORT: u16 = bindings::FERROCE_UDP_PORT as u16;

/// The CRC-32 of Ethernet (reflected, polynomial 0xedb88320) of `head` and then `rest`, continued
/// from `crc`.
///
/// Neither the start value nor the result is inverted; the ICRC starts from `!0` and is inverted
/// by the caller.
#[inline]
pub fn crc32_le(crc: u32, head: &[u8], rest: &[u8]) -> u32 {
    // SAFETY: The slices are valid for reads of their lengths.
    unsafe { bindings::ferroce_crc32_le(crc, head.as_ptr(), head.len(), rest.as_ptr(), rest.len()) }
}

/// A reference to a `struct net_device`.
///
/// The device may be unregistered at any moment: its properties then no longer change, and it
/// waits for its references before it is freed.
///
/// # Invariants
///
/// The pointer is a net device, and we hold a reference of it.
pub struct NetDevice(NonNull<bindings::net_device>);

// SAFETY: Every method may be called from any thread.
unsafe impl Send for NetDevice {}
// SAFETY: Every method may be called from several threads at once.
unsafe impl Sync for NetDevice {}

impl Clone for NetDevice {
    fn clone(&self) -> Self {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_hold(self.as_ptr()) };
        // INVARIANT: The reference was taken just now.
        Self(self.0)
    }
}

impl Drop for NetDevice {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we hold a reference, given up here.
        unsafe { bindings::ferroce_netdev_put(self.as_ptr()) };
    }
}

impl NetDevice {
    /// Takes over a reference; `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// Unless it is null, `dev` must be a net device of which the caller gives up a reference.
    pub(in crate::sys) unsafe fn from_raw_owned(dev: *mut bindings::net_device) -> Option<Self> {
        // INVARIANT: By the requirement above.
        NonNull::new(dev).map(Self)
    }

    /// Takes a reference of its own; `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// Unless it is null, `dev` must be a net device that is alive during the call.
    pub(in crate::sys) unsafe fn from_raw(dev: *mut bindings::net_device) -> Option<Self> {
        if !dev.is_null() {
            // SAFETY: By the requirement above.
            unsafe { bindings::ferroce_netdev_hold(dev) };
        }
        // SAFETY: The reference was taken just now.
        unsafe { Self::from_raw_owned(dev) }
    }

    /// The C object, for the other files of `sys`.
    pub(in crate::sys) fn as_ptr(&self) -> *mut bindings::net_device {
        self.0.as_ptr()
    }

    /// The name at this moment.
    pub fn name(&self) -> Name {
        let mut name = [0; bindings::IFNAMSIZ as usize];

        // SAFETY: The device is valid and `name` has the length that is filled.
        unsafe { bindings::ferroce_netdev_name(self.as_ptr(), name.as_mut_ptr()) };
        Name(name)
    }

    /// The index of the device in its namespace.
    pub fn ifindex(&self) -> i32 {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_ifindex(self.as_ptr()) }
    }

    /// Bytes that fit behind the link-layer header, the IP header included.
    pub fn mtu(&self) -> u32 {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_mtu(self.as_ptr()) }
    }

    /// The Ethernet address; tunnels and `lo` have none.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];

        // SAFETY: The device is valid and `mac` has the length that is filled.
        unsafe { bindings::ferroce_netdev_mac(self.as_ptr(), mac.as_mut_ptr()) }.then_some(mac)
    }

    /// Whether an RDMA port on this device is ACTIVE: up and with a carrier, as ib_core judges it.
    pub fn is_operational(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_is_operational(self.as_ptr()) }
    }

    /// Whether this is a VLAN on another device.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_is_vlan(self.as_ptr()) }
    }

    /// The bridge or bond that this device belongs to at this moment.
    pub fn master(&self) -> Option<Name> {
        let mut name = [0; bindings::IFNAMSIZ as usize];

        // SAFETY: The device is valid and `name` has the length that is filled.
        unsafe { bindings::ferroce_netdev_master(self.as_ptr(), name.as_mut_ptr()) }
            .then_some(Name(name))
    }

    /// Link layer of its packets.
    pub fn framing(&self) -> Framing {
        // SAFETY: The device is valid.
        let hardware = unsafe { bindings::ferroce_netdev_hardware_type(self.as_ptr()) };

        match u32::from(hardware) {
            bindings::ARPHRD_ETHER => Framing::Ethernet,
            bindings::ARPHRD_LOOPBACK => Framing::Loopback,
            bindings::ARPHRD_NONE
            | bindings::ARPHRD_RAWIP
            | bindings::ARPHRD_PPP
            | bindings::ARPHRD_TUNNEL
            | bindings::ARPHRD_TUNNEL6
            | bindings::ARPHRD_SIT
            | bindings::ARPHRD_IPGRE
            | bindings::ARPHRD_IP6GRE => Framing::Tunnel,
            _ => Framing::Other,
        }
    }

    /// Whether both are the same device.
    pub fn is_same(&self, other: &NetDevice) -> bool {
        self.0 == other.0
    }
}

/// Link layer of a netdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Frames of an Ethernet. Whatever behaves as one (veth, bridge, bond, dummy, tap, macvlan)
    /// says that it is one.
    Ethernet,
    /// It is `lo`.
    Loopback,
    /// IP packets as they are, to the other end: no neighbour is resolved. A tun device, WireGuard,
    /// PPP, a modem, a tunnel of IP in IP or of GRE.
    Tunnel,
    /// Another link layer, with addresses of its own (InfiniBand), or none for IP (CAN).
    Other,
}

/// The name of a net device, for messages.
pub struct Name([u8; bindings::IFNAMSIZ as usize]);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take_while(|byte| **byte != 0)
            .try_for_each(|byte| write!(f, "{}", char::from(*byte).escape_default()))
    }
}

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
pub trait NetdevListener: Send + Sync + 'static {
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
