// SPDX-License-Identifier: GPL-2.0

//! The standard counters of an RDMA port (IBTA 16.1.3.5), derived from the module's own.

use super::counters::{
    Counter,
    Counters, //
};
use crate::core::wire::performance::Totals;

/// The counters of a port as a performance manager reads them.
///
/// A message on the local path counts as sent and received, a segment as a packet: a monitor sees
/// the traffic of a device with itself.
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
