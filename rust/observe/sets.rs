// SPDX-License-Identifier: GPL-2.0

//! Who is counted where: all queue pairs of a port together, and some of them apart.
//!
//! A queue pair counts in one place at a time, so counting it apart costs nothing on the way of a
//! packet. `rdma statistic` and sysfs add up for a port what ib_core knows to be counted apart,
//! also what was counted by sets that are gone. Who asks for counters in another way gets the sum
//! from here.

use super::counters::Counters;
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

/// All that is counted at a port.
#[pin_data]
pub struct PortCounters {
    /// What is not counted apart.
    common: Arc<Counters>,
    /// What is.
    #[pin]
    sets: Table<Counters>,
    /// What had been counted in sets that are gone. The lock orders the end of a set with who adds
    /// all up, so that no sum is ever less than the one before.
    #[pin]
    past: Mutex<Counters>,
}

/// A set of counters for queue pairs that are counted apart.
pub struct Set(Published<Counters>);

impl PortCounters {
    /// Nothing has been counted.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            common: Arc::new(Counters::default(), GFP_KERNEL)?,
            sets <- Table::new(),
            past <- new_mutex!(Counters::default()),
        })
    }

    /// Where all are counted that are not counted apart.
    #[inline]
    pub fn common(&self) -> &Arc<Counters> {
        &self.common
    }

    /// Another set, with a number that no other has. May sleep.
    pub fn begin(&self) -> Result<Set> {
        let counters = Arc::new(Counters::default(), GFP_KERNEL)?;
        Ok(Set(self.sets.reserve(MAX_SETS)?.publish(counters)))
    }

    /// Nobody is counted in the set any more. May sleep.
    pub fn end(&self, set: &mut Set) {
        let past = self.past.lock();
        self.sets.remove(&mut set.0);
        past.absorb(&set.0);
    }

    /// All that has been counted, apart or not. May sleep.
    pub fn sum(&self) -> Counters {
        let sum = Counters::default();
        let past = self.past.lock();
        sum.absorb(&self.common);
        sum.absorb(&past);
        let rcu = rcu::read_lock();
        self.sets.each(&rcu, |set| sum.absorb(&set));
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
