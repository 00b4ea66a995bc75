// SPDX-License-Identifier: GPL-2.0

//! The version in `modinfo`, for which `module!` has no key.

use crate::core::uabi::MODULE_VERSION;

const KEY: &[u8] = b"version=";
/// Three numbers of up to five digits, two dots, and the end.
const ROOM: usize = KEY.len() + 3 * 5 + 2 + 1;

// As `module!` has it: later compilers take plain `used` for the linker's, which makes a section of
// its own, and modpost reads one.
#[cfg(MODULE)]
#[link_section = ".modinfo"]
#[used(compiler)]
static VERSION: [u8; ROOM] = version(MODULE_VERSION);

/// The entry; what is left of its room is zero, which readers of the section skip.
#[cfg_attr(not(MODULE), expect(dead_code))]
const fn version(numbers: [u16; 3]) -> [u8; ROOM] {
    let mut text = [0; ROOM];
    let mut at = 0;
    while at < KEY.len() {
        text[at] = KEY[at];
        at += 1;
    }
    let mut n = 0;
    while n < numbers.len() {
        if n > 0 {
            text[at] = b'.';
            at += 1;
        }
        let mut scale = 10_000;
        while scale > 0 {
            if numbers[n] >= scale || scale == 1 {
                text[at] = b'0' + (numbers[n] / scale % 10) as u8;
                at += 1;
            }
            scale /= 10;
        }
        n += 1;
    }
    text
}
