// SPDX-License-Identifier: GPL-2.0

//! The counters that every RDMA port has (IBTA 16.1.3.5), from those that this one has.

use super::counters::{
    Counter,
    Counters, //
};
use crate::wire::performance::Totals;

/// What a port has counted, as a performance manager asks for it.
///
/// What takes the local path is no packet and not in it.
pub fn totals(of: &Counters) -> Totals {
    Totals {
        sent_bytes: of.get(Counter::SentBytes),
        received_bytes: of.get(Counter::ReceivedBytes),
        sent_packets: of.get(Counter::SentPackets),
        received_packets: of.get(Counter::ReceivedPackets),
        receive_errors: [
            Counter::DropIcrc,
            Counter::DropIpHeader,
            Counter::DropMalformed,
            Counter::DropNoMemory,
        ]
        .into_iter()
        .fold(0, |sum, counter| sum.saturating_add(of.get(counter))),
        send_discards: of.get(Counter::SendLost),
    }
}
