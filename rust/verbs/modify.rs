// SPDX-License-Identifier: GPL-2.0

//! The attributes of a QP, and which changes are supported.

use crate::core::rc::MAX_RD_ATOMIC;
use crate::sys::ib::qp::{
    Access,
    Attributes,
    IbQpType,
    QpChange,
    QpState, //
};
use crate::sys::refusal::{
    no_transition,
    of_bits,
    refuse,
    within,
    EOPNOTSUPP, //
};
use core::ops::BitAnd;
use kernel::prelude::*;

/// Attributes that ib_core permits and ferroce does not have, as bits of `enum ib_qp_attr_mask`:
/// queues keep their capacity (`IB_QP_CAP`), and there is no rate limit (`IB_QP_RATE_LIMIT`).
const REFUSED: u32 = (1 << 19) | (1 << 25);

/// Checks that a QP may be changed in this way.
///
/// # Errors
///
/// `EINVAL` for changes that the specification forbids, `EOPNOTSUPP` for unsupported ones.
pub fn check(change: &QpChange, kind: IbQpType, from: QpState, to: QpState) -> Result {
    if let Some(current) = change.current {
        let from = u64::from(from as u32);
        within("cur_qp_state", current as u32, from..=from)?;
    }
    of_bits(EOPNOTSUPP(), "attr_mask", change.mask, !REFUSED)?;
    // The path in use is the only one (`IB_MIG_MIGRATED`, 0).
    if let Some(path @ 1..) = change.path_mig_state {
        return Err(refuse(EOPNOTSUPP(), "path_mig_state", path, 0..=0));
    }
    if !change.allowed(kind, from, to) {
        return Err(no_transition(from as u32, to as u32, change.mask));
    }
    Ok(())
}

/// Bits of a local ACK timeout and of an RNR NAK timer code (IBTA 9.7.6.1.3, 9.7.5.2.8): five.
/// Programs pass more, a timer of 32 for instance, and work: drivers pass the low bits to the
/// hardware.
const TIMER: u8 = 0x1f;
/// Bits of a retry count: three.
const RETRIES: u8 = 0x7;
/// Bits of a PSN, and of a QP number. ib_core has masked PSNs already, with a line in the log.
const PSN_OR_QPN: u32 = 0xff_ffff;

/// The attributes after `change`.
///
/// Timers, retry counts and PSNs are masked to the bits that a device has.
///
/// # Errors
///
/// `EINVAL` for any other unsupported value.
pub fn changed(attributes: &Attributes, change: &QpChange) -> Result<Attributes> {
    fn set<T: Copy + Into<u64>>(
        attribute: &'static str,
        to: &mut T,
        from: Option<T>,
        most: u32,
    ) -> Result {
        if let Some(value) = from {
            within(attribute, value, 0..=u64::from(most))?;
            *to = value;
        }
        Ok(())
    }
    fn mask<T: BitAnd<Output = T>>(to: &mut T, from: Option<T>, bits: T) {
        if let Some(value) = from {
            *to = value & bits;
        }
    }
    const ACCESS: u32 = Access::LOCAL_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_WRITE
        | Access::REMOTE_ATOMIC
        | Access::MW_BIND
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT
        | Access::OPTIONAL;
    let mut next = *attributes;
    if let Some(access) = change.access {
        of_bits(EINVAL, "qp_access_flags", access.0, ACCESS)?;
        next.access = access;
    }
    set("pkey_index", &mut next.pkey_index, change.pkey_index, 0)?;
    if let Some(port) = change.port {
        within("port_num", port, 1..=1)?;
        next.port = port;
    }
    // ib_core decides who may set a controlled Q_Key.
    next.qkey = change.qkey.unwrap_or(next.qkey);
    next.mtu = change.mtu.unwrap_or(next.mtu);
    mask(&mut next.timeout, change.timeout, TIMER);
    mask(&mut next.min_rnr_timer, change.min_rnr_timer, TIMER);
    mask(&mut next.retry_cnt, change.retry_cnt, RETRIES);
    mask(&mut next.rnr_retry, change.rnr_retry, RETRIES);
    mask(&mut next.rq_psn, change.rq_psn, PSN_OR_QPN);
    mask(&mut next.sq_psn, change.sq_psn, PSN_OR_QPN);
    let depth = u32::from(MAX_RD_ATOMIC);
    let (to, from) = (&mut next.max_rd_atomic, change.max_rd_atomic);
    set("max_rd_atomic", to, from, depth)?;
    let (to, from) = (&mut next.max_dest_rd_atomic, change.max_dest_rd_atomic);
    set("max_dest_rd_atomic", to, from, depth)?;
    let (to, from) = (&mut next.dest_qpn, change.dest_qpn);
    set("dest_qp_num", to, from, PSN_OR_QPN)?;
    next.notify_drained = change.notify_drained.unwrap_or(next.notify_drained);
    if let Some(av) = &change.av {
        next.vector = av.vector;
    }
    Ok(next)
}
