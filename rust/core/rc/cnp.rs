// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! When a responder sends a congestion notification (CNP): the network has marked a packet of its
//! peer (RoCEv2, IBTA annex A17.9.3).

/// Nanoseconds between two notifications: as adapters have it, far below a round trip with a
/// queue in it, and far above the time of a packet.
const INTERVAL: u64 = 50_000;

/// The pace of a QP's notifications.
#[derive(Clone, Copy, Debug, Default)]
pub struct CnpPacer {
    /// No notification is sent before this time.
    not_before: u64,
}

impl CnpPacer {
    /// A marked packet came. Returns whether the peer is to be notified.
    pub fn due(&mut self, now: u64) -> bool {
        if now < self.not_before {
            return false;
        }
        self.not_before = now.saturating_add(INTERVAL);
        true
    }
}

#[cfg(any(test, CONFIG_KUNIT = "y"))]
#[cfg_attr(CONFIG_KUNIT = "y", kernel::prelude::kunit_tests(ferroce_core_cnp))]
mod tests {
    use super::*;

    #[test]
    fn one_at_most_in_an_interval() {
        let mut cnp = CnpPacer::default();
        let told: u32 = (0..1000).map(|us| u32::from(cnp.due(us * 1000))).sum();
        assert_eq!(told, 20);
    }
}
