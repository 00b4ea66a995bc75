// SPDX-License-Identifier: GPL-2.0

//! Added addresses that become GIDs. ib_core makes GIDs of all addresses of a netdev when its RDMA
//! device is registered, but follows later ones on Ethernet devices only.

use super::{
    factory::Factory,
    links::Links,
    suitable::is_followed, //
};
use crate::sys::{
    net::{
        notifier::{
            AddressListener,
            AddressNotifier, //
        },
        NetDevice,
        Receiver, //
    },
    work::OwnedQueue, //
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

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
pub(super) struct Following<F: Factory, R: Receiver> {
    _notifier: AddressNotifier<Follower<F, R>>,
    _end: End<F, R>,
}

impl<F: Factory, R: Receiver> Following<F, R> {
    pub(super) fn new(links: Arc<Links<F, R>>) -> Result<Self> {
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
