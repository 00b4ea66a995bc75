// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type ferroce netdev DEV`, and what happens to the link afterwards.
//!
//! A link is one net device with one RDMA device on it. This room knows which net devices have a
//! link, keeps the sockets of their namespaces open, and takes a link down with its net device or
//! its namespace. The RDMA device itself is made by a [`Factory`].
//!
//! ib_core makes GIDs of all addresses of a netdev when its RDMA device is registered, but follows
//! later ones on Ethernet devices only. For the others it is done here ([`Following`]).
//!
//! Locks: the RTNL comes before the lock of the list. A link enters the list under both; events are
//! under the RTNL. So a link is either refused, because its netdev is leaving, or the event finds
//! it in the list, even if ib_core does not find its RDMA device: because it is just made, or moved
//! to another network namespace. The device looks there once it is found ([`Holding::has_left`]).

use crate::sys::ib::device::{
    unregister_all,
    Driver,
    LinkOps,
    LinkOpsRegistration,
    Registered, //
};
use crate::sys::net::receive::SocketPair;
use crate::sys::net::{
    netns,
    AddressListener,
    AddressNotifier,
    Framing,
    NetDevice,
    NetNs,
    NetdevEvent,
    NetdevListener,
    NetdevNotifier,
    Receiver,
    Resident,
    Underlay,
    UDP_PORT, //
};
use crate::sys::refusal;
use crate::sys::work::OwnedQueue;
use core::marker::PhantomData;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow,
    Mutex, //
};
use kernel::workqueue::{
    Work,
    WorkItem, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work, //
};

/// Serves links while the module is loaded.
///
/// The fields are dropped in this order: first no new link is created, and addresses are no longer
/// followed; then all links go, then the notifier; and with the last reference to [`Links`], no
/// namespace counts links any more.
#[pin_data]
pub struct Registration<F: Factory, R: Receiver> {
    _link_ops: LinkOpsRegistration<Links<F, R>>,
    _following: Following<F, R>,
    _fence: Fence<F>,
    #[pin]
    _notifier: NetdevNotifier<Links<F, R>>,
}

impl<F: Factory, R: Receiver> Registration<F, R> {
    /// Begins to serve links.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            let links = Arc::pin_init(Links::new(), GFP_KERNEL)?;

            Ok(try_pin_init!(Self {
                _notifier <- NetdevNotifier::new(links.clone()),
                _fence: Fence(PhantomData),
                _following: Following::new(links.clone())?,
                _link_ops: LinkOpsRegistration::new(c"ferroce", links)?,
            }))
        })
    }
}

/// Takes every device down when it is dropped, and waits until they are gone.
///
/// This includes links whose netdev is gone and which a worker is removing.
struct Fence<F: Factory>(PhantomData<fn() -> F>);

impl<F: Factory> Drop for Fence<F> {
    fn drop(&mut self) {
        F::leave_all();
        unregister_all();
    }
}

/// Looks for addresses without a GID after one was added: in a worker, because that takes the RTNL.
#[pin_data]
struct Follower<F: Factory, R: Receiver> {
    #[pin]
    work: Work<Self>,
    queue: OwnedQueue,
    links: Arc<Links<F, R>>,
}

impl_has_work! {
    impl{F: Factory, R: Receiver} HasWork<Self> for Follower<F, R> { self.work }
}

impl<F: Factory, R: Receiver> WorkItem for Follower<F, R> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.links.add_gids();
    }
}

impl<F: Factory, R: Receiver> AddressListener for Follower<F, R> {
    fn address_added(this: ArcBorrow<'_, Self>, netdev: &NetDevice) {
        if !is_followed(netdev) {
            // If it is queued already, it has not looked yet.
            let _ = this.queue.enqueue(Arc::from(this));
        }
    }
}

/// Follows the addresses of links until it is dropped.
struct Following<F: Factory, R: Receiver> {
    _notifier: AddressNotifier<Follower<F, R>>,
    _end: End<F, R>,
}

impl<F: Factory, R: Receiver> Following<F, R> {
    fn new(links: Arc<Links<F, R>>) -> Result<Self> {
        let queue = OwnedQueue::normal(c"ferroce_gids")?;
        let follower = Arc::pin_init(
            pin_init!(Follower {
                work <- new_work!("Follower::work"),
                queue,
                links,
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _notifier: AddressNotifier::new(follower.clone())?,
            _end: End(follower),
        })
    }
}

/// Waits for the worker, which must not drop the last reference of the queue that it runs on.
struct End<F: Factory, R: Receiver>(Arc<Follower<F, R>>);

impl<F: Factory, R: Receiver> Drop for End<F, R> {
    fn drop(&mut self) {
        self.0.queue.flush();
    }
}

/// One link, from before its RDMA device is created until after it is deallocated.
struct Link {
    id: u64,
    netdev: NetDevice,
    /// The netdev is gone; the RDMA device is to be removed too.
    is_leaving: bool,
}

#[derive(Default)]
struct List {
    last_id: u64,
    links: KVec<Link>,
}

impl List {
    fn on(&mut self, netdev: &NetDevice) -> Option<&mut Link> {
        self.links
            .iter_mut()
            .find(|link| link.netdev.is_same(netdev))
    }
}

/// All links of this machine.
#[pin_data]
struct Links<F: Factory, R: Receiver> {
    /// Shared with the reservations in it.
    list: Arc<Mutex<List>>,
    sockets: Arc<Sockets<R>>,
    /// Dropped when all links are gone.
    namespaces: netns::NetRegistration,
    _factory: PhantomData<fn() -> F>,
}

impl<F: Factory, R: Receiver> Links<F, R> {
    fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            list: Arc::pin_init(new_mutex!(List::default(), "Links::list"), GFP_KERNEL)?,
            sockets: Arc::pin_init(Sockets::new(), GFP_KERNEL)?,
            namespaces: netns::NetRegistration::new()?,
            _factory: PhantomData,
        })
    }

    /// Makes GIDs of addresses that ib_core does not follow. Sleeps, and takes the RTNL.
    fn add_gids(&self) {
        let mut last = 0;

        loop {
            let list = self.list.lock();
            let next = |link: &&Link| link.id > last && !is_followed(&link.netdev);
            let Some(link) = list.links.iter().find(next) else {
                return;
            };
            let netdev = link.netdev.clone();

            last = link.id;
            drop(list);
            Self::add_gids_of(&netdev);
        }
    }

    /// Like [`Self::add_gids`], for one netdev.
    fn add_gids_of(netdev: &NetDevice) {
        if let Some(device) = Registered::<F::Driver>::by_netdev(netdev) {
            device.add_gids();
        }
    }

    /// Removes the RDMA device of a netdev that is gone, if it exists already.
    fn take_down(netdev: &NetDevice) {
        if let Some(device) = Registered::<F::Driver>::by_netdev(netdev) {
            F::lose_netdev(device.data());
            device.unregister_queued();
        }
    }
}

/// The entry of a link in the list; dropping it frees the netdev for another link.
struct Reservation {
    list: Arc<Mutex<List>>,
    id: u64,
}

impl Reservation {
    /// # Errors
    ///
    /// `EEXIST` if the netdev has a link already, `ENODEV` if it is leaving.
    fn new(
        links: &Arc<Mutex<List>>,
        namespaces: &netns::NetRegistration,
        name: &CStr,
        netdev: &NetDevice,
    ) -> Result<(Self, Underlay)> {
        let rtnl = netns::lock_rtnl();
        let underlay = Underlay::new(netdev, &rtnl, namespaces)?;
        let mut list = links.lock();

        if list.on(netdev).is_some() {
            pr_info!("{}: {} has a ferroce link already\n", name, netdev.name());
            return Err(EEXIST);
        }
        let id = list.last_id.wrapping_add(1);

        list.links.push(
            Link {
                id,
                netdev: netdev.clone(),
                is_leaving: false,
            },
            GFP_KERNEL,
        )?;
        list.last_id = id;
        Ok((
            Self {
                list: links.clone(),
                id,
            },
            underlay,
        ))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.list.lock().links.retain(|link| link.id != self.id);
    }
}

impl<F: Factory, R: Receiver> LinkOps for Links<F, R> {
    type Driver = F::Driver;

    fn new_link(&self, name: &CStr, netdev: &NetDevice) -> Result {
        check_suitable(name, netdev)?;

        let (reservation, underlay) = Reservation::new(&self.list, &self.namespaces, name, netdev)?;
        let keep_open = self.sockets.keep_open(name, underlay.resident())?;
        // Dropped from left to right: the sockets are closed before another link may open them.
        let hold: Hold = KBox::new((keep_open, reservation), GFP_KERNEL)?;

        F::create(name, underlay, hold).map_err(|error| {
            if error == ENFILE {
                pr_info!("{}: there is an RDMA device of this name already\n", name);
                return EEXIST;
            }
            error
        })?;

        // The notifier of an added address could not find it before.
        if !is_followed(netdev) {
            Self::add_gids_of(netdev);
        }
        Ok(())
    }

    fn delete_link(device: &<F::Driver as Driver>::Device) {
        F::leave(device);
    }
}

impl<F: Factory, R: Receiver> NetdevListener for Links<F, R> {
    fn event(&self, event: NetdevEvent, netdev: &NetDevice) {
        match event {
            NetdevEvent::Unregister => {
                let mut list = self.list.lock();

                if list.links.is_empty() {
                    return;
                }
                let link = list.on(netdev);
                let is_ours = link.is_some();

                if let Some(link) = link {
                    link.is_leaving = true;
                }
                drop(list);
                // It waits for the packets that came in by it. Sockets receive by all net devices.
                R::settle();
                if is_ours {
                    Self::take_down(netdev);
                }
            }
            // ib_core reports the port itself, unless a bond is involved, but later than this
            // event. A query describes the port from the netdev as it is then, so a change of the
            // MTU needs nothing.
            NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                if let Some(device) = Registered::<F::Driver>::by_netdev(netdev) {
                    if event == NetdevEvent::Down {
                        device.report_port_down(netdev);
                    } else {
                        device.report_port_state(netdev);
                    }
                }
            }
        }
    }
}

/// Held by a device and dropped last: while it exists, the netdev is taken and the sockets of its
/// namespace are open. Dropped where sleeping is permitted.
pub type Hold = KBox<dyn Holding>;

/// What a [`Hold`] holds.
pub trait Holding: Send + Sync {
    /// Whether the netdev has left. May sleep.
    fn has_left(&self) -> bool;
}

impl<R: Receiver> Holding for (KeepOpen<R>, Reservation) {
    fn has_left(&self) -> bool {
        let (_, reservation) = self;
        let list = reservation.list.lock();
        let mut links = list.links.iter();

        links.any(|link| link.id == reservation.id && link.is_leaving)
    }
}

/// Creates the RDMA devices.
pub trait Factory: 'static {
    /// The driver type of the devices.
    type Driver: Driver;

    /// Creates and registers the RDMA device `name` on `underlay`.
    ///
    /// The device drops `hold` when it is deallocated, after the last use of `underlay`.
    ///
    /// # Errors
    ///
    /// `ENFILE` if a device `name` exists, as ib_core has it; it becomes `EEXIST` here.
    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result;

    /// The link is deleted: the device is unregistered next.
    fn leave(device: &<Self::Driver as Driver>::Device);

    /// The netdev below is gone: the same, by a worker. It waits for the users of the device, which
    /// may wait for peers. Under the RTNL.
    fn lose_netdev(device: &<Self::Driver as Driver>::Device);

    /// The module is unloaded: every device is unregistered next.
    fn leave_all();
}

/// Checks that `netdev` can carry a link; the reason why not goes to the log.
///
/// # Errors
///
/// `EPERM` for a VLAN and for what belongs to a bridge or bond, `EOPNOTSUPP` for what is neither
/// Ethernet nor `lo`, and does not take IP packets as they are either.
fn check_suitable(name: &CStr, netdev: &NetDevice) -> Result {
    if netdev.is_vlan() {
        pr_info!(
            "{}: {} is a VLAN; add the link to the device below it and use the GIDs of the VLAN\n",
            name,
            netdev.name()
        );
        return Err(EPERM);
    }
    if let Some(master) = netdev.master() {
        pr_info!(
            "{}: {} belongs to {}, which has its addresses; add the link to that\n",
            name,
            netdev.name(),
            master
        );
        return Err(EPERM);
    }
    match netdev.framing() {
        Framing::Ethernet | Framing::Loopback | Framing::Tunnel => Ok(()),
        Framing::Other => {
            pr_info!(
                "{}: {} is no Ethernet device and no tunnel of IP packets, which RoCE v2 needs\n",
                name,
                netdev.name()
            );
            Err(refusal::EOPNOTSUPP())
        }
    }
}

/// Whether ib_core looks at the addresses of `netdev` as they come and go.
fn is_followed(netdev: &NetDevice) -> bool {
    netdev.framing() == Framing::Ethernet
}

/// The socket pair of one namespace.
struct NetnsSockets<R: Receiver> {
    netns: NetNs,
    users: usize,
    _pair: SocketPair<R>,
}

/// All socket pairs.
///
/// The lock is held while sockets are opened and closed, so that a port is not found taken by a
/// pair that is about to be closed. It is taken without the RTNL, and never inside another lock
/// of this room.
#[pin_data]
struct Sockets<R: Receiver> {
    #[pin]
    open: Mutex<KVec<NetnsSockets<R>>>,
}

impl<R: Receiver> Sockets<R> {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            open <- new_mutex!(KVec::new(), "Sockets::open"),
        })
    }

    /// Sees to it that the namespace of `resident` has sockets until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when the port is taken, `ENOMEM`.
    fn keep_open(self: &Arc<Self>, name: &CStr, resident: &Resident) -> Result<KeepOpen<R>> {
        let netns = resident.netns();
        let mut open = self.open.lock();

        match open.iter_mut().find(|shared| shared.netns == netns) {
            Some(shared) => shared.users += 1,
            None => {
                let pair = SocketPair::open(resident).inspect_err(|error| {
                    if *error == refusal::EADDRINUSE() {
                        pr_info!(
                            "{}: UDP port {} is taken in this namespace, likely by rdma_rxe\n",
                            name,
                            UDP_PORT
                        );
                    }
                })?;

                open.push(
                    NetnsSockets {
                        netns,
                        users: 1,
                        _pair: pair,
                    },
                    GFP_KERNEL,
                )?;
            }
        }
        Ok(KeepOpen {
            sockets: self.clone(),
            netns,
            _resident: resident.clone(),
        })
    }
}

/// One user of the sockets of a namespace.
struct KeepOpen<R: Receiver> {
    sockets: Arc<Sockets<R>>,
    netns: NetNs,
    // The identity of the namespace cannot be reused while it is compared here.
    _resident: Resident,
}

impl<R: Receiver> Drop for KeepOpen<R> {
    fn drop(&mut self) {
        let mut open = self.sockets.open.lock();

        if let Some(shared) = open.iter_mut().find(|shared| shared.netns == self.netns) {
            shared.users = shared.users.saturating_sub(1);
        }
        // Closes sockets without users, under the lock.
        open.retain(|shared| shared.users != 0);
    }
}
