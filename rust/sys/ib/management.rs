// SPDX-License-Identifier: GPL-2.0

//! Management queries: counters by MADs, version, node description.

use super::call::Argument;
use super::reference::Reference;
use crate::sys::bindings;
use kernel::fmt::Write;
use kernel::prelude::*;
use kernel::str::Formatter;

/// A management datagram.
pub type Mad = [u8; 256];

/// A received MAD.
pub(super) struct Question<'a>(pub(super) &'a Mad);

impl Argument for Question<'_> {
    type Raw = *const bindings::ib_mad;

    unsafe fn from_raw(raw: *const bindings::ib_mad) -> Result<Self> {
        // SAFETY: By the requirement; a `struct ib_mad` has as many bytes, and any values.
        Ok(Self(unsafe { raw.cast::<Mad>().as_ref() }.ok_or(EINVAL)?))
    }
}

/// Buffer of the response.
pub(super) struct MadReply<'a>(&'a mut Mad);

impl Argument for MadReply<'_> {
    type Raw = *mut bindings::ib_mad;

    unsafe fn from_raw(raw: *mut bindings::ib_mad) -> Result<Self> {
        // SAFETY: As above; only the operation uses it meanwhile.
        Ok(Self(unsafe { raw.cast::<Mad>().as_mut() }.ok_or(EINVAL)?))
    }
}

impl MadReply<'_> {
    /// Answers so, or leaves it to others; returns what ib_core wants to know.
    pub(super) fn give(self, answer: Option<Mad>) -> c_int {
        let mut result = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
        if let Some(answer) = answer {
            *self.0 = answer;
            result |= bindings::ib_mad_result_IB_MAD_RESULT_REPLY;
        }
        result as c_int
    }
}

/// Buffer of the firmware version, as text.
pub(super) struct FirmwareText<'a>(&'a mut [c_char; LEN]);

/// Bytes of that text.
const LEN: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;

impl Argument for FirmwareText<'_> {
    type Raw = *mut c_char;

    unsafe fn from_raw(raw: *mut c_char) -> Result<Self> {
        // SAFETY: By the requirement; all callers have so many bytes.
        let text = unsafe { raw.cast::<[c_char; LEN]>().as_mut() };
        Ok(Self(text.ok_or(EINVAL)?))
    }
}

impl FirmwareText<'_> {
    /// Writes major, minor and patch.
    pub(super) fn write(self, [major, minor, patch]: [u16; 3]) -> Result {
        let Some((end, text)) = self.0.split_last_mut() else {
            return Err(EINVAL);
        };
        let mut out = Formatter::new(text);
        write!(out, "{major}.{minor}.{patch}").map_err(|_| EINVAL)?;
        let written = out.bytes_written();
        if let Some(end) = text.get_mut(written) {
            *end = 0;
        }
        *end = 0;
        Ok(())
    }
}

impl Reference<'_, bindings::ib_device> {
    /// Sets the node description; a concurrent reader may see a mixture.
    pub(super) fn describe_node(self, modify: &mut bindings::ib_device_modify) {
        // A line that was written to the file in sysfs ends with its text.
        if let Some(end) = modify.node_desc.iter_mut().rfind(|byte| **byte != 0) {
            if *end == b'\n' {
                *end = 0;
            }
        }
        // SAFETY: By the type invariant.
        unsafe { bindings::ferroce_copy_node_desc(self.as_raw(), modify) };
    }
}
