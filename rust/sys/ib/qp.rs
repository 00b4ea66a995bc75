// SPDX-License-Identifier: GPL-2.0

//! What a user asks of a QP, as plain values.

use super::object::QpRef;
use crate::sys::bindings;
use crate::sys::net::NetDevice;
use kernel::prelude::*;

/// The states of a QP (IBTA 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Nothing is set up; nothing may be posted.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue finishes what it began.
    Sqd = 4,
    /// The send queue had an error (not RC).
    Sqe = 5,
    /// Everything is flushed.
    Err = 6,
}

impl State {
    /// From `enum ib_qp_state`.
    pub fn from_raw(raw: u32) -> Option<State> {
        Some(match raw {
            0 => State::Reset,
            1 => State::Init,
            2 => State::Rtr,
            3 => State::Rts,
            4 => State::Sqd,
            5 => State::Sqe,
            6 => State::Err,
            _ => return None,
        })
    }
}

/// A 16-byte GID: an IPv6 address, or an IPv4 address as `::ffff:a.b.c.d`.
pub type Gid = [u8; 16];

/// What the remote side may do to memory through a QP or a region (`enum ib_access_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(pub u32);

impl Access {
    /// Local writes: receives and READ responses may be placed here.
    pub const LOCAL_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// Remote WRITE.
    pub const REMOTE_WRITE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// Remote READ.
    pub const REMOTE_READ: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// Remote atomics.
    pub const REMOTE_ATOMIC: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// Flags that ask for nothing that must be honoured (relaxed ordering, for one).
    pub const OPTIONAL: u32 = bindings::ib_access_flags_IB_ACCESS_OPTIONAL;
    /// A window may be bound to the region.
    pub const MW_BIND: u32 = bindings::ib_access_flags_IB_ACCESS_MW_BIND;

    /// Whether all these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether the memory is written to by anybody, so that its pages must be writable.
    pub fn as_raw(self) -> i32 {
        self.0 as i32
    }
}

/// Where a connection goes: the address vector with its source GID resolved.
#[derive(Clone)]
pub struct Path {
    /// The vector as the user gave it, for queries; without its reference to the GID table.
    pub vector: AddressVector,
    /// Index of the netdev of the source GID: the link's own, or a VLAN on top of it. It is not
    /// held, as a connection must not keep a netdev from going away.
    pub ifindex: i32,
    /// The destination is a GID of the same device.
    pub to_own_device: bool,
    /// Source GID.
    pub source: Gid,
    /// Destination GID.
    pub destination: Gid,
    /// TOS or traffic class of the packets.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// 20-bit flow label (IPv6).
    pub flow_label: u32,
}

/// An address vector that is only kept to be handed back.
#[derive(Clone, Copy)]
pub struct AddressVector(bindings::rdma_ah_attr);

// SAFETY: Plain values: the one pointer in it is null.
unsafe impl Send for AddressVector {}
// SAFETY: As above.
unsafe impl Sync for AddressVector {}

impl Default for AddressVector {
    fn default() -> Self {
        Self(pin_init::zeroed())
    }
}

impl Path {
    /// # Safety
    ///
    /// `raw` must be a live attribute whose source GID, if any, is referenced.
    pub(super) unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Result<Path> {
        let attr = raw.grh.sgid_attr;
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE || attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the requirement `attr` is referenced for the time of the call.
        let (ifindex, source, to_own_device) = unsafe {
            if (*attr).gid_type != bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP {
                // RoCE v1 is not served.
                return Err(EINVAL);
            }
            let netdev = NetDevice::from_raw_owned(bindings::ferroce_gid_netdev(attr));
            (
                netdev.ok_or(ENODEV)?.ifindex(),
                (*attr).gid.raw,
                bindings::ferroce_is_own_gid(attr, &raw.grh.dgid),
            )
        };
        let mut vector = *raw;
        vector.grh.sgid_attr = core::ptr::null();
        Ok(Path {
            vector: AddressVector(vector),
            ifindex,
            to_own_device,
            source,
            // SAFETY: Any bytes are a GID.
            destination: unsafe { raw.grh.dgid.raw },
            traffic_class: raw.grh.traffic_class,
            hop_limit: raw.grh.hop_limit,
            flow_label: raw.grh.flow_label & 0xf_ffff,
        })
    }
}

/// The arguments of `modify_qp`: what is `Some` is in the attribute mask.
#[derive(Default)]
pub struct Change {
    /// The attribute mask itself.
    pub mask: u32,
    /// State to go to.
    pub state: Option<State>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// Index of the partition key.
    pub pkey_index: Option<u16>,
    /// Port of the device.
    pub port: Option<u32>,
    /// Where the connection goes.
    pub path: Option<Path>,
    /// Path MTU in bytes.
    pub mtu: Option<u32>,
    /// ACK timeout exponent.
    pub timeout: Option<u8>,
    /// How often a request is sent again.
    pub retry_cnt: Option<u8>,
    /// How often a request is sent again for want of a receive; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// First PSN that is expected.
    pub rq_psn: Option<u32>,
    /// First PSN that is sent.
    pub sq_psn: Option<u32>,
    /// RDMA READs outstanding at the peer.
    pub max_rd_atomic: Option<u8>,
    /// RDMA READs of the peer outstanding here.
    pub max_dest_rd_atomic: Option<u8>,
    /// Code of the delay that RNR NAKs ask for.
    pub min_rnr_timer: Option<u8>,
    /// Number of the peer QP.
    pub dest_qpn: Option<u32>,
    /// Report when the send queue is drained.
    pub notify_drained: Option<bool>,
}

impl Change {
    /// # Safety
    ///
    /// `attr` must be the argument of the `modify_qp` that is running.
    pub(super) unsafe fn from_raw(attr: &bindings::ib_qp_attr, mask: u32) -> Result<Change> {
        fn when<T>(mask: u32, bit: bindings::ib_qp_attr_mask, value: T) -> Option<T> {
            (mask & bit != 0).then_some(value)
        }
        if mask
            & (bindings::ib_qp_attr_mask_IB_QP_ALT_PATH
                | bindings::ib_qp_attr_mask_IB_QP_RATE_LIMIT)
            != 0
        {
            return Err(crate::sys::errno::EOPNOTSUPP());
        }
        let state = match when(mask, bindings::ib_qp_attr_mask_IB_QP_STATE, attr.qp_state) {
            Some(raw) => Some(State::from_raw(raw).ok_or(EINVAL)?),
            None => None,
        };
        let path = match when(mask, bindings::ib_qp_attr_mask_IB_QP_AV, &attr.ah_attr) {
            // SAFETY: ib_core has filled the source GID and holds it during the call.
            Some(raw) => Some(unsafe { Path::from_raw(raw) }?),
            None => None,
        };
        let mtu = match when(
            mask,
            bindings::ib_qp_attr_mask_IB_QP_PATH_MTU,
            attr.path_mtu,
        ) {
            Some(raw @ 1..=5) => Some(128u32 << raw),
            Some(_) => return Err(EINVAL),
            None => None,
        };
        Ok(Change {
            mask,
            state,
            path,
            mtu,
            access: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
                attr.qp_access_flags as u32,
            )
            .map(Access),
            pkey_index: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX,
                attr.pkey_index,
            ),
            port: when(mask, bindings::ib_qp_attr_mask_IB_QP_PORT, attr.port_num),
            timeout: when(mask, bindings::ib_qp_attr_mask_IB_QP_TIMEOUT, attr.timeout),
            retry_cnt: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT,
                attr.retry_cnt,
            ),
            rnr_retry: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY,
                attr.rnr_retry,
            ),
            rq_psn: when(mask, bindings::ib_qp_attr_mask_IB_QP_RQ_PSN, attr.rq_psn),
            sq_psn: when(mask, bindings::ib_qp_attr_mask_IB_QP_SQ_PSN, attr.sq_psn),
            max_rd_atomic: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
                attr.max_rd_atomic,
            ),
            max_dest_rd_atomic: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
                attr.max_dest_rd_atomic,
            ),
            min_rnr_timer: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
                attr.min_rnr_timer,
            ),
            dest_qpn: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_DEST_QPN,
                attr.dest_qp_num,
            ),
            notify_drained: when(
                mask,
                bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY,
                attr.en_sqd_async_notify != 0,
            ),
        })
    }

    /// Whether an RC QP may go from `from` to `to` with this attribute mask (IBTA 11.2.5.2).
    pub fn allowed(&self, from: State, to: State) -> bool {
        // SAFETY: No requirements; the states are in range.
        unsafe {
            bindings::ib_modify_qp_is_ok(
                from as u32,
                to as u32,
                bindings::ib_qp_type_IB_QPT_RC,
                self.mask,
            )
        }
    }
}

/// The attributes of a QP as `query_qp` reports them.
#[derive(Clone, Copy, Default)]
pub struct Attributes {
    /// What the peer may do.
    pub access: Access,
    /// Index of the partition key.
    pub pkey_index: u16,
    /// Port of the device.
    pub port: u32,
    /// Path MTU in bytes; 0 if it was never set.
    pub mtu: u32,
    /// Local ACK Timeout: 4.096 us times 2 to this power; 0 waits for ever.
    pub timeout: u8,
    /// How often a request is sent again.
    pub retry_cnt: u8,
    /// How often a request is sent again for want of a receive; 7 is for ever.
    pub rnr_retry: u8,
    /// First PSN that is expected.
    pub rq_psn: u32,
    /// First PSN that is sent.
    pub sq_psn: u32,
    /// RDMA READs outstanding at the peer.
    pub max_rd_atomic: u8,
    /// RDMA READs of the peer outstanding here.
    pub max_dest_rd_atomic: u8,
    /// Code of the delay that RNR NAKs ask for.
    pub min_rnr_timer: u8,
    /// Number of the peer QP.
    pub dest_qpn: u32,
    /// Report when the send queue is drained.
    pub notify_drained: bool,
    /// The address vector.
    pub vector: AddressVector,
}

/// What a QP can hold.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send requests outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Inline bytes of a send request.
    pub max_inline: u32,
}

impl Capacity {
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Capacity {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline: raw.max_inline_data,
        }
    }

    pub(super) fn to_raw(self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline;
    }
}

/// What a QP is created with. `C` is the driver's completion queue.
pub struct Init<'a, C> {
    /// The object that is being created.
    pub qp: QpRef<'a>,
    /// Where completions of sends go.
    pub send_cq: &'a C,
    /// Where completions of receives go.
    pub recv_cq: &'a C,
    /// What is asked for; ib_core has checked nothing of it.
    pub capacity: Capacity,
    /// Every send request reports its completion.
    pub signal_all: bool,
}

/// What a created QP tells ib_core.
pub struct Created<Q> {
    /// The driver's QP.
    pub qp: Q,
    /// Its number.
    pub number: u32,
    /// What it can hold, at least what was asked for.
    pub capacity: Capacity,
}

impl Attributes {
    pub(super) fn to_raw(
        self,
        state: State,
        draining: bool,
        capacity: Capacity,
        raw: &mut bindings::ib_qp_attr,
    ) {
        // What is not set here must not be what the caller's memory held before.
        *raw = pin_init::zeroed();
        raw.qp_state = state as u32;
        raw.cur_qp_state = state as u32;
        raw.path_mtu = match self.mtu {
            0 => bindings::ib_mtu_IB_MTU_1024,
            mtu => mtu.trailing_zeros().wrapping_sub(7),
        };
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
        raw.qkey = 0;
        raw.rq_psn = self.rq_psn;
        raw.sq_psn = self.sq_psn;
        raw.dest_qp_num = self.dest_qpn;
        raw.qp_access_flags = self.access.as_raw();
        capacity.to_raw(&mut raw.cap);
        raw.ah_attr = self.vector.0;
        raw.pkey_index = self.pkey_index;
        raw.en_sqd_async_notify = self.notify_drained.into();
        raw.sq_draining = draining.into();
        raw.max_rd_atomic = self.max_rd_atomic;
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic;
        raw.min_rnr_timer = self.min_rnr_timer;
        raw.port_num = self.port;
        raw.timeout = self.timeout;
        raw.retry_cnt = self.retry_cnt;
        raw.rnr_retry = self.rnr_retry;
    }
}
