// SPDX-License-Identifier: GPL-2.0

//! Memory that the data path copies from and to: MRs, MWs, FRMRs, and scatter/gather lists of them.

pub mod keys;
pub mod lists;
pub mod region;
pub mod sg;
pub mod window;
