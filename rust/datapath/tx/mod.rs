// SPDX-License-Identifier: GPL-2.0

//! How segments get to the peer: as packets, or, within a device, by hand.

pub mod datagram;
pub mod local;
pub mod wire;
