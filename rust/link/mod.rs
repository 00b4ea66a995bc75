// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type ferroce netdev DEV`, and what happens to the link afterwards.
//!
//! A link is one net device with one RDMA device on it. This room knows which net devices have a
//! link, keeps the sockets of their namespaces open, and takes a link down with its net device or
//! its namespace. The RDMA device itself is made by a [`Factory`].

mod factory;
mod following;
mod links;
mod sockets;
mod suitable;

pub use self::factory::{
    Factory,
    Hold, //
};

use self::{
    following::Following,
    links::Links, //
};
use crate::sys::{
    ib::device::{
        self,
        LinkOpsRegistration as LinkType, //
    },
    net::{
        notifier::NetdevNotifier,
        Receiver, //
    },
};
use core::marker::PhantomData;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Serves links while the module is loaded.
///
/// The fields are dropped in this order: first no new link is created, and addresses are no
/// longer followed; then all links go, then the notifiers; and with the last
/// reference to [`Links`], no namespace counts links any more.
#[pin_data]
pub struct Registration<F: Factory, R: Receiver> {
    _link_type: LinkType<Links<F, R>>,
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
                _link_type: LinkType::new(c"ferroce", links)?,
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
        device::unregister_all::<F::Driver>();
    }
}
