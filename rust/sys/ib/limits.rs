// SPDX-License-Identifier: GPL-2.0

//! Attributes that a device and its port report, and names of flags.

use crate::sys::bindings;

/// Flags of a device (`enum ib_device_cap_flags`).
pub mod capability {
    use crate::sys::bindings;

    /// Sends RNR NAKs.
    pub const RNR_NAK: u64 = bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64;
    /// Shared receive queues can be resized.
    pub const SRQ_RESIZE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64;
    /// Reports port state changes.
    pub const PORT_EVENTS: u64 = bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64;
    /// Its system image GUID means something.
    pub const SYSTEM_GUID: u64 = bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64;
    /// Supports memory windows.
    pub const WINDOWS: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64;
    /// And those of type 2B.
    pub const WINDOWS_2B: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64;
    /// FLUSH makes what was written visible to all.
    pub const FLUSH_GLOBAL: u64 = bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64;
    /// There is ATOMIC WRITE.
    pub const ATOMIC_WRITE: u64 = bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64;
    /// Supports FRMRs, LOCAL_INV and SEND_WITH_INV.
    pub const FAST_REGISTRATION: u64 =
        bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    /// Lists of a fast registration may have gaps (among `kernel_capabilities`).
    pub const LISTS_WITH_GAPS: u64 = bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG as u64;
    /// `rdma link delete` may take it away (among `kernel_capabilities`).
    pub const USER_UNREGISTERS: u64 = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG as u64;
}

/// Commands that ib_core offers only if a driver asks for them.
pub mod command {
    use crate::sys::bindings;

    /// The doorbell of send queues.
    pub const POST_SEND: u64 = 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND;
    /// The doorbell of receive queues.
    pub const POST_RECV: u64 = 1 << bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_RECV;
}

/// Protocols of a port (`core_cap_flags`).
pub mod protocol {
    use crate::sys::bindings;

    /// RoCEv2.
    pub const ROCE_V2: u32 = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP;
    /// Address handles are those of an Ethernet.
    pub const ETHERNET_ADDRESSES: u32 = bindings::RDMA_CORE_CAP_ETH_AH;
    /// It has a QP for management datagrams (QP 1).
    pub const MANAGEMENT: u32 = bindings::RDMA_CORE_CAP_IB_MAD;
    /// Connections are made by the communication manager of InfiniBand.
    pub const CONNECTIONS: u32 = bindings::RDMA_CORE_CAP_IB_CM;
    /// Its GIDs can be addresses of sockets.
    pub const NATIVE_ADDRESSES: u32 = bindings::RDMA_CORE_CAP_AF_IB;
}

/// Result of `query_device`. Other fields are 0: not supported.
pub struct DeviceLimits {
    /// GUID of the node, big-endian.
    pub guid: u64,
    /// Version of the driver: major, minor, patch.
    pub version: [u16; 3],
    /// OUI of the vendor.
    pub vendor_id: u32,
    /// Which of the vendor's parts it is.
    pub part_id: u32,
    /// See [`capability`].
    pub capabilities: u64,
    /// See [`capability`]; those for ULPs.
    pub kernel_capabilities: u64,
    /// Bytes of the largest memory region.
    pub max_mr_size: u64,
    /// QPs.
    pub max_qp: u32,
    /// Requests of one queue of a QP.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of one request.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Completions for which an event can wait, and the microseconds it can be late at most.
    pub max_moderation: [u16; 2],
    /// Kilohertz of the clock of completions, all of whose bits count.
    pub clock_khz: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// Pages, or pieces, of a fast registration.
    pub max_fast_pages: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Receives of one of them.
    pub max_srq_wr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Multicast groups.
    pub max_groups: u32,
    /// QPs in one of them.
    pub max_group_members: u32,
    /// Atomic operations are atomic against the processors too.
    pub global_atomics: bool,
    /// RDMA READs and atomic operations outstanding at one QP, in either direction.
    pub max_rd_atomic: u32,
    /// Those of peers at all QPs together.
    pub max_res_rd_atomic: u32,
    /// Partition keys.
    pub max_pkeys: u16,
    /// The time it takes us to answer: 4.096 us times 2 to this power.
    pub ack_delay: u8,
}

/// A limit in the type of its field, which is signed up to Linux 7.2 and unsigned from 7.3 on.
fn number<T: TryFrom<u32> + From<u8>>(limit: u32) -> T {
    T::try_from(limit.min(i32::MAX as u32)).unwrap_or(T::from(u8::MAX))
}

impl DeviceLimits {
    pub(super) fn to_raw(&self, attr: &mut bindings::ib_device_attr) {
        let [major, minor, patch] = self.version.map(u64::from);
        attr.fw_ver = (major << 32) | (minor << 16) | patch;
        attr.sys_image_guid = self.guid;
        attr.max_mr_size = self.max_mr_size;
        attr.page_size_cap = u64::MAX & !(bindings::PAGE_SIZE as u64).wrapping_sub(1);
        attr.vendor_id = self.vendor_id;
        attr.vendor_part_id = self.part_id;
        attr.max_qp = number(self.max_qp);
        attr.max_qp_wr = number(self.max_qp_wr);
        attr.device_cap_flags = self.capabilities;
        attr.kernel_cap_flags = self.kernel_capabilities;
        attr.max_send_sge = number(self.max_sge);
        attr.max_recv_sge = number(self.max_sge);
        attr.max_sge_rd = number(self.max_sge);
        attr.max_cq = number(self.max_cq);
        attr.max_cqe = number(self.max_cqe);
        let [count, period] = self.max_moderation;
        attr.cq_caps.max_cq_moderation_count = count;
        attr.cq_caps.max_cq_moderation_period = period;
        attr.timestamp_mask = u64::MAX;
        attr.hca_core_clock = self.clock_khz;
        attr.max_mr = number(self.max_mr);
        attr.max_fast_reg_page_list_len = self.max_fast_pages;
        attr.max_mw = number(self.max_mw);
        attr.max_srq = number(self.max_srq);
        attr.max_srq_wr = number(self.max_srq_wr);
        attr.max_srq_sge = number(self.max_sge);
        attr.max_pd = number(self.max_pd);
        attr.max_ah = number(self.max_ah);
        attr.max_mcast_grp = number(self.max_groups);
        attr.max_mcast_qp_attach = number(self.max_group_members);
        let total = self.max_groups.saturating_mul(self.max_group_members);
        attr.max_total_mcast_qp_attach = number(total);
        attr.max_qp_rd_atom = number(self.max_rd_atomic);
        attr.max_qp_init_rd_atom = number(self.max_rd_atomic);
        attr.max_res_rd_atom = number(self.max_res_rd_atomic);
        attr.atomic_cap = if self.global_atomics {
            bindings::ib_atomic_cap_IB_ATOMIC_GLOB
        } else {
            bindings::ib_atomic_cap_IB_ATOMIC_NONE
        };
        attr.masked_atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_NONE;
        attr.max_pkeys = self.max_pkeys;
        attr.local_ca_ack_delay = self.ack_delay;
    }
}

/// Constants of an Ethernet port.
pub struct PortConstants {
    /// See [`protocol`].
    pub protocols: u32,
    /// Entries of the GID table: ib_core fills it from the addresses of the netdev.
    pub gid_table_len: u16,
    /// The GIDs are IP addresses.
    pub ip_gids: bool,
    /// The partition keys.
    pub pkeys: &'static [u16],
    /// Virtual lanes.
    pub virtual_lanes: u8,
    /// Greatest path MTU ever, in bytes.
    pub max_mtu: u32,
    /// Bytes of the longest message.
    pub max_message: u32,
    /// Bytes of a management datagram.
    pub max_mad: u32,
}

/// Result of `query_port`, without the parts that ib_core reads from the netdev.
pub struct PortState {
    /// The netdev is up and has a carrier.
    pub active: bool,
    /// Greatest path MTU that the netdev can carry, in bytes.
    pub active_mtu: u32,
}

/// An MTU as `enum ib_mtu` has it: 256 is 1, 4096 is 5.
pub(super) fn mtu(bytes: u32) -> bindings::ib_mtu {
    bytes.trailing_zeros().wrapping_sub(7)
}

/// The same, backwards; `None` for what is no value of the enumeration.
pub(super) fn mtu_bytes(raw: bindings::ib_mtu) -> Option<u32> {
    matches!(
        raw,
        bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096
    )
    .then(|| 128 << raw)
}

impl PortConstants {
    /// Entries of the table of partition keys.
    pub(super) fn pkey_table_len(&self) -> u16 {
        self.pkeys.len() as u16
    }

    pub(super) fn immutable(&self, immutable: &mut bindings::ib_port_immutable) {
        immutable.core_cap_flags = self.protocols;
        immutable.gid_tbl_len = self.gid_table_len.into();
        immutable.pkey_tbl_len = self.pkey_table_len().into();
        immutable.max_mad_size = self.max_mad;
    }

    /// All that is reported of the port in this state.
    pub(super) fn to_raw(&self, state: PortState, attr: &mut bindings::ib_port_attr) {
        // IsCommunicationManagementSupported (IBTA 14.2.5.6, PortInfo:CapabilityMask).
        const CONNECTION_MANAGEMENT: u32 = 1 << 16;
        // LinkUp and Disabled (IBTA 14.2.5.6, PortInfo:PortPhysicalState).
        const LINK_UP: u8 = 5;
        const DISABLED: u8 = 3;
        if state.active {
            attr.state = bindings::ib_port_state_IB_PORT_ACTIVE;
            attr.phys_state = LINK_UP;
        } else {
            attr.state = bindings::ib_port_state_IB_PORT_DOWN;
            attr.phys_state = DISABLED;
        }
        attr.max_mtu = mtu(self.max_mtu);
        attr.active_mtu = mtu(state.active_mtu);
        attr.phys_mtu = state.active_mtu;
        attr.gid_tbl_len = self.gid_table_len.into();
        attr.port_cap_flags = CONNECTION_MANAGEMENT;
        attr.max_vl_num = self.virtual_lanes;
        attr.set_ip_gids(self.ip_gids.into());
        attr.max_msg_sz = self.max_message;
        attr.pkey_tbl_len = self.pkey_table_len();
    }
}
