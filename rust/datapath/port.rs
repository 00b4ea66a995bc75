// SPDX-License-Identifier: GPL-2.0

//! The port of a device: its keys, address handles, counters and settings; and its multicast
//! groups, with their member QPs.
//!
//! Packets look up a group under RCU. A QP keeps one slot in a group while it is a member, so a
//! reader sees it once. Leaving needs no memory and cannot fail.

use crate::core::wire::gid::Gid;
use crate::datapath::memory::KeyTable;
use crate::datapath::path::Ah;
use crate::observe::{
    Counters,
    PortCounters, //
};
use crate::sys::net::receive::Membership;
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
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow,
    Mutex, //
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

/// Most groups of a device.
pub const MAX_GROUPS: usize = 4096;
/// Most QPs in a group. A softirq copies each packet to all of them, at most 256 KiB in all. To
/// leave a part to a worker, this packet and later ones would have to be kept, for datagrams to
/// stay in order; the stack itself delivers a datagram to all sockets of a group at once.
pub const MAX_MEMBERS: usize = 64;

/// The groups of a port.
#[pin_data]
pub struct Groups {
    /// By the hash of their GIDs.
    #[pin]
    groups: Table<Group>,
    /// Serialises changes. The RTNL is taken inside.
    #[pin]
    joined: Mutex<KVec<Joined>>,
}

/// A group with member QPs.
struct Group {
    gid: Gid,
    /// Numbers of the members; 0, which no QP has, is a free slot.
    members: [Atomic<u32>; MAX_MEMBERS],
}

/// State that only changes need.
struct Joined {
    group: Published<Group>,
    /// Dropped with the last member.
    _membership: Membership,
}

impl Group {
    fn place_of(&self, number: u32) -> Option<&Atomic<u32>> {
        self.members
            .iter()
            .find(|place| place.load(Relaxed) == number)
    }

    fn is_empty(&self) -> bool {
        self.members.iter().all(|place| place.load(Relaxed) == 0)
    }
}

impl Groups {
    /// No group. May sleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            groups <- Table::new(),
            joined <- new_mutex!(KVec::new(), "ferroce_groups"),
        })
    }

    fn hash(gid: &Gid) -> u32 {
        gid.iter().fold(0, |hash: u32, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
        })
    }

    /// Adds the QP with this number to a group. `join` makes this host a member, if no QP of the
    /// port is in it yet. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the QP is a member already, `ENOMEM` if the group is full or there are too many,
    /// and the errors of `join`.
    pub fn attach(
        &self,
        number: u32,
        gid: &Gid,
        join: impl FnOnce() -> Result<Membership>,
    ) -> Result {
        let mut joined = self.joined.lock();
        if let Some(Joined { group, .. }) = joined.iter().find(|joined| joined.group.gid == *gid) {
            if group.place_of(number).is_some() {
                return Err(EINVAL);
            }
            group.place_of(0).ok_or(ENOMEM)?.store(number, Release);
            return Ok(());
        }
        if joined.len() >= MAX_GROUPS {
            return Err(ENOMEM);
        }
        joined.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let reserved = self.groups.reserve_hashed(Self::hash(gid))?;
        let group = Group {
            gid: *gid,
            members: [const { Atomic::new(0) }; MAX_MEMBERS],
        };
        if let Some(place) = group.members.first() {
            place.store(number, Relaxed);
        }
        let group = Arc::new(group, GFP_KERNEL_ACCOUNT)?;
        let membership = join()?;
        let group = reserved.publish(group);
        // Reserved above: needs no memory.
        joined.push(
            Joined {
                group,
                _membership: membership,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(())
    }

    /// Removes the QP from a group. With the last QP of the port this host leaves the group. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not a member.
    pub fn detach(&self, number: u32, gid: &Gid) -> Result {
        let mut joined = self.joined.lock();
        let at = joined.iter().position(|joined| joined.group.gid == *gid);
        let at = at.ok_or(EINVAL)?;
        let Joined { group, .. } = joined.get_mut(at).ok_or(EINVAL)?;
        group.place_of(number).ok_or(EINVAL)?.store(0, Release);
        if group.is_empty() {
            self.groups.remove(group);
            // This host leaves.
            drop(joined.remove(at));
        }
        Ok(())
    }

    /// The numbers of the QPs in a group; empty without members.
    pub(super) fn members<'g>(
        &'g self,
        gid: &Gid,
        rcu: &'g rcu::Guard,
    ) -> impl Iterator<Item = u32> + use<'g> {
        let group = self.find(gid, rcu);
        let places = group.map_or(&[][..], |group| &group.members);
        let numbers = places.iter().map(|place| place.load(Acquire));
        numbers.filter(|number| *number != 0)
    }

    fn find<'g>(&'g self, gid: &Gid, rcu: &'g rcu::Guard) -> Option<&'g Group> {
        let mut groups = self.groups.hashed(Self::hash(gid), rcu);
        groups.find(|group| group.gid == *gid)
    }
}
