// SPDX-License-Identifier: GPL-2.0

//! Observability: counters.

pub mod counters;
pub mod sets;
