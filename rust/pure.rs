// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The pure rooms of ferroce as an ordinary crate: no kernel, no allocation, no unsafe code.
//!
//! The module compiles the same files through `ferroce_main.rs`.

#![no_std]
#![forbid(unsafe_code)]

/// The files of the data path that need no kernel.
pub mod datapath {
    pub mod budget;
    pub mod cq_producer;
    #[cfg(test)]
    mod fake;
    pub mod moderation;
    pub mod offload;
    pub mod rounds;
    pub mod srq_consumer;
    pub mod stream;
    pub mod wqe;
}
/// The parts of `sys` that need no kernel.
#[path = "sys/gate.rs"]
pub mod gate;
#[path = "sys/net/shape.rs"]
pub mod shape;
pub mod transport;
pub mod uabi;
/// The files of the verbs that need no kernel.
pub mod verbs {
    pub mod quota;
    pub mod reach;
}
pub mod wire;
