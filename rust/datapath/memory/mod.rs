// SPDX-License-Identifier: GPL-2.0

//! Memory that the data path copies from and to: registered regions, windows to them and to lists
//! of the kernel's memory, and lists of pieces of all these.

pub mod listed;
pub mod lists;
pub mod region;
pub mod sg;
pub mod window;
