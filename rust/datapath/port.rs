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
    Published,
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
    Mutex, //
};

/// The number of the GSI QP on the wire, on every device.
pub const MANAGEMENT_QP: u32 = 1;

/// Most address handles of a device.
pub const MAX_AH: u32 = 1 << 20;

/// The port of a device.
#[pin_data]
pub struct Port {
    /// Its keys.
    #[pin]
    pub keys: KeyTable,
    /// Its address handles, of which there are at most [`MAX_AH`].
    #[pin]
    pub ahs: Table<Ah>,
    /// All counters of the port.
    #[pin]
    pub all_counters: PortCounters,
    /// MAC address of the netdev when the link was created.
    pub mac: Option<[u8; 6]>,
    /// Keeps the network namespace of the netdev alive.
    pub resident: Resident,
    /// Index of the netdev there; it does not change while the netdev has a link.
    pub ifindex: i32,
    /// Whether messages to a GID of this device use the local path, from the next message on.
    pub local_path: Switch,
    /// Whether packets of reliable connections may be marked by the network (ECT), from the next
    /// connection on.
    pub ecn: Switch,
    /// Whether other CPUs may execute packets of its QPs than those on which they arrive, from the
    /// next batch on.
    pub steering: Switch,
    /// The multicast groups of its QPs.
    #[pin]
    pub groups: Groups,
    /// QP number of the GSI QP; 0 is none.
    management: Atomic<u32>,
    is_leaving: Atomic<bool>,
}

/// A setting of a port.
pub struct Switch(Atomic<bool>);

impl Switch {
    fn new(on: bool) -> Self {
        Self(Atomic::new(on))
    }

    /// Whether it is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Turns it on or off.
    pub fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }
}

impl Port {
    /// A port with the local path on, and ECN off.
    pub fn new(underlay: &Underlay) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                keys <- KeyTable::new(),
                ahs <- Table::new(),
                all_counters <- PortCounters::new(),
                mac: underlay.netdev().mac(),
                resident: underlay.resident().clone(),
                ifindex: underlay.netdev().ifindex(),
                local_path: Switch::new(true),
                ecn: Switch::new(false),
                steering: Switch::new(true),
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
        self.all_counters.common()
    }

    /// Its network namespace.
    #[inline]
    pub fn netns(&self) -> NetNs {
        self.resident.netns()
    }

    /// Whether a packet that arrived by the netdev `ifindex` of this host is for the device.
    pub(super) fn arrived(&self, ifindex: i32, addresses: &Addresses) -> Result<(), Astray> {
        arrived(&self.resident, self.ifindex, ifindex, addresses)
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
