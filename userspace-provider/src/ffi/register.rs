// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Registration of the provider with libibverbs: the constructor, and the matched devices.

use super::{
    context::{alloc_context, import_context},
    layout::*,
    library,
    memory::{fail, Object},
};
use core::ptr;
use ferroce_core::uabi;
use std::io::Write;

/// A table that C reads; it holds pointers and is never written.
#[repr(transparent)]
struct Table<T>(T);

// SAFETY: A table is never written, and its pointers are valid for ever.
unsafe impl<T> Sync for Table<T> {}

/// Devices are matched by driver id and ABI version: their names are the administrator's choice.
/// libibverbs leaves out a device whose version is out of the range; its warning names both. When a
/// device is opened, a signature says that the driver is ferroce.
static MATCH: Table<[VerbsMatchEnt; 2]> = Table([
    VerbsMatchEnt {
        driver_data: ptr::null_mut(),
        driver_id: uabi::DRIVER_ID as u64,
        vendor: 0,
        device: 0,
        kind: MATCH_DRIVER_ID,
    },
    VerbsMatchEnt {
        driver_data: ptr::null_mut(),
        driver_id: 0,
        vendor: 0,
        device: 0,
        kind: 0,
    },
]);

static DEVICE_OPS: Table<VerbsDeviceOps> = Table(VerbsDeviceOps {
    name: c"ferroce".as_ptr(),
    match_min_abi_version: uabi::OLDEST_ABI_VERSION,
    match_max_abi_version: uabi::ABI_VERSION,
    match_table: (&raw const MATCH.0).cast(),
    static_providers: ptr::null_mut(),
    match_device: None,
    alloc_context: Some(alloc_context),
    import_context: Some(import_context),
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

/// An ELF note with the versions of the contract. It can be read without loading the file, to find
/// out why no provider fits a device.
#[repr(C)]
struct Note {
    name_size: u32,
    size: u32,
    kind: u32,
    name: [u8; 8],
    newest: u32,
    oldest: u32,
}

#[used]
#[cfg_attr(not(test), link_section = ".note.ferroce")]
static NOTE: Note = Note {
    name_size: 8,
    size: 8,
    kind: 1,
    name: *b"ferroce\0",
    newest: uabi::ABI_VERSION,
    oldest: uabi::OLDEST_ABI_VERSION,
};

/// Registers the provider with the libibverbs that has loaded it.
///
/// A libibverbs that is not understood gets no provider: its devices stay unusable, which one line
/// on stderr explains.
extern "C" fn constructor() {
    match library::load() {
        // SAFETY: The table is of the shape that the ABI asks for, and lives for ever.
        Ok(register) => unsafe { register(&raw const DEVICE_OPS.0) },
        // Not by `eprintln!`, which ends the process if stderr cannot be written to.
        Err(why) => {
            let _ = writeln!(
                std::io::stderr(),
                "libferroce: {why}: ferroce devices cannot be used"
            );
        }
    }
}

/// Called by the loader. A test is no provider.
#[used]
#[cfg_attr(not(test), link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

unsafe extern "C" fn alloc_device(_sysfs: Opaque) -> *mut VerbsDevice {
    // SAFETY: A device is bytes; libibverbs fills them in.
    unsafe { Object::<VerbsDevice>::zeroed() }.map_or_else(fail, Object::leak)
}

unsafe extern "C" fn uninit_device(device: *mut VerbsDevice) {
    // SAFETY: libibverbs gives back what `alloc_device` returned, once.
    drop(unsafe { Object::reclaim(device) });
}
