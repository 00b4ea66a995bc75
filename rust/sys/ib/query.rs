// SPDX-License-Identifier: GPL-2.0

//! What a device says of itself, and its end.

use super::call::{
    operations,
    Argument,
    Unseen, //
};
use super::counters::{
    self,
    CounterName, //
};
use super::limits::{
    DeviceLimits,
    PortConstants,
    PortState, //
};
use super::object;
use super::udata::NoUdata;
use crate::sys::bindings;
use core::marker::PhantomData;
use core::ptr::NonNull;
use kernel::prelude::*;

/// What a device with one port is to a driver. Dropping it is the end of it: all its objects are
/// gone then.
pub trait Device: Send + Sync + 'static {
    /// The port.
    const PORT: PortConstants;
    /// Names of the port's counters, in the order of [`Device::counters`].
    const COUNTERS: &'static [CounterName];
    /// For how long ib_core may show the same values, in milliseconds.
    const COUNTERS_LIFESPAN_MS: u32;

    /// The limits of the device.
    fn limits(&self) -> DeviceLimits;
    /// The state of the port.
    fn port_state(&self) -> PortState;
    /// Fills the counters of the port.
    fn counters(&self, values: &mut [u64]);
}

type Live<'a, D> = object::Live<'a, bindings::ib_device, D>;
type Gone<'a, D> = object::Gone<'a, bindings::ib_device, D>;

impl<D: Device> Live<'_, D> {
    fn query_port(&self, port: u32, attr: &mut bindings::ib_port_attr) {
        let device = self.reference().as_raw();
        // SAFETY: By the type invariant. While the netdev goes away this fails, and the values
        // stay.
        unsafe {
            bindings::ib_get_eth_speed(device, port, &mut attr.active_speed, &mut attr.active_width)
        };
        D::PORT.to_raw(self.port_state(), attr);
    }
}

/// The values of counters.
///
/// # Invariants
///
/// It was allocated for the counters of `D`.
struct Values<'a, D>(NonNull<bindings::rdma_hw_stats>, PhantomData<(&'a (), D)>);

impl<D: Device> Argument for Values<'_, D> {
    type Raw = *mut bindings::rdma_hw_stats;

    unsafe fn from_raw(raw: *mut bindings::rdma_hw_stats) -> Result<Self> {
        // INVARIANT: By the requirement it is from `alloc_hw_port_stats`.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?, PhantomData))
    }
}

impl<D: Device> Values<'_, D> {
    fn fill(self, device: &D) -> c_int {
        let count = D::COUNTERS.len();
        // SAFETY: By the type invariant there are so many values; ib_core serialises the calls.
        let values = unsafe {
            core::slice::from_raw_parts_mut((*self.0.as_ptr()).value.as_mut_ptr(), count)
        };
        device.counters(values);
        count as c_int
    }
}

operations! {
    <'a, D: Device>

    query_device(
        device: Live<'a, D>,
        attr: &'a mut bindings::ib_device_attr,
        _udata: NoUdata,
    ) -> Result {
        device.limits().to_raw(attr);
        Ok(())
    }

    query_port(device: Live<'a, D>, port: u32, attr: &'a mut bindings::ib_port_attr) -> Result {
        device.query_port(port, attr);
        Ok(())
    }

    get_port_immutable(
        _device: Live<'a, D>,
        _port: u32,
        immutable: &'a mut bindings::ib_port_immutable,
    ) -> Result {
        D::PORT.immutable(immutable);
        Ok(())
    }

    get_link_layer(_device: Live<'a, D>, _port: u32) -> Result<u32> {
        Ok(bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET)
    }

    query_pkey(_device: Live<'a, D>, _port: u32, index: u16, pkey: &'a mut u16) -> Result {
        *pkey = *D::PORT.pkeys.get(usize::from(index)).ok_or(EINVAL)?;
        Ok(())
    }

    alloc_hw_port_stats(
        _device: Live<'a, D>,
        _port: u32,
    ) -> Result<*mut bindings::rdma_hw_stats> {
        Ok(counters::allocate(D::COUNTERS, D::COUNTERS_LIFESPAN_MS))
    }

    get_hw_stats(device: Live<'a, D>, values: Values<'a, D>, _port: u32, _index: c_int)
        -> Result<c_int>
    {
        Ok(values.fill(&device))
    }

    dealloc_driver(device: Gone<'a, D>) -> Result<Unseen> {
        device.destroy();
        Ok(Unseen)
    }
}
