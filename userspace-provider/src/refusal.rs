// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Reasons of refusals, in libibverbs' own log, because an errno says little. They are written
//! where `VERBS_LOG_LEVEL` and `VERBS_LOG_FILE` ask for them; elsewhere a refusal costs nothing
//! more.

use crate::ffi::{layout::AhAttr, log};
use core::{fmt::Display, ops::RangeInclusive};
use libc::{c_int, EAGAIN, EHOSTUNREACH, EINVAL, ENETUNREACH, ENODATA, ENOMEM, ETIMEDOUT};

/// A requested attribute, its value, and its maximum.
pub type Asked<'a> = (&'a str, u64, u64);

/// Says why, and returns the error.
#[cold]
pub fn reject(error: c_int, why: impl Display) -> c_int {
    if log::is_wanted() {
        let error = std::io::Error::from_raw_os_error(error);
        log::write(&format!("ferroce: {why}: {error}\n"));
    }
    error
}

/// Says which attribute is not within its range, and returns the error.
#[cold]
pub fn refuse(error: c_int, attribute: &str, value: u64, range: RangeInclusive<u64>) -> c_int {
    let (least, most) = range.into_inner();
    reject(
        error,
        format_args!("{attribute} is {value} ({value:#x}), and may be {least} to {most}"),
    )
}

/// EINVAL for a value beyond the most that there is.
#[inline]
pub fn at_most(attribute: &str, value: u64, most: u64) -> Result<(), c_int> {
    if value > most {
        return Err(refuse(EINVAL, attribute, value, 0..=most));
    }
    Ok(())
}

/// The kernel has refused a verb: which of the attributes is beyond what the module has, or, if
/// none is, where to read more. `bytes` is the memory that the object is made of.
#[cold]
pub fn by_kernel(error: c_int, verb: &str, asked: &[Asked<'_>], bytes: u64) -> c_int {
    let mut beyond = asked.iter().filter(|(_, value, most)| value > most);
    if let Some((attribute, value, most)) = beyond.next() {
        reject(
            error,
            format_args!("{verb}: {attribute} is {value}, and may be 0 to {most}"),
        );
        for (attribute, value, most) in beyond {
            refuse(error, attribute, *value, 0..=*most);
        }
        return error;
    }
    if error == ENOMEM {
        return reject(
            error,
            format_args!(
                "{verb}: no memory for {bytes} bytes; regions and rings count against \
                 RLIMIT_MEMLOCK (ulimit -l); or the device has as many objects as it reports"
            ),
        );
    }
    if error == EAGAIN {
        return reject(
            error,
            format_args!("{verb}: the limit of a cgroup is reached (rdma.max)"),
        );
    }
    reject(
        error,
        format_args!(
            "{verb}: the kernel refuses it; after echo 'module ferroce +p' \
             >/proc/dynamic_debug/control its log says why, if it was the module"
        ),
    )
}

/// The kernel has refused a path to a peer. Most of them ib_core refuses, of which the module hears
/// nothing and its log says nothing.
#[cold]
pub fn of_path(error: c_int, verb: &str, path: &AhAttr) -> c_int {
    let index = path.sgid_index;
    match error {
        EINVAL if path.is_global == 0 => reject(
            error,
            format_args!(
                "{verb}: is_global is 0, and RoCE needs a GID in sgid_index (for many programs -g \
                 INDEX; ferroce show names it)"
            ),
        ),
        ENODATA => reject(
            error,
            format_args!("{verb}: there is no GID {index}; ferroce show lists the GIDs"),
        ),
        ETIMEDOUT | EHOSTUNREACH | ENETUNREACH => reject(
            error,
            format_args!(
                "{verb}: no way to the address of dgid from that of GID {index}: no route, or no \
                 machine has it (ip neigh)"
            ),
        ),
        _ => by_kernel(error, verb, &[], 0),
    }
}
