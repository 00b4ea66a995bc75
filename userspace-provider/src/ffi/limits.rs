// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The limits that a device reports, to say which of them a refused request exceeds.

use super::{layout::*, library::library};
use core::ptr;

/// The most of each that a device has.
pub struct DeviceLimits {
    pub qp_wr: u64,
    pub sge: u64,
    pub cqe: u64,
    pub srq_wr: u64,
    pub srq_sge: u64,
}

impl DeviceLimits {
    /// Asks the module.
    ///
    /// # Safety
    ///
    /// `context` must be open.
    #[cold]
    pub unsafe fn query(context: *mut IbvContext) -> Self {
        let mut attr = [0_u64; ATTR_LEN / 8];
        let mut resp: QueryDeviceExResp = [0; 38];
        let mut resp_size = size_of_val(&resp);
        // SAFETY: The attributes have room for `struct ibv_device_attr`, and the response for its
        // size.
        let error = unsafe {
            (library().ibv_cmd_query_device_any)(
                context,
                ptr::null_mut(),
                attr.as_mut_ptr().cast(),
                ATTR_LEN,
                &mut resp,
                &mut resp_size,
            )
        };
        if error != 0 {
            // Nothing is known to be too much.
            resp = [u64::MAX; 38];
        }
        // `struct ib_uverbs_query_device_resp` is numbers of 32 bits behind five of 64 bits.
        let word = |n: usize| (resp[n / 2] >> (n % 2 * 32)) & 0xffff_ffff;
        Self {
            qp_wr: word(14),
            sge: word(16),
            cqe: word(19),
            srq_wr: word(40),
            srq_sge: word(41),
        }
    }
}

/// Size of `struct ibv_device_attr`.
const ATTR_LEN: usize = 232;
