// SPDX-License-Identifier: GPL-2.0

//! Memory that the data path copies from and to: MRs, MWs, FRMRs, and scatter/gather lists of them;
//! and the keys of a device, which lead to them.

pub mod region;
pub mod sg;
pub mod window;

use crate::core::memory::MemoryKey;
use crate::core::uabi::udata::NULL_LKEY;
use crate::core::wire::ident::Permutation24;
use crate::datapath::memory::region::Region;
use crate::datapath::memory::window::Mw;
use crate::sys;
use crate::sys::table::{
    Published,
    Replacement,
    Reserved,
    Table, //
};
use kernel::prelude::*;
use kernel::sync::rcu;

/// Most MRs of a device.
const MAX_MR: u32 = 1 << 20;

/// Bit 23 of the index tags MW keys: no index of an MR is so large.
const OF_WINDOW: u32 = 1 << 23;

/// The keys of a device.
#[pin_data]
pub struct KeyTable {
    #[pin]
    regions: Table<Region>,
    /// The MR of [`NULL_LKEY`].
    pub null: Region,
    /// By index; their keys contain [`OF_WINDOW`].
    #[pin]
    windows: Table<Mw>,
    /// Secret of the keys.
    secret: Permutation24,
}

impl KeyTable {
    /// No key but [`NULL_LKEY`]. May sleep.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            regions <- Table::named(),
            null: Region::null(),
            windows <- Table::new(),
            secret: Permutation24::new(sys::random_words()),
        })
    }

    /// Reserves a key for an MR, which leads nowhere until it is published. May sleep.
    pub fn reserve_region(&self) -> Result<(Reserved<'_, Region>, MemoryKey)> {
        self.regions.reserve_named(MAX_MR, &|index| self.key(index))
    }

    /// Reserves a key for an MW, which leads nowhere until it is published. May sleep.
    pub fn reserve_window(&self) -> Result<(Reserved<'_, Mw>, MemoryKey)> {
        self.windows
            .reserve_named(MAX_MR, &|index| self.key(index | OF_WINDOW))
    }

    /// A new key with this index, unless it would be [`NULL_LKEY`].
    fn key(&self, index: u32) -> Option<MemoryKey> {
        let name = self.secret.number(index);
        let key = MemoryKey::new(sys::random_byte().into()).with_name(name);
        (name != MemoryKey::new(NULL_LKEY).name()).then_some(key)
    }

    /// Unpublishes and ends an MW: no access through it is left when this returns. May sleep.
    pub fn remove_window(&self, window: &mut Published<Mw>) {
        self.windows.remove(window);
        let rcu = rcu::read_lock();
        window.end(&|key| self.region(key, &rcu));
        drop(rcu);
        if let Some(lists) = window.lists() {
            lists.end();
        }
    }

    /// The MW that `key` may belong to. The MW checks the whole key and the user.
    #[cold]
    pub fn window<'g>(&'g self, key: MemoryKey, rcu: &'g rcu::Guard) -> Option<&'g Mw> {
        let number = self.secret.index(key.name());
        if number & OF_WINDOW == 0 {
            return None;
        }
        self.windows.get_ref(number & !OF_WINDOW, rcu)
    }

    /// Lets the key of an MR lead to another MR with the same key. The old one is unpublished, but
    /// not revoked.
    pub fn replace_region(
        &self,
        old: &mut Published<Region>,
        with: Replacement<Region>,
        region: Region,
    ) {
        self.regions.replace(old, with, region);
    }

    /// Unpublishes an MR and waits for accesses in progress. May sleep.
    pub fn remove_region(&self, region: &mut Published<Region>) {
        self.regions.remove(region);
        drop(region.revoke());
    }

    /// The MR that `key` may belong to. The MR checks the whole key and the user.
    #[inline]
    pub fn region<'g>(&'g self, key: MemoryKey, rcu: &'g rcu::Guard) -> Option<&'g Region> {
        let name = key.name();
        self.regions.find_ref(name, rcu, || self.secret.index(name))
    }
}
