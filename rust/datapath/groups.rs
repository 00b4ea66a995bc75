// SPDX-License-Identifier: GPL-2.0

//! The multicast groups of a port, and their member QPs.
//!
//! Packets look up a group under RCU. A QP keeps one slot in a group while it is a member, so a
//! reader sees it once. Leaving needs no memory and cannot fail.

use crate::core::wire::gid::Gid;
use crate::sys::net::receive::Membership;
use crate::sys::table::{
    Published,
    Table, //
};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};
use kernel::sync::{
    rcu,
    Arc,
    Mutex, //
};

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
