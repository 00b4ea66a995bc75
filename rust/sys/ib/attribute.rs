// SPDX-License-Identifier: GPL-2.0

//! Files of a device in sysfs (`/sys/class/infiniband/NAME/...`).

use super::object::Object;
use crate::sys::bindings;
use core::any::TypeId;
use core::ptr::NonNull;
use kernel::error::from_result;
use kernel::fmt::Write;
use kernel::prelude::*;
use kernel::str::{
    CStrExt,
    Formatter, //
};
use kernel::sync::atomic::{
    Atomic,
    Full, //
};
use kernel::sync::SetOnce;

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
    /// The device type.
    type Device: Send + Sync + 'static;
    /// The files, at most as many as the shim has places for.
    const ATTRIBUTES: &'static [Attribute<Self::Device>];
}

/// Whose files the shim has, once it has all of them.
static INSTALLED: SetOnce<TypeId> = SetOnce::new();

/// Gives the files to the shim. Devices that are made before have none.
///
/// # Errors
///
/// `EBUSY` if it has some already: it serves one driver.
pub fn install<H: HasAttributes>() -> Result {
    static BEGUN: Atomic<bool> = Atomic::new(false);
    const { assert!(H::ATTRIBUTES.len() <= bindings::FERROCE_MAX_ATTRIBUTES as usize) };
    if BEGUN.xchg(true, Full) {
        return Err(EBUSY);
    }
    for (place, attribute) in H::ATTRIBUTES.iter().enumerate() {
        // SAFETY: `group` lends nobody what is changed here, as `INSTALLED` is empty; nobody else
        // changes it, as `BEGUN` was false. The name is constant, and there is such a place.
        unsafe {
            bindings::ferroce_set_attribute(
                place as c_uint,
                attribute.name.as_char_ptr(),
                Some(show::<H>),
                match attribute.store {
                    Some(_) => Some(store::<H>),
                    None => None,
                },
            )
        };
    }
    INSTALLED.populate(TypeId::of::<H>());
    Ok(())
}

/// The files that devices of `H` have, for the table of operations: those of [`install`], or none.
pub(super) fn group<H: HasAttributes>() -> *const bindings::attribute_group {
    match INSTALLED.as_ref() {
        Some(owner) if *owner == TypeId::of::<H>() => {
            core::ptr::addr_of!(bindings::ferroce_device_group)
        }
        _ => core::ptr::null(),
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
