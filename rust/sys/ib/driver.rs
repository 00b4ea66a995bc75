// SPDX-License-Identifier: GPL-2.0

//! A driver, as ib_core sees it: the types of its objects, from which the table of operations
//! follows.
//!
//! Each kind of object has a file here, with the trait that a driver implements for it and its
//! operations. A verb is a method of the trait and an entry in `operations!`; a kind of object is
//! besides a type in [`Driver`] and a line in [`operations`].
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_device_ops`.

use super::ah::{
    self,
    AddressHandle, //
};
use super::attribute::{
    self,
    HasAttributes, //
};
use super::context::{
    self,
    Context, //
};
use super::counter_set::{
    self,
    CounterSet, //
};
use super::cq::{
    self,
    CompletionQueue, //
};
use super::fast::{
    self,
    FastRegion, //
};
use super::mr;
use super::mw::{
    self,
    MemoryWindow, //
};
use super::pd::{
    self,
    ProtectionDomain, //
};
use super::qp::{
    self,
    QueuePair, //
};
use super::query;
use super::srq::{
    self,
    SharedReceiveQueue, //
};
use crate::sys::bindings;
use kernel::prelude::*;

/// The device of a driver.
pub type DeviceOf<D> = <D as HasAttributes>::Device;

/// A driver: the types of its objects.
///
/// Objects are values that belong to the driver. They are dropped when ib_core destroys the object
/// that they stand behind: nothing may refer to that any more then. Their methods run in process
/// context and may sleep.
pub trait Driver: HasAttributes<Device: query::RdmaDevice> {
    /// `driver_id` of the device.
    const ID: u32;
    /// `uverbs_abi_ver` of the device.
    const ABI_VERSION: u32;
    /// What the description of the node begins with; the name of the host follows, if it has one.
    const DESCRIPTION: &'static CStr;
    /// Commands that processes may use beside those that every device has: see
    /// [`super::limits::command`].
    const COMMANDS: u64;

    /// An open device file.
    type Context: Context<Device = Self::Device>;
    /// A protection domain.
    type Pd: ProtectionDomain<Device = Self::Device>;
    /// An address handle.
    type Ah: AddressHandle<Device = Self::Device, Pd = Self::Pd>;
    /// A completion queue.
    type Cq: CompletionQueue<Device = Self::Device>;
    /// A queue pair.
    type Qp: QueuePair<
        Device = Self::Device,
        Pd = Self::Pd,
        Cq = Self::Cq,
        Srq = Self::Srq,
        Ah = Self::Ah,
    >;
    /// A shared receive queue.
    type Srq: SharedReceiveQueue<Device = Self::Device, Pd = Self::Pd>;
    /// A memory region.
    type Mr: FastRegion<Device = Self::Device, Pd = Self::Pd>;
    /// A memory window.
    type Mw: MemoryWindow<Device = Self::Device, Pd = Self::Pd>;
    /// Counters for some queue pairs.
    type Counters: CounterSet<Device = Self::Device, Qp = Self::Qp>;
}

/// The table. `ib_set_device_ops` copies it.
pub(super) fn operations<D: Driver>(module: *mut bindings::module) -> bindings::ib_device_ops {
    let mut ops = bindings::ib_device_ops {
        owner: module,
        driver_id: D::ID,
        uverbs_abi_ver: D::ABI_VERSION,
        device_group: attribute::group::<D>(),
        size_ib_ucontext: context::size::<D::Context>(),
        size_ib_pd: pd::size::<D::Pd>(),
        size_ib_ah: ah::size::<D::Ah>(),
        size_ib_cq: cq::size::<D::Cq>(),
        size_ib_qp: qp::size::<D::Qp>(),
        size_ib_mw: mw::size::<D::Mw>(),
        size_ib_srq: srq::size::<D::Srq>(),
        size_rdma_counter: counter_set::size::<D::Counters>(),
        ..pin_init::zeroed()
    };
    ops.set_uverbs_robust_udata(1);
    query::install::<D::Device>(&mut ops);
    context::install::<D::Context>(&mut ops);
    pd::install::<D::Pd>(&mut ops);
    ah::install::<D::Ah>(&mut ops);
    cq::install::<D::Cq>(&mut ops);
    qp::install::<D::Qp>(&mut ops);
    srq::install::<D::Srq>(&mut ops);
    mr::install::<D::Mr>(&mut ops);
    fast::install::<D::Mr>(&mut ops);
    mw::install::<D::Mw>(&mut ops);
    counter_set::install::<D::Counters>(&mut ops);
    ops
}
