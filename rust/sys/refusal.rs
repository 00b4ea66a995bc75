// SPDX-License-Identifier: GPL-2.0

//! Reasons of refusals, because an errno says little. They are lines of dynamic debug, which cost
//! nothing until an administrator enables them: `echo 'module ferroce +p'
//! >/proc/dynamic_debug/control`.
//!
//! Also here are the error numbers that the kernel crate has no constant for; they are functions,
//! since `Error::from_errno` is no constant one.

#![allow(non_snake_case)]

use crate::sys::bindings;
use core::ops::RangeInclusive;
use kernel::error::Error;
use kernel::prelude::*;

/// Logs which attribute is out of range, and returns `error` for it.
#[cold]
pub fn refuse(
    error: Error,
    attribute: &'static str,
    value: impl Into<u64>,
    range: RangeInclusive<u64>,
) -> Error {
    let (name, length) = (attribute.as_ptr().cast(), attribute.len() as c_int);
    // SAFETY: The name has this length; nothing is kept.
    unsafe {
        bindings::ferroce_not_within(name, length, value.into(), *range.start(), *range.end())
    };
    error
}

/// Refuses a value that is out of range.
///
/// # Errors
///
/// `EINVAL`.
#[inline]
pub fn within(
    attribute: &'static str,
    value: impl Into<u64>,
    range: RangeInclusive<u64>,
) -> Result {
    let value = value.into();
    if range.contains(&value) {
        return Ok(());
    }
    Err(refuse(EINVAL, attribute, value, range))
}

/// Refuses unknown flags with `error`.
#[inline]
pub fn of_bits(error: Error, attribute: &'static str, value: u32, known: u32) -> Result {
    if value & !known == 0 {
        return Ok(());
    }
    Err(refuse(error, attribute, value, 0..=u64::from(known)))
}

/// Logs what is wrong with an argument, where no range says it, and returns `EINVAL` for it.
#[cold]
pub fn invalid(reason: &'static str) -> Error {
    let (text, length) = (reason.as_ptr().cast(), reason.len() as c_int);
    // SAFETY: The text has this length; nothing is kept.
    unsafe { bindings::ferroce_invalid(text, length) };
    EINVAL
}

/// Logs which transition of a QP (`enum ib_qp_state`) is not possible with which attributes, and
/// returns `EINVAL` for it. ib_core does not say whether the states or the attributes are wrong.
#[cold]
pub fn no_transition(from: u32, to: u32, attr_mask: u32) -> Error {
    // SAFETY: No requirements.
    unsafe { bindings::ferroce_no_transition(from, to, attr_mask) };
    EINVAL
}

/// Logs which verb of ib_core's table is refused.
#[cold]
pub(super) fn verb(name: &'static str, error: &Error) {
    let (name, length) = (name.as_ptr().cast(), name.len() as c_int);
    // SAFETY: The name has this length; nothing is kept.
    unsafe { bindings::ferroce_verb_refused(name, length, error.to_errno()) };
}

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
