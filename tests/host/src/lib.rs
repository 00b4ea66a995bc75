// SPDX-License-Identifier: GPL-2.0

//! What the tests under `tests/` share: the values that property tests draw from.

pub mod arbitrary;
