// SPDX-License-Identifier: GPL-2.0

//! What a device and its port report of themselves.

use crate::sys::bindings;
use kernel::prelude::*;

/// The one partition key of RoCE: the default one, full membership.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// What `query_device` reports. What is not here is 0: not supported.
pub struct DeviceLimits {
    /// GUID of the node, big-endian.
    pub guid: u64,
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
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Address handles.
    pub max_ah: u32,
    /// RDMA READs outstanding at one QP, in either direction.
    pub max_rd_atomic: u32,
}

/// A limit in the type of its field, which is signed up to Linux 7.2 and unsigned from 7.3 on.
fn number<T: TryFrom<u32> + From<u8>>(limit: u32) -> T {
    T::try_from(limit.min(i32::MAX as u32)).unwrap_or(T::from(u8::MAX))
}

impl DeviceLimits {
    pub(super) fn fill(self, attr: &mut bindings::ib_device_attr) {
        attr.sys_image_guid = self.guid;
        attr.max_mr_size = self.max_mr_size;
        attr.page_size_cap = u64::MAX & !(bindings::PAGE_SIZE as u64).wrapping_sub(1);
        // An OUI that is not assigned: this is no product of a hardware vendor.
        attr.vendor_id = 0xff_ffff;
        attr.max_qp = number(self.max_qp);
        attr.max_qp_wr = number(self.max_qp_wr);
        attr.device_cap_flags = (bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN
            | bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT
            | bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID)
            as u64;
        attr.kernel_cap_flags = bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG.into();
        attr.max_send_sge = number(self.max_sge);
        attr.max_recv_sge = number(self.max_sge);
        attr.max_sge_rd = number(self.max_sge);
        attr.max_cq = number(self.max_cq);
        attr.max_cqe = number(self.max_cqe);
        attr.max_mr = number(self.max_mr);
        attr.max_pd = number(self.max_pd);
        attr.max_ah = number(self.max_ah);
        attr.max_qp_rd_atom = number(self.max_rd_atomic);
        attr.max_qp_init_rd_atom = number(self.max_rd_atomic);
        attr.max_res_rd_atom = number(self.max_rd_atomic.saturating_mul(self.max_qp));
        attr.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_NONE;
        attr.masked_atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_NONE;
        attr.max_pkeys = 1;
        attr.local_ca_ack_delay = 15;
    }
}

/// What `query_port` reports beside what ib_core finds out from the netdev.
pub struct PortState {
    /// The netdev is up and has a carrier.
    pub active: bool,
    /// Greatest path MTU that the netdev can carry, in bytes.
    pub active_mtu: u32,
}

/// Entries of the GID table: ib_core fills it from the addresses of the netdev.
const GID_TABLE_LEN: c_int = 256;

impl PortState {
    /// # Safety
    ///
    /// `device` must be a live device.
    pub(super) unsafe fn fill(
        self,
        device: *mut bindings::ib_device,
        port: u32,
        attr: &mut bindings::ib_port_attr,
    ) {
        // LinkUp and Disabled (IBTA 14.2.5.6, PortInfo:PortPhysicalState).
        const LINK_UP: u8 = 5;
        const DISABLED: u8 = 3;
        // SAFETY: By the requirement. While the netdev goes away this fails, and the values stay.
        unsafe {
            bindings::ib_get_eth_speed(device, port, &mut attr.active_speed, &mut attr.active_width)
        };
        if self.active {
            attr.state = bindings::ib_port_state_IB_PORT_ACTIVE;
            attr.phys_state = LINK_UP;
        } else {
            attr.state = bindings::ib_port_state_IB_PORT_DOWN;
            attr.phys_state = DISABLED;
        }
        attr.max_mtu = bindings::ib_mtu_IB_MTU_4096;
        // 256 is 1, 4096 is 5 (`enum ib_mtu`).
        attr.active_mtu = self.active_mtu.trailing_zeros().wrapping_sub(7);
        attr.phys_mtu = self.active_mtu;
        attr.gid_tbl_len = GID_TABLE_LEN;
        attr.port_cap_flags = 0;
        attr.max_msg_sz = 1 << 31;
        attr.pkey_tbl_len = 1;
    }
}
