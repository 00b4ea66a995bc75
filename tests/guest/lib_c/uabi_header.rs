// SPDX-License-Identifier: GPL-2.0

//! Prints `rust/core/uabi` as a C header: the layout of the rings, for scenarios that write them by hand.
//!
//! Fields are found by setting them, the private ones too, so that a layout is written down once.

use core::mem::{offset_of, size_of};
use ferroce_core::uabi::cqe::{self, Cqe, CQE_STRIDE};
use ferroce_core::uabi::ring::{CONTROL_SIZE, OFFSET_CONSUMER, OFFSET_PRODUCER};
use ferroce_core::uabi::wqe::{self, RecvWqe, SendWqe, Sge};
use ferroce_core::uabi::DRIVER_ID;
use zerocopy::IntoBytes;

/// What a request of the queues that the scenarios make may have: entries, or inline bytes.
const SGES: u32 = 4;
/// As much as there is room for in the slots.
const INLINE: u32 = 80;

/// The C type, name and place of a field.
type Field = (&'static str, &'static str, usize);

/// The place of what `set` sets to ones, and how much it is.
fn part(set: impl Fn(&mut SendWqe)) -> (usize, usize) {
    let mut wqe = SendWqe::default();
    set(&mut wqe);
    let bytes = wqe.as_bytes();
    let at = bytes
        .iter()
        .position(|b| *b != 0)
        .expect("something is set");
    let len = bytes.iter().filter(|b| **b == 0xff).count();
    assert!(bytes[at..at + len].iter().all(|b| *b == 0xff));
    (at, len)
}

/// A structure whose fields stand one behind the other.
fn structure(name: &str, size: usize, fields: &[Field]) {
    println!("\nstruct {name} {{");
    for (kind, field, _) in fields {
        println!("\t{kind} {field};");
    }
    println!("}};");
    check(name, size, fields);
}

/// That the compiler of the programs sees a structure as the module does.
fn check(name: &str, size: usize, fields: &[Field]) {
    println!("_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");");
    for (_, field, at) in fields {
        let field = field.split('[').next().unwrap_or(field);
        println!("_Static_assert(offsetof(struct {name}, {field}) == {at}, \"{name}.{field}\");");
    }
}

fn main() {
    println!("/* SPDX-License-Identifier: GPL-2.0 */");
    println!("/* Made from rust/core/uabi by tests/guest/lib_c/uabi_header.rs, whenever the programs are built. */");
    println!("#ifndef FERROCE_UABI_H\n#define FERROCE_UABI_H\n");
    println!("#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdint.h>\n\nenum {{");
    for (name, value) in [
        ("UABI_DRIVER_ID", DRIVER_ID as usize),
        ("UABI_CONTROL_SIZE", CONTROL_SIZE),
        ("UABI_PRODUCER", OFFSET_PRODUCER),
        ("UABI_CONSUMER", OFFSET_CONSUMER),
        ("UABI_CQE_STRIDE", CQE_STRIDE as usize),
        ("UABI_WC_WITH_VLAN", cqe::WC_WITH_VLAN as usize),
        ("UABI_WC_WITH_SMAC", cqe::WC_WITH_SMAC as usize),
        (
            "UABI_WC_WITH_NETWORK_HDR",
            cqe::WC_WITH_NETWORK_HDR as usize,
        ),
        ("UABI_NETWORK_IPV4", cqe::NETWORK_IPV4.into()),
        ("UABI_NETWORK_IPV6", cqe::NETWORK_IPV6.into()),
        ("UABI_OP_KERNEL", wqe::OP_KERNEL.into()),
        ("UABI_QUEUE_SGES", SGES as usize),
        ("UABI_QUEUE_INLINE", INLINE as usize),
        ("UABI_SEND_STRIDE", wqe::send_stride(SGES, INLINE) as usize),
        ("UABI_RECV_STRIDE", wqe::recv_stride(SGES) as usize),
    ] {
        println!("\t{name} = {value},");
    }
    println!("}};");

    // These numbers are those of libibverbs: programs use its names.
    for (ours, theirs) in [
        (wqe::OP_RDMA_WRITE, "IBV_WR_RDMA_WRITE"),
        (wqe::OP_RDMA_WRITE_WITH_IMM, "IBV_WR_RDMA_WRITE_WITH_IMM"),
        (wqe::OP_SEND, "IBV_WR_SEND"),
        (wqe::OP_SEND_WITH_IMM, "IBV_WR_SEND_WITH_IMM"),
        (wqe::OP_RDMA_READ, "IBV_WR_RDMA_READ"),
        (wqe::OP_ATOMIC_FETCH_AND_ADD, "IBV_WR_ATOMIC_FETCH_AND_ADD"),
        (wqe::SEND_FENCE, "IBV_SEND_FENCE"),
        (wqe::SEND_SIGNALED, "IBV_SEND_SIGNALED"),
        (wqe::SEND_SOLICITED, "IBV_SEND_SOLICITED"),
        (wqe::SEND_INLINE, "IBV_SEND_INLINE"),
    ] {
        println!("_Static_assert({theirs} == {ours}, \"{theirs}\");");
    }

    let parts = [
        ("uint32_t", "srqn", part(|w| w.set_srqn(!0))),
        ("uint64_t", "remote_addr", part(|w| w.set_remote(!0, 0))),
        ("uint32_t", "rkey", part(|w| w.set_remote(0, !0))),
        ("uint32_t", "imm", part(|w| w.set_imm(!0))),
    ];
    let mut fields: Vec<Field> = vec![
        ("uint64_t", "wr_id", offset_of!(SendWqe, wr_id)),
        ("uint8_t", "opcode", offset_of!(SendWqe, opcode)),
        ("uint8_t", "flags", offset_of!(SendWqe, flags)),
        ("uint16_t", "count", offset_of!(SendWqe, count)),
    ];
    for (kind, name, (at, len)) in parts {
        assert!(
            kind == format!("uint{}_t", 8 * len),
            "{name} has {len} bytes"
        );
        fields.push((kind, name, at));
    }
    let ones = wqe::Atomic {
        compare_add: !0,
        swap: !0,
    };
    let (at, len) = part(|w| w.set_atomic(ones));
    assert!(at + len == size_of::<SendWqe>() && len == 16);
    fields.push(("uint64_t", "operands[2]", at));
    fields.sort_by_key(|(_, _, at)| *at);
    structure("uabi_send_wqe", size_of::<SendWqe>(), &fields);
    structure(
        "uabi_recv_wqe",
        size_of::<RecvWqe>(),
        &[
            ("uint64_t", "wr_id", offset_of!(RecvWqe, wr_id)),
            ("uint32_t", "num_sge", offset_of!(RecvWqe, num_sge)),
            ("uint32_t", "reserved", offset_of!(RecvWqe, reserved)),
        ],
    );
    structure(
        "uabi_cqe",
        size_of::<Cqe>(),
        &[
            ("uint64_t", "wr_id", offset_of!(Cqe, wr_id)),
            ("uint32_t", "status", offset_of!(Cqe, status)),
            ("uint32_t", "opcode", offset_of!(Cqe, opcode)),
            ("uint32_t", "byte_len", offset_of!(Cqe, byte_len)),
            ("uint32_t", "imm", offset_of!(Cqe, imm)),
            ("uint32_t", "qp_num", offset_of!(Cqe, qp_num)),
            ("uint32_t", "src_qp", offset_of!(Cqe, src_qp)),
            ("uint32_t", "flags", offset_of!(Cqe, flags)),
            ("uint32_t", "vendor_err", offset_of!(Cqe, vendor_err)),
            ("uint64_t", "timestamp", offset_of!(Cqe, timestamp)),
            ("uint16_t", "pkey_index", offset_of!(Cqe, pkey_index)),
            ("uint16_t", "vlan", offset_of!(Cqe, vlan)),
            ("uint8_t", "sl", offset_of!(Cqe, sl)),
            ("uint8_t", "network_hdr", offset_of!(Cqe, network_hdr)),
            ("uint8_t", "smac[6]", offset_of!(Cqe, smac)),
            ("uint32_t", "reserved", offset_of!(Cqe, reserved)),
        ],
    );
    // An entry of a list is that of libibverbs.
    check(
        "ibv_sge",
        size_of::<Sge>(),
        &[
            ("uint64_t", "addr", offset_of!(Sge, addr)),
            ("uint32_t", "length", offset_of!(Sge, length)),
            ("uint32_t", "lkey", offset_of!(Sge, lkey)),
        ],
    );
    println!("\n#endif");
}
