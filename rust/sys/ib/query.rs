// SPDX-License-Identifier: GPL-2.0

//! Queries and destruction of a device.

use super::call::{
    operations,
    IgnoredArgument,
    Unseen, //
};
use super::counters::{
    self,
    CounterName,
    Values, //
};
use super::limits::{
    DeviceLimits,
    PortConstants,
    PortState, //
};
use super::management::{
    FirmwareText,
    Mad,
    MadReply,
    Question, //
};
use super::object;
use super::udata::NoUdata;
use crate::sys::bindings;
use crate::sys::errno::EOPNOTSUPP;
use kernel::prelude::*;

/// A device with one port of a driver. Dropping it destroys it: all its objects are
/// gone then.
pub trait RdmaDevice: Send + Sync + 'static {
    /// The port.
    const PORT: PortConstants;
    /// Names of the port's counters, in the order of [`RdmaDevice::counters`].
    const COUNTERS: &'static [CounterName];
    /// For how long ib_core may show the same values, in milliseconds.
    const COUNTERS_LIFESPAN_MS: u32;

    /// The limits of the device.
    fn limits(&self) -> DeviceLimits;
    /// The state of the port.
    fn port_state(&self) -> PortState;
    /// Fills the counters of the port, without those of queue pairs that are counted apart.
    fn counters(&self, values: &mut [u64]);
    /// What the port answers to a management datagram itself, if it does. May sleep.
    fn management(&self, request: &Mad) -> Option<Mad>;
}

type Live<'a, D> = object::Live<'a, bindings::ib_device, D>;
type Gone<'a, D> = object::Gone<'a, bindings::ib_device, D>;

impl<D: RdmaDevice> Live<'_, D> {
    fn query_port(&self, port: u32, attr: &mut bindings::ib_port_attr) {
        let state = self.port_state();
        // The slowest there is, as ib_core takes it for a netdev whose speed is unknown.
        attr.active_speed = bindings::ib_port_speed_IB_SPEED_SDR as u16;
        attr.active_width = bindings::ib_port_width_IB_WIDTH_1X as u8;
        // It waits for the RTNL, still held by the code that has just set the netdev down, and the
        // port's event waits for the answer.
        if state.active {
            let device = self.reference().as_raw();
            // SAFETY: By the type invariant. While the netdev goes away this fails, and the values
            // stay.
            unsafe {
                bindings::ib_get_eth_speed(
                    device,
                    port,
                    &mut attr.active_speed,
                    &mut attr.active_width,
                )
            };
        }
        D::PORT.to_raw(state, attr);
    }
}

operations! {
    <'a, D: RdmaDevice>

    query_device(
        device: Live<'a, D>,
        attr: &'a mut bindings::ib_device_attr,
        _udata: NoUdata,
    ) -> Result {
        device.limits().to_raw(attr);
        Ok(())
    }

    /// As for all devices, the node can be described and nothing else changed.
    modify_device(
        device: Live<'a, D>,
        mask: c_int,
        modify: &'a mut bindings::ib_device_modify,
    ) -> Result {
        const DESCRIPTION: u32 = bindings::ib_device_modify_flags_IB_DEVICE_MODIFY_NODE_DESC;
        if mask as u32 & !DESCRIPTION != 0 {
            return Err(EOPNOTSUPP());
        }
        if mask as u32 & DESCRIPTION != 0 {
            device.reference().describe_node(modify);
        }
        Ok(())
    }

    get_dev_fw_str(device: Live<'a, D>, text: FirmwareText<'a>) -> Result<Unseen> {
        text.write(device.limits().version)?;
        Ok(Unseen)
    }

    process_mad(
        device: Live<'a, D>,
        _flags: c_int,
        _port: u32,
        _completion: IgnoredArgument<*const bindings::ib_wc>,
        _grh: IgnoredArgument<*const bindings::ib_grh>,
        question: Question<'a>,
        reply: MadReply<'a>,
        _length: IgnoredArgument<*mut usize>,
        _pkey_index: IgnoredArgument<*mut u16>,
    ) -> Result<c_int> {
        Ok(reply.give(device.management(question.0)))
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

    get_hw_stats(device: Live<'a, D>, values: Values<'a>, _port: u32, _index: c_int)
        -> Result<c_int>
    {
        Ok(values.fill(|values| device.counters(values)))
    }

    dealloc_driver(device: Gone<'a, D>) -> Result<Unseen> {
        device.destroy();
        Ok(Unseen)
    }
}
