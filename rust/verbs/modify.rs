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
use crate::transport::reliable::config::MAX_RD_ATOMIC;
use crate::transport::service::Service;
use core::ops::BitAnd;
use kernel::prelude::*;

/// Checks that a QP may be changed so at all.
///
/// # Errors
///
/// `EINVAL` for what the specification forbids, `EOPNOTSUPP` for what we do not serve.
pub fn check(change: &Change, kind: QpType, service: &Service, from: State, to: State) -> Result {
    if change.current.is_some_and(|current| current != from) {
        return Err(EINVAL);
    }
    if change.has(service.refused) || change.migrated == Some(false) {
        return Err(EOPNOTSUPP());
    }
    if !change.allowed(kind, from, to) {
        return Err(EINVAL);
    }
    Ok(())
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
    fn set<T: Copy>(to: &mut T, from: Option<T>, valid: impl FnOnce(T) -> bool) -> Result {
        match from {
            Some(value) if !valid(value) => Err(EINVAL),
            Some(value) => {
                *to = value;
                Ok(())
            }
            None => Ok(()),
        }
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
    set(&mut next.access, change.access, |access| {
        access.0 & !ACCESS == 0
    })?;
    set(&mut next.pkey_index, change.pkey_index, |index| index == 0)?;
    set(&mut next.port, change.port, |port| port == 1)?;
    // Who may set a controlled one is ib_core's to say.
    set(&mut next.qkey, change.qkey, |_| true)?;
    set(&mut next.mtu, change.mtu, |_| true)?;
    mask(&mut next.timeout, change.timeout, TIMER);
    mask(&mut next.min_rnr_timer, change.min_rnr_timer, TIMER);
    mask(&mut next.retry_cnt, change.retry_cnt, RETRIES);
    mask(&mut next.rnr_retry, change.rnr_retry, RETRIES);
    mask(&mut next.rq_psn, change.rq_psn, PSN);
    mask(&mut next.sq_psn, change.sq_psn, PSN);
    let depth = |depth| depth <= MAX_RD_ATOMIC;
    set(&mut next.max_rd_atomic, change.max_rd_atomic, depth)?;
    set(
        &mut next.max_dest_rd_atomic,
        change.max_dest_rd_atomic,
        depth,
    )?;
    set(&mut next.dest_qpn, change.dest_qpn, |qpn| qpn < 1 << 24)?;
    set(&mut next.notify_drained, change.notify_drained, |_| true)?;
    if let Some(path) = &change.path {
        next.vector = path.vector;
    }
    Ok(next)
}
