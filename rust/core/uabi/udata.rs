// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Driver data of the verbs commands (`udata`), behind the core's own structures.
//!
//! A command without an entry here carries nothing. A structure may grow at its end: a receiver
//! accepts one of the length below or a longer one, and takes what is missing for zero.

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

/// Says in the response of `alloc_ucontext` that the driver with our id is ferroce indeed.
pub const SIGNATURE: u64 = u64::from_ne_bytes(*b"ferroce2");

/// Request of `alloc_ucontext`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocUcontextReq {
    /// Features that the provider can use; no bit is assigned yet.
    pub features: u64,
}

/// Response of `alloc_ucontext`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AllocUcontextResp {
    /// [`SIGNATURE`].
    pub signature: u64,
    /// Features that both sides have.
    pub features: u64,
    /// Key of memory that reads as zeros and swallows what is written; 0 if there is none.
    pub null_lkey: u32,
    /// The `clockid_t` of `clock_gettime` whose nanoseconds [`super::cqe::Cqe::timestamp`] counts.
    pub clock: u32,
}

/// The value of [`AllocUcontextResp::null_lkey`]. An importer of a context gets no response, so
/// it does not change.
pub const NULL_LKEY: u32 = 0xffff_ff00;

/// CLOCK_MONOTONIC_RAW, the value of [`AllocUcontextResp::clock`].
pub const CLOCK: u32 = 4;

/// Response of `create_ah`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateAhResp {
    /// The number that a datagram names the address handle by ([`super::wqe::SendWqe::ah`]); 0 if
    /// it cannot be used for datagrams.
    pub number: u32,
    /// 0.
    pub reserved: u32,
}

/// Response of `create_cq` and of `resize_cq`.
///
/// After `resize_cq` the new ring holds the completions that were not consumed, under the indices
/// that they had; the arm word moves along. The provider keeps its lock over the command.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateCqResp {
    /// The completion queue: slots are [`super::cqe::Cqe`].
    pub cq: RingMap,
}

/// Response of `create_srq`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateSrqResp {
    /// The shared receive queue: slots are [`super::wqe::RecvWqe`].
    pub srq: RingMap,
}

/// Response of `create_qp`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateQpResp {
    /// The send queue: slots are [`super::wqe::SendWqe`]. All zero if the QP has none (XRC target).
    pub sq: RingMap,
    /// The receive queue: slots are [`super::wqe::RecvWqe`]. All zero if the QP has none (with a
    /// shared receive queue, XRC).
    pub rq: RingMap,
}

const _: () = {
    assert!(size_of::<RingMap>() == 24);
    assert!(size_of::<AllocUcontextReq>() == 8 && size_of::<AllocUcontextResp>() == 24);
    assert!(size_of::<CreateAhResp>() == 8 && size_of::<CreateSrqResp>() == 24);
    assert!(size_of::<CreateCqResp>() == 24 && size_of::<CreateQpResp>() == 48);
};
