// SPDX-License-Identifier: GPL-2.0

//! libFuzzer with the target that `FERROCE_FUZZ` names.

#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FERROCE_FUZZ").expect("FERROCE_FUZZ names a target");
    ferroce_fuzz::target(&name)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (*TARGET)(data));
