// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Compares `rust/core/uabi/ferroce-abi.h`, for providers in C, with the contract itself.

#[allow(dead_code, reason = "this test needs no source of rdma-core")]
#[path = "common/sources.rs"]
mod sources;

use core::mem::{offset_of, size_of};
use ferroce_core::uabi::{cqe, cqe::Cqe, ring, ring::Control, udata, wqe, wqe::*};
use ferroce_core::uabi::{ABI_VERSION, DRIVER_ID, OLDEST_ABI_VERSION};
use std::{collections::BTreeSet, fmt::Write, path::Path, process::Command};
use zerocopy::IntoBytes;

/// A C expression, and the value that the contract has for it.
type Check = (String, u64);

/// The size of a structure, and the offsets of its members.
macro_rules! compare {
    ($list:expr, $rust:ty, $c:literal: $($member:ident),* $(,)?) => {
        $list.push((concat!("sizeof(struct ferroce_", $c, ")").into(), size_of::<$rust>() as u64));
        $($list.push((
            concat!("offsetof(struct ferroce_", $c, ", ", stringify!($member), ")").into(),
            offset_of!($rust, $member) as u64,
        ));)*
    };
}

fn structures() -> Vec<Check> {
    let mut l = Vec::new();
    compare!(l, udata::RingMap, "ring_map": offset, length, entries, stride);
    compare!(l, udata::AllocUcontextReq, "alloc_ucontext_req": features);
    compare!(l, udata::AllocUcontextResp, "alloc_ucontext_resp":
        signature, features, null_lkey, clock);
    compare!(l, udata::CreateAhResp, "create_ah_resp": number, reserved);
    compare!(l, udata::CreateCqResp, "create_cq_resp": cq);
    compare!(l, udata::CreateSrqResp, "create_srq_resp": srq);
    compare!(l, udata::CreateQpResp, "create_qp_resp": sq, rq);
    compare!(l, Control, "control": producer, consumer, flags, successor, arm);
    compare!(l, SendWqe, "send_wqe": wr_id, opcode, flags, count);
    compare!(l, RecvWqe, "recv_wqe": wr_id, num_sge, reserved);
    compare!(l, Sge, "sge": addr, length, lkey);
    compare!(l, Cqe, "cqe":
        wr_id, status, opcode, byte_len, imm, qp_num, src_qp, flags, vendor_err, timestamp,
        pkey_index, vlan, sl, network_hdr, smac, reserved);
    l
}

/// Where something stands in a request, and how long it is: what setting it to ones changes.
fn part(set: impl Fn(&mut SendWqe)) -> (u64, u64) {
    let mut wqe = SendWqe::default();
    set(&mut wqe);
    let ones = |(_, byte): &(usize, &u8)| **byte == 0xff;
    let mut changed = wqe.as_bytes().iter().enumerate().filter(ones);
    let first = changed.next().expect("something is set").0;
    (first as u64, 1 + changed.count() as u64)
}

/// The members of a request that have no names of their own in Rust.
fn parts() -> Vec<Check> {
    let atomic =
        |compare_add, swap| move |w: &mut SendWqe| w.set_atomic(Atomic { compare_add, swap });
    let flush = |length, placement, selectivity| {
        move |w: &mut SendWqe| {
            w.set_flush(Flush {
                length,
                placement,
                selectivity,
                ..Flush::default()
            });
        }
    };
    let bind = |length, lkey, access| {
        move |w: &mut SendWqe| {
            w.set_bind(Bind {
                length,
                lkey,
                access,
            });
        }
    };
    let found = [
        ("srqn", part(|w| w.set_srqn(!0))),
        ("remote_addr", part(|w| w.set_remote(!0, 0))),
        ("rkey", part(|w| w.set_remote(0, !0))),
        ("destination.qpn", part(|w| w.set_destination(0, !0, 0))),
        ("destination.qkey", part(|w| w.set_destination(0, 0, !0))),
        ("ah", part(|w| w.set_destination(!0, 0, 0))),
        ("imm", part(|w| w.set_imm(!0))),
        ("old_key", part(|w| w.set_old_key(!0))),
        ("operands", part(atomic(!0, !0))),
        ("atomic.compare_add", part(atomic(!0, 0))),
        ("atomic.swap", part(atomic(0, !0))),
        ("flush.length", part(flush(!0, 0, 0))),
        ("flush.placement", part(flush(0, !0, 0))),
        ("flush.selectivity", part(flush(0, 0, !0))),
        ("bind.length", part(bind(!0, 0, 0))),
        ("bind.lkey", part(bind(0, !0, 0))),
        ("bind.access", part(bind(0, 0, !0))),
        ("atomic_write", part(|w| w.set_atomic_write([!0; 8]))),
    ];
    let both = |(member, (at, len))| {
        let this = "struct ferroce_send_wqe";
        [
            (format!("offsetof({this}, {member})"), at),
            (format!("sizeof((({this} *)0)->{member})"), len),
        ]
    };
    found.into_iter().flat_map(both).collect()
}

fn numbers() -> Vec<Check> {
    let list: &[(&str, u64)] = &[
        ("ABI_VERSION", ABI_VERSION.into()),
        ("OLDEST_ABI_VERSION", OLDEST_ABI_VERSION.into()),
        ("DRIVER_ID", DRIVER_ID.into()),
        ("NULL_LKEY", udata::NULL_LKEY.into()),
        ("CLOCK", udata::CLOCK.into()),
        ("CONTROL_SIZE", ring::CONTROL_SIZE as u64),
        ("SLOT_ALIGN", ring::SLOT_ALIGN as u64),
        ("FLAG_NEED_DOORBELL", ring::FLAG_NEED_DOORBELL.into()),
        ("ARM_NONE", ring::ARM_NONE.into()),
        ("ARM_SOLICITED", ring::ARM_SOLICITED.into()),
        ("ARM_NEXT", ring::ARM_NEXT.into()),
        ("SEND_ALL", wqe::SEND_ALL.into()),
        ("OP_KERNEL", wqe::OP_KERNEL.into()),
        ("MAX_SGE", wqe::MAX_SGE.into()),
        ("MAX_INLINE", wqe::MAX_INLINE.into()),
        ("CQE_STRIDE", cqe::CQE_STRIDE.into()),
        ("WC_WITH_VLAN", cqe::WC_WITH_VLAN.into()),
        ("WC_WITH_SMAC", cqe::WC_WITH_SMAC.into()),
        ("WC_WITH_NETWORK_HDR", cqe::WC_WITH_NETWORK_HDR.into()),
    ];
    let named = |&(name, value): &(&str, u64)| (format!("FERROCE_{name}"), value);
    list.iter().map(named).collect()
}

/// Names that the header defines and no check has: something was added to it alone.
fn unchecked(header: &str, checks: &[Check]) -> Vec<String> {
    let words = |text: &str| -> BTreeSet<String> {
        let is_name = |word: &&str| word.to_lowercase().starts_with("ferroce_");
        let split = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        split.filter(is_name).map(String::from).collect()
    };
    let mut known = BTreeSet::new();
    for (c, _) in checks {
        known.append(&mut words(c));
    }
    let other = ["FERROCE_ABI_H", "FERROCE_SIGNATURE"];
    let mut left = words(header);
    left.retain(|name| !known.contains(name) && !other.contains(&name.as_str()));
    left.into_iter().collect()
}

#[test]
fn the_c_header_is_the_contract() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rust/core/uabi/ferroce-abi.h");
    let checks = [structures(), parts(), numbers()].concat();
    let header = std::fs::read_to_string(&file).expect("the header is there");
    assert_eq!(unchecked(&header, &checks), Vec::<String>::new());
    let mut program = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"{}\"\nint main(void)\n{{\n",
        file.display()
    );
    for (c, _) in &checks {
        writeln!(program, "\tprintf(\"%llu\\n\", (unsigned long long)({c}));").expect("room");
    }
    program.push_str("\tputs(FERROCE_SIGNATURE);\n\treturn 0;\n}\n");
    let folder = sources::scratch("uabi");
    let (source, binary) = (folder.join("uabi.c"), folder.join("uabi"));
    std::fs::write(&source, program).expect("the folder is writable");
    sources::run(
        Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c11", "-o"])
            .args([&binary, &source]),
    );
    let said = sources::run(&mut Command::new(&binary));
    let _ = std::fs::remove_dir_all(folder);
    let mut lines = said.lines();
    let theirs = lines.by_ref().take(checks.len());
    let theirs: Vec<u64> = theirs.map(|line| line.parse().expect("a number")).collect();
    for ((c, ours), theirs) in checks.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{c}");
    }
    assert_eq!(
        lines.next().map(str::as_bytes),
        Some(udata::SIGNATURE.as_bytes())
    );
}
