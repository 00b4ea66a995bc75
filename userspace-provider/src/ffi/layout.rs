// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The structures of libibverbs that the provider touches, as C lays them out.
//!
//! Source: `infiniband/verbs.h` (public) and `infiniband/driver.h`, `infiniband/kern-abi.h`
//! (private, in no package) of rdma-core 56.1; every one is the same in 65.0. The layout test
//! compares them with both. What the provider never looks into is a run of bytes.

use core::{
    ffi::{c_char, c_int, c_uint, c_void},
    mem::{offset_of, size_of},
};
use ferroce_core::uabi::{
    udata,
    wqe::{Atomic, Sge},
};

/// A pointer that the provider only hands through.
pub type Opaque = *mut c_void;

/// `struct verbs_context`: its length depends on the ABI, see [`crate::abi::Abi`].
#[repr(C)]
pub struct VerbsContext {
    _private: [u8; 0],
}

/// `struct ibv_context`.
#[repr(C)]
pub struct IbvContext {
    pub device: Opaque,
    pub ops: [Opaque; 32],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: Opaque,
}

/// `struct verbs_match_ent`.
#[repr(C)]
pub struct VerbsMatchEnt {
    pub driver_data: Opaque,
    pub driver_id: u64,
    pub vendor: u16,
    pub device: u16,
    pub kind: u8,
}

/// VERBS_MATCH_DRIVER_ID.
pub const MATCH_DRIVER_ID: u8 = 3;

/// `struct verbs_device`: libibverbs fills it in.
#[repr(C, align(8))]
pub struct VerbsDevice {
    _private: [u8; 712],
}

/// `struct verbs_device_ops`.
#[repr(C)]
pub struct VerbsDeviceOps {
    pub name: *const c_char,
    pub match_min_abi_version: u32,
    pub match_max_abi_version: u32,
    pub match_table: *const VerbsMatchEnt,
    pub static_providers: Opaque,
    pub match_device: Option<unsafe extern "C" fn(Opaque) -> bool>,
    pub alloc_context:
        Option<unsafe extern "C" fn(Opaque, c_int, *mut c_void) -> *mut VerbsContext>,
    pub import_context: Option<unsafe extern "C" fn(Opaque, c_int) -> *mut VerbsContext>,
    pub alloc_device: Option<unsafe extern "C" fn(Opaque) -> *mut VerbsDevice>,
    pub uninit_device: Option<unsafe extern "C" fn(*mut VerbsDevice)>,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct IbvPd {
    pub context: *mut IbvContext,
    pub handle: u32,
}

/// `struct ibv_td`.
#[repr(C)]
pub struct IbvTd {
    pub context: *mut IbvContext,
}

/// `struct ibv_td_init_attr`.
#[repr(C)]
pub struct TdInitAttr {
    pub comp_mask: u32,
}

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
pub struct ParentDomainInitAttr {
    pub pd: *mut IbvPd,
    pub td: *mut IbvTd,
    pub comp_mask: u32,
    pub alloc: Opaque,
    pub free: Opaque,
    pub pd_context: Opaque,
}

/// IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS.
pub const PARENT_ALLOCATORS: u32 = 1 << 0;
/// IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT.
pub const PARENT_CONTEXT: u32 = 1 << 1;

/// `struct ibv_ah`.
#[repr(C)]
pub struct IbvAh {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct IbvMr {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub addr: Opaque,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct verbs_mr`.
#[repr(C)]
pub struct VerbsMr {
    pub mr: IbvMr,
    pub mr_type: u32,
    pub access: c_int,
}

/// IBV_MR_TYPE_NULL_MR.
pub const MR_TYPE_NULL: u32 = 1;

/// `struct ibv_mw`.
#[repr(C)]
pub struct IbvMw {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub rkey: u32,
    pub handle: u32,
    pub mw_type: u32,
}

/// `struct ibv_mw_bind_info`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MwBindInfo {
    pub mr: *mut IbvMr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: u32,
}

/// `struct ibv_mw_bind`.
#[repr(C)]
pub struct MwBind {
    pub wr_id: u64,
    pub send_flags: u32,
    pub bind_info: MwBindInfo,
}

/// `struct ibv_cq`.
#[repr(C)]
pub struct IbvCq {
    pub context: *mut IbvContext,
    pub channel: Opaque,
    pub cq_context: Opaque,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// A method of `struct ibv_cq_ex` that reads something of the current completion.
pub type Read<T> = Option<unsafe extern "C" fn(*mut IbvCqEx) -> T>;

/// `struct ibv_cq_ex`, also `struct verbs_cq`.
#[repr(C)]
pub struct IbvCqEx {
    pub cq: IbvCq,
    pub comp_mask: u32,
    pub status: u32,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut IbvCqEx, *mut PollCqAttr) -> c_int>,
    pub next_poll: Read<c_int>,
    pub end_poll: Read<()>,
    pub read_opcode: Read<u32>,
    pub read_vendor_err: Read<u32>,
    pub read_byte_len: Read<u32>,
    pub read_imm_data: Read<u32>,
    pub read_qp_num: Read<u32>,
    pub read_src_qp: Read<u32>,
    pub read_wc_flags: Read<u32>,
    pub read_slid: Read<u32>,
    pub read_sl: Read<u8>,
    pub read_dlid_path_bits: Read<u8>,
    pub read_completion_ts: Read<u64>,
    pub read_cvlan: Read<u16>,
    pub read_flow_tag: Read<u32>,
    pub read_tm_info: Option<unsafe extern "C" fn(*mut IbvCqEx, Opaque)>,
    pub read_completion_wallclock_ns: Read<u64>,
}

/// `struct ibv_poll_cq_attr`.
#[repr(C)]
pub struct PollCqAttr {
    pub comp_mask: u32,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
pub struct CqInitAttrEx {
    pub cqe: u32,
    pub cq_context: Opaque,
    pub channel: Opaque,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut IbvPd,
}

/// `struct ibv_srq`.
#[repr(C)]
pub struct IbvSrq {
    pub context: *mut IbvContext,
    pub srq_context: Opaque,
    pub pd: *mut IbvPd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

/// `struct ibv_srq_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: Opaque,
    pub attr: SrqAttr,
}

/// IBV_SRQ_MAX_WR.
pub const SRQ_MAX_WR: c_int = 1 << 0;

/// `struct ibv_values_ex`; the clock is a `struct timespec`.
#[repr(C)]
pub struct ValuesEx {
    pub comp_mask: u32,
    pub raw_clock: [i64; 2],
}

/// IBV_VALUES_MASK_RAW_CLOCK.
pub const VALUES_RAW_CLOCK: u32 = 1 << 0;

/// `struct ibv_qp`.
#[repr(C)]
pub struct IbvQp {
    pub context: *mut IbvContext,
    pub qp_context: Opaque,
    pub pd: *mut IbvPd,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: Opaque,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

/// `struct verbs_qp`: a `struct ibv_qp_ex`, which begins with a `struct ibv_qp`, and what
/// libibverbs keeps behind it, `comp_mask` and a pointer. `struct ibv_qp_ex` grew twice without a
/// new ABI, so they stand at one of [`QP_COMP_MASK`]; here is room for any of them and more.
#[repr(C)]
pub struct VerbsQp {
    pub qp: IbvQp,
    _rest: [u64; 44],
}

/// `struct ibv_qp_ex` up to what rdma-core 36 has of it.
#[repr(C)]
pub struct IbvQpEx {
    pub qp_base: IbvQp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u64, u64),
    pub wr_atomic_fetch_add: unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u64),
    pub wr_bind_mw: unsafe extern "C" fn(*mut IbvQpEx, *mut IbvMw, u32, *const MwBindInfo),
    pub wr_local_inv: unsafe extern "C" fn(*mut IbvQpEx, u32),
    pub wr_rdma_read: unsafe extern "C" fn(*mut IbvQpEx, u32, u64),
    pub wr_rdma_write: unsafe extern "C" fn(*mut IbvQpEx, u32, u64),
    pub wr_rdma_write_imm: unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u32),
    pub wr_send: unsafe extern "C" fn(*mut IbvQpEx),
    pub wr_send_imm: unsafe extern "C" fn(*mut IbvQpEx, u32),
    pub wr_send_inv: unsafe extern "C" fn(*mut IbvQpEx, u32),
    pub wr_send_tso: unsafe extern "C" fn(*mut IbvQpEx, Opaque, u16, u16),
    pub wr_set_ud_addr: unsafe extern "C" fn(*mut IbvQpEx, *mut IbvAh, u32, u32),
    pub wr_set_xrc_srqn: unsafe extern "C" fn(*mut IbvQpEx, u32),
    pub wr_set_inline_data: unsafe extern "C" fn(*mut IbvQpEx, *mut c_void, usize),
    pub wr_set_inline_data_list: unsafe extern "C" fn(*mut IbvQpEx, usize, *const DataBuf),
    pub wr_set_sge: unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u32),
    pub wr_set_sge_list: unsafe extern "C" fn(*mut IbvQpEx, usize, *const Sge),
    pub wr_start: unsafe extern "C" fn(*mut IbvQpEx),
    pub wr_complete: unsafe extern "C" fn(*mut IbvQpEx) -> c_int,
    pub wr_abort: unsafe extern "C" fn(*mut IbvQpEx),
}

/// `wr_atomic_write` of `struct ibv_qp_ex`, which rdma-core has from 44 on.
pub type WrAtomicWrite = unsafe extern "C" fn(*mut IbvQpEx, u32, u64, *const c_void);
/// Where it is.
pub const WR_ATOMIC_WRITE: usize = size_of::<IbvQpEx>();
/// `wr_flush` of `struct ibv_qp_ex`, which rdma-core has from 45 on.
pub type WrFlush = unsafe extern "C" fn(*mut IbvQpEx, u32, u64, usize, u8, u8);
/// Where it is.
pub const WR_FLUSH: usize = WR_ATOMIC_WRITE + size_of::<WrAtomicWrite>();

/// `struct ibv_data_buf`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DataBuf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// Where `comp_mask` may be in `struct verbs_qp`: rdma-core from 45 on, 44, and 36 to 43. Debian 12
/// has 44, Ubuntu 22.04 has 39.
pub const QP_COMP_MASK: [usize; 3] = [WR_FLUSH + size_of::<WrFlush>(), WR_FLUSH, WR_ATOMIC_WRITE];
/// VERBS_QP_EX, a bit of it.
pub const QP_EX: u32 = 1 << 1;

/// IBV_ACCESS_LOCAL_WRITE.
pub const ACCESS_LOCAL_WRITE: c_int = 1 << 0;
/// IBV_ACCESS_REMOTE_WRITE.
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
/// IBV_ACCESS_REMOTE_ATOMIC.
pub const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
/// The rights that a region may have: local write, remote write, read and atomic, windows, offsets,
/// FLUSH for visibility, and whatever is optional.
pub const ACCESS_SERVED: c_int = 0x3ff0_013f;

/// IBV_QP_STATE: the attribute mask bit of the state.
pub const QP_STATE: c_int = 1;
/// IBV_QP_AV: that of the path to the peer.
pub const QP_AV: c_int = 1 << 7;
/// IBV_QPS_RESET.
pub const QPS_RESET: u32 = 0;
/// IBV_QPS_RTS.
pub const QPS_RTS: u32 = 3;

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: Opaque,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: Opaque,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}

/// `struct ibv_qp_init_attr_ex`: the first members are those of [`QpInitAttr`], without its
/// padding at the end.
#[repr(C)]
pub struct QpInitAttrEx {
    pub qp_context: Opaque,
    pub send_cq: *mut IbvCq,
    pub recv_cq: *mut IbvCq,
    pub srq: Opaque,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut IbvPd,
    pub xrcd: Opaque,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: Opaque,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

/// IBV_QP_INIT_ATTR_PD.
pub const INIT_ATTR_PD: u32 = 1 << 0;
/// IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.
pub const INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
/// IBV_QP_INIT_ATTR_CREATE_FLAGS.
pub const INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AhAttr {
    pub dgid: [u64; 2],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr` up to the last member that is looked at.
#[repr(C)]
pub struct QpAttr {
    pub qp_state: u32,
    _others: [u32; 8],
    _cap: QpCap,
    pub ah_attr: AhAttr,
}

/// `struct ibv_send_wr`. The union `wr` is its words: see [`IbvSendWr::rdma`] and its neighbours.
/// Of the others only `bind_mw` and the immediate data are here, where the key to be invalidated
/// stands too.
#[repr(C)]
pub struct IbvSendWr {
    pub wr_id: u64,
    pub next: *mut IbvSendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    pub imm_data: u32,
    pub wr: [u64; 4],
    pub _xrc: u64,
    pub mw: *mut IbvMw,
    pub mw_rkey: u32,
    pub bind_info: MwBindInfo,
}

impl IbvSendWr {
    /// `wr.rdma`: remote address and key.
    pub fn rdma(&self) -> (u64, u32) {
        let [addr, key, ..] = self.wr;
        (addr, first_half(key))
    }

    /// `wr.atomic`: remote address and key, and the operands.
    pub fn atomic(&self) -> (u64, u32, Atomic) {
        let [addr, compare_add, swap, key] = self.wr;
        (addr, first_half(key), Atomic { compare_add, swap })
    }

    /// `wr.ud`: number of the destination's queue pair, and its Q_Key.
    pub fn datagram(&self) -> (u32, u32) {
        let [_, destination, ..] = self.wr;
        let [qpn, qkey]: [u32; 2] = zerocopy::transmute!(destination);
        (qpn, qkey)
    }

    /// `wr.ud.ah`, a pointer.
    pub fn address_handle(&self) -> u64 {
        let [ah, ..] = self.wr;
        ah
    }
}

/// The member of four bytes that begins a word.
fn first_half(word: u64) -> u32 {
    let [first, _]: [u32; 2] = zerocopy::transmute!(word);
    first
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct IbvRecvWr {
    pub wr_id: u64,
    pub next: *mut IbvRecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IbvWc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// A request of a write command: its header and `response` pointer, which libibverbs fills in, the
/// core's part, and ours. `CORE` counts the words of 8 bytes before ours.
#[repr(C)]
pub struct Request<const CORE: usize, T> {
    pub core: [u64; CORE],
    pub driver: T,
}

/// A response: `CORE` words of 4 bytes from the core, then ours.
///
/// The alignment is that of the C structures, which have 8-byte members or are read as such.
#[repr(C, align(8))]
pub struct Response<const CORE: usize, T> {
    pub core: [u32; CORE],
    pub driver: T,
}

/// `struct ib_uverbs_create_ah_resp`, which is of 4 bytes, and ours.
#[repr(C)]
pub struct CreateAhResp {
    pub core: [u32; 1],
    pub driver: udata::CreateAhResp,
}

/// `struct ibv_get_context` and ours.
pub type GetContext = Request<2, udata::AllocUcontextReq>;
/// `struct ib_uverbs_get_context_resp` and ours.
pub type GetContextResp = Response<2, udata::AllocUcontextResp>;
/// `struct ib_uverbs_create_cq_resp` and ours.
pub type CreateCqResp = Response<2, udata::CreateCqResp>;
/// `struct ib_uverbs_ex_create_cq_resp` and ours.
pub type CreateCqExResp = Response<4, udata::CreateCqResp>;
/// `struct ib_uverbs_resize_cq_resp`, which is as long as that of creation, and ours.
pub type ResizeCqResp = Response<2, udata::CreateCqResp>;
/// `struct ibv_resize_cq`.
pub type ResizeCq = [u64; 3];
/// `struct ibv_modify_cq`.
pub type ModifyCq = [u64; 5];
/// `struct ib_uverbs_create_qp_resp` and ours.
pub type CreateQpResp = Response<8, udata::CreateQpResp>;
/// `struct ib_uverbs_create_srq_resp` and ours.
pub type CreateSrqResp = Response<4, udata::CreateSrqResp>;
/// `struct ibv_create_srq`.
pub type CreateSrq = [u64; 5];
/// `struct ibv_modify_srq`.
pub type ModifySrq = [u64; 3];
/// `struct ibv_query_srq`.
pub type QuerySrq = [u64; 3];
/// `struct ib_uverbs_alloc_pd_resp`.
pub type AllocPdResp = [u32; 1];
/// `struct ib_uverbs_reg_mr_resp`.
pub type RegMrResp = [u32; 3];
/// `struct ibv_alloc_pd`.
pub type AllocPd = [u64; 2];
/// `struct ibv_reg_mr`.
pub type RegMr = [u64; 6];
/// `struct ibv_rereg_mr`.
pub type ReregMr = [u64; 7];
/// `struct ib_uverbs_rereg_mr_resp`.
pub type ReregMrResp = [u32; 2];
/// `struct ibv_alloc_mw`.
pub type AllocMw = [u64; 3];
/// `struct ib_uverbs_alloc_mw_resp`.
pub type AllocMwResp = [u32; 2];
/// `struct ibv_create_qp`.
pub type CreateQp = [u64; 8];
/// `struct ibv_modify_qp`.
pub type ModifyQp = [u64; 15];
/// `struct ibv_query_qp`.
pub type QueryQp = [u64; 3];
/// `struct ibv_query_port`.
pub type QueryPort = [u64; 3];
/// `struct ib_uverbs_ex_query_device_resp`: the first word is the firmware version.
pub type QueryDeviceExResp = [u64; 38];

const _: () = {
    assert!(size_of::<Sge>() == 16 && offset_of!(Sge, length) == 8 && offset_of!(Sge, lkey) == 12);
    assert!(size_of::<GetContext>() == 24 && offset_of!(GetContext, driver) == 16);
    assert!(size_of::<GetContextResp>() == 32 && offset_of!(GetContextResp, driver) == 8);
    assert!(size_of::<CreateAhResp>() == 12 && offset_of!(CreateAhResp, driver) == 4);
    assert!(size_of::<CreateCqResp>() == 32 && offset_of!(CreateCqResp, driver) == 8);
    assert!(size_of::<CreateCqExResp>() == 40 && offset_of!(CreateCqExResp, driver) == 16);
    assert!(size_of::<CreateSrqResp>() == 40 && offset_of!(CreateSrqResp, driver) == 16);
    assert!(size_of::<CreateQpResp>() == 80 && offset_of!(CreateQpResp, driver) == 32);
    assert!(size_of::<IbvSendWr>() == 128 && offset_of!(IbvSendWr, wr) == 40);
    assert!(size_of::<IbvRecvWr>() == 32);
    assert!(size_of::<IbvWc>() == 48 && offset_of!(IbvWc, imm_data) == 24);
    assert!(offset_of!(IbvWc, slid) == 42);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, sq_sig_all) == 56);
    assert!(size_of::<QpInitAttrEx>() == 136 && offset_of!(QpInitAttrEx, comp_mask) == 60);
    assert!(offset_of!(QpInitAttrEx, send_ops_flags) == 128);
    assert!(size_of::<CqInitAttrEx>() == 56 && offset_of!(CqInitAttrEx, wc_flags) == 32);
    assert!(size_of::<IbvPd>() == 16 && size_of::<IbvAh>() == 24);
    assert!(size_of::<ValuesEx>() == 24 && offset_of!(ValuesEx, raw_clock) == 8);
    assert!(size_of::<IbvMr>() == 48 && size_of::<VerbsMr>() == 56);
    assert!(size_of::<VerbsDevice>() == 712 && size_of::<VerbsDeviceOps>() == 72);
    assert!(size_of::<VerbsMatchEnt>() == 24 && offset_of!(VerbsMatchEnt, kind) == 20);
    assert!(offset_of!(IbvContext, cmd_fd) == 264);
};

/// The sizes of the structures that hold a mutex are those of the C library of x86-64.
#[cfg(target_arch = "x86_64")]
const _: () = {
    assert!(size_of::<IbvContext>() == 328 && offset_of!(IbvContext, abi_compat) == 320);
    assert!(size_of::<IbvCq>() == 128 && size_of::<IbvCqEx>() == 288);
    assert!(offset_of!(IbvCqEx, start_poll) == 144);
    assert!(size_of::<IbvSrq>() == 128 && size_of::<SrqInitAttr>() == 24);
    assert!(size_of::<IbvQp>() == 160 && offset_of!(IbvQp, state) == 56);
    assert!(size_of::<IbvQpEx>() == 344 && size_of::<DataBuf>() == 16);
    assert!(QP_COMP_MASK[0] == 360 && size_of::<VerbsQp>() == 512);
};

/// The same for that of aarch64, whose mutex is 8 bytes longer.
#[cfg(target_arch = "aarch64")]
const _: () = {
    assert!(size_of::<IbvContext>() == 336 && offset_of!(IbvContext, abi_compat) == 328);
    assert!(size_of::<IbvCq>() == 136 && size_of::<IbvCqEx>() == 296);
    assert!(offset_of!(IbvCqEx, start_poll) == 152);
    assert!(size_of::<IbvSrq>() == 136 && size_of::<SrqInitAttr>() == 24);
    assert!(size_of::<IbvQp>() == 168 && offset_of!(IbvQp, state) == 56);
    assert!(size_of::<IbvQpEx>() == 352 && size_of::<DataBuf>() == 16);
    assert!(QP_COMP_MASK[0] == 368 && size_of::<VerbsQp>() == 520);
};

const _: () = assert!(QP_COMP_MASK[0] + 16 <= size_of::<VerbsQp>());
