// SPDX-License-Identifier: GPL-2.0

//! Packets on their way out: made one by one, sent in batches.

use super::icrc::icrc_of;
use super::way::Way;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::cursor::Cursor;
use crate::sys::net::{
    FilledPacket,
    Route,
    TxBatch,
    TxPacket,
    TxResult, //
};
use crate::transport::env::AccessError;
use crate::wire::packet::{
    pad_for,
    Headers, //
};
use crate::wire::ICRC_LEN;

/// Packets that are complete and leave together. Each has a mark, by which the sender knows where
/// to begin again.
pub struct Outbox<M> {
    batch: Option<Batch<M>>,
}

struct Batch<M> {
    packets: TxBatch,
    /// From the BTHs to the ICRCs.
    bytes: usize,
    /// Of the first packet.
    mark: M,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { batch: None }
    }
}

/// Packets could not leave, from the one with this mark on: there is no route or no memory, or the
/// stack has dropped them. They are counted.
#[derive(Debug)]
pub struct Refused<M>(pub M);

/// Why a packet was not added.
#[derive(Debug)]
pub enum Failed<M> {
    /// Its payload cannot be read.
    Access,
    /// See [`Refused`]. Its mark is the first that did not leave, which may be of an earlier
    /// packet.
    Refused(M),
}

impl<M> From<AccessError> for Failed<M> {
    fn from(_: AccessError) -> Self {
        Failed::Access
    }
}

impl<M> Outbox<M> {
    /// Makes one packet with `len` bytes of payload, which `fill` writes, all of them. It leaves
    /// with the next [`Self::flush`], if not before.
    pub fn add(
        &mut self,
        way: &mut Way,
        counters: &Counters,
        headers: &Headers,
        len: u32,
        mark: M,
        fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
    ) -> Result<(), Failed<M>> {
        let len = len as usize;
        let mut headers = *headers;
        headers.pad = pad_for(len);
        let total = headers
            .headers_len()
            .wrapping_add(len)
            .wrapping_add(headers.pad as usize)
            .wrapping_add(ICRC_LEN);
        let full = |batch: &Batch<M>| !batch.packets.takes(total);
        if self.batch.as_ref().is_some_and(full) {
            if let Err(Refused(first)) = self.flush(way, counters) {
                return Err(Failed::Refused(first));
            }
        }
        // A batch has one route.
        let route = match &self.batch {
            Some(_) => way.route(),
            None => way.find_route(),
        };
        let place = self.batch.as_ref().map_or(0, |batch| batch.packets.count());
        let made = match route {
            Some(route) => make(route, &headers, total, place, fill)?.zip(Some(route)),
            None => None,
        };
        match (made, &mut self.batch) {
            (Some((packet, _)), Some(batch)) => {
                if batch.packets.push(packet).is_err() {
                    // Cannot be, for the batch was asked before.
                    counters.inc(Counter::SendLost);
                    return Err(Failed::Refused(mark));
                }
                batch.bytes = batch.bytes.wrapping_add(total);
            }
            (Some((packet, route)), batch) => {
                *batch = Some(Batch {
                    packets: TxBatch::new(packet, route),
                    bytes: total,
                    mark,
                });
            }
            (None, _) => {
                counters.inc(Counter::SendLost);
                // What was made before comes first.
                let first = match self.flush(way, counters) {
                    Ok(()) => mark,
                    Err(Refused(first)) => first,
                };
                return Err(Failed::Refused(first));
            }
        }
        Ok(())
    }

    /// Sends what was made. To be called before the lock is given back.
    pub fn flush(&mut self, way: &Way, counters: &Counters) -> Result<(), Refused<M>> {
        let (Some(batch), Some(route)) = (self.batch.take(), way.route()) else {
            return Ok(());
        };
        let count = u64::from(batch.packets.count());
        match batch.packets.send(route) {
            // Who is congested has dropped something, but need not have dropped these: if it has,
            // the peer finds the gap, or the probe behind them does.
            TxResult::Sent | TxResult::Congested => {
                counters.add(Counter::SentPackets, count);
                counters.add(Counter::SentBytes, batch.bytes as u64);
                Ok(())
            }
            TxResult::Lost => {
                counters.add(Counter::SendLost, count);
                Err(Refused(batch.mark))
            }
        }
    }
}

/// A whole packet of `total` bytes from the BTH to the ICRC, at `place` of a batch. `None` if there
/// is no memory for it, or it does not fit into an IP packet.
fn make(
    route: &Route,
    headers: &Headers,
    total: usize,
    place: u16,
    fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
) -> Result<Option<FilledPacket>, AccessError> {
    let Some(packet) = TxPacket::alloc(route, total, place) else {
        return Ok(None);
    };
    // Behind the payload stand the padding and, for now, an ICRC of zeros.
    let mut packet = packet.fill(|out| {
        let front = out.zeros(headers.headers_len()).map_err(|_| AccessError)?;
        headers.emit(front).ok_or(AccessError)?;
        fill(out)
    })?;
    let (network, bytes) = packet.parts_mut();
    let Some(icrc) = icrc_of(network, &[], bytes) else {
        return Ok(None);
    };
    if let Some(end) = bytes.last_chunk_mut::<ICRC_LEN>() {
        *end = icrc;
    }
    Ok(Some(packet))
}
