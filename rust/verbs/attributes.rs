// SPDX-License-Identifier: GPL-2.0

//! Files of a device in sysfs.

use super::device::Device;
use crate::sys::ib::device::Attribute;
use kernel::prelude::fmt;
use kernel::str::kstrtobool;

/// All of them.
pub const ATTRIBUTES: &[Attribute<Device>] = &[
    // The netdev below, as udev and rdma-core look for it.
    Attribute {
        name: c"parent",
        show: |device, text| text.write_fmt(fmt!("{}\n", device.underlay().netdev().name())),
        store: None,
    },
    // Whether messages between QPs of the device go without packets.
    Attribute {
        name: c"local_path",
        show: |device, text| text.write_fmt(fmt!("{}\n", u8::from(device.port().local_path()))),
        store: Some(|device, text| {
            device.port().set_local_path(kstrtobool(text)?);
            Ok(())
        }),
    },
];
