// SPDX-License-Identifier: GPL-2.0

//! Transmit paths: packets, or the local path within a device.

pub mod datagram;
pub mod local;
pub mod wire;
