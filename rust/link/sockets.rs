// SPDX-License-Identifier: GPL-2.0

//! The sockets of every namespace that has links: opened with the first, closed with the last.

use crate::sys::net::receive::SocketPair;
use crate::sys::net::{
    NetNs,
    Receiver,
    Resident,
    UDP_PORT, //
};
use crate::sys::refusal;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{
    Arc,
    Mutex, //
};

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
pub(super) struct Sockets<R: Receiver> {
    #[pin]
    open: Mutex<KVec<NetnsSockets<R>>>,
}

impl<R: Receiver> Sockets<R> {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            open <- new_mutex!(KVec::new(), "Sockets::open"),
        })
    }

    /// Sees to it that the namespace of `resident` has sockets until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when the port is taken, `ENOMEM`.
    pub(super) fn keep_open(
        self: &Arc<Self>,
        name: &CStr,
        resident: &Resident,
    ) -> Result<KeepOpen<R>> {
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
pub(super) struct KeepOpen<R: Receiver> {
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
