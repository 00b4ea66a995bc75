// SPDX-License-Identifier: GPL-2.0

//! `rdma link add NAME type ferroce netdev DEV`, and what happens to the link afterwards.
//!
//! A link is one net device with one RDMA device on it. This room knows which net devices have a
//! link, keeps the sockets of their namespaces open, and takes a link down with its net device or
//! its namespace. The RDMA device itself is made by a [`Factory`].

mod links;
mod sockets;
mod suitable;

use self::links::Links;
use crate::sys::{
    ib::{
        device,
        driver::Driver,
        link::Registration as LinkType, //
    },
    net::{
        netns,
        notifier::Notifier,
        Receiver,
        Underlay, //
    },
};
use core::marker::PhantomData;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What a device keeps and drops last: as long as it exists, the net device is taken and the
/// sockets of its namespace are open. To be dropped where sleeping is allowed.
pub type Hold = KBox<dyn Send + Sync>;

/// Whoever makes the RDMA devices.
pub trait Factory: 'static {
    /// What the devices are to ib_core.
    type Driver: Driver;

    /// Makes and registers the RDMA device `name` on `underlay`.
    ///
    /// The device must drop `hold` when it is deallocated, after the last use of `underlay`.
    ///
    /// # Errors
    ///
    /// `ENFILE` when there is a device `name`, as ib_core has it; it becomes `EEXIST` here.
    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result;
}

/// All of the above, while the module is loaded.
///
/// The fields are dropped in this order: first no new link is made, then all links go, then
/// nobody is left to listen, and at last no namespace counts us any more.
#[pin_data]
pub struct Registration<F: Factory, R: Receiver> {
    _link_type: LinkType<Links<F, R>>,
    _fence: Fence<F>,
    #[pin]
    _notifier: Notifier<Links<F, R>>,
    _namespaces: netns::Registration,
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
                _namespaces: netns::Registration::new()?,
                _notifier <- Notifier::new(links.clone()),
                _fence: Fence(PhantomData),
                _link_type: LinkType::new(c"ferroce", links)?,
            }))
        })
    }
}

/// Takes every device down when it is dropped, and waits until they are gone.
///
/// This includes those whose net device has left and who are on their way out in a worker.
struct Fence<F: Factory>(PhantomData<fn() -> F>);

impl<F: Factory> Drop for Fence<F> {
    fn drop(&mut self) {
        device::unregister_all::<F::Driver>();
    }
}
