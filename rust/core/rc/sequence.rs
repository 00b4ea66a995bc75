// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Packets counted from the beginning of a connection, in 64 bits that never wrap.
//!
//! A PSN has 24 bits and no order. Inside the transport a packet therefore has a *sequence*: how
//! many packets of the connection were before it. This file is the only place where one becomes
//! the other.

use crate::core::wire::psn::Psn;

/// How many packets of a connection came before a packet.
pub(super) type Sequence = u64;

/// The relation between sequences and PSNs of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// The PSN of sequence 0.
    base: Psn,
}

impl Numbering {
    #[inline]
    pub(super) const fn new(base: Psn) -> Self {
        Self { base }
    }

    /// The PSN of a packet.
    #[inline]
    pub(super) const fn psn(self, sequence: Sequence) -> Psn {
        // The cast keeps the sequence modulo 2^32, a multiple of 2^24.
        self.base.add(sequence as u32)
    }

    /// The sequence of the packet with this PSN that is nearest to `near`.
    ///
    /// `None` if that packet would be before the first one of the connection.
    #[inline]
    pub(super) const fn sequence(self, psn: Psn, near: Sequence) -> Option<Sequence> {
        let distance = psn.distance_from(self.psn(near));
        near.checked_add_signed(distance as i64)
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(
    CONFIG_KUNIT = "y",
    kernel::prelude::kunit_tests(ferroce_core_sequence)
)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_across_the_wrap() {
        let numbering = Numbering::new(Psn::new(0xff_fff0));
        for near in [0u64, 0x10, 0x100_0000, 0x1_0000_0008, u64::from(u32::MAX)] {
            for step in [0u64, 1, 15, 16, 17, (1 << 23) - 1] {
                let sequence = near + step;
                let psn = numbering.psn(sequence);
                assert_eq!(numbering.sequence(psn, near), Some(sequence));
                assert_eq!(
                    numbering.sequence(numbering.psn(near), sequence),
                    Some(near)
                );
            }
        }
    }

    #[test]
    fn nothing_is_before_the_beginning() {
        let numbering = Numbering::new(Psn::new(5));
        assert_eq!(numbering.sequence(Psn::new(4), 0), None);
        assert_eq!(numbering.sequence(Psn::new(4), 1), None);
        assert_eq!(numbering.sequence(Psn::new(5), 1), Some(0));
    }
}
