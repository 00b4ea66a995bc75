// SPDX-License-Identifier: GPL-2.0

//! The device: one link on one netdev.

use super::Ferroce;
use crate::datapath::fabric::{
    Listed,
    FABRIC,
    MAX_QP, //
};
use crate::datapath::port::{
    Port,
    MAX_MR, //
};
use crate::link::{
    Factory,
    Hold, //
};
use crate::sys::ib::device;
use crate::sys::ib::limits::{
    DeviceLimits,
    PortState, //
};
use crate::sys::net::Underlay;
use crate::transport::config::MAX_RD_ATOMIC;
use crate::uabi::wqe::MAX_SGE;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc, //
};

/// Most requests of a queue. A send queue of this length takes up to 20 MiB.
pub const MAX_QP_WR: u32 = 1 << 14;
/// Most entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 20;
/// Bytes that a packet adds to its payload, at most: IPv6, UDP, BTH, RETH, immediate data, ICRC,
/// rounded up so that the usual MTU of 1500 gives 1024 and 4200 gives 4096.
const MAX_HEADERS: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// A device.
pub struct Device {
    /// What its data path works with.
    pub port: Arc<Port>,
    /// Lets the port count what is for nobody.
    _listed: Listed,
    /// Node GUID, big-endian.
    guid: u64,
    /// The netdev below.
    underlay: Underlay,
    /// Keeps the netdev taken and its sockets open. Dropped last.
    _hold: Hold,
}

impl Device {
    /// What the device can do.
    pub fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            guid: self.guid,
            max_mr_size: u64::MAX,
            max_qp: MAX_QP,
            max_qp_wr: MAX_QP_WR,
            max_sge: MAX_SGE,
            max_cq: 1 << 20,
            max_cqe: MAX_CQE,
            max_mr: MAX_MR,
            max_pd: 1 << 20,
            max_ah: 1 << 20,
            max_rd_atomic: u32::from(MAX_RD_ATOMIC),
        }
    }

    /// State and MTU, as the netdev has them now.
    pub fn port_state(&self) -> PortState {
        let netdev = self.underlay.netdev();
        let room = netdev.mtu().saturating_sub(MAX_HEADERS);
        PortState {
            active: netdev.is_operational(),
            active_mtu: match room {
                4096.. => 4096,
                2048.. => 2048,
                1024.. => 1024,
                512.. => 512,
                _ => 256,
            },
        }
    }
}

/// The EUI-64 of a MAC address (RFC 4291, appendix A), as the 8 bytes of a GUID.
fn guid_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

impl Factory for Ferroce {
    type Driver = Ferroce;

    fn create(name: &CStr, underlay: Underlay, hold: Hold) -> Result {
        let guid = guid_of(underlay.netdev().mac());
        let netdev = underlay.netdev().clone();
        let port = Port::new(&underlay)?;
        let fabric = {
            let rcu = rcu::read_lock();
            FABRIC.get_arc(&rcu).ok_or(ENODEV)?
        };
        let device = Arc::new(
            Device {
                _listed: fabric.list(&port)?,
                port,
                guid,
                underlay,
                _hold: hold,
            },
            GFP_KERNEL,
        )?;
        device::register::<Ferroce>(name, &netdev, guid, device)
    }
}
