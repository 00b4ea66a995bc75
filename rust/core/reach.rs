// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Packet sizes that a port can carry.

/// Most bytes that a packet adds to its payload: IPv6, UDP, BTH, RETH, immediate data, ICRC,
/// rounded up, for the usual MTU of 1500 to give 1024 and 4200 to give 4096.
const MAX_HEADERS: u32 = 40 + 8 + 12 + 16 + 4 + 4;

/// Greatest path MTU, in bytes, whose packets fit a netdev of this MTU.
pub fn path_mtu(netdev_mtu: u32) -> u32 {
    match netdev_mtu.saturating_sub(MAX_HEADERS) {
        4096.. => 4096,
        2048.. => 2048,
        1024.. => 1024,
        512.. => 512,
        _ => 256,
    }
}
