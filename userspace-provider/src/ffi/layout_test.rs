// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Compares every layout and number that the provider shares with C with the headers of rdma-core.

#[path = "../../tests/common/sources.rs"]
mod sources;

use super::{cq_ex, layout::*};
use crate::{
    abi::{Abi, Op},
    doorbell,
};
use core::mem::{offset_of, size_of};
use ferroce_core::service::QpType;
use ferroce_core::uabi::{cqe, wqe, wqe::Sge};
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A C expression, and the value that the Rust side has for it.
type Check = (String, u64);

fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// The size of a structure, and offset and size of members: `rust` or `rust = c path`.
macro_rules! compare {
    ($list:expr, $rust:ty, $c:literal: $($member:ident $(= $path:literal)?),* $(,)?) => {
        $list.push((format!("sizeof({})", $c), size_of::<$rust>() as u64));
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut path = stringify!($member);
            $(path = $path;)?
            $list.push((format!("offsetof({}, {path})", $c), offset_of!($rust, $member) as u64));
            $list.push((
                format!("sizeof((({} *)0)->{path})", $c),
                field_size(|x: &$rust| &x.$member) as u64,
            ));
        )*
    };
}

/// The size of a command or response without what ours adds.
macro_rules! plain {
    ($list:expr, $($rust:ty = $c:literal),* $(,)?) => {
        $($list.push((format!("sizeof({})", $c), size_of::<$rust>() as u64));)*
    };
}

fn structures() -> Vec<Check> {
    let mut l = Vec::new();
    compare!(l, IbvContext, "struct ibv_context":
        device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat);
    compare!(l, VerbsMatchEnt, "struct verbs_match_ent":
        driver_data, driver_id = "u.driver_id", vendor, device, kind);
    compare!(l, VerbsDevice, "struct verbs_device":);
    compare!(l, VerbsDeviceOps, "struct verbs_device_ops":
        name, match_min_abi_version, match_max_abi_version, match_table, static_providers,
        match_device, alloc_context, import_context, alloc_device, uninit_device);
    compare!(l, IbvPd, "struct ibv_pd": context, handle);
    compare!(l, IbvTd, "struct ibv_td": context);
    compare!(l, TdInitAttr, "struct ibv_td_init_attr": comp_mask);
    compare!(l, ParentDomainInitAttr, "struct ibv_parent_domain_init_attr":
        pd, td, comp_mask, alloc, free, pd_context);
    compare!(l, IbvMw, "struct ibv_mw": context, pd, rkey, handle, mw_type = "type");
    compare!(l, MwBindInfo, "struct ibv_mw_bind_info": mr, addr, length, mw_access_flags);
    compare!(l, MwBind, "struct ibv_mw_bind": wr_id, send_flags, bind_info);
    compare!(l, IbvAh, "struct ibv_ah": context, pd, handle);
    compare!(l, IbvMr, "struct ibv_mr": context, pd, addr, length, handle, lkey, rkey);
    compare!(l, VerbsMr, "struct verbs_mr": mr = "ibv_mr", mr_type, access);
    compare!(l, IbvCq, "struct ibv_cq":
        context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
        async_events_completed);
    compare!(l, IbvCqEx, "struct ibv_cq_ex":
        comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err,
        read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl,
        read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info,
        read_completion_wallclock_ns);
    compare!(l, IbvCqEx, "struct verbs_cq": cq);
    compare!(l, PollCqAttr, "struct ibv_poll_cq_attr": comp_mask);
    compare!(l, CqInitAttrEx, "struct ibv_cq_init_attr_ex":
        cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain);
    compare!(l, IbvSrq, "struct ibv_srq":
        context, srq_context, pd, handle, mutex, cond, events_completed);
    compare!(l, SrqAttr, "struct ibv_srq_attr": max_wr, max_sge, srq_limit);
    compare!(l, SrqInitAttr, "struct ibv_srq_init_attr": srq_context, attr);
    compare!(l, ValuesEx, "struct ibv_values_ex": comp_mask, raw_clock);
    compare!(l, IbvQp, "struct ibv_qp":
        context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
        cond, events_completed);
    compare!(l, DataBuf, "struct ibv_data_buf": addr, length);
    // Its end is the mark of the oldest release.
    for (member, at) in [
        ("comp_mask", offset_of!(IbvQpEx, comp_mask)),
        ("wr_id", offset_of!(IbvQpEx, wr_id)),
        ("wr_flags", offset_of!(IbvQpEx, wr_flags)),
        ("wr_atomic_cmp_swp", offset_of!(IbvQpEx, wr_atomic_cmp_swp)),
        (
            "wr_atomic_fetch_add",
            offset_of!(IbvQpEx, wr_atomic_fetch_add),
        ),
        ("wr_bind_mw", offset_of!(IbvQpEx, wr_bind_mw)),
        ("wr_local_inv", offset_of!(IbvQpEx, wr_local_inv)),
        ("wr_rdma_read", offset_of!(IbvQpEx, wr_rdma_read)),
        ("wr_rdma_write", offset_of!(IbvQpEx, wr_rdma_write)),
        ("wr_rdma_write_imm", offset_of!(IbvQpEx, wr_rdma_write_imm)),
        ("wr_send", offset_of!(IbvQpEx, wr_send)),
        ("wr_send_imm", offset_of!(IbvQpEx, wr_send_imm)),
        ("wr_send_inv", offset_of!(IbvQpEx, wr_send_inv)),
        ("wr_send_tso", offset_of!(IbvQpEx, wr_send_tso)),
        ("wr_set_ud_addr", offset_of!(IbvQpEx, wr_set_ud_addr)),
        ("wr_set_xrc_srqn", offset_of!(IbvQpEx, wr_set_xrc_srqn)),
        (
            "wr_set_inline_data",
            offset_of!(IbvQpEx, wr_set_inline_data),
        ),
        (
            "wr_set_inline_data_list",
            offset_of!(IbvQpEx, wr_set_inline_data_list),
        ),
        ("wr_set_sge", offset_of!(IbvQpEx, wr_set_sge)),
        ("wr_set_sge_list", offset_of!(IbvQpEx, wr_set_sge_list)),
        ("wr_start", offset_of!(IbvQpEx, wr_start)),
        ("wr_complete", offset_of!(IbvQpEx, wr_complete)),
        ("wr_abort", offset_of!(IbvQpEx, wr_abort)),
    ] {
        l.push((format!("offsetof(struct ibv_qp_ex, {member})"), at as u64));
    }
    l.push(("offsetof(struct verbs_qp, qp)".into(), 0));
    compare!(l, QpCap, "struct ibv_qp_cap":
        max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
    compare!(l, QpInitAttr, "struct ibv_qp_init_attr":
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    compare!(l, QpInitAttrEx, "struct ibv_qp_init_attr_ex":
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
        create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags);
    compare!(l, IbvSendWr, "struct ibv_send_wr":
        wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data,
        imm_data = "invalidate_rkey", wr,
        mw = "bind_mw.mw", mw_rkey = "bind_mw.rkey", bind_info = "bind_mw.bind_info");
    // Where the methods look for the members of that union.
    for (member, at) in [
        ("rdma.remote_addr", 0),
        ("rdma.rkey", 8),
        ("atomic.remote_addr", 0),
        ("atomic.compare_add", 8),
        ("atomic.swap", 16),
        ("atomic.rkey", 24),
    ] {
        let path = format!("offsetof(struct ibv_send_wr, wr.{member})");
        l.push((path, (offset_of!(IbvSendWr, wr) + at) as u64));
    }
    compare!(l, IbvRecvWr, "struct ibv_recv_wr": wr_id, next, sg_list, num_sge);
    compare!(l, Sge, "struct ibv_sge": addr, length, lkey);
    compare!(l, IbvWc, "struct ibv_wc":
        wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
        pkey_index, slid, sl, dlid_path_bits);
    compare!(l, AhAttr, "struct ibv_ah_attr":
        dgid = "grh.dgid", flow_label = "grh.flow_label", sgid_index = "grh.sgid_index",
        hop_limit = "grh.hop_limit", traffic_class = "grh.traffic_class", dlid, sl, src_path_bits,
        static_rate, is_global, port_num);
    l.push(("offsetof(struct ibv_qp_attr, qp_state)".into(), 0));
    l.push((
        "offsetof(struct ibv_qp_attr, ah_attr)".into(),
        offset_of!(QpAttr, ah_attr) as u64,
    ));
    l.push((
        "offsetof(struct ibv_device_attr_ex, orig_attr.fw_ver)".into(),
        0,
    ));
    l.push((
        "sizeof(((struct ibv_device_attr *)0)->fw_ver)".into(),
        super::context::FW_VER_LEN as u64,
    ));
    l
}

/// A C expression, and what its value must be like.
type Bound = (&'static str, fn(u64) -> bool);

const BOUNDS: [Bound; 2] = [
    // Ours is longer, so that it holds the structure of any release.
    ("sizeof(struct verbs_qp)", |size| {
        size <= size_of::<VerbsQp>() as u64
    }),
    ("offsetof(struct verbs_qp, comp_mask)", |at| {
        QP_COMP_MASK.contains(&(at as usize))
    }),
];

fn commands() -> Vec<Check> {
    let mut l = Vec::new();
    plain!(
        l,
        AllocPd = "struct ibv_alloc_pd",
        AllocPdResp = "struct ib_uverbs_alloc_pd_resp",
        RegMr = "struct ibv_reg_mr",
        RegMrResp = "struct ib_uverbs_reg_mr_resp",
        ReregMr = "struct ibv_rereg_mr",
        ReregMrResp = "struct ib_uverbs_rereg_mr_resp",
        AllocMw = "struct ibv_alloc_mw",
        AllocMwResp = "struct ib_uverbs_alloc_mw_resp",
        ResizeCq = "struct ibv_resize_cq",
        ModifyCq = "struct ibv_modify_cq",
        CreateSrq = "struct ibv_create_srq",
        ModifySrq = "struct ibv_modify_srq",
        QuerySrq = "struct ibv_query_srq",
        CreateQp = "struct ibv_create_qp",
        ModifyQp = "struct ibv_modify_qp",
        QueryQp = "struct ibv_query_qp",
        QueryPort = "struct ibv_query_port",
        QueryDeviceExResp = "struct ib_uverbs_ex_query_device_resp",
    );
    let driver = [
        ("struct ibv_get_context", offset_of!(GetContext, driver)),
        (
            "struct ib_uverbs_get_context_resp",
            offset_of!(GetContextResp, driver),
        ),
        (
            "struct ib_uverbs_create_cq_resp",
            offset_of!(CreateCqResp, driver),
        ),
        (
            "struct ib_uverbs_ex_create_cq_resp",
            offset_of!(CreateCqExResp, driver),
        ),
        (
            "struct ib_uverbs_resize_cq_resp",
            offset_of!(ResizeCqResp, driver),
        ),
        (
            "struct ib_uverbs_create_srq_resp",
            offset_of!(CreateSrqResp, driver),
        ),
        (
            "struct ib_uverbs_create_qp_resp",
            offset_of!(CreateQpResp, driver),
        ),
        (
            "struct ib_uverbs_create_ah_resp",
            offset_of!(CreateAhResp, driver),
        ),
    ];
    l.extend(driver.map(|(c, at)| (format!("sizeof({c})"), at as u64)));
    l.push((
        "offsetof(struct ib_uverbs_ex_query_device_resp, base.fw_ver)".into(),
        0,
    ));
    for (c, at) in doorbell::OFFSETS {
        for command in ["struct ibv_post_send", "struct ibv_post_recv"] {
            l.push((format!("offsetof({command}, {c})"), at as u64));
        }
    }
    l
}

fn numbers() -> Vec<Check> {
    let list: &[(&str, u64)] = &[
        ("VERBS_MATCH_DRIVER_ID", MATCH_DRIVER_ID.into()),
        ("VERBS_MATCH_SENTINEL", 0),
        ("IBV_MR_TYPE_NULL_MR", MR_TYPE_NULL.into()),
        (
            "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS",
            PARENT_ALLOCATORS.into(),
        ),
        (
            "IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT",
            PARENT_CONTEXT.into(),
        ),
        ("IBV_QPT_RC", QpType::Rc as u64),
        ("IBV_QPT_UC", QpType::Uc as u64),
        ("IBV_QPT_UD", QpType::Ud as u64),
        ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as u64),
        ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE as u64),
        ("IBV_ACCESS_REMOTE_ATOMIC", ACCESS_REMOTE_ATOMIC as u64),
        ("IBV_QP_STATE", QP_STATE as u64),
        ("IBV_QP_AV", QP_AV as u64),
        ("IBV_QPS_RESET", QPS_RESET.into()),
        ("IBV_QPS_RTS", QPS_RTS.into()),
        ("IBV_QP_INIT_ATTR_PD", INIT_ATTR_PD.into()),
        (
            "IBV_QP_INIT_ATTR_CREATE_FLAGS",
            INIT_ATTR_CREATE_FLAGS.into(),
        ),
        (
            "IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP \
             | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK",
            cq_ex::WC_FLAGS,
        ),
        ("IBV_SRQ_MAX_WR", SRQ_MAX_WR as u64),
        ("IBV_VALUES_MASK_RAW_CLOCK", VALUES_RAW_CLOCK.into()),
        ("IBV_CQ_INIT_ATTR_MASK_FLAGS", cq_ex::MASK_FLAGS.into()),
        ("IBV_CQ_INIT_ATTR_MASK_PD", cq_ex::MASK_PD.into()),
        (
            "IBV_CREATE_CQ_ATTR_SINGLE_THREADED",
            cq_ex::SINGLE_THREADED.into(),
        ),
        (
            "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN",
            cq_ex::IGNORE_OVERRUN.into(),
        ),
        ("IB_USER_VERBS_CMD_POST_SEND", doorbell::POST_SEND.into()),
        ("IB_USER_VERBS_CMD_POST_RECV", doorbell::POST_RECV.into()),
        (
            "sizeof(struct ib_uverbs_send_wr)",
            doorbell::SEND_WR_SIZE.into(),
        ),
        (
            "sizeof(struct ib_uverbs_recv_wr)",
            doorbell::RECV_WR_SIZE.into(),
        ),
        ("VERBS_QP_EX", QP_EX.into()),
        ("IBV_WR_RDMA_WRITE", wqe::OP_RDMA_WRITE.into()),
        (
            "IBV_WR_RDMA_WRITE_WITH_IMM",
            wqe::OP_RDMA_WRITE_WITH_IMM.into(),
        ),
        ("IBV_WR_SEND", wqe::OP_SEND.into()),
        ("IBV_WR_SEND_WITH_IMM", wqe::OP_SEND_WITH_IMM.into()),
        ("IBV_WR_RDMA_READ", wqe::OP_RDMA_READ.into()),
        (
            "IBV_WR_ATOMIC_CMP_AND_SWP",
            wqe::OP_ATOMIC_CMP_AND_SWP.into(),
        ),
        (
            "IBV_WR_ATOMIC_FETCH_AND_ADD",
            wqe::OP_ATOMIC_FETCH_AND_ADD.into(),
        ),
        ("IBV_WR_LOCAL_INV", wqe::OP_LOCAL_INV.into()),
        ("IBV_WR_BIND_MW", wqe::OP_BIND_MW.into()),
        ("IBV_WR_SEND_WITH_INV", wqe::OP_SEND_WITH_INV.into()),
        ("IB_UVERBS_WR_LOCAL_INV", wqe::OP_LOCAL_INV.into()),
        ("IBV_SEND_IP_CSUM", wqe::SEND_IP_CSUM.into()),
        ("IBV_WC_WITH_INV", cqe::WC_WITH_INV.into()),
        ("IBV_WC_COMP_SWAP", cqe::WC_COMP_SWAP.into()),
        ("IBV_WC_FETCH_ADD", cqe::WC_FETCH_ADD.into()),
        ("IBV_WC_BIND_MW", cqe::WC_BIND_MW.into()),
        ("IBV_WC_LOCAL_INV", cqe::WC_LOCAL_INV.into()),
        ("IBV_SEND_FENCE", wqe::SEND_FENCE.into()),
        ("IBV_SEND_SIGNALED", wqe::SEND_SIGNALED.into()),
        ("IBV_SEND_SOLICITED", wqe::SEND_SOLICITED.into()),
        ("IBV_SEND_INLINE", wqe::SEND_INLINE.into()),
        ("IBV_WC_GRH", cqe::WC_GRH.into()),
        ("IBV_WC_WITH_IMM", cqe::WC_WITH_IMM.into()),
        ("IBV_WC_SEND", cqe::WC_SEND.into()),
        ("IBV_WC_RDMA_WRITE", cqe::WC_RDMA_WRITE.into()),
        ("IBV_WC_RDMA_READ", cqe::WC_RDMA_READ.into()),
        ("IBV_WC_RECV", cqe::WC_RECV.into()),
        (
            "IBV_WC_RECV_RDMA_WITH_IMM",
            cqe::WC_RECV_RDMA_WITH_IMM.into(),
        ),
    ];
    list.iter().map(|&(c, v)| (c.to_string(), v)).collect()
}

/// Numbers that have their names since rdma-core 44 and 45.
fn newer_numbers() -> Vec<Check> {
    let list: &[(&str, u64)] = &[
        ("IBV_WR_FLUSH", wqe::OP_FLUSH.into()),
        ("IBV_WR_ATOMIC_WRITE", wqe::OP_ATOMIC_WRITE.into()),
        ("IB_UVERBS_WR_FLUSH", wqe::OP_FLUSH.into()),
        ("IB_UVERBS_WR_ATOMIC_WRITE", wqe::OP_ATOMIC_WRITE.into()),
        ("IBV_WC_FLUSH", cqe::WC_FLUSH.into()),
        ("IBV_WC_ATOMIC_WRITE", cqe::WC_ATOMIC_WRITE.into()),
    ];
    list.iter().map(|&(c, v)| (c.to_string(), v)).collect()
}

fn operations(abi: Abi) -> Vec<Check> {
    let mut l: Vec<Check> = Op::ALL
        .iter()
        .map(|&(op, member)| {
            let c = format!("offsetof(struct verbs_context_ops, {member}) / sizeof(void *)");
            (c, abi.slot(op) as u64)
        })
        .collect();
    l.push((
        "sizeof(struct verbs_context_ops) / sizeof(void *)".into(),
        abi.ops() as u64,
    ));
    l.push((
        "offsetof(struct verbs_context, context)".into(),
        abi.context_offset() as u64,
    ));
    l.push((
        // `sz`, by which the length is checked, stands before the last member.
        "offsetof(struct verbs_context, sz)".into(),
        (abi.context_offset() - size_of::<usize>()) as u64,
    ));
    l.push((
        "sizeof(struct verbs_context)".into(),
        (abi.context_offset() + size_of::<IbvContext>()) as u64,
    ));
    l
}

/// All that is compared with a release of this private ABI; one that is `older` lacks some names.
fn checks(abi: Abi, older: bool) -> Vec<Check> {
    let mut checks = structures();
    checks.extend(commands());
    checks.extend(numbers());
    if !older {
        checks.extend(newer_numbers());
    }
    checks.extend(operations(abi));
    assert!(checks.len() > 250, "only {} checks", checks.len());
    checks
}

/// The ABI of a release.
fn abi_of(number: u32, release: u32) -> Abi {
    // Of two with one number the first is the newer: it begins with the release of its name.
    let fits = |abi: &Abi| abi.number() == number && (*abi != Abi::V62 || release >= 62);
    let abi = Abi::ALL.into_iter().find(fits);
    abi.expect("a source of a known ABI")
}

/// A program that prints what C has for each, and for [`BOUNDS`].
fn program(checks: &[Check]) -> String {
    let mut program = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/driver.h>\n\
         int main(void)\n{\n",
    );
    let exact = checks.iter().map(|(c, _)| c.as_str());
    for c in exact.chain(BOUNDS.map(|(c, _)| c)) {
        writeln!(program, "\tprintf(\"%llu\\n\", (unsigned long long)({c}));")
            .expect("a string takes all");
    }
    program.push_str("\treturn 0;\n}\n");
    program
}

/// Runs the program that was made of these.
fn compare(abi: Abi, checks: &[Check], binary: &Path) {
    let output = sources::run(&mut Command::new(binary));
    let theirs: Vec<u64> = output
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(theirs.len(), checks.len() + BOUNDS.len());
    let (exact, bounded) = theirs.split_at(checks.len());
    let wrong: Vec<_> = checks
        .iter()
        .zip(exact)
        .filter(|((_, ours), theirs)| ours != *theirs)
        .collect();
    assert!(wrong.is_empty(), "private ABI {abi:?}: {wrong:#?}");
    for ((c, fits), theirs) in BOUNDS.iter().zip(bounded) {
        assert!(fits(*theirs), "private ABI {abi:?}: {c} is {theirs}");
    }
}

/// Where the programs of this test are kept for another processor, for which they are compiled
/// once more: `layout-34.c`, its headers in `include-34`, and so on.
fn kept() -> Option<PathBuf> {
    std::env::var_os("FERROCE_LAYOUTS").map(PathBuf::from)
}

#[test]
fn layouts_and_numbers_are_those_of_rdma_core() {
    for source in sources::sources() {
        let abi = abi_of(source.abi, source.release);
        let checks = checks(abi, source.older());
        let scratch = sources::scratch(&format!("layout-{}", source.release));
        let folder = kept().unwrap_or_else(|| scratch.clone());
        let file = folder.join(format!("layout-{}.c", source.abi));
        std::fs::write(&file, program(&checks)).expect("the folder is writable");
        let binary = source.compile(&folder, "layout", &file, &[]);
        compare(abi, &checks, &binary);
        let _ = std::fs::remove_dir_all(scratch);
    }
}

/// What programs of x86-64 said that were compiled with headers of releases which no Debian has:
/// `private ABI | release | expression | value`, without what is the same in rdma-core 65.0.
#[cfg(target_arch = "x86_64")]
const RECORD: &str = include_str!("../../tests/common/layouts.txt");

/// Checks of an ABI that 65.0 has not, or with another value.
#[cfg(target_arch = "x86_64")]
fn own_checks(abi: Abi) -> Vec<Check> {
    let newest = checks(Abi::V65, false);
    let own = checks(abi, false).into_iter();
    own.filter(|check| !newest.contains(check)).collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn layouts_are_those_on_record() {
    let mut compared = 0;
    for abi in [Abi::V57, Abi::V59, Abi::V62, Abi::V64] {
        let theirs: Vec<Check> = RECORD
            .lines()
            .filter_map(|line| {
                let mut words = line.split(" | ");
                let number: u32 = words.next()?.parse().ok()?;
                let release: u32 = words.next()?.parse().ok()?;
                let check = (words.next()?.to_string(), words.next()?.parse().ok()?);
                (abi_of(number, release) == abi).then_some(check)
            })
            .collect();
        assert_eq!(own_checks(abi), theirs, "private ABI {abi:?}");
        compared += theirs.len();
    }
    assert!(compared > 100, "only {compared} values on record");
}

/// Prints the record, by what the programs say and not by what is expected.
#[test]
#[ignore = "FERROCE_RDMA_CORE_MORE names sources of the private ABIs 57, 59 (both) and 64"]
fn print_the_record() {
    let newest = checks(Abi::V65, false);
    for source in sources::sources() {
        let abi = abi_of(source.abi, source.release);
        if matches!(abi, Abi::V34 | Abi::V65) {
            continue;
        }
        let checks = checks(abi, false);
        let folder = sources::scratch(&format!("record-{}", source.release));
        let file = folder.join("layout.c");
        std::fs::write(&file, program(&checks)).expect("the folder is writable");
        let said = sources::run(&mut Command::new(source.compile(
            &folder,
            "layout",
            &file,
            &[],
        )));
        for ((c, _), value) in checks.iter().zip(said.lines()) {
            let value: u64 = value.parse().expect("a number");
            if !newest.contains(&(c.clone(), value)) {
                println!("{} | {} | {c} | {value}", source.abi, source.release);
            }
        }
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[test]
#[ignore = "asks programs that were compiled for this processor elsewhere, FERROCE_LAYOUTS"]
fn layouts_and_numbers_are_those_of_programs_made_elsewhere() {
    let folder = kept().expect("FERROCE_LAYOUTS names their folder");
    let mut compared = 0;
    for abi in [Abi::V34, Abi::V65] {
        let binary = folder.join(format!("layout-{}", abi.number()));
        if binary.exists() {
            compare(abi, &checks(abi, false), &binary);
            compared += 1;
        }
    }
    assert!(compared > 0, "no program in {}", folder.display());
}
