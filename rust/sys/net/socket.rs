// SPDX-License-Identifier: GPL-2.0

//! The UDP sockets on which a namespace receives RoCEv2.
//!
//! They are kernel sockets: they have lock classes of their own (`af_kern_*`), and are locked
//! only to be opened and closed, so lockdep needs no help.
//!
//! C header: [`include/net/udp_tunnel.h`](srctree/include/net/udp_tunnel.h)

use super::{
    receive,
    Receiver,
    Resident, //
};
use crate::sys::bindings;
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// UDP port 4791 for IPv4 and, unless the kernel has no IPv6, for IPv6.
///
/// # Invariants
///
/// The sockets belong to the namespace of `_resident`, which therefore outlives them.
pub struct SocketPair<R: Receiver> {
    sockets: bindings::ferroce_sockets,
    _resident: Resident,
    _receiver: PhantomData<R>,
}

// SAFETY: The pointers are only used to close the sockets, which any thread may do.
unsafe impl<R: Receiver> Send for SocketPair<R> {}
// SAFETY: As above.
unsafe impl<R: Receiver> Sync for SocketPair<R> {}

impl<R: Receiver> SocketPair<R> {
    /// Opens the sockets; what they receive goes to `R` from now on. Sleeps.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when another socket has the port in this namespace.
    pub fn open(resident: &Resident) -> Result<Self> {
        let mut sockets = bindings::ferroce_sockets::default();

        // SAFETY: The namespace is valid by the invariant of `Resident`, and the receive function
        // has the contract of an `encap_rcv`; it stays as long as the module, which is longer
        // than the sockets.
        to_result(unsafe {
            bindings::ferroce_sockets_open(
                resident.as_ptr(),
                Some(receive::encap_rcv::<R>),
                &mut sockets,
            )
        })?;
        // INVARIANT: They were opened in the namespace of the resident that is kept here.
        Ok(Self {
            sockets,
            _resident: resident.clone(),
            _receiver: PhantomData,
        })
    }
}

impl<R: Receiver> Drop for SocketPair<R> {
    /// Closes the sockets and waits for receivers in progress. Sleeps.
    fn drop(&mut self) {
        // SAFETY: The sockets were opened by `open` and are closed only here.
        unsafe { bindings::ferroce_sockets_close(&mut self.sockets) };
    }
}
