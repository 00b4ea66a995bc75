// SPDX-License-Identifier: GPL-2.0

//! Error numbers that the kernel crate has no constant for.
//!
//! They are functions, since `Error::from_errno` is no constant one.

#![allow(non_snake_case)]

use super::bindings;
use kernel::error::Error;

/// Operation not supported.
pub fn EOPNOTSUPP() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as i32))
}

/// Message too long.
pub fn EMSGSIZE() -> Error {
    Error::from_errno(-(bindings::EMSGSIZE as i32))
}

/// Address already in use.
pub fn EADDRINUSE() -> Error {
    Error::from_errno(-(bindings::EADDRINUSE as i32))
}

/// Cannot assign requested address.
pub fn EADDRNOTAVAIL() -> Error {
    Error::from_errno(-(bindings::EADDRNOTAVAIL as i32))
}
