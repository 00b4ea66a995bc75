// SPDX-License-Identifier: GPL-2.0

//! libFuzzer with [`ferroce_fuzz::unreliable`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ferroce_fuzz::unreliable(data));
