// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What travels behind the core's own structures in the verbs commands (`udata`).
//!
//! A command without an entry here carries nothing. A structure may grow at its end in a later
//! minor revision: both sides accept a longer one whose tail is zero.

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Where to map a ring: the arguments of `mmap` on the command file descriptor, and its shape.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RingMap {
    /// Offset for `mmap`.
    pub offset: u64,
    /// Length for `mmap`, whole pages; 0 if there is no such ring.
    pub length: u64,
    /// Slots, a power of two.
    pub entries: u32,
    /// Bytes from one slot to the next.
    pub stride: u32,
}

/// Request of `alloc_ucontext`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocUcontextReq {
    /// Features that the provider can use; none in version 1.
    pub features: u64,
}

/// Response of `alloc_ucontext`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocUcontextResp {
    /// Features that both sides have.
    pub features: u64,
}

/// Response of `create_cq`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCqResp {
    /// The completion queue: slots are [`super::cqe::Cqe`].
    pub cq: RingMap,
}

/// Response of `create_qp`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateQpResp {
    /// The send queue: slots are [`super::wqe::SendWqe`].
    pub sq: RingMap,
    /// The receive queue: slots are [`super::wqe::RecvWqe`].
    pub rq: RingMap,
}

const _: () = {
    assert!(size_of::<RingMap>() == 24);
    assert!(size_of::<AllocUcontextReq>() == 8 && size_of::<AllocUcontextResp>() == 8);
    assert!(size_of::<CreateCqResp>() == 24 && size_of::<CreateQpResp>() == 48);
};
