// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The log of libibverbs.

use super::library::loaded;
use core::ptr;
use std::{env, ffi::CString, sync::OnceLock};

/// `VERBS_LOG_ERR`.
const ERROR: u32 = 1;

/// Whether the log is enabled: libibverbs reads the same variable when it is loaded.
pub fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| env::var_os("VERBS_LOG_LEVEL").is_some())
}

/// Writes a line.
pub fn write(line: &str) {
    let (Some(library), Ok(line)) = (loaded(), CString::new(line)) else {
        return;
    };
    // SAFETY: The format has one string, which is given. The function looks at neither the context
    // nor, below the level that is asked for, at anything else (rdma-core 36 to 65); errno stays.
    unsafe { (library.__verbs_log)(ptr::null_mut(), ERROR, c"%s".as_ptr(), line.as_ptr()) }
}
