// SPDX-License-Identifier: GPL-2.0

//! Whoever makes the RDMA devices of links.

use crate::sys::{
    ib::driver::{
        DeviceOf,
        Driver, //
    },
    net::Underlay, //
};
use kernel::prelude::*;

/// What a device keeps and drops last: as long as it exists, the net device is taken and the
/// sockets of its namespace are open. To be dropped where sleeping is allowed.
pub type Hold = KBox<dyn Send + Sync>;

/// Whoever makes the RDMA devices.
pub trait Factory: 'static {
    /// What the devices are to ib_core.
    type Driver: Driver;

    /// Makes and registers the RDMA device `name` on `underlay`.
    ///
    /// The device must drop `hold` when it is deallocated, after the last use of `underlay`.
    ///
    /// # Errors
    ///
    /// `ENFILE` when there is a device `name`, as ib_core has it; it becomes `EEXIST` here.
    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result;

    /// The link is deleted: the device is unregistered next.
    fn leave(device: &DeviceOf<Self::Driver>);

    /// The net device below has left: as above, by a worker, which waits for the users of the
    /// device, and they may wait for peers. Under the RTNL.
    fn lose_netdev(device: &DeviceOf<Self::Driver>);

    /// The module is unloaded: every device is unregistered next.
    fn leave_all();
}
