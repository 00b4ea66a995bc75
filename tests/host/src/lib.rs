// SPDX-License-Identifier: GPL-2.0

//! What the tests under `tests/` share: peers and processes that do anything at all, and the model
//! network in which the transport is put to the test.

#![allow(missing_docs, reason = "fields and variants that say what they are")]

pub mod hostile;
pub mod model;
