// SPDX-License-Identifier: GPL-2.0

//! libFuzzer with [`ferroce_fuzz::responder`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ferroce_fuzz::responder(data));
