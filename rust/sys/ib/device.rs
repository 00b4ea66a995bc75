// SPDX-License-Identifier: GPL-2.0

//! The RDMA device: made, registered, found and taken down.

use super::driver::{
    self,
    Driver, //
};
use super::object::Object;
use crate::sys::bindings;
use crate::sys::net::{
    NetDevice,
    Underlay, //
};
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;
use kernel::str::CStrExt;

pub use super::attribute::install as install_attributes;

/// Creates a device on a netdev and registers it: from here on users can open it.
///
/// `guid` is the node GUID, big-endian. On failure `data` is dropped and nothing is left.
pub fn register<D: Driver>(name: &CStr, underlay: &Underlay, guid: u64, data: D::Device) -> Result {
    let netdev = underlay.netdev();
    // SAFETY: The size is that of our object; the namespace is the one that the resident keeps.
    let device = unsafe {
        bindings::_ib_alloc_device(
            Object::<bindings::ib_device, D::Device>::SIZE,
            underlay.resident().as_ptr(),
        )
    };
    let core = NonNull::new(device).ok_or(ENOMEM)?;
    // SAFETY: `device` is fresh. Our part is complete before `ib_set_device_ops` installs the
    // function that drops it, so that `ib_dealloc_device` is right from here on.
    unsafe {
        Object::init(core, data);
        (*device).node_type = bindings::RDMA_NODE_IB_CA as u8;
        (*device).phys_port_cnt = 1;
        (*device).num_comp_vectors = bindings::ferroce_possible_cpus() as c_int;
        (*device).node_guid = guid;
        (*device).uverbs_cmd_mask |= D::COMMANDS;
        bindings::ferroce_link_made(device);
        bindings::ferroce_set_parent(device, netdev.as_ptr());
        bindings::ferroce_set_node_desc(device, D::DESCRIPTION.as_char_ptr());
        let ops = driver::operations::<D>(bindings::ferroce_this_module());
        bindings::ib_set_device_ops(device, &ops);
    }
    // SAFETY: `device` is not registered yet; the name outlives the call.
    let ret = unsafe {
        let ret = bindings::ib_device_set_netdev(device, netdev.as_ptr(), 1);
        if ret == 0 {
            bindings::ferroce_name_assigned_by_user(device);
            bindings::ib_register_device(device, name.as_char_ptr(), core::ptr::null_mut())
        } else {
            ret
        }
    };
    if ret != 0 {
        // SAFETY: Registration failed, so that the device is ours alone.
        unsafe { bindings::ib_dealloc_device(device) };
        return Err(Error::from_errno(ret));
    }
    Ok(())
}

/// A registered device, held.
///
/// # Invariants
///
/// The pointer is a device whose operations are those of `D`, with a reference of
/// `ib_device_try_get` that this value owns: it is not unregistered while this value lives.
pub struct Registered<D: Driver>(NonNull<bindings::ib_device>, PhantomData<D>);

impl<D: Driver> Registered<D> {
    /// The device on this netdev, if there is one of ours.
    pub fn by_netdev(netdev: &NetDevice) -> Option<Self> {
        // SAFETY: The netdev is referenced. The driver id finds only devices of ours.
        let device = unsafe { bindings::ib_device_get_by_netdev(netdev.as_ptr(), D::ID) };
        // INVARIANT: The callee took the reference.
        NonNull::new(device).map(|device| Self(device, PhantomData))
    }

    /// The driver type.
    pub fn data(&self) -> &D::Device {
        // SAFETY: By the type invariant.
        unsafe { Object::private(self.0) }
    }

    /// Reports a change of the port's state (PORT_ERR, PORT_ACTIVE) to the users of the device,
    /// once for each change.
    pub fn report_port_state(&self, netdev: &NetDevice) {
        // SAFETY: By the type invariant; the netdev is referenced.
        unsafe { bindings::ib_dispatch_port_state_event(self.0.as_ptr(), netdev.as_ptr()) };
    }

    /// Like [`Self::report_port_state`], when the netdev was set down. It sleeps until the users
    /// have got the event, a tenth of a second at most: those about GIDs that go come behind it.
    pub fn report_port_down(&self, netdev: &NetDevice) {
        // SAFETY: By the type invariant; the netdev is referenced.
        unsafe { bindings::ferroce_report_port_down(self.0.as_ptr(), netdev.as_ptr()) };
    }

    /// Makes a GID of each address of the netdev, and of the VLANs on it, that has none. Sleeps,
    /// and takes the RTNL.
    ///
    /// ib_core does so by itself when the device is registered, and for Ethernet devices always.
    pub fn add_gids(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::rdma_roce_rescan_device(self.0.as_ptr()) };
    }

    /// Takes the device down from a context that may not wait for it.
    pub fn unregister_queued(self) {
        // SAFETY: By the type invariant the device is registered.
        unsafe { bindings::ib_unregister_device_queued(self.0.as_ptr()) };
    }
}

impl<D: Driver> Drop for Registered<D> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

/// Unregisters every device of the driver and waits until they are gone. May sleep.
pub fn unregister_all<D: Driver>() {
    // SAFETY: The id belongs to us alone.
    unsafe { bindings::ib_unregister_driver(D::ID) };
}
