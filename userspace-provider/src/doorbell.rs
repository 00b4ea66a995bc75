// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! The command that makes the module look at a queue.
//!
//! It is the uverbs command POST_SEND or POST_RECV with no work request in it: uverbs looks the QP
//! up and calls the module, which finds the requests in the shared ring. Layout: `struct
//! ib_uverbs_cmd_hdr` and `struct ib_uverbs_post_send` of `rdma/ib_user_verbs.h`.

use zerocopy_derive::{Immutable, IntoBytes, KnownLayout};

/// Which queue to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// The whole command, as it is written to the command file descriptor.
#[derive(Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Doorbell {
    command: u32,
    /// Length of the command in units of 4 bytes, the header included.
    in_words: u16,
    /// Length of the response in units of 4 bytes.
    out_words: u16,
    response: u64,
    qp_handle: u32,
    wr_count: u32,
    sge_count: u32,
    /// uverbs insists on the size of a request although there is none.
    wqe_size: u32,
}

/// IB_USER_VERBS_CMD_POST_SEND.
pub const POST_SEND: u32 = 28;
/// IB_USER_VERBS_CMD_POST_RECV.
pub const POST_RECV: u32 = 29;
/// Size of `struct ib_uverbs_send_wr`.
pub const SEND_WR_SIZE: u32 = 56;
/// Size of `struct ib_uverbs_recv_wr`.
pub const RECV_WR_SIZE: u32 = 16;

/// The response, `struct ib_uverbs_post_send_resp`: the position of a bad request, of no use here.
pub type Response = u32;

impl Doorbell {
    /// A command for a queue of the QP that uverbs knows as `qp_handle`; `response` is the address
    /// of a [`Response`].
    pub fn new(queue: Queue, qp_handle: u32, response: u64) -> Self {
        let (command, wqe_size) = match queue {
            Queue::Send => (POST_SEND, SEND_WR_SIZE),
            Queue::Recv => (POST_RECV, RECV_WR_SIZE),
        };
        Self {
            command,
            in_words: (size_of::<Self>() / 4) as u16,
            out_words: (size_of::<Response>() / 4) as u16,
            response,
            qp_handle,
            wr_count: 0,
            sge_count: 0,
            wqe_size,
        }
    }
}

const _: () = assert!(size_of::<Doorbell>() == 32);

/// Where the members are, by their C names in `struct ibv_post_send`.
#[cfg(test)]
pub const OFFSETS: [(&str, usize); 8] = {
    use core::mem::offset_of;
    [
        ("hdr.command", offset_of!(Doorbell, command)),
        ("hdr.in_words", offset_of!(Doorbell, in_words)),
        ("hdr.out_words", offset_of!(Doorbell, out_words)),
        ("response", offset_of!(Doorbell, response)),
        ("qp_handle", offset_of!(Doorbell, qp_handle)),
        ("wr_count", offset_of!(Doorbell, wr_count)),
        ("sge_count", offset_of!(Doorbell, sge_count)),
        ("wqe_size", offset_of!(Doorbell, wqe_size)),
    ]
};
