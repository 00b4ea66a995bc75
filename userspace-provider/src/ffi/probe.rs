// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Probes of the data path, by which a tracer sees what makes no system call (USDT).
//!
//! A probe is one NOP, and a note in `.note.stapsdt` that says where the NOP is and where its
//! arguments are then: in a register, or in memory that one leads to. So nothing is loaded or
//! computed for a probe that nobody has set. A compiler may make several of one.
//!
//! bpftrace, perf and SystemTap read these notes, and `ferroce trace` does
//! (`command/trace/elf.py`). Documentation/tracing.md says what the arguments mean.

#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(unused)
)]

use super::layout::{IbvCq, IbvQp, IbvRecvWr, IbvSendWr, IbvSrq, IbvWc};
use crate::doorbell::Queue;
use core::mem::offset_of;
use ferroce_core::uabi::cqe::Cqe;

/// An argument in a register, of 4 or 8 bytes, by the name of the operand.
#[cfg(target_arch = "x86_64")]
macro_rules! value {
    (4, $name:literal) => {
        concat!("4@%{", $name, ":e}")
    };
    (8, $name:literal) => {
        concat!("8@%{", $name, "}")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! value {
    (4, $name:literal) => {
        concat!("4@{", $name, ":w}")
    };
    (8, $name:literal) => {
        concat!("8@{", $name, "}")
    };
}

/// An argument in memory: the names of the operands that are the pointer, and the offset from it.
#[cfg(target_arch = "x86_64")]
macro_rules! field {
    ($size:literal, $pointer:literal, $offset:literal) => {
        concat!($size, "@{", $offset, "}(%{", $pointer, "})")
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! field {
    ($size:literal, $pointer:literal, $offset:literal) => {
        concat!($size, "@[{", $pointer, "}, {", $offset, "}]")
    };
}

/// A probe: its name, where its arguments are, and the operands of these. What stands in memory
/// must be there when it is hit, so the compiler is told that memory is read.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! probe {
    ($name:literal, [$first:expr $(, $other:expr)*], $($operands:tt)*) => {
        // SAFETY: It does nothing.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte 0",
                ".asciz \"ferroce\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $first $(, " ", $other)*, "\""),
                "994: .balign 4",
                ".popsection",
                // There once. It tells a tool by how much the addresses have moved since.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                $($operands)*
                options(readonly, nostack, preserves_flags),
            )
        }
    };
}
/// Where registers have other names there are none.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! probe {
    ($($anything:tt)*) => {};
}

/// A send request of `ibv_post_send` has got the slot of this index.
#[inline(always)]
pub fn post_send(qp: *const IbvQp, request: &IbvSendWr, index: u32) {
    probe!(
        "post_send",
        [
            field!(4, "qp", "qpn"),
            field!(8, "request", "wr_id"),
            field!(4, "request", "opcode"),
            value!(4, "index")
        ],
        qp = in(reg) qp,
        request = in(reg) request,
        index = in(reg) index,
        qpn = const offset_of!(IbvQp, qp_num),
        wr_id = const offset_of!(IbvSendWr, wr_id),
        opcode = const offset_of!(IbvSendWr, opcode),
    );
}

/// One of `ibv_wr_*` has, which is not posted before the end of its list.
#[inline(always)]
pub fn post_send_drafted(qp: *const IbvQp, (wr_id, opcode): (u64, u8), index: u32) {
    probe!(
        "post_send",
        [
            field!(4, "qp", "qpn"),
            value!(8, "wr_id"),
            value!(4, "opcode"),
            value!(4, "index")
        ],
        qp = in(reg) qp,
        wr_id = in(reg) wr_id,
        opcode = in(reg) u32::from(opcode),
        index = in(reg) index,
        qpn = const offset_of!(IbvQp, qp_num),
    );
}

/// A receive request of a queue pair has.
#[inline(always)]
pub fn post_recv(qp: *const IbvQp, request: &IbvRecvWr, index: u32) {
    probe!(
        "post_recv",
        [
            field!(4, "qp", "qpn"),
            field!(8, "request", "wr_id"),
            value!(4, "index")
        ],
        qp = in(reg) qp,
        request = in(reg) request,
        index = in(reg) index,
        qpn = const offset_of!(IbvQp, qp_num),
        wr_id = const offset_of!(IbvRecvWr, wr_id),
    );
}

/// One of a shared receive queue has.
#[inline(always)]
pub fn post_srq_recv(srq: *const IbvSrq, request: &IbvRecvWr, index: u32) {
    probe!(
        "post_srq_recv",
        [
            field!(4, "srq", "handle"),
            field!(8, "request", "wr_id"),
            value!(4, "index")
        ],
        srq = in(reg) srq,
        request = in(reg) request,
        index = in(reg) index,
        handle = const offset_of!(IbvSrq, handle),
        wr_id = const offset_of!(IbvRecvWr, wr_id),
    );
}

/// The module is woken, by a system call, to look at a queue.
#[inline(always)]
pub fn doorbell(qp: *const IbvQp, queue: Queue) {
    probe!(
        "doorbell",
        [field!(4, "qp", "qpn"), value!(4, "queue")],
        qp = in(reg) qp,
        queue = in(reg) queue as u32,
        qpn = const offset_of!(IbvQp, qp_num),
    );
}

/// `ibv_poll_cq` gives a completion to the application.
#[inline(always)]
pub fn polled(cq: *const IbvCq, wc: *const IbvWc) {
    probe!(
        "polled",
        [
            field!(4, "wc", "qpn"),
            field!(8, "wc", "wr_id"),
            field!(4, "wc", "status"),
            field!(4, "cq", "handle")
        ],
        wc = in(reg) wc,
        cq = in(reg) cq,
        qpn = const offset_of!(IbvWc, qp_num),
        wr_id = const offset_of!(IbvWc, wr_id),
        status = const offset_of!(IbvWc, status),
        handle = const offset_of!(IbvCq, handle),
    );
}

/// `ibv_start_poll` or `ibv_next_poll` makes a completion the current one of its queue, in which it
/// is at this offset.
#[inline(always)]
pub fn polled_current<const CURRENT: usize>(cq: *const IbvCq) {
    probe!(
        "polled",
        [
            field!(4, "cq", "qpn"),
            field!(8, "cq", "wr_id"),
            field!(4, "cq", "status"),
            field!(4, "cq", "handle")
        ],
        cq = in(reg) cq,
        qpn = const CURRENT + offset_of!(Cqe, qp_num),
        wr_id = const CURRENT + offset_of!(Cqe, wr_id),
        status = const CURRENT + offset_of!(Cqe, status),
        handle = const offset_of!(IbvCq, handle),
    );
}

/// `ibv_req_notify_cq` has armed a queue.
#[inline(always)]
pub fn arm(cq: *const IbvCq, solicited_only: i32) {
    probe!(
        "arm",
        [field!(4, "cq", "handle"), value!(4, "solicited")],
        cq = in(reg) cq,
        solicited = in(reg) solicited_only,
        handle = const offset_of!(IbvCq, handle),
    );
}
