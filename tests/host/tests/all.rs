// SPDX-License-Identifier: GPL-2.0

//! All of them in one program: to link proptest and the core's crate for each takes longer than to
//! run most of them.

mod batch_shape;
mod each_packet;
mod limits;
mod loom_gate;
mod loom_rings;
mod loss_rate;
mod model;
