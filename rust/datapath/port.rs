// SPDX-License-Identifier: GPL-2.0

//! What the data path needs of a device: its memory regions, its counters, its switches.

use super::region::{
    DomainId,
    Range,
    Region, //
};
use crate::observe::counters::Counters;
use crate::sys::net::{
    NetNs,
    Resident,
    Underlay, //
};
use crate::sys::random;
use crate::sys::table::{
    Reserved,
    Table, //
};
use crate::wire::ident::Numbers;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel::sync::rcu;
use kernel::sync::Arc;

/// Most memory regions of a device.
pub const MAX_MR: u32 = 1 << 20;

/// The port of a device.
#[pin_data]
pub struct Port {
    #[pin]
    regions: Table<Region>,
    keys: Numbers,
    /// What happened.
    pub counters: Counters,
    /// The network namespace of the netdev.
    pub resident: Resident,
    /// The netdev's index there, which does not change while it has a link.
    ifindex: i32,
    local_path: Atomic<bool>,
}

impl Port {
    /// A port with the local path on.
    pub fn new(underlay: &Underlay) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                regions <- Table::new(),
                keys: Numbers::new(random::words()),
                counters: Counters::default(),
                resident: underlay.resident().clone(),
                ifindex: underlay.netdev().ifindex(),
                local_path: Atomic::new(true),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it is in this namespace, so that packets received there may be for it.
    pub fn is_in(&self, netns: NetNs) -> bool {
        self.resident.netns() == netns
    }

    /// Whether it is the port on this netdev.
    pub fn is_on(&self, netns: NetNs, ifindex: i32) -> bool {
        self.ifindex == ifindex && self.is_in(netns)
    }

    /// Whether messages to a GID of the same device go without packets.
    pub fn local_path(&self) -> bool {
        self.local_path.load(Relaxed)
    }

    /// Turns the local path on or off, from the next message on.
    pub fn set_local_path(&self, on: bool) {
        self.local_path.store(on, Relaxed);
    }

    /// Takes a key for a region; it leads nowhere before it is published. May sleep.
    pub fn reserve_key(&self) -> Result<(Reserved<'_, Region>, u32)> {
        let reserved = self.regions.reserve(MAX_MR)?;
        let key = (self.keys.number(reserved.index()) << 8) | u32::from(random::byte());
        Ok((reserved, key))
    }

    /// Unpublishes a region and waits until nothing accesses it. May sleep.
    pub fn remove_region(&self, key: u32) {
        drop(self.regions.remove(self.keys.index(key >> 8)));
    }

    /// The range `va..va + len` of the region of `key`, if QPs of `domain` have all of `rights`.
    pub fn check<'g>(
        &'g self,
        rcu: &'g rcu::Guard,
        domain: DomainId,
        key: u32,
        rights: u32,
        va: u64,
        len: u32,
    ) -> Option<Range<'g>> {
        let region = self.regions.get_ref(self.keys.index(key >> 8), rcu)?;
        if region.key != key {
            return None;
        }
        region.check(domain, rights, va, len)
    }
}
