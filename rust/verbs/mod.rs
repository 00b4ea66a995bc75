// SPDX-License-Identifier: GPL-2.0

//! The verbs: what a user creates, changes, asks and destroys.
//!
//! Each file is one kind of object. They check what the user asks for and set up what the data
//! path then runs by itself.

pub mod cq;
pub mod device;
pub mod mr;
pub mod qp;

use crate::datapath::drive;
use crate::datapath::region::DomainId;
use crate::observe::counters;
use crate::sys::ib::driver::{
    CounterName,
    Driver, //
};
use crate::sys::ib::limits::{
    DeviceLimits,
    PortState, //
};
use crate::sys::ib::object::{
    CqRef,
    PdRef, //
};
use crate::sys::ib::qp::{
    Access,
    Attributes,
    Capacity,
    Change,
    Created,
    Init,
    Path,
    State, //
};
use crate::sys::ib::udata::Udata;
use crate::uabi;
use crate::uabi::udata::{
    AllocUcontextReq,
    AllocUcontextResp, //
};
use device::Device;
use kernel::prelude::*;
use kernel::sync::Arc;

/// The driver, as ib_core sees it.
pub struct Ferroce;

impl Driver for Ferroce {
    const ID: u32 = uabi::DRIVER_ID;
    const ABI_VERSION: u32 = uabi::ABI_VERSION;
    const COUNTERS: &'static [CounterName] = counters::NAMES;

    type Device = Arc<Device>;
    type Pd = DomainId;
    type Ah = ();
    type Cq = cq::UserCq;
    type Qp = qp::UserQp;
    type Mr = mr::UserMr;

    fn query_device(device: &Arc<Device>) -> DeviceLimits {
        device.limits()
    }

    fn query_port(device: &Arc<Device>) -> PortState {
        device.port_state()
    }

    fn counters(device: &Arc<Device>, values: &mut [u64]) {
        device.port.counters.read(values);
    }

    fn local_path(device: &Arc<Device>) -> bool {
        device.port.local_path()
    }

    fn set_local_path(device: &Arc<Device>, on: bool) {
        device.port.set_local_path(on);
    }

    fn alloc_context(_device: &Arc<Device>, udata: &Udata<'_>) -> Result {
        // Version 1 has no features; a provider that knows more gets along without.
        let _request: AllocUcontextReq = udata.request()?;
        udata.respond(&AllocUcontextResp { features: 0 })
    }

    fn alloc_pd(_device: &Arc<Device>) -> Result<DomainId> {
        Ok(DomainId::next())
    }

    /// Only datagrams use address handles, and there are none yet: an address handle is checked
    /// and keeps nothing.
    fn create_ah(_device: &Arc<Device>, _path: Path) -> Result {
        Ok(())
    }

    fn create_cq(
        device: &Arc<Device>,
        cq: CqRef<'_>,
        entries: u32,
        udata: &Udata<'_>,
    ) -> Result<(cq::UserCq, u32)> {
        cq::UserCq::new(device, cq, entries, udata)
    }

    fn destroy_cq(cq: cq::UserCq) {
        cq.destroy();
    }

    fn create_qp(
        device: &Arc<Device>,
        pd: &DomainId,
        init: Init<'_, cq::UserCq>,
        udata: &Udata<'_>,
    ) -> Result<Created<qp::UserQp>> {
        qp::create(device, *pd, init, udata)
    }

    fn modify_qp(qp: &qp::UserQp, change: Change) -> Result {
        qp.modify(change)
    }

    fn query_qp(qp: &qp::UserQp) -> (State, bool, Attributes, Capacity, bool) {
        qp.query()
    }

    fn destroy_qp(qp: qp::UserQp) {
        qp.destroy();
    }

    fn send_doorbell(qp: &qp::UserQp) -> Result {
        drive::send_doorbell(qp.qp())
    }

    fn recv_doorbell(qp: &qp::UserQp) -> Result {
        drive::recv_doorbell(qp.qp())
    }

    fn reg_user_mr(
        device: &Arc<Device>,
        pd: PdRef<'_>,
        domain: &DomainId,
        start: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<(mr::UserMr, u32)> {
        mr::register(device, pd, *domain, start, len, iova, access)
    }

    fn dereg_mr(mr: mr::UserMr) {
        mr.deregister();
    }
}
