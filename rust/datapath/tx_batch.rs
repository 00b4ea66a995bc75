// SPDX-License-Identifier: GPL-2.0

//! Packets on their way out: made one by one, sent in batches.

use super::icrc::icrc_of;
use super::path::Path;
use crate::observe::counters::{
    Counter,
    Counters, //
};
use crate::sys::cursor::Cursor;
use crate::sys::net::{
    FilledPacket,
    Route,
    TxList,
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
pub struct TxBatch<M> {
    open: Option<OpenBatch<M>>,
}

struct OpenBatch<M> {
    packets: TxList,
    /// From the BTHs to the ICRCs.
    bytes: usize,
    /// Of the first packet.
    mark: M,
}

impl<M> Default for TxBatch<M> {
    fn default() -> Self {
        Self { open: None }
    }
}

/// Packets could not leave, from the one with this mark on: there is no route or no memory, or the
/// stack has dropped them. They are counted.
#[derive(Debug)]
pub struct TxRefused<M>(pub M);

/// Why a packet was not added.
#[derive(Debug)]
pub enum TxError<M> {
    /// Its payload cannot be read.
    Access,
    /// See [`TxRefused`]. Its mark is the first that did not leave, which may be of an earlier
    /// packet.
    Refused(M),
}

impl<M> From<AccessError> for TxError<M> {
    fn from(_: AccessError) -> Self {
        TxError::Access
    }
}

impl<M> TxBatch<M> {
    /// Makes one packet with `len` bytes of payload, which `fill` writes, all of them. It leaves
    /// with the next [`Self::flush`], if not before.
    pub fn add(
        &mut self,
        path: &mut Path,
        counters: &Counters,
        headers: &Headers,
        len: u32,
        mark: M,
        fill: impl FnOnce(&mut Cursor<'_>) -> Result<(), AccessError>,
    ) -> Result<(), TxError<M>> {
        let len = len as usize;
        let mut headers = *headers;
        headers.pad = pad_for(len);
        let total = headers
            .headers_len()
            .wrapping_add(len)
            .wrapping_add(headers.pad as usize)
            .wrapping_add(ICRC_LEN);
        let full = |open: &OpenBatch<M>| !open.packets.takes(total);
        if self.open.as_ref().is_some_and(full) {
            if let Err(TxRefused(first)) = self.flush(path, counters) {
                return Err(TxError::Refused(first));
            }
        }
        // A batch has one route.
        let route = match &self.open {
            Some(_) => path.route(),
            None => path.find_route(),
        };
        let place = self.open.as_ref().map_or(0, |open| open.packets.count());
        let made = match route {
            Some(route) => make(route, &headers, total, place, fill)?.zip(Some(route)),
            None => None,
        };
        match (made, &mut self.open) {
            (Some((packet, _)), Some(open)) => {
                if open.packets.push(packet).is_err() {
                    // Cannot be, for the batch was asked before.
                    counters.inc(Counter::SendLost);
                    return Err(TxError::Refused(mark));
                }
                open.bytes = open.bytes.wrapping_add(total);
            }
            (Some((packet, route)), open) => {
                *open = Some(OpenBatch {
                    packets: TxList::new(packet, route),
                    bytes: total,
                    mark,
                });
            }
            (None, _) => {
                counters.inc(Counter::SendLost);
                // What was made before comes first.
                let first = match self.flush(path, counters) {
                    Ok(()) => mark,
                    Err(TxRefused(first)) => first,
                };
                return Err(TxError::Refused(first));
            }
        }
        Ok(())
    }

    /// Sends what was made. To be called before the lock is given back.
    pub fn flush(&mut self, path: &Path, counters: &Counters) -> Result<(), TxRefused<M>> {
        let (Some(open), Some(route)) = (self.open.take(), path.route()) else {
            return Ok(());
        };
        let count = u64::from(open.packets.count());
        match open.packets.send(route) {
            // Who is congested has dropped something, but need not have dropped these: if it has,
            // the peer finds the gap, or the probe behind them does.
            TxResult::Sent | TxResult::Congested => {
                counters.add(Counter::SentPackets, count);
                counters.add(Counter::SentBytes, open.bytes as u64);
                Ok(())
            }
            TxResult::Lost => {
                counters.add(Counter::SendLost, count);
                Err(TxRefused(open.mark))
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
