// SPDX-License-Identifier: GPL-2.0

//! The port of a device: its keys, address handles, counters and settings.

use super::groups::Groups;
use super::memory::keys::KeyTable;
use super::path::Ah;
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
use crate::sys::table::{
    AllocContext,
    Published,
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

/// The number of the GSI QP on the wire, on every device.
pub const MANAGEMENT_QP: u32 = 1;

/// Most address handles of a device.
pub const MAX_AH: u32 = 1 << 20;

/// The port of a device.
#[pin_data]
pub struct Port {
    #[pin]
    keys: KeyTable,
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
    steering: Atomic<bool>,
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
                keys <- KeyTable::new(),
                ahs <- Table::new(),
                counters <- PortCounters::new(),
                mac: underlay.netdev().mac(),
                resident: underlay.resident().clone(),
                ifindex: underlay.netdev().ifindex(),
                local_path: Atomic::new(true),
                ecn: Atomic::new(false),
                steering: Atomic::new(true),
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

    /// Whether other CPUs may execute packets of its QPs than those on which they arrive.
    #[inline]
    pub fn steering(&self) -> bool {
        self.steering.load(Relaxed)
    }

    /// Turns that on or off, from the next batch on.
    pub fn set_steering(&self, on: bool) {
        self.steering.store(on, Relaxed);
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

    /// Its keys.
    #[inline]
    pub fn keys(&self) -> &KeyTable {
        &self.keys
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
}
