// SPDX-License-Identifier: GPL-2.0

//! Counter sets: all queue pairs of a port together, and some of them separately.
//!
//! A queue pair counts in one place at a time, so a separate set costs nothing on the packet path.
//! `rdma statistic` and sysfs add up for a port the sets that ib_core knows, and those that were
//! removed. Other readers get the sum from here.
//!
//! The standard counters of an RDMA port (IBTA 16.1.3.5) are derived from these ([`totals`]).

use crate::core::wire::performance::Totals;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::table::{
    Published,
    Table, //
};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    Mutex, //
};

/// Most sets of a port.
const MAX_SETS: u32 = 1 << 16;

/// All counters of a port.
#[pin_data]
pub struct PortCounters {
    /// Counts that are in no separate set.
    common: Arc<Counters>,
    /// Counts in separate sets.
    #[pin]
    sets: Table<Counters>,
    /// Sum of removed sets. The lock orders the removal of a set with readers of the sum, so no sum
    /// is ever less than the one before.
    #[pin]
    past: Mutex<Counters>,
}

/// A separate set of counters for some queue pairs.
pub struct Set(Published<Counters>);

impl PortCounters {
    /// All zero.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            common: Arc::new(Counters::default(), GFP_KERNEL)?,
            sets <- Table::new(),
            past <- new_mutex!(Counters::default()),
        })
    }

    /// The counters of queue pairs without a separate set.
    #[inline]
    pub fn common(&self) -> &Arc<Counters> {
        &self.common
    }

    /// A new set with a unique number. May sleep.
    pub fn begin(&self) -> Result<Set> {
        let counters = Arc::new(Counters::default(), GFP_KERNEL)?;
        Ok(Set(self.sets.reserve(MAX_SETS)?.publish(counters)))
    }

    /// Removes a set that no queue pair uses. May sleep.
    pub fn end(&self, set: &mut Set) {
        let past = self.past.lock();
        self.sets.remove(&mut set.0);
        past.absorb(&set.0);
    }

    /// The sum of all counters. May sleep.
    pub fn sum(&self) -> Counters {
        let sum = Counters::default();
        let past = self.past.lock();
        sum.absorb(&self.common);
        sum.absorb(&past);
        let rcu = rcu::read_lock();
        for set in self.sets.all(&rcu) {
            sum.absorb(&set);
        }
        sum
    }
}

impl Set {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.0)
    }

    /// Its counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.0
    }
}

/// The counters of a port as a performance manager reads them.
///
/// A message on the local path counts as sent and received, a segment as a packet: a monitor sees
/// the traffic of a device with itself.
pub fn totals(of: &Counters) -> Totals {
    let with_local = |counter, local| of.get(counter).saturating_add(of.get(local));
    Totals {
        sent_bytes: with_local(Counter::SentBytes, Counter::LocalBytes),
        received_bytes: with_local(Counter::ReceivedBytes, Counter::LocalBytes),
        sent_packets: with_local(Counter::SentPackets, Counter::LocalSegments),
        received_packets: with_local(Counter::ReceivedPackets, Counter::LocalSegments),
        receive_errors: [
            Counter::DropIcrc,
            Counter::DropIpHeader,
            Counter::DropMalformed,
            Counter::DropNoMemory,
        ]
        .into_iter()
        .fold(0, |sum, counter| sum.saturating_add(of.get(counter))),
        send_discards: of.get(Counter::SendLost),
    }
}
