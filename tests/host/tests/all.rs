// SPDX-License-Identifier: GPL-2.0

//! All of them in one program: to link proptest and the pure crate a dozen times takes longer than
//! to run them.

mod each_packet;
mod gate_starvation;
mod loom_gate;
mod loom_rings;
mod model;
mod model_past;
mod sys_net_shape;
mod transport_errors;
mod transport_hostile;
mod verbs_limits;
mod wire_icrc;
mod wire_packet;
mod wire_psn;
