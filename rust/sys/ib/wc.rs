// SPDX-License-Identifier: GPL-2.0

//! Completions as ULPs poll them.

use super::call::Argument;
use super::event::QpUpcall;
use crate::core::uabi::cqe::{
    self,
    Cqe, //
};
use crate::sys::bindings;
use kernel::prelude::*;

/// Destination of polled completions.
pub(super) struct Place(*mut bindings::ib_wc);

impl Argument for Place {
    type Raw = *mut bindings::ib_wc;

    unsafe fn from_raw(raw: *mut bindings::ib_wc) -> Result<Self> {
        Ok(Self(raw))
    }
}

/// Room for completions.
///
/// # Invariants
///
/// `next` leads to `left` entries that may be written.
pub struct Completions {
    next: *mut bindings::ib_wc,
    left: u32,
    count: u32,
}

impl Completions {
    /// Room for as many as the poller says.
    pub(super) fn new(place: Place, count: c_int) -> Self {
        // INVARIANT: `Argument` has both from the same operation, whose caller owns the place.
        Self {
            next: place.0,
            left: u32::try_from(count).unwrap_or(0),
            count: 0,
        }
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        self.left != 0
    }

    /// How many there are.
    pub(super) fn count(&self) -> c_int {
        self.count as c_int
    }

    /// Adds the completion of a QP, unless that is just being destroyed: its user is done with it.
    pub fn add(&mut self, done: &Cqe, qp: &QpUpcall) {
        let Some(qp) = qp.object() else {
            return;
        };
        if !self.has_room() {
            return;
        }
        let is = |flag| done.flags & flag != 0;
        let flag = |ours, theirs: bindings::ib_wc_flags| if is(ours) { theirs } else { 0 };
        let flags = flag(cqe::WC_GRH, bindings::ib_wc_flags_IB_WC_GRH)
            | flag(cqe::WC_WITH_IMM, bindings::ib_wc_flags_IB_WC_WITH_IMM)
            | flag(
                cqe::WC_WITH_INV,
                bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE,
            )
            | flag(cqe::WC_WITH_SMAC, bindings::ib_wc_flags_IB_WC_WITH_SMAC)
            | flag(cqe::WC_WITH_VLAN, bindings::ib_wc_flags_IB_WC_WITH_VLAN)
            | flag(
                cqe::WC_WITH_NETWORK_HDR,
                bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE,
            );
        let wc = bindings::ib_wc {
            __bindgen_anon_1: bindings::ib_wc__bindgen_ty_1 { wr_id: done.wr_id },
            status: done.status,
            opcode: done.opcode,
            vendor_err: done.vendor_err,
            byte_len: done.byte_len,
            qp: qp.as_ptr(),
            ex: bindings::ib_wc__bindgen_ty_2 { imm_data: done.imm },
            src_qp: done.src_qp,
            slid: 0,
            wc_flags: flags as c_int,
            pkey_index: done.pkey_index,
            sl: done.sl,
            dlid_path_bits: 0,
            port_num: 1,
            smac: done.smac,
            vlan_id: done.vlan,
            network_hdr_type: done.network_hdr,
        };
        // SAFETY: By the type invariant there is room.
        unsafe {
            self.next.write(wc);
            self.next = self.next.add(1);
        }
        // INVARIANT: One less.
        self.left = self.left.wrapping_sub(1);
        self.count = self.count.wrapping_add(1);
    }
}
