// SPDX-License-Identifier: GPL-2.0

//! The multicast groups of a port, and the QPs in each.
//!
//! Packets find a group under RCU, in chains as the ports of [`super::directory`] are. A QP has one
//! place in a group for as long as it is in it, so whoever walks along sees it once. Leaving needs
//! no memory, and cannot fail.

use crate::sys::net::membership::Membership;
use crate::sys::table::{
    filled,
    Published,
    Table, //
};
use crate::wire::gid::Gid;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Relaxed,
    Release, //
};
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    Mutex, //
};

/// Most groups of a device.
pub const MAX_GROUPS: u32 = 4096;
/// Most QPs in a group: a softirq copies each packet so often, at most 256 KiB in all. To leave a
/// part of it to a worker, the packet would have to be kept, and those behind it, for datagrams to
/// stay in order; the stack itself gives a datagram to all sockets of a group at once.
pub const MAX_MEMBERS: usize = 64;

/// Chains of groups.
const CHAINS: usize = 256;

/// The groups of a port.
#[pin_data]
pub struct Groups {
    #[pin]
    groups: Table<Group>,
    /// Where the chains begin; 0 is none.
    heads: KVec<Atomic<u32>>,
    /// Orders changes. The RTNL is taken inside of it.
    #[pin]
    joined: Mutex<KVec<Joined>>,
}

/// A group that QPs are in.
struct Group {
    gid: Gid,
    /// Their numbers; 0, which no QP has, is a free place.
    members: [Atomic<u32>; MAX_MEMBERS],
    /// The index of the group behind it in its chain; 0 is none.
    next: Atomic<u32>,
}

/// What only those need who change something.
struct Joined {
    group: Published<Group>,
    /// Left with the last QP.
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
    /// None yet. May sleep.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            groups <- Table::new(),
            heads: filled(CHAINS, || Atomic::new(0))?,
            joined <- new_mutex!(KVec::new(), "ferroce_groups"),
        })
    }

    fn head(&self, gid: &Gid) -> Option<&Atomic<u32>> {
        let hash = gid.iter().fold(0usize, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(usize::from(*byte))
        });
        self.heads.get(hash % CHAINS)
    }

    /// Lets the QP of this number into a group. `join` makes this host a member of it, if no QP of
    /// the port is in it yet. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is in the group, `ENOMEM` if that is full or there are too many, and those of
    /// `join`.
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
        joined.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let head = self.head(gid).ok_or(EINVAL)?;
        let reserved = self.groups.reserve(MAX_GROUPS).map_err(|_| ENOMEM)?;
        let group = Group {
            gid: *gid,
            members: [const { Atomic::new(0) }; MAX_MEMBERS],
            next: Atomic::new(head.load(Acquire)),
        };
        if let Some(place) = group.members.first() {
            place.store(number, Relaxed);
        }
        let group = Arc::new(group, GFP_KERNEL_ACCOUNT)?;
        let membership = join()?;
        let group = reserved.publish(group);
        head.store(Published::number(&group), Release);
        // Reserved above: it needs no memory.
        joined.push(
            Joined {
                group,
                _membership: membership,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok(())
    }

    /// Ends that. With the last QP of the port this host leaves the group. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not in the group.
    pub fn detach(&self, number: u32, gid: &Gid) -> Result {
        let mut joined = self.joined.lock();
        let at = joined.iter().position(|joined| joined.group.gid == *gid);
        let at = at.ok_or(EINVAL)?;
        let Joined { group, .. } = joined.get_mut(at).ok_or(EINVAL)?;
        group.place_of(number).ok_or(EINVAL)?.store(0, Release);
        if group.is_empty() {
            self.unlink(group);
            self.groups.remove(group);
            // Leaves.
            drop(joined.remove(at));
        }
        Ok(())
    }

    /// Takes a group out of its chain. Those who are just walking along get on from it.
    fn unlink(&self, group: &Published<Group>) {
        let rcu = rcu::read_lock();
        let Some(mut link) = self.head(&group.gid) else {
            return;
        };
        loop {
            match link.load(Acquire) {
                0 => break,
                index if index == Published::number(group) => {
                    link.store(group.next.load(Acquire), Release);
                    break;
                }
                index => match self.groups.get_ref(index, &rcu) {
                    Some(other) => link = &other.next,
                    None => break,
                },
            }
        }
    }

    /// The numbers of the QPs in a group; none if nobody is in it.
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
        let mut index = self.head(gid)?.load(Acquire);
        while index != 0 {
            let group = self.groups.get_ref(index, rcu)?;
            if group.gid == *gid {
                return Some(group);
            }
            // One that is just leaving still leads on.
            index = group.next.load(Acquire);
        }
        None
    }
}
