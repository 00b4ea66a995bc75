// SPDX-License-Identifier: GPL-2.0

//! Observability: counters, as `rdma statistic` and `hw_counters` in sysfs show them.
//!
//! Every packet to the RoCEv2 port is counted once: as received (`rcvd_pkts`), or under the one
//! reason for which it was dropped (`drop_*`). A received one that had no effect is counted under
//! the reason for that as well. Documentation/counters.md says what each means to a user.
//!
//! A set of counters is that of all queue pairs of a port together, or of some of them separately.
//! A queue pair counts in one place at a time, so a separate set costs nothing on the packet path.
//! `rdma statistic` and sysfs add up for a port the sets that ib_core knows, and those that were
//! removed. Other readers get the sum from here.
//!
//! The standard counters of an RDMA port (IBTA 16.1.3.5) are derived from these ([`totals`]).

use crate::core::wire::performance::Totals;
use crate::sys::ib::query::CounterName;
use crate::sys::table::{
    Published,
    Table, //
};
use kernel::prelude::*;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use kernel::sync::{
    rcu,
    Arc,
    Mutex, //
};
use kernel::{
    c_str,
    new_mutex, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The counters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// The names, in the order of [`Counter`].
        pub const NAMES: &[CounterName] = &[$(CounterName::new(c_str!($name)),)*];

        const COUNT: usize = NAMES.len();
    };
}

counters! {
    /// Packets handed to the network.
    SentPackets = "sent_pkts",
    /// Bytes of these packets, from the BTH to the ICRC.
    SentBytes = "sent_bytes",
    /// Packets received: intact, and from the peer of the QP they are for.
    ReceivedPackets = "rcvd_pkts",
    /// Bytes of these packets, from the BTH to the ICRC.
    ReceivedBytes = "rcvd_bytes",
    /// Packets, dropped or not, that came in pieces and were copied into one.
    Linearized = "rx_linearized",
    /// Batches that another CPU executed than the one on which they arrived.
    Steered = "rx_steered",
    /// Segments that took the local path instead of the network.
    LocalSegments = "local_segments",
    /// Bytes that took the local path.
    LocalBytes = "local_bytes",
    /// Send queues handed to a worker on another CPU, because their process streams.
    Offloaded = "sq_offloaded",
    /// Send queues taken back from there, because that CPU had other work.
    OffloadEnded = "sq_offload_ended",
    /// Send queues polled by a timer in place of that, because their process streams.
    Polled = "sq_polled",
    /// Packets that could not be sent: no route, no memory, or refused by a queue.
    SendLost = "send_lost",
    /// Times that sending began again from such a packet, without waiting for the ACK timeout.
    SendRetried = "send_retried",
    /// Requests that had been executed before.
    Duplicate = "duplicate_request",
    /// Requests behind a gap.
    OutOfSequence = "out_of_sequence",
    /// Requests behind a gap that were kept until their turn came.
    Kept = "kept_requests",
    /// Reports sent that say which packets are missing.
    MissingSent = "missing_sent",
    /// Such reports received.
    MissingReceived = "missing_rcvd",
    /// Requests that no peer sends (too far ahead, too old, a READ again that was never asked for),
    /// or behind one that was refused.
    IgnoredRequest = "ignored_request",
    /// Requests for which there was no receive: RNR NAKs sent.
    RnrNakSent = "rnr_nak_sent",
    /// Packets of unreliable services whose message was lost because there was no receive for it.
    LostNoReceive = "lost_no_receive",
    /// The same because it was longer than the receive.
    LostTooLong = "lost_too_long",
    /// The same because it may not write there.
    LostDenied = "lost_denied",
    /// The same because it broke the rules of messages.
    LostInvalid = "lost_invalid",
    /// RNR NAKs received.
    RnrNakReceived = "rnr_nak_rcvd",
    /// NAKs for a gap received.
    SequenceNakReceived = "seq_nak_rcvd",
    /// NAKs received that ended a connection.
    FatalNakReceived = "fatal_nak_rcvd",
    /// Packets retransmitted.
    Retransmitted = "retransmitted_pkts",
    /// Last packets retransmitted because nothing came back for several round trips. They are not
    /// in `retransmitted_pkts`.
    TailProbe = "tail_probes",
    /// ACK timeouts.
    AckTimeout = "ack_timeout",
    /// Packets received with a mark of congestion (CE).
    MarkedReceived = "np_ecn_marked_roce_packets",
    /// Congestion notifications sent.
    NotificationSent = "np_cnp_sent",
    /// Congestion notifications received that may make the window of a QP smaller.
    NotificationHandled = "rp_cnp_handled",
    /// The same without effect, because the QP has no window (UC).
    NotificationIgnored = "rp_cnp_ignored",
    /// Requests refused with a fatal NAK.
    RefusedRequest = "refused_request",
    /// Unexpected responses: repeated, never requested, or with a reserved syndrome.
    StaleResponse = "stale_response",
    /// READ responses behind a gap.
    OutOfSequenceResponse = "out_of_sequence_response",
    /// READ responses that broke the rules and ended a connection.
    BadResponse = "bad_response",
    /// Dropped: the ICRC is wrong.
    DropIcrc = "drop_icrc",
    /// Dropped: IPv4 options, IPv6 extension headers, or put together from IP fragments.
    DropIpHeader = "drop_ip_header",
    /// Dropped: the bytes are not a packet.
    DropMalformed = "drop_malformed",
    /// Dropped: an opcode that is not served.
    DropOpcode = "drop_opcode",
    /// Dropped: there is no QP of this number in the network namespace.
    DropUnknownQp = "drop_unknown_qp",
    /// Dropped: to a group that no QP of the device is in.
    DropGroup = "drop_group",
    /// Dropped: source or destination are not those of the connection.
    DropAddress = "drop_address",
    /// Dropped: came in by another netdev than that of the connection.
    DropInterface = "drop_interface",
    /// Dropped: another partition key than the default one.
    DropPkey = "drop_pkey",
    /// Dropped: a datagram with another Q_Key than that of the QP.
    DropQkey = "drop_qkey",
    /// Dropped: to the management QP, and not of the size that all management datagrams have.
    DropMad = "drop_mad",
    /// Dropped: the QP is in no state to receive.
    DropState = "drop_state",
    /// Dropped: no memory to put the pieces of the packet together.
    DropNoMemory = "drop_no_memory",
}

/// One set of all counters: those of a port, or of some queue pairs.
pub struct Counters([Atomic<u64>; COUNT]);

impl Default for Counters {
    fn default() -> Self {
        Self([const { Atomic::new(0) }; COUNT])
    }
}

impl Counters {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        if let Some(value) = self.0.get(counter as usize) {
            value.fetch_add(n, Relaxed);
        }
    }

    /// Adds 1.
    #[inline]
    pub fn inc(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds the values of `other`.
    pub fn absorb(&self, other: &Counters) {
        for (to, from) in self.0.iter().zip(&other.0) {
            to.fetch_add(from.load(Relaxed), Relaxed);
        }
    }

    /// The value of one.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(counter as usize)
            .map_or(0, |value| value.load(Relaxed))
    }

    /// Copies the values, in the order of [`Counter`].
    pub fn read(&self, values: &mut [u64]) {
        for (to, from) in values.iter_mut().zip(&self.0) {
            *to = from.load(Relaxed);
        }
    }
}

/// Most sets of a port.
const MAX_SETS: u32 = 1 << 16;

/// All counters of a port.
#[pin_data]
pub struct PortCounters {
    /// Counts that are in no separate set.
    common: Arc<Counters>,
    /// Counts in separate sets.
    #[pin]
    sets: Table<Counters>,
    /// Sum of removed sets. The lock orders the removal of a set with readers of the sum, so no sum
    /// is ever less than the one before.
    #[pin]
    past: Mutex<Counters>,
}

/// A separate set of counters for some queue pairs.
pub struct Set(Published<Counters>);

impl PortCounters {
    /// All zero.
    pub fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            common: Arc::new(Counters::default(), GFP_KERNEL)?,
            sets <- Table::new(),
            past <- new_mutex!(Counters::default()),
        })
    }

    /// The counters of queue pairs without a separate set.
    #[inline]
    pub fn common(&self) -> &Arc<Counters> {
        &self.common
    }

    /// A new set with a unique number. May sleep.
    pub fn begin(&self) -> Result<Set> {
        let counters = Arc::new(Counters::default(), GFP_KERNEL)?;
        Ok(Set(self.sets.reserve(MAX_SETS)?.publish(counters)))
    }

    /// Removes a set that no queue pair uses. May sleep.
    pub fn end(&self, set: &mut Set) {
        let past = self.past.lock();
        self.sets.remove(&mut set.0);
        past.absorb(&set.0);
    }

    /// The sum of all counters. May sleep.
    pub fn sum(&self) -> Counters {
        let sum = Counters::default();
        let past = self.past.lock();
        sum.absorb(&self.common);
        sum.absorb(&past);
        let rcu = rcu::read_lock();
        for set in self.sets.all(&rcu) {
            sum.absorb(&set);
        }
        sum
    }
}

impl Set {
    /// Its number.
    pub fn number(&self) -> u32 {
        Published::number(&self.0)
    }

    /// Its counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.0
    }
}

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
