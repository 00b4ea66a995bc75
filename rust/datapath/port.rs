// SPDX-License-Identifier: GPL-2.0

//! What the data path needs of a device: its memory regions, its counters, its switches.

use super::ah::Ah;
use super::groups::Groups;
use super::memory::region::Region;
use super::memory::window::{
    Find,
    Window, //
};
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
use crate::uabi::udata::NULL_LKEY;
use crate::wire::ident::Permutation24;
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

/// Most memory regions of a device.
pub const MAX_MR: u32 = 1 << 20;

/// What tells the numbers of windows from those of regions: no region has one so great.
const OF_WINDOW: u32 = 1 << 23;

/// What packets call the QP of management datagrams, on every device.
pub const MANAGEMENT_QP: u32 = 1;

/// Most address handles of a device.
pub const MAX_AH: u32 = 1 << 20;

/// The regions of a port.
pub struct InPort<'a> {
    /// The port.
    pub port: &'a Port,
    /// What keeps that which is found.
    pub rcu: &'a rcu::Guard,
}

impl<'a> Find<'a> for InPort<'a> {
    fn region(&self, key: u32) -> Option<&'a Region> {
        self.port.region(key, self.rcu)
    }
}

/// The port of a device.
#[pin_data]
pub struct Port {
    #[pin]
    regions: Table<Region>,
    /// What a process names by [`NULL_LKEY`].
    null: Region,
    /// By number; their keys are of numbers with [`OF_WINDOW`].
    #[pin]
    windows: Table<Window>,
    /// The secret of the keys.
    keys: Permutation24,
    #[pin]
    ahs: Table<Ah>,
    #[pin]
    counters: PortCounters,
    /// MAC address of the netdev when the link was made.
    mac: Option<[u8; 6]>,
    /// The network namespace of the netdev.
    resident: Resident,
    /// The netdev's index there, which does not change while it has a link.
    ifindex: i32,
    local_path: Atomic<bool>,
    #[pin]
    groups: Groups,
    /// The number of the QP that packets know by [`MANAGEMENT_QP`]; 0 is none.
    management: Atomic<u32>,
    is_leaving: Atomic<bool>,
}

impl Port {
    /// A port with the local path on.
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
                groups <- Groups::new(),
                management: Atomic::new(0),
                is_leaving: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// What happened, but for what is counted apart.
    #[inline]
    pub fn counters(&self) -> &Counters {
        self.counters.common()
    }

    /// All that happened.
    pub fn all_counters(&self) -> &PortCounters {
        &self.counters
    }

    /// What keeps its network namespace.
    pub fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Its network namespace.
    #[inline]
    pub fn netns(&self) -> NetNs {
        self.resident.netns()
    }

    /// The index of its netdev in that namespace.
    pub fn ifindex(&self) -> i32 {
        self.ifindex
    }

    /// MAC address of its netdev when the link was made.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// Whether a packet that came in by the netdev `ifindex` of this host is for the device.
    pub(super) fn arrived(&self, ifindex: i32, addresses: &Addresses) -> Result<(), Astray> {
        arrived(&self.resident, self.ifindex, ifindex, addresses)
    }

    /// The groups that its QPs are in.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Whether messages to a GID of the same device go without packets.
    pub fn local_path(&self) -> bool {
        self.local_path.load(Relaxed)
    }

    /// Turns the local path on or off, from the next message on.
    pub fn set_local_path(&self, on: bool) {
        self.local_path.store(on, Relaxed);
    }

    /// The number of its management QP, by which the directory finds it.
    pub(super) fn management(&self) -> Option<u32> {
        Some(self.management.load(Relaxed)).filter(|number| *number != 0)
    }

    /// Lets the QP of this number be its management QP, until [`Self::without_management`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one.
    pub fn manage_by(&self, number: u32) -> Result {
        let taken = self.management.cmpxchg(0, number, Full);
        taken.map(|_| ()).map_err(|_| EBUSY)
    }

    /// It has no management QP any more.
    pub fn without_management(&self) {
        self.management.store(0, Relaxed);
    }

    /// The device leaves next, whoever uses it.
    pub fn leave(&self) {
        self.is_leaving.store(true, Relaxed);
    }

    /// Whether the device leaves, whoever uses it.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Relaxed)
    }

    /// Takes a key for a region; it leads nowhere before it is published. May sleep.
    pub fn reserve_key(&self) -> Result<(Reserved<'_, Region>, u32)> {
        self.draw(|| self.regions.reserve(MAX_MR), 0)
    }

    /// Takes a key for a window; it leads nowhere before it is published. May sleep.
    pub fn reserve_window_key(&self) -> Result<(Reserved<'_, Window>, u32)> {
        self.draw(|| self.windows.reserve(MAX_MR), OF_WINDOW)
    }

    /// Draws a number, of which `mark` is a part, and makes a key of it.
    fn draw<'a, T: Send + Sync>(
        &self,
        reserve: impl Fn() -> Result<Reserved<'a, T>>,
        mark: u32,
    ) -> Result<(Reserved<'a, T>, u32)> {
        let mut reserved = reserve()?;
        let name = |reserved: &Reserved<'_, T>| self.keys.number(reserved.number() | mark);
        if name(&reserved) == Region::name_in(NULL_LKEY) {
            // Kept while another one is drawn.
            let unusable = reserved;
            reserved = reserve()?;
            drop(unusable);
        }
        let key = (name(&reserved) << 8) | u32::from(random::byte());
        Ok((reserved, key))
    }

    /// Unpublishes a window, and ends it: nobody uses it when this returns. May sleep.
    pub fn remove_window(&self, window: &mut Published<Window>) {
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

    /// The window of `key`. Whether that is the whole key, and who may use it, the window says.
    #[cold]
    pub fn window<'g>(&'g self, key: u32, rcu: &'g rcu::Guard) -> Option<&'g Window> {
        let number = self.keys.index(Region::name_in(key));
        if number & OF_WINDOW == 0 {
            return None;
        }
        self.windows.get_ref(number & !OF_WINDOW, rcu)
    }

    /// Makes the key of a region lead to another one, which has the same. The old one can be found
    /// no more, but has not ended.
    pub fn replace_region(
        &self,
        old: &mut Published<Region>,
        with: Replacement<Region>,
        region: Region,
    ) {
        self.regions.replace(old, with, region);
    }

    /// Takes a number for an address handle; it leads nowhere before it is published.
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

    /// Unpublishes a region, and waits for those who access it. May sleep.
    pub fn remove_region(&self, region: &mut Published<Region>) {
        self.regions.remove(region);
        drop(region.revoke());
    }

    /// The region of [`NULL_LKEY`].
    pub fn null(&self) -> &Region {
        &self.null
    }

    /// The region of `key`. Whether that is the whole key, and who may use it, the region says.
    #[inline]
    pub fn region<'g>(&'g self, key: u32, rcu: &'g rcu::Guard) -> Option<&'g Region> {
        let name = Region::name_in(key);
        self.regions.find_ref(name, rcu, || self.keys.index(name))
    }
}
