// SPDX-License-Identifier: GPL-2.0

//! The factory of the RDMA devices of links.

use crate::sys::{
    ib::device::{
        DeviceOf,
        Driver, //
    },
    net::Underlay, //
};
use kernel::prelude::*;

/// Held by a device and dropped last: while it exists, the netdev is taken and the sockets of its
/// namespace are open. Dropped where sleeping is permitted.
pub type Hold = KBox<dyn Send + Sync>;

/// Creates the RDMA devices.
pub trait Factory: 'static {
    /// The driver type of the devices.
    type Driver: Driver;

    /// Creates and registers the RDMA device `name` on `underlay`.
    ///
    /// The device drops `hold` when it is deallocated, after the last use of `underlay`.
    ///
    /// # Errors
    ///
    /// `ENFILE` if a device `name` exists, as ib_core has it; it becomes `EEXIST` here.
    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result;

    /// The link is deleted: the device is unregistered next.
    fn leave(device: &DeviceOf<Self::Driver>);

    /// The netdev below is gone: the same, by a worker. It waits for the users of the device, which
    /// may wait for peers. Under the RTNL.
    fn lose_netdev(device: &DeviceOf<Self::Driver>);

    /// The module is unloaded: every device is unregistered next.
    fn leave_all();
}
