// SPDX-License-Identifier: GPL-2.0

//! Completion queues, and the completions that ULPs poll from them.

use crate::core::uabi::cqe::{
    self,
    Cqe, //
};
use crate::core::uabi::ring::{
    ARM_NEXT,
    ARM_SOLICITED, //
};
use crate::sys::bindings;
use crate::sys::ib::event::{
    CqUpcall,
    QpUpcall, //
};
use crate::sys::ib::process::{
    BundleUdata,
    Details,
    NlMessage,
    Udata, //
};
use crate::sys::ib::{
    object,
    operations,
    IgnoredArgument,
    RawArgument,
    Reference, //
};
use crate::sys::refusal::EOPNOTSUPP;
use kernel::prelude::*;

/// A completion queue of a driver. Dropping it destroys it; no QP uses it by then.
pub trait CompletionQueue: Send + Sync + 'static {
    /// The device type.
    type Device: Send + Sync + 'static;

    /// Creates a queue of a process, or without `udata` of a ULP. Also returns how many entries it
    /// has.
    fn create(
        device: &Self::Device,
        upcall: CqUpcall,
        init: CqInit,
        udata: Option<&Udata<'_>>,
    ) -> Result<(Self, u32)>
    where
        Self: Sized;

    /// Gives the queue at least so many entries, not 0; what is in it stays. Returns how many it
    /// has.
    fn resize(&self, entries: u32, udata: &Udata<'_>) -> Result<u32>;

    /// An event is due for so many completions, or so many microseconds after the first.
    fn moderate(&self, count: u16, period_us: u16) -> Result;

    /// Details for `rdma resource show`.
    fn details(&self, out: &mut Details<'_>) -> Result;

    /// A ULP polls. Any context.
    fn poll(&self, into: &mut Completions) -> Result;

    /// A ULP arms the queue: `wanted` is [`ARM_NEXT`] or [`ARM_SOLICITED`]. Returns whether there
    /// are completions already. Any context.
    fn arm(&self, wanted: u32) -> Result<bool>;
}

/// Attributes of a new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqInit {
    /// It must have at least so many entries; not 0.
    pub entries: u32,
    /// Completions carry the time.
    pub timestamps: bool,
    /// A completion that finds no room is lost, and nothing else happens.
    pub ignores_overruns: bool,
}

const TIMESTAMPS: u32 =
    bindings::ib_uverbs_ex_create_cq_flags_IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
const IGNORES_OVERRUNS: u32 =
    bindings::ib_uverbs_ex_create_cq_flags_IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;

impl CqInit {
    fn from_raw(attr: &bindings::ib_cq_init_attr) -> Result<Self> {
        if attr.flags & !(TIMESTAMPS | IGNORES_OVERRUNS) != 0 {
            return Err(EOPNOTSUPP());
        }
        Ok(Self {
            entries: attr.cqe,
            timestamps: attr.flags & TIMESTAMPS != 0,
            ignores_overruns: attr.flags & IGNORES_OVERRUNS != 0,
        })
    }
}

type Live<'a, C> = object::Live<'a, bindings::ib_cq, C>;
type New<'a, C> = object::New<'a, bindings::ib_cq, C, <C as CompletionQueue>::Device>;
type Gone<'a, C> = object::Gone<'a, bindings::ib_cq, C>;

impl Reference<'_, bindings::ib_cq> {
    fn set_entries(self, entries: u32) {
        // SAFETY: By the type invariant; a concurrent reader sees the old number or this one.
        unsafe { (&raw mut (*self.as_raw()).cqe).write_volatile(entries as c_int) };
    }

    /// Waits until ib_core's poller has left a queue that it polls in a softirq, which must not
    /// be scheduled again. May sleep.
    ///
    /// `ib_poll_handler()` arms the queue, and looks at how it is moderated, after
    /// `irq_poll_complete()`; but `ib_free_cq()` waits for the latter only, and then frees both,
    /// while the poller may still be in there on another CPU. A grace period waits for softirqs.
    fn wait_for_poller(self) {
        let cq = self.as_raw();
        // SAFETY: By the type invariant; how it is polled is written before its user has it, and
        // says which member of the union it has. Only a disabled poller may be enabled, and this
        // one is: only the code that frees the queue does either.
        unsafe {
            if (*cq).poll_ctx != bindings::ib_poll_context_IB_POLL_SOFTIRQ {
                return;
            }
            let poller = (&raw mut (*cq).__bindgen_anon_1.iop).cast();
            bindings::irq_poll_disable(poller);
            bindings::ferroce_synchronize_rcu();
            // ib_core disables it next, and would wait for ever for one that is disabled already.
            bindings::irq_poll_enable(poller);
        }
    }
}

operations! {
    install<'a, C: CompletionQueue>

    create_cq(
        cq: New<'a, C>,
        attr: &'a bindings::ib_cq_init_attr,
        udata: BundleUdata<'a>,
    ) -> Result {
        let init = CqInit::from_raw(attr)?;
        let udata = udata.0.as_ref();
        let (cq, entries) = cq.create(|device, upcall| C::create(device, upcall, init, udata))?;
        cq.set_entries(entries);
        Ok(())
    }

    resize_user_cq(cq: Live<'a, C>, entries: u32, udata: Udata<'a>) -> Result {
        let entries = cq.resize(entries, &udata)?;
        cq.reference().set_entries(entries);
        Ok(())
    }

    modify_cq(cq: Live<'a, C>, count: u16, period_us: u16) -> Result {
        cq.moderate(count, period_us)
    }

    fill_res_cq_entry(message: NlMessage<'a>, cq: Live<'a, C>) -> Result {
        message.details(|out| cq.details(out))
    }

    poll_cq(cq: Live<'a, C>, count: c_int, place: RawArgument<bindings::ib_wc>) -> Result<c_int> {
        let mut completions = Completions::new(place, count);
        cq.poll(&mut completions)?;
        Ok(completions.count())
    }

    req_notify_cq(cq: Live<'a, C>, flags: u32) -> Result<c_int> {
        let wanted = match flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK {
            bindings::ib_cq_notify_flags_IB_CQ_SOLICITED => ARM_SOLICITED,
            _ => ARM_NEXT,
        };
        let has_some = cq.arm(wanted)?;
        let asks = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
        Ok((asks && has_some).into())
    }

    // Only for the queues of `ib_alloc_cq()`, which ib_core polls.
    pre_destroy_cq(cq: Live<'a, C>) -> Result {
        cq.end_upcalls();
        cq.reference().wait_for_poller();
        Ok(())
    }

    destroy_cq(cq: Gone<'a, C>, _udata: IgnoredArgument<*mut bindings::ib_udata>) -> Result {
        cq.destroy();
        Ok(())
    }
}

// Numbers of the kernel alone, which are handed on as they are.
const _: () = {
    assert!(bindings::ib_wc_opcode_IB_WC_REG_MR == cqe::WC_REG_MR);
    assert!(bindings::ib_wc_opcode_IB_WC_RECV == cqe::WC_RECV);
    assert!(bindings::rdma_network_type_RDMA_NETWORK_IPV4 == cqe::NETWORK_IPV4 as u32);
    assert!(bindings::rdma_network_type_RDMA_NETWORK_IPV6 == cqe::NETWORK_IPV6 as u32);
};

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
    pub(super) fn new(place: RawArgument<bindings::ib_wc>, count: c_int) -> Self {
        // INVARIANT: `Argument` has both from the same operation, whose caller owns the place.
        Self {
            next: place.get(),
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
