// SPDX-License-Identifier: GPL-2.0

//! Counters for some queue pairs apart from the others (`rdma statistic qp`).

use super::call::{
    operations,
    Argument,
    Reference,
    Unseen, //
};
use super::object;
use super::query::{
    allocate,
    RdmaDevice,
    Values, //
};
use crate::sys::bindings;
use kernel::prelude::*;

/// Counter sets of a driver. ib_core calls one method at a time.
pub trait CounterSet: Send + Sync + 'static {
    /// The device type.
    type Device: RdmaDevice;
    /// The queue pair type.
    type Qp: Send + Sync + 'static;

    /// A set that counts nothing. ib_core may forget it without dropping it as long as nothing was
    /// bound to it.
    fn new() -> Self;

    /// Counts `qp` here from now on. Returns the number of the set, which no other set of the
    /// device has. If the first one fails the set has nothing that would have to be dropped.
    fn bind(&self, device: &Self::Device, qp: &Self::Qp) -> Result<u32>;

    /// Counts `qp` with the others of the port again.
    fn unbind(device: &Self::Device, qp: &Self::Qp) -> Result;

    /// Fills the values, in the order of [`RdmaDevice::COUNTERS`].
    fn read(&self, values: &mut [u64]);
}

type New<'a, S> = object::New<'a, bindings::rdma_counter, S, <S as CounterSet>::Device>;
type Live<'a, S> = object::Live<'a, bindings::rdma_counter, S, <S as CounterSet>::Device>;
type Gone<'a, S> = object::Gone<'a, bindings::rdma_counter, S>;
type LiveQp<'a, S> =
    object::Live<'a, bindings::ib_qp, <S as CounterSet>::Qp, <S as CounterSet>::Device>;

impl<'a> Reference<'a, bindings::rdma_counter> {
    fn set_number(self, number: u32) {
        // SAFETY: By the type invariant; ib_core holds the lock of the counter.
        unsafe { (*self.as_raw()).id = number };
    }

    /// Its values.
    fn values(self) -> Result<Values<'a>> {
        // SAFETY: By the type invariant; what is there was allocated by `counter_alloc_stats`.
        unsafe { Values::from_raw((*self.as_raw()).stats) }
    }
}

impl Reference<'_, bindings::ib_qp> {
    fn set_counter(self, counter: *mut bindings::rdma_counter) {
        // SAFETY: By the type invariant. ib_core holds the lock of the counter, and leaves this
        // field to the driver; a reader without that sees the old value or the new one.
        unsafe { (&raw mut (*self.as_raw()).counter).write_volatile(counter) };
    }
}

operations! {
    install<'a, S: CounterSet>

    counter_init(counter: New<'a, S>) -> Result<Unseen> {
        counter.create(|_device, ()| Ok((S::new(), ())))?;
        Ok(Unseen)
    }

    counter_alloc_stats(_counter: Live<'a, S>) -> Result<*mut bindings::rdma_hw_stats> {
        Ok(allocate(S::Device::COUNTERS, S::Device::COUNTERS_LIFESPAN_MS))
    }

    counter_bind_qp(counter: Live<'a, S>, qp: LiveQp<'a, S>, _port: u32) -> Result {
        let number = counter.bind(counter.device()?, &qp)?;
        counter.reference().set_number(number);
        qp.reference().set_counter(counter.reference().as_raw());
        Ok(())
    }

    counter_unbind_qp(qp: LiveQp<'a, S>, _port: u32) -> Result {
        S::unbind(qp.device()?, &qp)?;
        qp.reference().set_counter(core::ptr::null_mut());
        Ok(())
    }

    counter_update_stats(counter: Live<'a, S>) -> Result {
        let values = counter.reference().values()?;
        values.fill(|values| counter.read(values));
        Ok(())
    }

    counter_dealloc(counter: Gone<'a, S>) -> Result {
        counter.destroy();
        Ok(())
    }
}
