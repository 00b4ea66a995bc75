// SPDX-License-Identifier: GPL-2.0

//! The attributes of a QP, and which changes of them are served.

use crate::sys::errno::EOPNOTSUPP;
use crate::sys::ib::qp::{
    Access,
    Attributes,
    Change,
    QpType,
    State, //
};
use crate::sys::refusal::{
    of_bits,
    refuse,
    within, //
};
use crate::transport::reliable::config::MAX_RD_ATOMIC;
use crate::transport::service::Service;
use core::ops::{
    BitAnd,
    RangeInclusive, //
};
use kernel::prelude::*;

/// Checks that a QP may be changed so at all.
///
/// # Errors
///
/// `EINVAL` for what the specification forbids, `EOPNOTSUPP` for what we do not serve.
pub fn check(change: &Change, kind: QpType, service: &Service, from: State, to: State) -> Result {
    if let Some(current) = change.current {
        within("cur_qp_state", current as u32, state(from))?;
    }
    of_bits(EOPNOTSUPP(), "attr_mask", change.mask(), !service.refused)?;
    if change.migrated == Some(false) {
        return Err(refuse(EOPNOTSUPP(), "path_mig_state", 1_u32, 0..=0));
    }
    if !change.allowed(kind, from, to) {
        // The state may be the wrong one, or the attributes.
        within("qp_state", to as u32, state(from))?;
        return Err(refuse(
            EINVAL,
            "attr_mask in this state",
            change.mask(),
            0..=0,
        ));
    }
    Ok(())
}

/// A state, as a range.
fn state(one: State) -> RangeInclusive<u64> {
    u64::from(one as u32)..=u64::from(one as u32)
}

/// What a device has of a local ACK timeout and of the code of an RNR NAK timer (IBTA 9.7.6.1.3,
/// 9.7.5.2.8): five bits. Programs give more, a timer of 32 for instance, and work: drivers hand
/// the low bits to the hardware.
const TIMER: u8 = 0x1f;
/// What it has of a retry count: three bits.
const RETRIES: u8 = 0x7;
/// What it has of a PSN. ib_core has taken the rest off before, with a line in the log.
const PSN: u32 = 0xff_ffff;

/// The attributes after `change`.
///
/// Of timers, retry counts and PSNs only the bits count that a device has.
///
/// # Errors
///
/// `EINVAL` if another value is not one that we can serve.
pub fn changed(attributes: &Attributes, change: &Change) -> Result<Attributes> {
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
    // Who may set a controlled one is ib_core's to say.
    set("qkey", &mut next.qkey, change.qkey, u32::MAX)?;
    set("path_mtu", &mut next.mtu, change.mtu, u32::MAX)?;
    mask(&mut next.timeout, change.timeout, TIMER);
    mask(&mut next.min_rnr_timer, change.min_rnr_timer, TIMER);
    mask(&mut next.retry_cnt, change.retry_cnt, RETRIES);
    mask(&mut next.rnr_retry, change.rnr_retry, RETRIES);
    mask(&mut next.rq_psn, change.rq_psn, PSN);
    mask(&mut next.sq_psn, change.sq_psn, PSN);
    let depth = u32::from(MAX_RD_ATOMIC);
    let (to, from) = (&mut next.max_rd_atomic, change.max_rd_atomic);
    set("max_rd_atomic", to, from, depth)?;
    let (to, from) = (&mut next.max_dest_rd_atomic, change.max_dest_rd_atomic);
    set("max_dest_rd_atomic", to, from, depth)?;
    set("dest_qp_num", &mut next.dest_qpn, change.dest_qpn, PSN)?;
    if let Some(notify) = change.notify_drained {
        next.notify_drained = notify;
    }
    if let Some(av) = &change.av {
        next.vector = av.vector;
    }
    Ok(next)
}
