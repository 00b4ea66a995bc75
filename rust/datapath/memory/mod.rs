// SPDX-License-Identifier: GPL-2.0

//! Memory that the data path copies from and to: registered regions, windows to them, and lists of
//! pieces of them.

pub mod region;
pub mod sg;
pub mod window;
