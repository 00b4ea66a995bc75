// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Wire format: the bytes of a RoCEv2 packet and the numbers in them, independent of any QP.
//!
//! ```text
//!            RoCEv2 (annex A17)              IBTA volume 1, chapter 9
//!  +----------+-------+-----------+-----+--------------------+---------+-----+------+
//!  | Ethernet |  IP   |   UDP     | BTH | extended headers   | payload | pad | ICRC |
//!  |          | v4/v6 | port 4791 | 12  | RETH, AETH, ImmDt  | 0..4096 | 0-3 |  4   |
//!  +----------+-------+-----------+-----+--------------------+---------+-----+------+
//!                                  ^                         ^               ^
//!                                  |<----- udp_payload_len: all that follows the UDP ---->|
//!                                  head                      payload_offset
//! ```
//!
//! | piece | file | follows |
//! |---|---|---|
//! | BTH: opcode, QPN, PSN, flags | [`bth`] | 9.2 |
//! | the extended headers | [`headers`] | 9.3, annex A19 |
//! | which headers and payload an opcode has | [`opcode`] | 9.2 table of opcodes, 9.4, 9.6.1 |
//! | a packet as one checked value, and back to bytes | [`packet`] | 9.6.1 |
//! | the address in a GID; the UDP source port | [`gid`] | A17, A17.3.1 |
//! | the GRH before a received datagram | [`gid`] | 11.4.2.1, A17.4.5.1 |
//! | PSNs and their distance | [`psn`] | 9.7.1 |
//! | QPNs and keys that nobody can guess | [`ident`] | - |
//! | ICRC | [`icrc`] | 7.8.1, A17.3.3 |
//! | datagrams that ask for the counters of a port | [`performance`] | 16.1 |
//!
//! Two levels: the structs of [`bth`] and [`headers`] are the bytes themselves, in big-endian, and
//! have no invariants. A [`packet::Packet`] is a value: it exists only when all its lengths were
//! checked, so the code that receives it has nothing left to check about them.

#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

/// A struct that is the bytes of a header.
macro_rules! header {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($fields)*
        }
    };
}

pub mod bth;
pub mod gid;
pub mod headers;
pub mod icrc;
pub mod ident;
pub mod opcode;
pub mod packet;
pub mod performance;
pub mod psn;

/// Destination port of every RoCEv2 packet (IANA `roce`; A17.3.2).
pub const UDP_PORT: u16 = 4791;

/// Bytes of the invariant CRC behind the padded payload.
pub const ICRC_LEN: usize = 4;

/// The P_Key of the default partition with full membership, the only one RoCE needs.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// Largest payload of a packet: the largest path MTU there is (IBTA 9.6.1, PMTU 4096).
pub const MAX_PAYLOAD: usize = 4096;

/// The low 24 bits of a number, in network order.
#[inline]
const fn to_be24(number: u32) -> [u8; 3] {
    let [_, a, b, c] = number.to_be_bytes();
    [a, b, c]
}

/// The number of three bytes in network order.
#[inline]
const fn from_be24(bytes: [u8; 3]) -> u32 {
    let [a, b, c] = bytes;
    u32::from_be_bytes([0, a, b, c])
}
