// SPDX-License-Identifier: GPL-2.0

//! The ICRC of packets, computed with the kernel's CRC.

use crate::core::wire::icrc;
use crate::core::wire::ICRC_LEN;
use crate::sys::net::crc32_le;

/// The ICRC of a packet. The IP and UDP headers may be in one piece (`ip`, with an empty `udp`) or
/// in two; the bytes from the BTH to the ICRC follow, the ICRC itself is ignored. `None` if there
/// are too few bytes.
pub fn icrc_of(ip: &[u8], udp: &[u8], ib: &[u8]) -> Option<[u8; ICRC_LEN]> {
    let (body, _) = ib.split_last_chunk::<ICRC_LEN>()?;
    let (bth, rest) = body.split_first_chunk::<12>()?;
    let (ip, udp) = match udp.first_chunk::<8>() {
        Some(udp) => (ip, udp),
        None => ip.split_last_chunk::<8>()?,
    };
    let crc = if let Ok(ip) = <&[u8; 20]>::try_from(ip) {
        crc32_le(icrc::SEED, &icrc::masked_prefix_v4(ip, udp, bth), rest)
    } else {
        let ip = <&[u8; 40]>::try_from(ip).ok()?;
        crc32_le(icrc::SEED, &icrc::masked_prefix_v6(ip, udp, bth), rest)
    };
    Some(icrc::finish(crc))
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ferroce_datapath_icrc)]
mod tests {
    use super::*;
    use crate::core::wire::icrc::{
        Crc32,
        SoftCrc32, //
    };

    /// For every length and alignment it equals the CRC of the pure code, in one piece or two.
    #[test]
    fn the_kernels_crc_is_the_same() {
        let mut bytes = [0u8; 300];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = (at * at + 3 * at) as u8;
        }
        for from in 0..16 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                let seed = icrc::SEED ^ to as u32;
                let expected = SoftCrc32.update(seed, part);
                assert_eq!(crc32_le(seed, part, &[]), expected);
                let (head, rest) = part.split_at(part.len() / 3);
                assert_eq!(crc32_le(seed, head, rest), expected);
            }
        }
    }
}
