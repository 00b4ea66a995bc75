// SPDX-License-Identifier: GPL-2.0

//! Counter sets of some queue pairs, bound by an administrator (`rdma statistic qp`).

use crate::datapath::port::Port;
use crate::observe::sets::Set;
use crate::sys::ib::query::CounterSet;
use crate::sys::table::Successor;
use crate::verbs::device::Device;
use crate::verbs::qp::QpObject;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    SetOnce, //
};

/// A set of counters. It is created when the first queue pair is bound, so a failure leaves nothing
/// behind.
pub struct CountersObject(SetOnce<SeparateSet>);

struct SeparateSet {
    port: Arc<Port>,
    set: Set,
}

impl CounterSet for CountersObject {
    type Device = Device;
    type Qp = QpObject;

    fn new() -> Self {
        Self(SetOnce::new())
    }

    fn bind(&self, device: &Device, qp: &QpObject) -> Result<u32> {
        if let Some(SeparateSet { set, .. }) = self.0.as_ref() {
            qp.qp().count_in(Successor::new(set.counters().clone())?);
            return Ok(set.number());
        }
        let port = device.port().clone();
        let set = port.all_counters().begin()?;
        let separate = SeparateSet { port, set };
        let counters = Successor::new(separate.set.counters().clone())?;
        let number = separate.set.number();
        // No other bind is in progress.
        self.0.populate(separate);
        qp.qp().count_in(counters);
        Ok(number)
    }

    fn unbind(device: &Device, qp: &QpObject) -> Result {
        let common = device.port().all_counters().common().clone();
        qp.qp().count_in(Successor::new(common)?);
        Ok(())
    }

    fn read(&self, values: &mut [u64]) {
        if let Some(SeparateSet { set, .. }) = self.0.as_ref() {
            set.counters().read(values);
        }
    }
}

impl Drop for SeparateSet {
    fn drop(&mut self) {
        self.port.all_counters().end(&mut self.set);
    }
}
