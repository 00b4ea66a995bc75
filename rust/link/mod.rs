// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type ferroce netdev DEV`, and what happens to the link afterwards.
//!
//! A link is one net device with one RDMA device on it. This room knows which net devices have a
//! link, keeps the sockets of their namespaces open, and takes a link down with its net device or
//! its namespace. The RDMA device itself is made by a [`Factory`].
//!
//! ib_core makes GIDs of all addresses of a netdev when its RDMA device is registered, but follows
//! later ones on Ethernet devices only. For the others it is done here ([`Following`]).

mod links;
mod sockets;

pub use crate::link::links::{
    Factory,
    Hold, //
};

use crate::link::links::{
    is_followed,
    Links, //
};
use crate::sys::ib::device::{
    unregister_all,
    LinkOpsRegistration, //
};
use crate::sys::net::{
    AddressListener,
    AddressNotifier,
    NetDevice,
    NetdevNotifier,
    Receiver, //
};
use crate::sys::work::OwnedQueue;
use core::marker::PhantomData;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::{
    Work,
    WorkItem, //
};
use kernel::{
    impl_has_work,
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
        unregister_all::<F::Driver>();
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
