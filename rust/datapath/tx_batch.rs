// SPDX-License-Identifier: GPL-2.0

//! Packets to be transmitted: built one by one, sent in batches.

use super::icrc::icrc_of;
use super::path::Path;
use super::traced::{
    self,
    Origin, //
};
use crate::core::env::AccessError;
use crate::core::wire::packet::{
    packet_len,
    pad_for,
    Headers, //
};
use crate::core::wire::ICRC_LEN;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::memory::Cursor;
use crate::sys::net::{
    FilledPacket,
    Route,
    TxList,
    TxPacket,
    TxResult, //
};
use crate::sys::trace;

/// Complete packets that are sent together. Each carries a mark that tells the sender where to
/// resume after a failure.
pub struct TxBatch<M> {
    open: Option<OpenBatch<M>>,
}

struct OpenBatch<M> {
    packets: TxList,
    /// Bytes from the BTHs to the ICRCs.
    bytes: u32,
    /// Mark of the first packet.
    mark: M,
}

impl<M> Default for TxBatch<M> {
    fn default() -> Self {
        Self { open: None }
    }
}

/// The packets from this mark on were not sent: there is no route or no memory, or the stack
/// dropped them. They are counted.
#[derive(Debug)]
pub struct TxRefused<M>(pub M);

/// The reason why a packet was not added.
#[derive(Debug)]
pub enum TxError<M> {
    /// Its payload is not readable.
    Access,
    /// See [`TxRefused`]. The mark is the first that was not sent, which may belong to an earlier
    /// packet.
    Refused(M),
}

impl<M> From<AccessError> for TxError<M> {
    fn from(_: AccessError) -> Self {
        TxError::Access
    }
}

impl<M> TxBatch<M> {
    /// Builds one packet with `len` bytes of payload, all written by `fill`. [`Self::flush`] sends
    /// it at the latest.
    // A structure of some of them would be in memory for each packet.
    #[allow(clippy::too_many_arguments)]
    pub fn add(
        &mut self,
        path: &mut Path,
        counters: &Counters,
        origin: Origin,
        headers: &Headers,
        len: u32,
        mark: M,
        fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
    ) -> Result<(), TxError<M>> {
        let len = len as usize;
        let mut headers = *headers;
        headers.pad = pad_for(len);
        let total = packet_len(headers.opcode, len);
        let full = |open: &OpenBatch<M>| !open.packets.takes(total);
        if self.open.as_ref().is_some_and(full) {
            if let Err(TxRefused(first)) = self.flush(path, counters) {
                return Err(TxError::Refused(first));
            }
        }
        // All packets of a batch have one route.
        let route = match &self.open {
            Some(_) => path.route(),
            None => path.find_route(),
        };
        let place = self.open.as_ref().map_or(0, |open| open.packets.count());
        let made = match route {
            Some(route) => make(route, origin, &headers, total, place, fill)?.zip(Some(route)),
            None => None,
        };
        match (made, &mut self.open) {
            (Some((packet, _)), Some(open)) => {
                if open.packets.push(packet).is_err() {
                    // Cannot happen: the batch has just said that it takes the packet.
                    counters.inc(Counter::SendLost);
                    return Err(TxError::Refused(mark));
                }
                open.bytes = open.bytes.wrapping_add(total as u32);
            }
            (Some((packet, route)), open) => {
                *open = Some(OpenBatch {
                    packets: TxList::new(packet, route),
                    bytes: total as u32,
                    mark,
                });
            }
            (None, _) => {
                counters.inc(Counter::SendLost);
                // Earlier packets go first.
                let first = match self.flush(path, counters) {
                    Ok(()) => mark,
                    Err(TxRefused(first)) => first,
                };
                return Err(TxError::Refused(first));
            }
        }
        Ok(())
    }

    /// Sends the batch. Call it before the queue lock is released.
    pub fn flush(&mut self, path: &Path, counters: &Counters) -> Result<(), TxRefused<M>> {
        let (Some(open), Some(route)) = (self.open.take(), path.route()) else {
            return Ok(());
        };
        let count = u64::from(open.packets.count());
        match open.packets.send(route) {
            // A congested queue has dropped something, not necessarily these packets. If it did,
            // the peer sees the gap, or the tail-loss probe finds it.
            TxResult::Sent | TxResult::Congested => {
                counters.add(Counter::SentPackets, count);
                counters.add(Counter::SentBytes, open.bytes.into());
                Ok(())
            }
            TxResult::Lost => {
                counters.add(Counter::SendLost, count);
                Err(TxRefused(open.mark))
            }
        }
    }
}

/// Builds a whole packet of `total` bytes from the BTH to the ICRC, at `place` of a batch. `None`
/// without memory, or if it does not fit into an IP packet.
fn make(
    route: &Route,
    origin: Origin,
    headers: &Headers,
    total: usize,
    place: u16,
    fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
) -> Result<Option<FilledPacket>, AccessError> {
    let Some(packet) = TxPacket::alloc(route, total, place) else {
        return Ok(None);
    };
    // The padding and a zero ICRC follow the payload.
    let mut packet = packet.fill(|out| {
        let front = out.zeros(headers.headers_len()).map_err(|_| AccessError)?;
        headers.emit(front).ok_or(AccessError)?;
        fill(out)
    })?;
    let (network, bytes) = packet.parts_mut();
    let made = &*bytes;
    trace::tx(move || traced::made(origin, made));
    let Some(icrc) = icrc_of(network, &[], bytes) else {
        return Ok(None);
    };
    if let Some(end) = bytes.last_chunk_mut::<ICRC_LEN>() {
        *end = icrc;
    }
    Ok(Some(packet))
}
