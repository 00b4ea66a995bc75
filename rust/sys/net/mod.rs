// SPDX-License-Identifier: GPL-2.0

//! Safe types over the network stack: net devices, namespaces, sockets, routes and packets.
//!
//! The order of lifetimes is the order of the files: a [`NetDevice`] is counted; a [`Resident`]
//! keeps the network namespace of one from ending; sockets and routes hold a resident.

pub mod deferred;
pub mod device;
pub mod netns;
pub mod notifier;
pub mod receive;
pub mod route;
pub mod socket;
pub mod transmit;

pub use self::{
    deferred::{
        RxBatch,
        RxBatches, //
    },
    device::{
        Framing,
        NetDevice, //
    },
    netns::{
        NetNs,
        Resident,
        Underlay, //
    },
    receive::{
        KeptPacket,
        LinkHeader,
        Receiver,
        RxPacket,
        Unreadable,
        Verdict, //
    },
    route::{
        arrived,
        Addresses,
        Astray,
        Flow,
        Route, //
    },
    transmit::{
        FilledPacket,
        PacketMemory,
        TxList,
        TxPacket,
        TxResult, //
    },
};

use crate::sys::bindings;

/// The UDP port of RoCEv2 (IBTA annex A17.9.2).
pub const UDP_PORT: u16 = bindings::FERROCE_UDP_PORT as u16;

/// The CRC-32 of Ethernet (reflected, polynomial 0xedb88320) of `head` and then `rest`, continued
/// from `crc`.
///
/// Neither the start value nor the result is inverted; the ICRC starts from `!0` and is inverted
/// by the caller.
#[inline]
pub fn crc32_le(crc: u32, head: &[u8], rest: &[u8]) -> u32 {
    // SAFETY: The slices are valid for reads of their lengths.
    unsafe { bindings::ferroce_crc32_le(crc, head.as_ptr(), head.len(), rest.as_ptr(), rest.len()) }
}
