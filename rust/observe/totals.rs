// SPDX-License-Identifier: GPL-2.0

//! The counters that every RDMA port has (IBTA 16.1.3.5), from those that this one has.

use super::counters::{
    Counter,
    Counters, //
};
use crate::wire::performance::Totals;

/// What a port has counted, as a performance manager asks for it.
///
/// What takes the local path is sent and received by the port, a segment for a packet: a monitor is
/// to see the traffic of a device with itself.
pub fn totals(of: &Counters) -> Totals {
    let with_local = |counter, local| of.get(counter).saturating_add(of.get(local));
    Totals {
        sent_bytes: with_local(Counter::SentBytes, Counter::LocalBytes),
        received_bytes: with_local(Counter::ReceivedBytes, Counter::LocalBytes),
        sent_packets: with_local(Counter::SentPackets, Counter::LocalSegments),
        received_packets: with_local(Counter::ReceivedPackets, Counter::LocalSegments),
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
