// SPDX-License-Identifier: GPL-2.0

//! The types and the states of QPs.

use crate::sys::bindings;

/// The type of a QP, a number of `enum ib_qp_type`; which of them are served is the driver's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IbQpType(bindings::ib_qp_type);

impl IbQpType {
    /// The receiving end of an extended reliable connection: shared by processes, so that it has
    /// no file, and is no QP of the kernel either.
    pub(super) const XRC_TARGET: Self = Self(bindings::ib_qp_type_IB_QPT_XRC_TGT);

    /// Whether it is the QP of management datagrams, of which each device has one.
    pub fn is_management(self) -> bool {
        self.0 == bindings::ib_qp_type_IB_QPT_GSI
    }

    pub(super) fn from_raw(raw: bindings::ib_qp_type) -> Self {
        Self(raw)
    }

    pub(super) fn as_raw(self) -> bindings::ib_qp_type {
        self.0
    }

    /// The number.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The states of a QP (IBTA 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum QpState {
    /// Nothing is set up; nothing may be posted.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue finishes what it began.
    Sqd = 4,
    /// The send queue had an error (not RC).
    Sqe = 5,
    /// Everything is flushed.
    Err = 6,
}

impl QpState {
    /// From `enum ib_qp_state`.
    pub fn from_raw(raw: u32) -> Option<QpState> {
        Some(match raw {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            6 => QpState::Err,
            _ => return None,
        })
    }
}
