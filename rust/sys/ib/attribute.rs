// SPDX-License-Identifier: GPL-2.0

//! Files of a device in sysfs (`/sys/class/infiniband/NAME/...`).

use super::object::Object;
use crate::sys::bindings;
use core::ptr::NonNull;
use kernel::error::from_result;
use kernel::fmt::Write;
use kernel::prelude::*;
use kernel::str::{
    CStrExt,
    Formatter, //
};

/// One file of each device. `D` is what a device is to the driver.
pub struct Attribute<D: 'static> {
    /// Name of the file.
    pub name: &'static CStr,
    /// Writes what the file contains.
    pub show: fn(&D, &mut dyn Write) -> kernel::fmt::Result,
    /// Takes what was written to the file; without it the file is for reading only.
    pub store: Option<fn(&D, &CStr) -> Result>,
}

/// A driver whose devices have files.
pub trait HasAttributes: 'static {
    /// What a device is.
    type Device: Send + Sync + 'static;
    /// The files, at most as many as the shim has places for.
    const ATTRIBUTES: &'static [Attribute<Self::Device>];
}

/// Installs the files. Once, before the first device.
pub fn install<H: HasAttributes>() {
    const { assert!(H::ATTRIBUTES.len() <= bindings::FERROCE_MAX_ATTRIBUTES as usize) };
    for attribute in H::ATTRIBUTES {
        // SAFETY: No device exists yet, so that nobody reads what is changed; the name is constant,
        // and there are places enough.
        unsafe {
            bindings::ferroce_add_attribute(
                attribute.name.as_char_ptr(),
                Some(show::<H>),
                match attribute.store {
                    Some(_) => Some(store::<H>),
                    None => None,
                },
            )
        };
    }
}

/// # Safety
///
/// `device` must be registered, with a driver's part that is an `H::Device`.
unsafe fn device<'a, H: HasAttributes>(device: *mut bindings::ib_device) -> Result<&'a H::Device> {
    let device = NonNull::new(device).ok_or(ENODEV)?;
    // SAFETY: By the requirement.
    Ok(unsafe { Object::<bindings::ib_device, H::Device>::private(device) })
}

/// # Safety
///
/// For the shim alone, and devices as [`device`] wants them: `buf` is a page.
unsafe extern "C" fn show<H: HasAttributes>(
    dev: *mut bindings::ib_device,
    index: c_uint,
    buf: *mut c_char,
) -> isize {
    from_result(|| {
        let attribute = H::ATTRIBUTES.get(index as usize).ok_or(EINVAL)?;
        // SAFETY: By the requirement; sysfs has zeroed the page.
        let page = unsafe { core::slice::from_raw_parts_mut(buf, bindings::PAGE_SIZE) };
        let mut text = Formatter::new(page);
        // SAFETY: By the requirement.
        (attribute.show)(unsafe { device::<H>(dev) }?, &mut text).map_err(|_| ENOSPC)?;
        Ok(text.bytes_written() as isize)
    })
}

/// # Safety
///
/// For the shim alone, and devices as [`device`] wants them: `buf` is a C string.
unsafe extern "C" fn store<H: HasAttributes>(
    dev: *mut bindings::ib_device,
    index: c_uint,
    buf: *const c_char,
) -> c_int {
    from_result(|| {
        let attribute = H::ATTRIBUTES.get(index as usize).ok_or(EINVAL)?;
        let store = attribute.store.ok_or(EACCES)?;
        // SAFETY: By the requirement.
        store(unsafe { device::<H>(dev) }?, unsafe {
            CStr::from_char_ptr(buf)
        })?;
        Ok(0)
    })
}
