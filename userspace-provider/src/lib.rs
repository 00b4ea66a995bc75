// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The user-space provider of ferroce: loaded by stock libibverbs to drive a ferroce device.
//!
//! | file | content |
//! |---|---|
//! | [`abi`] | the private ABIs of libibverbs and where they differ |
//! | [`ring`] | index arithmetic of the shared rings |
//! | [`request`] | a work request of libibverbs becomes a slot of the module |
//! | [`draft`] | the same for requests that are made call by call (`ibv_wr_*`) |
//! | [`completion`] | a completion of the module becomes one of libibverbs |
//! | [`doorbell`] | the command that makes the module look at a queue |
//! | [`lock`] | the lock of a queue |
//! | [`refusal`] | reasons of refusals, in the log of libibverbs |
//! | `ffi/` | everything that meets C or shared memory, and all the unsafe code |
//!
//! The data path makes no allocation and no system call but the doorbell, and that only when the
//! module asks for it.

#![deny(unsafe_code)]

mod abi;
mod completion;
mod doorbell;
mod draft;
#[allow(unsafe_code)]
mod ffi;
mod lock;
mod refusal;
mod request;
mod ring;
