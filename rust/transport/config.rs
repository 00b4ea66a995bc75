// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What a connection is configured with: the attributes of `ibv_modify_qp` that the transport needs.

use crate::wire::psn::Psn;

/// The largest message: 2^31 bytes (IBTA 9.7.4.1.6, `max_msg_sz`).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// The most RDMA READs that a responder queues, or a requester has outstanding.
pub const MAX_RD_ATOMIC: u8 = 16;

/// A path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Binary logarithm, 8..=12.
    shift: u8,
}

impl Mtu {
    /// The smallest one, 256 bytes.
    pub const MIN: Mtu = Mtu { shift: 8 };

    /// The path MTU of `bytes`, or `None` if IBTA has no such one.
    #[inline]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Mtu { shift: 8 }),
            512 => Some(Mtu { shift: 9 }),
            1024 => Some(Mtu { shift: 10 }),
            2048 => Some(Mtu { shift: 11 }),
            4096 => Some(Mtu { shift: 12 }),
            _ => None,
        }
    }

    /// In bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1u32.wrapping_shl(self.shift as u32)
    }

    /// How many packets carry `length` bytes: at least one (IBTA 9.7.2).
    #[inline]
    pub const fn packets(self, length: u32) -> u32 {
        if length == 0 {
            return 1;
        }
        // The length is not 0, and the quotient is below 2^24.
        length
            .wrapping_sub(1)
            .wrapping_shr(self.shift as u32)
            .wrapping_add(1)
    }

    /// The bytes of `packets` full packets.
    ///
    /// 64 bits, because the packet count may be anything.
    #[inline]
    pub const fn span_bytes(self, packets: u32) -> u64 {
        (packets as u64).wrapping_shl(self.shift as u32)
    }
}

/// The attributes of the sending side, from the transition to RTS (and the path MTU of RTR).
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub sq_psn: Psn,
    /// How often the same packet is sent again after a timeout or a NAK before the QP gives up:
    /// 0..=7, and 7 means seven (IBTA 9.9.2.1.1).
    pub retry_cnt: u8,
    /// How often a message is sent again after an RNR NAK: 0..=7, 7 means for ever.
    pub rnr_retry: u8,
    /// The Local ACK Timeout in nanoseconds; `None` waits for ever.
    pub ack_timeout_ns: Option<u64>,
    /// RDMA READs outstanding at a time, at most [`MAX_RD_ATOMIC`].
    pub max_rd_atomic: u8,
}

/// The attributes of the receiving side, from the transition to RTR.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// Path MTU.
    pub mtu: Mtu,
    /// PSN of the first packet.
    pub rq_psn: Psn,
    /// RDMA READs that the peer may have outstanding, at most [`MAX_RD_ATOMIC`].
    pub max_dest_rd_atomic: u8,
    /// The code of the delay that RNR NAKs ask for, 5 bits: [`crate::wire::headers::rnr_delay_ns`].
    pub min_rnr_timer: u8,
    /// The peer may read (`IBV_ACCESS_REMOTE_READ` of the QP).
    pub allow_read: bool,
    /// The peer may write (`IBV_ACCESS_REMOTE_WRITE` of the QP).
    pub allow_write: bool,
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_transport_config)
)]
mod tests {
    use super::*;

    #[test]
    fn only_the_five_mtus_exist() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(Mtu::from_bytes(bytes).map(Mtu::bytes), Some(bytes));
        }
        for bytes in [0, 1, 255, 300, 8192, u32::MAX] {
            assert_eq!(Mtu::from_bytes(bytes), None);
        }
    }

    #[test]
    fn packets_of_a_message() {
        let mtu = Mtu::from_bytes(1024).unwrap();
        assert_eq!(mtu.packets(0), 1);
        assert_eq!(mtu.packets(1), 1);
        assert_eq!(mtu.packets(1024), 1);
        assert_eq!(mtu.packets(1025), 2);
        assert_eq!(Mtu::MIN.packets(MAX_MESSAGE), 1 << 23);
        assert_eq!(Mtu::MIN.packets(u32::MAX), 1 << 24);
    }
}
