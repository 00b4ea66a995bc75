// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Messages and packets: how a message is cut, and how long each piece has to be (IBTA 9.7.2,
//! 9.7.4.1.6). Requester and responder share it, so that the one cuts as the other expects.

/// The largest message: 2^31 bytes (IBTA 9.7.4.1.6, `max_msg_sz`).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Most bytes that a packet with payload adds to it: IPv6, UDP, BTH, RETH, immediate data, ICRC. A
/// netdev MTU of 1500 gives 1024, and one of 4200 gives 4096.
const MAX_OVERHEAD: u32 = 40 + 8 + 12 + 16 + 4 + 4;

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

    /// The greatest one whose packets fit a netdev of this MTU; the smallest if none does.
    pub const fn of_netdev(netdev_mtu: u32) -> Self {
        let shift = match netdev_mtu.saturating_sub(MAX_OVERHEAD) {
            4096.. => 12,
            2048.. => 11,
            1024.. => 10,
            512.. => 9,
            _ => 8,
        };
        Mtu { shift }
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

/// A run of packets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// It begins the message.
    pub first: bool,
    /// It ends the message.
    pub last: bool,
    /// Where its bytes begin in the message.
    pub offset: u32,
    /// How many bytes it has.
    pub len: u32,
}

/// The packets `packet..packet + span` of a message of `length` bytes, which has them.
#[inline]
pub const fn cut(mtu: Mtu, length: u32, packet: u32, span: u32) -> Piece {
    // The packets are the message's, so the offset is not beyond the length, at most 2^31.
    let offset = mtu.span_bytes(packet) as u32;
    let rest = length.saturating_sub(offset);
    let full = mtu.span_bytes(span);
    Piece {
        first: packet == 0,
        last: packet.wrapping_add(span) == mtu.packets(length),
        offset,
        len: if full < rest as u64 {
            full as u32
        } else {
            rest
        },
    }
}

/// Whether `len` bytes are what `span` packets at this place of a message carry: full packets, and
/// a last one that is not empty unless it is the only one.
#[inline]
pub const fn is_cut_so(mtu: Mtu, span: u32, first: bool, last: bool, len: u32) -> bool {
    let full = mtu.span_bytes(span);
    let len = len as u64;
    if span == 0 {
        return false;
    }
    if !last {
        return len == full;
    }
    let may_be_empty = first && span == 1;
    len <= full && (may_be_empty || len > full.wrapping_sub(mtu.bytes() as u64))
}

/// The bytes of a SEND of which `received` have come, with `len` more of them. `None` if a receive
/// of `capacity` bytes does not hold them, or no message may have so many.
#[inline(always)]
pub const fn received_with(received: u32, len: u32, capacity: u64) -> Option<u32> {
    match received.checked_add(len) {
        Some(total) if total <= MAX_MESSAGE && total as u64 <= capacity => Some(total),
        _ => None,
    }
}

/// Whether a packet may bring `len` bytes of an RDMA WRITE, of which `received` have come: the
/// `length` in the RETH is reached with the last packet, not before (IBTA 9.7.4.1.6).
#[inline(always)]
pub const fn is_due_to_write(length: u32, received: u32, len: u32, last: bool) -> bool {
    let rest = length.saturating_sub(received);
    length <= MAX_MESSAGE && if last { len == rest } else { len < rest }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_message))]
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
    fn a_netdev_has_room_for_the_longest_headers() {
        for (netdev, path) in [
            (68, 256),
            (595, 256),
            (596, 512),
            (1107, 512),
            (1108, 1024),
            (1500, 1024),
            (2131, 1024),
            (2132, 2048),
            (4179, 2048),
            (4180, 4096),
            (u32::MAX, 4096),
        ] {
            assert_eq!(Mtu::of_netdev(netdev).bytes(), path);
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

    #[test]
    fn a_send_fits_its_receive() {
        assert_eq!(received_with(0, 8, 8), Some(8));
        assert_eq!(received_with(4, 5, 8), None);
        assert_eq!(received_with(u32::MAX, 1, u64::MAX), None);
        assert_eq!(received_with(MAX_MESSAGE, 0, u64::MAX), Some(MAX_MESSAGE));
        assert_eq!(received_with(MAX_MESSAGE, 1, u64::MAX), None);
    }

    #[test]
    fn a_write_has_the_length_that_it_promised() {
        assert!(is_due_to_write(600, 512, 88, true) && is_due_to_write(0, 0, 0, true));
        assert!(is_due_to_write(600, 256, 256, false));
        for (received, len, last) in [
            (512, 87, true),
            (512, 89, true),
            (512, 88, false),
            (700, 1, true),
        ] {
            assert!(!is_due_to_write(600, received, len, last));
        }
        assert!(!is_due_to_write(MAX_MESSAGE + 1, MAX_MESSAGE, 1, true));
    }

    /// Whatever is cut off a message is what the other side accepts at that place.
    #[test]
    fn what_is_cut_is_accepted() {
        let mtu = Mtu::MIN;
        for length in [0, 1, 255, 256, 257, 512, 513, 1024] {
            let packets = mtu.packets(length);
            for packet in 0..packets {
                for span in 1..=packets - packet {
                    let piece = cut(mtu, length, packet, span);
                    let Piece {
                        first,
                        last,
                        offset,
                        len,
                    } = piece;
                    assert!(is_cut_so(mtu, span, first, last, len));
                    assert_eq!(offset, packet * 256);
                    assert_eq!(last, offset + len == length && packet + span == packets);
                    assert!(!is_cut_so(mtu, span, first, last, span * 256 + 1));
                    assert!(last || !is_cut_so(mtu, span, first, last, len - 1));
                }
            }
        }
        assert!(!is_cut_so(mtu, 0, true, true, 0));
        assert!(!is_cut_so(mtu, 1, false, true, 0));
        assert!(!is_cut_so(mtu, 2, true, true, 256));
        assert!(is_cut_so(mtu, 1, true, true, 0));
    }
}
