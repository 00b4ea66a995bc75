// SPDX-License-Identifier: GPL-2.0

//! The device: one link on one netdev. What it reports, how many objects it may have, and its files
//! in sysfs; the processes that have opened it, protection domains and address handles, with the
//! validation of address vectors.

use crate::core::message::Mtu;
use crate::core::quota::{
    ObjectKind,
    Permit,
    Quotas, //
};
use crate::core::rc::MAX_RD_ATOMIC;
use crate::core::uabi;
use crate::core::uabi::udata::{
    AllocUcontextReq,
    AllocUcontextResp,
    CreateAhResp,
    CLOCK,
    NULL_LKEY,
    SIGNATURE, //
};
use crate::core::uabi::wqe::MAX_SGE;
use crate::core::wire::gid::is_multicast;
use crate::core::wire::performance::{
    self,
    PmaMad, //
};
use crate::datapath::directory::{
    Directory,
    PortListing, //
};
use crate::datapath::memory::region::DomainId;
use crate::datapath::path::{
    Ah,
    Path, //
};
use crate::datapath::port::{
    self,
    Port, //
};
use crate::link::Hold;
use crate::observe;
use crate::sys::ib::ah::{
    AddressHandle,
    AddressVector,
    AhAttr,
    AllocContext, //
};
use crate::sys::ib::device::Attribute;
use crate::sys::ib::mr::ProtectionDomain;
use crate::sys::ib::process::{
    Context,
    Request,
    Udata, //
};
use crate::sys::ib::query::{
    capability,
    number,
    protocol,
    CounterName,
    DeviceLimits,
    PortConstants,
    PortState,
    GLOBAL_ATOMICS, //
};
use crate::sys::net::Underlay;
use crate::sys::refusal::{
    invalid,
    refuse,
    within,
    EADDRNOTAVAIL, //
};
use crate::sys::table::Published;
use crate::sys::{
    self,
    ib, //
};
use kernel::page::PAGE_SIZE;
use kernel::prelude::{
    fmt,
    *, //
};
use kernel::str::kstrtobool;
use kernel::sync::Arc;

/// Most WQEs of a queue. A send queue of this length takes up to 20 MiB.
pub const MAX_QP_WR: u32 = 1 << 14;
/// Most entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 20;
/// Most receives of an SRQ: enough for many QPs.
pub const MAX_SRQ_WR: u32 = 1 << 16;

/// Most pages or pieces of an FRMR: 2 MiB, as much as ULPs request at once.
pub const MAX_FAST_PAGES: u32 = 512;

/// The vendor, as an OUI: "RoC" in ASCII. No vendor has it: its first octet is that of a locally
/// administered address (U/L set), and not one of those that IEEE 802c assigns to companies. 0 and
/// 0xffffff do not serve: SPDK takes both for an rdma_rxe that cannot invalidate keys, and works
/// around that.
const VENDOR_ID: u32 = u32::from_be_bytes([0, b'R', b'o', b'C']);
/// The only part of that vendor. `hw_ver` stays 0: there is no hardware.
const PART_ID: u32 = 1;

/// An RDMA device: one port, on one netdev.
pub struct Device {
    /// The port used by its data path.
    pub(super) port: Arc<Port>,
    /// Lets the port count packets for no QP.
    listed: PortListing,
    /// Node GUID, big-endian.
    pub(super) guid: u64,
    /// Number of its objects.
    quotas: Arc<Quotas>,
    /// The netdev below.
    pub(super) underlay: Underlay,
    /// Keeps the netdev taken and its sockets open. Dropped last.
    hold: Hold,
}

/// A permit for an object of a device.
pub type ObjectPermit = Permit<Arc<Quotas>>;

impl Device {
    /// A device on `underlay` without objects, with at most `most_objects` of each kind.
    pub fn new(underlay: Underlay, hold: Hold, most_objects: u32) -> Result<Self> {
        let port = Port::new(&underlay)?;
        Ok(Self {
            listed: Directory::current()?.list(&port)?,
            port,
            guid: guid_of(underlay.netdev().mac()),
            quotas: Arc::new(Quotas::new(most_objects), GFP_KERNEL)?,
            underlay,
            hold,
        })
    }

    /// Its netdev is gone, and the device leaves next.
    pub fn lose_netdev(&self) {
        self.listed.lose_netdev();
    }

    /// Takes a permit for one more object.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the device has as many as it reports.
    pub fn permit(&self, kind: ObjectKind) -> Result<ObjectPermit> {
        Permit::take(self.quotas.clone(), kind).ok_or_else(|| {
            let most = u64::from(self.quotas.limit(kind));
            refuse(ENOMEM, kind.name(), most.saturating_add(1), 0..=most)
        })
    }
}

impl ib::query::RdmaDevice for Device {
    const PORT: PortConstants = PortConstants {
        protocols: protocol::ROCE_V2
            | protocol::ETHERNET_ADDRESSES
            | protocol::MANAGEMENT
            | protocol::CONNECTIONS
            | protocol::NATIVE_ADDRESSES,
        gid_table_len: 256,
        ip_gids: true,
        // RoCE's P_Key: the default key, full membership.
        pkeys: &[0xffff],
        // RoCE has none: everything is in the first.
        virtual_lanes: 1,
        max_mtu: 4096,
        max_message: 1 << 31,
        max_mad: 256,
    };
    const COUNTERS: &'static [CounterName] = observe::NAMES;
    const COUNTERS_LIFESPAN_MS: u32 = 10;
    const VERSION: [u16; 3] = uabi::MODULE_VERSION;

    fn limits(&self, attr: &mut DeviceLimits) {
        let [major, minor, patch] = Self::VERSION.map(u64::from);
        attr.fw_ver = (major << 32) | (minor << 16) | patch;
        attr.sys_image_guid = self.guid;
        attr.vendor_id = VENDOR_ID;
        attr.vendor_part_id = PART_ID;
        // Nothing is persistent: without the flag ib_core refuses regions with that right.
        attr.device_cap_flags = capability::RNR_NAK
            | capability::PORT_EVENTS
            | capability::SYSTEM_GUID
            | capability::WINDOWS
            | capability::WINDOWS_2B
            | capability::FAST_REGISTRATION
            | capability::SRQ_RESIZE
            | capability::FLUSH_GLOBAL
            | capability::ATOMIC_WRITE;
        attr.kernel_cap_flags = capability::USER_UNREGISTERS | capability::LISTS_WITH_GAPS;
        attr.max_mr_size = u64::MAX;
        attr.page_size_cap = u64::MAX & !(PAGE_SIZE as u64).wrapping_sub(1);
        let max_qp = self.quotas.limit(ObjectKind::Qp);
        attr.max_qp = number(max_qp);
        attr.max_qp_wr = number(MAX_QP_WR);
        attr.max_send_sge = number(MAX_SGE);
        attr.max_recv_sge = number(MAX_SGE);
        attr.max_sge_rd = number(MAX_SGE);
        attr.max_cq = number(self.quotas.limit(ObjectKind::Cq));
        attr.max_cqe = number(MAX_CQE);
        attr.cq_caps.max_cq_moderation_count = u16::MAX;
        attr.cq_caps.max_cq_moderation_period = u16::MAX;
        attr.timestamp_mask = u64::MAX;
        // In kilohertz: it counts nanoseconds.
        attr.hca_core_clock = 1_000_000;
        attr.max_mr = number(self.quotas.limit(ObjectKind::Mr));
        attr.max_fast_reg_page_list_len = MAX_FAST_PAGES;
        attr.max_mw = number(self.quotas.limit(ObjectKind::Mw));
        attr.max_srq = number(self.quotas.limit(ObjectKind::Srq));
        attr.max_srq_wr = number(MAX_SRQ_WR);
        attr.max_srq_sge = number(MAX_SGE);
        attr.max_pd = number(self.quotas.limit(ObjectKind::Pd));
        attr.max_ah = number(self.quotas.limit(ObjectKind::Ah));
        let (groups, members) = (port::MAX_GROUPS as u32, port::MAX_MEMBERS as u32);
        attr.max_mcast_grp = number(groups);
        attr.max_mcast_qp_attach = number(members);
        attr.max_total_mcast_qp_attach = number(groups.saturating_mul(members));
        let max_rd_atomic = u32::from(MAX_RD_ATOMIC);
        attr.max_qp_rd_atom = number(max_rd_atomic);
        attr.max_qp_init_rd_atom = number(max_rd_atomic);
        // Each QP has its own.
        attr.max_res_rd_atom = number(max_rd_atomic.saturating_mul(max_qp));
        attr.atomic_cap = GLOBAL_ATOMICS;
        attr.max_pkeys = 1;
        // 4.096 us times 2 to this power.
        attr.local_ca_ack_delay = 15;
    }

    fn has_lost_netdev(&self) -> bool {
        let has_left = self.hold.has_left();
        if has_left {
            self.lose_netdev();
        }
        has_left
    }

    fn port_state(&self) -> PortState {
        let netdev = self.underlay.netdev();
        PortState {
            active: netdev.is_operational(),
            active_mtu: Mtu::of_netdev(netdev.mtu()).bytes(),
        }
    }

    fn counters(&self, values: &mut [u64]) {
        self.port.counters().read(values);
    }

    fn management(&self, request: &PmaMad) -> Option<PmaMad> {
        performance::answer(request, 1, || {
            observe::totals(&self.port.all_counters.sum())
        })
    }
}

/// The EUI-64 of a MAC address (RFC 4291, appendix A), as the 8 bytes of a GUID. A device without
/// such an address gets a random local unicast one (IEEE 802, 8.2): NVMe targets tell devices apart
/// by GUID.
fn guid_of(mac: Option<[u8; 6]>) -> u64 {
    let [a, b, c, d, e, f] = mac.unwrap_or_else(|| {
        let [a, b, c, d, e, f, ..] = sys::random_words::<1>().map(u64::to_ne_bytes)[0];
        [a & !1 | 2, b, c, d, e, f]
    });
    u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A process that has opened the device.
pub struct UserContext {
    _permit: ObjectPermit,
}

impl Request for AllocUcontextReq {
    const FIRST_LENGTH: usize = 8;
}

impl Context for UserContext {
    type Device = Device;

    fn open(device: &Device, udata: &Udata<'_>) -> Result<Self> {
        let permit = device.permit(ObjectKind::Context)?;
        // No feature is defined yet; a newer provider works without.
        let _request: AllocUcontextReq = udata.request()?;
        udata.respond(&AllocUcontextResp {
            signature: SIGNATURE,
            null_lkey: NULL_LKEY,
            clock: CLOCK,
            ..AllocUcontextResp::default()
        })?;
        Ok(Self { _permit: permit })
    }
}

/// The files of a device in sysfs.
pub const ATTRIBUTES: &[Attribute<Device>] = &[
    // The netdev below, as udev and rdma-core look for it.
    Attribute {
        name: c"parent",
        show: |device, text| text.write_fmt(fmt!("{}\n", device.underlay.netdev().name())),
        store: None,
    },
    // Whether messages between QPs of the device go without packets.
    Attribute {
        name: c"local_path",
        show: |device, text| text.write_fmt(fmt!("{}\n", u8::from(device.port.local_path.is_on()))),
        store: Some(|device, text| {
            device.port.local_path.set(kstrtobool(text)?);
            Ok(())
        }),
    },
    // Whether packets of reliable connections may be marked by the network, as of the next
    // connection.
    Attribute {
        name: c"ecn",
        show: |device, text| text.write_fmt(fmt!("{}\n", u8::from(device.port.ecn.is_on()))),
        store: Some(|device, text| {
            device.port.ecn.set(kstrtobool(text)?);
            Ok(())
        }),
    },
    // Whether other CPUs may execute packets than those on which they arrive.
    Attribute {
        name: c"steering",
        show: |device, text| text.write_fmt(fmt!("{}\n", u8::from(device.port.steering.is_on()))),
        store: Some(|device, text| {
            device.port.steering.set(kstrtobool(text)?);
            Ok(())
        }),
    },
];

/// A protection domain.
pub struct Domain {
    /// Its identity, as the data path compares it.
    pub(super) id: DomainId,
    _permit: ObjectPermit,
}

impl ProtectionDomain for Domain {
    type Device = Device;

    fn create(device: &Device) -> Result<Self> {
        let permit = device.permit(ObjectKind::Pd)?;
        Ok(Self {
            id: DomainId::next(),
            _permit: permit,
        })
    }
}

/// An address handle. Datagrams name it by its number; after it is dropped no datagram uses it,
/// except those in progress.
pub struct AhObject {
    port: Arc<Port>,
    ah: Published<Ah>,
    vector: AhAttr,
    _permit: ObjectPermit,
}

impl AhObject {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.ah)
    }
}

impl AddressHandle for AhObject {
    type Device = Device;
    type Pd = Domain;

    fn create(
        device: &Device,
        pd: &Domain,
        init: AddressVector,
        context: AllocContext,
        udata: Option<&Udata<'_>>,
    ) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_request()?;
        }
        check(&device.underlay, &init)?;
        let permit = device.permit(ObjectKind::Ah)?;
        let port = &device.port;
        let reserved = port.ahs.reserve_in(context, port::MAX_AH)?;
        let vector = init.vector;
        // One flow per handle: its datagrams stay in order.
        let mut path = Path::new(&port.resident, reserved.number(), &init).ok_or(EINVAL)?;
        if context == AllocContext::Sleeps {
            // Without a route datagrams look it up themselves, and are lost until there is one.
            let _ = path.find_route();
        }
        let ah = Arc::new(Ah::new(pd.id, path), context.flags())?;
        let ah = Self {
            port: port.clone(),
            ah: reserved.publish(ah),
            vector,
            _permit: permit,
        };
        if let Some(udata) = udata {
            udata.respond(&CreateAhResp {
                number: ah.number(),
                reserved: 0,
            })?;
        }
        Ok(ah)
    }

    fn vector(&self) -> &AhAttr {
        &self.vector
    }
}

impl Drop for AhObject {
    fn drop(&mut self) {
        self.port.ahs.remove(&mut self.ah);
    }
}

/// Checks that packets can leave by the netdev of the source GID.
///
/// ib_core offers the addresses of a VLAN even if the VLAN is in another network namespace than the
/// netdev below. Our sockets and routes are those of the link's namespace: packets that arrive by
/// such a VLAN find no socket of ours, so sending by it is pointless.
///
/// # Errors
///
/// `EADDRNOTAVAIL`.
pub fn check(underlay: &Underlay, av: &AddressVector) -> Result {
    if av.netns != underlay.netns() {
        return Err(EADDRNOTAVAIL());
    }
    Ok(())
}

/// Like [`check`], for a connection, which has a single peer.
///
/// # Errors
///
/// `EADDRNOTAVAIL`, and `EINVAL` if the destination is a group.
pub fn check_connection(underlay: &Underlay, av: &AddressVector) -> Result {
    if is_multicast(&av.destination) {
        return Err(invalid("the peer of a connection is a multicast group"));
    }
    check(underlay, av)
}

/// Checks that packets of this path MTU fit through the netdev of the source GID and through that
/// of the link below it.
///
/// It is checked only when the user sets up a connection. If the MTU of a netdev is lowered
/// afterwards, packets that no longer fit are lost, as with hardware.
///
/// # Errors
///
/// `EINVAL`.
pub fn check_mtu(underlay: &Underlay, av: &AddressVector, mtu: u32) -> Result {
    let netdev_mtu = av.netdev_mtu.min(underlay.netdev().mtu());
    let longest = Mtu::of_netdev(netdev_mtu).bytes();
    within("path_mtu", mtu, 0..=u64::from(longest))
}
