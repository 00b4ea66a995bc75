// SPDX-License-Identifier: GPL-2.0

//! The port of a device: its keys, address handles, counters and settings.

use super::groups::Groups;
use super::memory::region::Region;
use super::memory::window::{
    Find,
    Mw, //
};
use super::path::Ah;
use crate::core::memory::MemoryKey;
use crate::core::uabi::udata::NULL_LKEY;
use crate::core::wire::ident::Permutation24;
use crate::observe::counters::Counters;
use crate::observe::sets::PortCounters;
use crate::sys::net::{
    arrived,
    Addresses,
    Astray,
    NetNs,
    Resident,
    Underlay, //
};
use crate::sys::random;
use crate::sys::table::{
    AllocContext,
    Published,
    Replacement,
    Reserved,
    Table, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// Most MRs of a device.
pub const MAX_MR: u32 = 1 << 20;

/// Bit 23 of the index tags MW keys: no index of an MR is so large.
const OF_WINDOW: u32 = 1 << 23;

/// The number of the GSI QP on the wire, on every device.
pub const MANAGEMENT_QP: u32 = 1;

/// Most address handles of a device.
pub const MAX_AH: u32 = 1 << 20;

/// Lookup of the MRs of a port.
pub struct InPort<'a> {
    /// The port.
    pub port: &'a Port,
    /// RCU read guard that protects the lookups.
    pub rcu: &'a rcu::Guard,
}

impl<'a> Find<'a> for InPort<'a> {
    fn region(&self, key: MemoryKey) -> Option<&'a Region> {
        self.port.region(key, self.rcu)
    }
}

/// The port of a device.
#[pin_data]
pub struct Port {
    #[pin]
    regions: Table<Region>,
    /// The MR of [`NULL_LKEY`].
    null: Region,
    /// By index; their keys contain [`OF_WINDOW`].
    #[pin]
    windows: Table<Mw>,
    /// Secret of the keys.
    keys: Permutation24,
    #[pin]
    ahs: Table<Ah>,
    #[pin]
    counters: PortCounters,
    /// MAC address of the netdev when the link was created.
    mac: Option<[u8; 6]>,
    /// The network namespace of the netdev.
    resident: Resident,
    /// Index of the netdev there; it does not change while the netdev has a link.
    ifindex: i32,
    local_path: Atomic<bool>,
    ecn: Atomic<bool>,
    #[pin]
    groups: Groups,
    /// QP number of the GSI QP; 0 is none.
    management: Atomic<u32>,
    is_leaving: Atomic<bool>,
}

impl Port {
    /// A port with the local path on, and ECN off.
    pub fn new(underlay: &Underlay) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                regions <- Table::named(),
                null: Region::null(),
                windows <- Table::new(),
                keys: Permutation24::new(random::words()),
                ahs <- Table::new(),
                counters <- PortCounters::new(),
                mac: underlay.netdev().mac(),
                resident: underlay.resident().clone(),
                ifindex: underlay.netdev().ifindex(),
                local_path: Atomic::new(true),
                ecn: Atomic::new(false),
                groups <- Groups::new(),
                management: Atomic::new(0),
                is_leaving: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// The counters of the port, without those of separate sets.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.counters.common()
    }

    /// All counters of the port.
    pub fn all_counters(&self) -> &PortCounters {
        &self.counters
    }

    /// Keeps its network namespace alive.
    pub fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Its network namespace.
    #[inline]
    pub fn netns(&self) -> NetNs {
        self.resident.netns()
    }

    /// Index of its netdev in that namespace.
    pub fn ifindex(&self) -> i32 {
        self.ifindex
    }

    /// MAC address of its netdev when the link was created.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// Whether a packet that arrived by the netdev `ifindex` of this host is for the device.
    pub(super) fn arrived(&self, ifindex: i32, addresses: &Addresses) -> Result<(), Astray> {
        arrived(&self.resident, self.ifindex, ifindex, addresses)
    }

    /// The multicast groups of its QPs.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Whether messages to a GID of this device use the local path.
    pub fn local_path(&self) -> bool {
        self.local_path.load(Relaxed)
    }

    /// Turns the local path on or off, from the next message on.
    pub fn set_local_path(&self, on: bool) {
        self.local_path.store(on, Relaxed);
    }

    /// Whether packets of new reliable connections may be marked by the network (ECT).
    pub fn ecn(&self) -> bool {
        self.ecn.load(Relaxed)
    }

    /// Turns that on or off, from the next connection on.
    pub fn set_ecn(&self, on: bool) {
        self.ecn.store(on, Relaxed);
    }

    /// QP number of its GSI QP.
    pub(super) fn management(&self) -> Option<u32> {
        Some(self.management.load(Relaxed)).filter(|number| *number != 0)
    }

    /// Registers the QP with this number as GSI QP, until [`Self::without_management`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one.
    pub fn manage_by(&self, number: u32) -> Result {
        let taken = self.management.cmpxchg(0, number, Full);
        taken.map(|_| ()).map_err(|_| EBUSY)
    }

    /// Unregisters the GSI QP.
    pub fn without_management(&self) {
        self.management.store(0, Relaxed);
    }

    /// Marks the device as leaving, in use or not.
    pub fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    /// Whether the device is leaving, in use or not.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// Reserves a key for an MR, which leads nowhere until it is published. May sleep.
    pub fn reserve_key(&self) -> Result<(Reserved<'_, Region>, MemoryKey)> {
        self.draw(|| self.regions.reserve(MAX_MR), 0)
    }

    /// Reserves a key for an MW, which leads nowhere until it is published. May sleep.
    pub fn reserve_window_key(&self) -> Result<(Reserved<'_, Mw>, MemoryKey)> {
        self.draw(|| self.windows.reserve(MAX_MR), OF_WINDOW)
    }

    /// Reserves an index, adds the tag `mark`, and makes a key of it.
    fn draw<'a, T: Send + Sync>(
        &self,
        reserve: impl Fn() -> Result<Reserved<'a, T>>,
        mark: u32,
    ) -> Result<(Reserved<'a, T>, MemoryKey)> {
        let mut reserved = reserve()?;
        let name = |reserved: &Reserved<'_, T>| self.keys.number(reserved.number() | mark);
        if name(&reserved) == MemoryKey::new(NULL_LKEY).name() {
            // Kept while another one is drawn.
            let unusable = reserved;
            reserved = reserve()?;
            drop(unusable);
        }
        let key = MemoryKey::new(random::byte().into()).with_name(name(&reserved));
        Ok((reserved, key))
    }

    /// Unpublishes and ends an MW: no access through it is left when this returns. May sleep.
    pub fn remove_window(&self, window: &mut Published<Mw>) {
        self.windows.remove(window);
        let rcu = rcu::read_lock();
        window.end(&InPort {
            port: self,
            rcu: &rcu,
        });
        drop(rcu);
        if let Some(lists) = window.lists() {
            lists.end();
        }
    }

    /// The MW that `key` may belong to. The MW checks the whole key and the user.
    #[cold]
    pub fn window<'g>(&'g self, key: MemoryKey, rcu: &'g rcu::Guard) -> Option<&'g Mw> {
        let number = self.keys.index(key.name());
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

    /// Reserves a number for an address handle, which leads nowhere until it is published.
    pub fn reserve_ah(&self, context: AllocContext) -> Result<Reserved<'_, Ah>> {
        self.ahs.reserve_in(context, MAX_AH)
    }

    /// Unpublishes an address handle.
    pub fn remove_ah(&self, ah: &mut Published<Ah>) {
        self.ahs.remove(ah);
    }

    /// The address handle with this number.
    #[inline]
    pub(super) fn ah<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, Ah>> {
        self.ahs.get(number, rcu)
    }

    /// Unpublishes an MR and waits for accesses in progress. May sleep.
    pub fn remove_region(&self, region: &mut Published<Region>) {
        self.regions.remove(region);
        drop(region.revoke());
    }

    /// The MR of [`NULL_LKEY`].
    pub fn null(&self) -> &Region {
        &self.null
    }

    /// The MR that `key` may belong to. The MR checks the whole key and the user.
    #[inline]
    pub fn region<'g>(&'g self, key: MemoryKey, rcu: &'g rcu::Guard) -> Option<&'g Region> {
        let name = key.name();
        self.regions.find_ref(name, rcu, || self.keys.index(name))
    }
}
