// SPDX-License-Identifier: GPL-2.0

//! The verbs: objects that users create, modify, query and destroy.
//!
//! A file is one kind of object, with the small ones that go with it (PDs and AHs with the device,
//! MWs with MRs), and implements the traits that `sys::ib` has for them. A call of
//! `ibv_create_qp()`, for instance, becomes `create_qp` of ib_core's table, in `sys::ib::qp`, and
//! that `QpObject::create` in [`qp`]. It checks the user's arguments, allocates, and publishes the
//! object to the data path, which then runs by itself, when it is complete.
//!
//! What is made is the driver's part of an object of ib_core, which owns it: it is dropped in the
//! operation that destroys the object, or right away if its creation fails. Dropping it unpublishes
//! first. What the data path uses is behind an `Arc`, and freed with its last user: readers who
//! have found it before, and other objects that refer to it.

pub mod cq;
pub mod device;
pub mod modify;
pub mod mr;
pub mod qp;
pub mod srq;

use crate::core::uabi;
use crate::datapath::directory::Directory;
use crate::link::{
    Factory,
    Hold, //
};
use crate::module_parameters;
use crate::sys::ib::device::{
    register,
    Attribute,
    Driver, //
};
use crate::sys::ib::query::command;
use crate::sys::net::Underlay;
use crate::verbs::device::Device;
use kernel::prelude::*;

/// The driver, as ib_core sees it.
pub struct Ferroce;

impl Driver for Ferroce {
    type Device = Device;
    const ATTRIBUTES: &'static [Attribute<Device>] = device::ATTRIBUTES;
    const ABI_VERSION: u32 = uabi::ABI_VERSION;
    const DESCRIPTION: &'static CStr = c"ferroce";
    const COMMANDS: u64 = command::POST_SEND | command::POST_RECV;

    type Context = device::UserContext;
    type Pd = device::Domain;
    type Ah = device::AhObject;
    type Cq = cq::CqObject;
    type Qp = qp::QpObject;
    type Srq = srq::SrqObject;
    type Mr = mr::MrObject;
    type Mw = mr::MwObject;
    type Counters = qp::CountersObject;
}

impl Factory for Ferroce {
    type Driver = Ferroce;

    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result {
        let most_objects = module_parameters::most_objects.value();
        let device = Device::new(underlay.clone(), hold, most_objects)?;
        register::<Ferroce>(name, &underlay, device.guid, device)
    }

    fn leave(device: &Device) {
        device.port.leave();
    }

    fn lose_netdev(device: &Device) {
        device.lose_netdev();
    }

    fn leave_all() {
        if let Ok(directory) = Directory::current() {
            directory.leave_all();
        }
    }
}
