// SPDX-License-Identifier: GPL-2.0

//! Every input that is kept, without a fuzzer.

use ferroce_fuzz::TARGETS;
use std::fs;
use std::path::Path;

/// An input, written as hexadecimal digits.
fn bytes(line: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal digits");
    (0..line.len()).step_by(2).map(digits).collect()
}

#[test]
fn every_input_that_is_kept() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in TARGETS {
        let text = fs::read_to_string(corpus.join(format!("{name}.txt"))).unwrap();
        let inputs = text.lines().filter(|line| !line.starts_with('#'));
        let count = inputs.map(|line| target(&bytes(line))).count();
        assert!(count > 10, "{name} has {count} inputs");
    }
}
