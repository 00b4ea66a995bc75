// SPDX-License-Identifier: GPL-2.0

//! The model network in which the transport is put to the test.

#![allow(missing_docs, reason = "fields and variants that say what they are")]

pub mod model;
