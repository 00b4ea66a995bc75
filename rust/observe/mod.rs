// SPDX-License-Identifier: GPL-2.0

//! What can be seen from outside: counters.

pub mod counters;
pub mod sets;
pub mod totals;
