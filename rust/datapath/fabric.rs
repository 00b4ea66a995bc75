// SPDX-License-Identifier: GPL-2.0

//! What all devices share: the QPs by number, the ports, and the workers.
//!
//! QP numbers are unique over all devices of the module, so a packet finds its QP by the number
//! alone; the addresses of the connection then say whether the packet may be for it.

use super::port::Port;
use super::qp::Qp;
use crate::sys::global::Global;
use crate::sys::net::NetNs;
use crate::sys::random;
use crate::sys::table::{
    Reserved,
    Table, //
};
use crate::sys::work::OwnedQueue;
use crate::wire::ident::Numbers;
use kernel::c_str;
use kernel::prelude::*;
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// The fabric of the module, from its initialisation to its exit.
pub static FABRIC: Global<Fabric> = Global::empty();

/// The QPs of all devices.
#[pin_data]
pub struct Fabric {
    #[pin]
    qps: Table<Qp>,
    numbers: Numbers,
    #[pin]
    ports: Table<Port>,
    /// Runs what is beyond the budget of a system call or softirq, on the same CPU, for packets
    /// sent from another one overtake those still under way there. What else runs there is usually
    /// the process that polls for the very completions: it does not get half of the CPU.
    pub workers: OwnedQueue,
    /// Sends for processes that stream, on a CPU that had nothing to do.
    pub offload: OwnedQueue,
}

/// Most QPs of all devices together.
pub const MAX_QP: u32 = 1 << 20;

/// Most ports of all devices together: more than there can be net devices.
const MAX_PORT: u32 = i32::MAX as u32;

impl Fabric {
    /// An empty fabric.
    pub fn new() -> Result<Arc<Self>> {
        let workers = OwnedQueue::new(c_str!("ferroce"), true)?;
        let offload = OwnedQueue::new(c_str!("ferroce_offload"), false)?;
        Arc::pin_init(
            pin_init!(Self {
                qps <- Table::new(),
                numbers: Numbers::new(random::words()),
                ports <- Table::new(),
                workers,
                offload,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a QP number; it leads nowhere before it is published. May sleep.
    pub fn reserve(&self) -> Result<(Reserved<'_, Qp>, u32)> {
        // Three numbers are special (0 and 1 are management QPs, the last is multicast); whoever
        // draws one keeps it while drawing again.
        let mut unusable: [Option<Reserved<'_, Qp>>; 3] = [const { None }; 3];
        let mut spare = unusable.iter_mut();
        loop {
            let reserved = self.qps.reserve(MAX_QP)?;
            let number = self.numbers.number(reserved.index());
            if !matches!(number, 0 | 1 | 0xff_ffff) {
                return Ok((reserved, number));
            }
            *spare.next().ok_or(ENOSPC)? = Some(reserved);
        }
    }

    /// The QP of this number.
    pub fn get<'g>(&'g self, number: u32, rcu: &'g rcu::Guard) -> Option<ArcBorrow<'g, Qp>> {
        self.qps.get(self.numbers.index(number), rcu)
    }

    /// Unpublishes a QP and waits until no packet is being received for it. May sleep.
    pub fn remove(&self, number: u32) {
        drop(self.qps.remove(self.numbers.index(number)));
    }

    /// Lets a port count what arrives at its netdev and is for nobody, until the result is
    /// dropped. May sleep, then too.
    pub fn list(self: &Arc<Self>, port: &Arc<Port>) -> Result<Listed> {
        let reserved = self.ports.reserve(MAX_PORT)?;
        let index = reserved.publish(port.clone());
        Ok(Listed {
            fabric: self.clone(),
            index,
        })
    }

    /// The port that counts a packet that is for no QP: the one on the netdev by which it came in,
    /// or, if that has none (`lo`, a VLAN), any of the namespace.
    ///
    /// It looks at all ports; the QP of a packet is found without it.
    pub fn port_at<'g>(
        &'g self,
        netns: NetNs,
        ifindex: i32,
        rcu: &'g rcu::Guard,
    ) -> Option<&'g Port> {
        self.ports
            .find(rcu, |port| port.is_on(netns, ifindex))
            .or_else(|| self.ports.find(rcu, |port| port.is_in(netns)))
    }
}

/// The place of a port in the fabric.
pub struct Listed {
    fabric: Arc<Fabric>,
    index: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        drop(self.fabric.ports.remove(self.index));
    }
}
