// SPDX-License-Identifier: GPL-2.0

//! A net device, counted.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use crate::sys::bindings;
use core::ptr::NonNull;
use kernel::fmt;

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

    /// Whether the administrator has set the device up.
    pub fn is_up(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_is_up(self.as_ptr()) }
    }

    /// Whether the device has a carrier.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_has_carrier(self.as_ptr()) }
    }

    /// Whether an RDMA port on this device is ACTIVE: up and with a carrier, as ib_core judges it.
    pub fn is_operational(&self) -> bool {
        self.is_up() && self.has_carrier()
    }

    /// Whether this is a VLAN on another device.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::ferroce_netdev_is_vlan(self.as_ptr()) }
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
