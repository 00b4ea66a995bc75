// SPDX-License-Identifier: GPL-2.0

//! What must be seen when a run is over, said without the protocol: only from what was posted, what
//! the network did, and what the users found in their memory and completion queues.

use super::endpoint::{State, DEVICE_PAUSE};
use super::network::ROUND_TRIP;
use super::plan::{Kinds, Message, CELL, UNTOUCHED};
use super::scenario::{Fault, Place};
use super::world::World;
use ferroce_core::completion::{RecvOp, Status};
use ferroce_core::operation::Operation;
use ferroce_core::rc::ack_timeout_ns;
use ferroce_core::rc::responder::Fatal;
use ferroce_core::wire::psn::Psn;

/// One direction of a run: the requests of `side` and what they did to the other.
struct Direction<'a> {
    world: &'a World,
    side: usize,
    /// The first request that did not succeed, or the number of requests posted.
    good: usize,
}

/// The first request of each side that did not succeed, and how it ended.
pub type Endings = [Option<(usize, Status)>; 2];

macro_rules! ensure {
    ($condition:expr, $($what:tt)*) => {
        if !$condition {
            return Err(format!($($what)*));
        }
    };
}

/// Whether a QP may rest although requests are left: without a timeout nobody notices a loss.
fn may_hang(world: &World, side: usize) -> bool {
    world.scenario.sides[side].timeout == 0 && world.witnesses[side].failures != 0
}

/// Before the QPs are taken down: nobody waits for something that never comes.
pub fn judge_rest(world: &World) -> Result<(), String> {
    for side in 0..2 {
        let endpoint = &world.endpoints[side];
        let waits = endpoint.in_queue() != 0 || endpoint.pushed < world.plans[side].messages.len();
        match endpoint.state {
            State::Rts => ensure!(
                !waits || may_hang(world, side),
                "side {side} rests with {} requests in its queue: a wake-up was lost",
                endpoint.in_queue()
            ),
            State::Sqd => ensure!(may_hang(world, side), "side {side} never drains"),
            State::Err | State::Gone => continue,
            State::Init | State::Rtr => return Err(format!("side {side} was never used")),
        }
        if !waits && endpoint.state == State::Rts {
            let packets: u64 = world.plans[side].messages.iter().map(|m| m.packets).sum();
            let end = Psn::new(world.scenario.sides[side].first_psn).add(packets as u32);
            ensure!(
                endpoint.requester.next_psn() == end,
                "side {side} sent up to {:?}, not {end:?}",
                endpoint.requester.next_psn()
            );
            let peer = &world.endpoints[1 - side];
            ensure!(
                !peer.serves() || peer.responder.expected_psn() == end,
                "side {} expects {:?}, not {end:?}",
                1 - side,
                peer.responder.expected_psn()
            );
            ensure!(
                endpoint.requester.is_drained(),
                "side {side} is not drained"
            );
        }
        if world.witnesses[side].failures == 0 {
            ensure!(
                endpoint.timeouts() <= may_time_out(world, side),
                "side {side} timed out on a network without a fault"
            );
        }
    }
    Ok(())
}

/// How many ACK timeouts of a side the devices alone can be the reason of. A packet that a device
/// refused is tried again a millisecond later, and is then on its way: a silence of several
/// timeouts needs as many refusals as fill it together, not as many as would fill each.
fn may_time_out(world: &World, side: usize) -> u64 {
    let timeout = ack_timeout_ns(world.scenario.sides[side].timeout);
    timeout.map_or(0, |ns| stuck(world) * (DEVICE_PAUSE + ROUND_TRIP) / ns)
}

/// How many packets the devices of both sides refused.
fn stuck(world: &World) -> u64 {
    world.endpoints.iter().map(|endpoint| endpoint.stuck).sum()
}

/// After the QPs were taken down: everything was done once, or ended as it should.
pub fn judge(world: &World) -> Result<Endings, String> {
    let mut endings = [None; 2];
    for (side, ending) in endings.iter_mut().enumerate() {
        let sent = &world.endpoints[side].sent;
        let first_bad = sent.iter().find(|done| !done.status.is_success());
        *ending = first_bad.map(|done| (done.wr_id as usize, done.status));
        let endpoint = &world.endpoints[side];
        let retired = endpoint.requester.retired() as usize;
        let direction = Direction {
            world,
            side,
            good: ending.map_or(retired, |(index, _)| index),
        };
        let judged = direction
            .completions()
            .and_then(|()| direction.first_error(*ending))
            .and_then(|()| direction.successes())
            .and_then(|()| direction.receives())
            .and_then(|()| direction.keys())
            .and_then(|()| direction.region())
            .and_then(|()| direction.reads())
            .and_then(|()| direction.fatal());
        judged.map_err(|what| format!("requests of side {side}: {what}"))?;
    }
    Ok(endings)
}

impl Direction<'_> {
    fn messages(&self) -> &[Message] {
        &self.world.plans[self.side].messages
    }

    fn peer(&self) -> &super::memory::Memory {
        &self.world.endpoints[1 - self.side].memory
    }

    /// Each request posted completes exactly once, in order; a success only if it is signaled.
    fn completions(&self) -> Result<(), String> {
        let endpoint = &self.world.endpoints[self.side];
        let mut next = 0;
        for done in &endpoint.sent {
            let index = done.wr_id as usize;
            ensure!(index >= next, "{index} completed twice or out of order");
            ensure!(index < endpoint.pushed, "{index} was never posted");
            ensure!(
                (next..index).all(|i| i < self.good && !self.messages()[i].work.signaled),
                "{index} completed, and one before it did not"
            );
            ensure!(
                done.retired as usize == index + 1,
                "{index} frees slots up to {}",
                done.retired
            );
            let request = &self.messages()[index].request;
            if done.status.is_success() {
                ensure!(index < self.good, "{index} succeeded after an error");
                ensure!(request.signaled, "{index} is not signaled");
                ensure!(
                    done.op == request.op && done.byte_len == request.length,
                    "{index}: {done:?}"
                );
            }
            next = index + 1;
        }
        if endpoint.state != State::Gone {
            ensure!(
                (next..endpoint.pushed).all(|i| i < self.good && !self.messages()[i].work.signaled),
                "{next} never completed"
            );
            ensure!(
                endpoint.requester.retired() as usize == endpoint.pushed,
                "slots are missing"
            );
        }
        Ok(())
    }

    /// The first error is one that had a reason; those behind it are flushed.
    fn first_error(&self, ending: Option<(usize, Status)>) -> Result<(), String> {
        let Some((index, status)) = ending else {
            return Ok(());
        };
        let world = self.world;
        let endpoint = &world.endpoints[self.side];
        let message = &self.messages()[index];
        let has_reason = match status {
            Status::WrFlushErr => {
                endpoint.fatal.is_some()
                    || world.ended_by_user[self.side]
                    || may_hang(world, self.side)
            }
            Status::RemAccessErr => self.is_denied(message),
            Status::RemInvReqErr => self.is_invalid(message) || self.has_short_receive(message),
            Status::RemOpErr => self.has_bad_receive(message),
            // The witness knows how often.
            Status::RetryExcErr => world.witnesses[self.side].failures != 0 || stuck(world) != 0,
            Status::RnrRetryExcErr => message.receive.is_some(),
            own => self.fails_here(message, own),
        };
        ensure!(has_reason, "{index} ended with {status:?} for no reason");
        for done in &endpoint.sent {
            let behind = done.wr_id as usize > index;
            let message = &self.messages()[done.wr_id as usize];
            let flushed = done.status == Status::WrFlushErr;
            let own = flushed || self.fails_here(message, done.status);
            ensure!(!behind || own, "{done:?} is behind an error");
        }
        Ok(())
    }

    /// Whether it can end so before it is sent.
    fn fails_here(&self, message: &Message, status: Status) -> bool {
        match status {
            Status::LocProtErr => self.is_gone(message),
            Status::MwBindErr => message.is_unfit(),
            Status::LocQpOpErr => self.reads_forbidden(message),
            _ => false,
        }
    }

    fn is_gone(&self, message: &Message) -> bool {
        let local_gone = self.world.endpoints[self.side].memory.local_gone;
        message.request.length != 0 && (message.work.gone || local_gone)
    }

    fn reads_forbidden(&self, message: &Message) -> bool {
        let config = &self.world.scenario.sides[self.side];
        message.request.op.is_answered() && config.max_rd_atomic == 0
    }

    /// The peer permits nothing of the kind, whatever its memory.
    fn is_forbidden(&self, message: &Message) -> bool {
        let peer = &self.world.scenario.sides[1 - self.side];
        match message.request.op {
            Operation::Read => !peer.allow_read || peer.max_dest_rd_atomic == 0,
            Operation::Write | Operation::WriteImm => !peer.allow_write,
            Operation::CompareSwap | Operation::FetchAdd => {
                !peer.allow_atomic || peer.max_dest_rd_atomic == 0
            }
            Operation::Send | Operation::SendImm | Operation::SendInv => false,
            Operation::LocalInv | Operation::BindMw | Operation::RegMr => false,
            Operation::AtomicWrite => !peer.allow_write || peer.max_dest_rd_atomic == 0,
            Operation::Flush => peer.max_dest_rd_atomic == 0,
        }
    }

    fn is_invalid(&self, message: &Message) -> bool {
        let [own, peer] = [self.side, 1 - self.side].map(|side| &self.world.scenario.sides[side]);
        let too_many =
            message.request.op.is_answered() && own.max_rd_atomic > peer.max_dest_rd_atomic;
        self.is_forbidden(message) || too_many
    }

    /// The peer has no such memory.
    fn is_denied(&self, message: &Message) -> bool {
        message.is_out_of_bounds()
            || message.is_bad_key()
            || (self.peer().region_gone && message.request.op.is_rdma())
    }

    /// The same, and the receive that the message would have taken says so.
    fn is_denied_with_imm(&self, message: &Message) -> bool {
        message.request.op == Operation::WriteImm && self.is_denied(message)
    }

    fn fault_of(&self, message: &Message) -> Option<Fault> {
        Some(self.peer().receive(message.receive?).fault)
    }

    fn has_short_receive(&self, message: &Message) -> bool {
        let sends = message.request.op.is_send();
        let capacity = message.receive.map(|n| self.peer().receive(n).capacity);
        sends && capacity.is_some_and(|capacity| capacity < message.data.len())
    }

    fn has_bad_receive(&self, message: &Message) -> bool {
        let fills = message.request.op != Operation::WriteImm && !message.data.is_empty();
        match self.fault_of(message) {
            Some(Fault::Malformed) => true,
            Some(Fault::Gone) => fills,
            Some(_) => fills && self.peer().local_gone,
            None => false,
        }
    }

    /// What succeeded could succeed, and the peer had all of it when its user heard so.
    fn successes(&self) -> Result<(), String> {
        let endpoint = &self.world.endpoints[self.side];
        let received = self.successful_receives();
        for (index, message) in self.messages()[..self.good].iter().enumerate() {
            let bad_receive = self.has_short_receive(message)
                || matches!(self.fault_of(message), Some(Fault::Malformed));
            let gone_receive = self.fault_of(message) == Some(Fault::Gone)
                && message.request.op != Operation::WriteImm
                && !message.data.is_empty();
            let impossible = (message.work.gone && message.request.length != 0)
                || message.is_unfit()
                || self.reads_forbidden(message)
                || message.is_out_of_bounds()
                || message.is_bad_key()
                || self.is_forbidden(message)
                || bad_receive
                || gone_receive;
            ensure!(!impossible, "{index} succeeded, which cannot be");
            ensure!(
                !message.request.op.is_here() || endpoint.local_ops.contains(&index),
                "{index} succeeded and was not done"
            );
            ensure!(
                self.peer().written >= message.written
                    && message.receive.is_none_or(|n| received > n),
                "{index} succeeded, and the peer has not got it"
            );
        }
        for (done, seen) in endpoint.sent.iter().zip(&self.world.seen[self.side]) {
            let message = &self.messages()[done.wr_id as usize];
            ensure!(
                !done.status.is_success()
                    || (seen.written >= message.written
                        && message.receive.is_none_or(|n| seen.received > n)),
                "{} completed before the peer had it",
                done.wr_id
            );
        }
        Ok(())
    }

    fn successful_receives(&self) -> usize {
        let received = self.peer().received.iter();
        received.take_while(|r| r.done.status.is_success()).count()
    }

    /// Each receive of the peer completes once, in order: with the messages as they were posted,
    /// then at most one error that has a reason, then flushed.
    fn receives(&self) -> Result<(), String> {
        let peer = self.peer();
        let taking: Vec<_> = self.messages()[..self.world.endpoints[self.side].pushed]
            .iter()
            .filter(|m| m.receive.is_some())
            .collect();
        let good = self.successful_receives();
        ensure!(good <= taking.len(), "{good} messages of {}", taking.len());
        for (n, received) in peer.received.iter().enumerate() {
            let done = &received.done;
            ensure!(done.wr_id as usize == n, "receive {n}: {done:?}");
            if n < good {
                let message = taking[n];
                let request = &message.request;
                let op = if request.op == Operation::WriteImm {
                    RecvOp::WriteImm
                } else {
                    RecvOp::Send
                };
                ensure!(
                    done.op == op
                        && done.byte_len == request.length
                        && done.carried == message.carries()
                        && done.solicited == request.solicited
                        && done.vendor_err == 0,
                    "receive {n}: {done:?}"
                );
                ensure!(
                    received.written == message.written,
                    "receive {n} came with {} bytes written, not {}",
                    received.written,
                    message.written
                );
                continue;
            }
            let fault = taking.get(n).map(|m| (self.fault_of(m), *m));
            let has_reason = match (done.status, fault) {
                (Status::WrFlushErr, _) => true,
                _ if n != good => false,
                (Status::LocLenErr, Some((_, m))) => self.has_short_receive(m),
                (Status::LocProtErr, Some((_, m))) => self.has_bad_receive(m),
                (Status::LocQpOpErr, Some((fault, _))) => fault == Some(Fault::Malformed),
                (Status::LocAccessErr, Some((_, m))) => self.is_denied_with_imm(m),
                _ => false,
            };
            ensure!(has_reason, "receive {n} for no reason: {done:?}");
        }
        if self.world.endpoints[1 - self.side].state != State::Gone {
            ensure!(
                peer.received.len() == peer.posted,
                "{} receives of {} completed",
                peer.received.len(),
                peer.posted
            );
        }
        let mtu = self.world.scenario.mtu as usize;
        for (n, buffer) in peer.buffers.iter().enumerate() {
            let data = match taking.get(n) {
                Some(m) if m.request.op != Operation::WriteImm => &m.data[..],
                _ => &[],
            };
            let is_filled = |len: usize| {
                buffer.get(..len) == data.get(..len)
                    && buffer[len.min(buffer.len())..]
                        .iter()
                        .all(|&byte| byte == UNTOUCHED)
            };
            let ok = if n < good {
                is_filled(data.len())
            } else {
                // Whole packets of the one that was under way; a bad key comes with the last one.
                let is_refused = taking.get(n).is_some_and(|m| m.is_bad_key());
                is_filled(0)
                    || (n == good && (0..=data.len() / mtu).any(|k| is_filled(k * mtu)))
                    || (n == good && is_refused && is_filled(data.len()))
            };
            ensure!(ok, "the buffer of receive {n} is wrong");
        }
        Ok(())
    }

    /// Each SEND that succeeded has invalidated its key, once and in order, and none behind the
    /// first that the peer refused has.
    fn keys(&self) -> Result<(), String> {
        let invalidating = |m: &&Message| m.request.op == Operation::SendInv && !m.is_bad_key();
        let all: Vec<_> = (self.messages().iter().filter(invalidating))
            .map(|m| m.arguments.invalidated)
            .collect();
        let surely = (self.messages()[..self.good].iter().filter(invalidating)).count();
        let gone = &self.peer().invalidated;
        let is_right = all.starts_with(gone) && gone.len() >= surely;
        ensure!(
            is_right,
            "{gone:x?} were invalidated, {surely} at least of {all:x?}"
        );
        Ok(())
    }

    /// The peer's region was written with a prefix of what the WRITEs carry and what the atomic
    /// operations leave there, each byte once and in order, and nowhere else.
    fn region(&self) -> Result<(), String> {
        let mut expected = self.world.plans[1 - self.side].region.clone();
        let mut todo = self
            .messages()
            .iter()
            .filter(|m| m.changes() && !m.data.is_empty())
            .filter_map(|m| Some((m.offset?, &m.data[..])));
        let mut current: (usize, &[u8]) = (0, &[]);
        for &(offset, len) in &self.peer().writes {
            if current.1.is_empty() {
                let Some(next) = todo.next() else {
                    return Err(format!("{len} bytes at {offset} were written twice"));
                };
                current = next;
            }
            ensure!(
                offset == current.0 && len <= current.1.len(),
                "{len} bytes were written at {offset} instead of {}",
                current.0
            );
            let (now, rest) = current.1.split_at(len);
            expected[offset..][..len].copy_from_slice(now);
            current = (offset + len, rest);
        }
        ensure!(expected == self.peer().region, "the region is wrong");
        Ok(())
    }

    /// READs brought what stood there, and the memory of the others did not change.
    fn reads(&self) -> Result<(), String> {
        let endpoint = &self.world.endpoints[self.side];
        let source = &self.world.plans[1 - self.side].region;
        for (index, message) in self.messages()[..endpoint.pushed].iter().enumerate() {
            let buffer = &endpoint.buffers[index];
            if message.request.op.is_atomic() {
                let complete = index < self.good;
                let right = *buffer == message.original && message.offset.is_some();
                let untouched = !complete && buffer.iter().all(|&byte| byte == UNTOUCHED);
                ensure!(right || untouched, "{index} brought {buffer:?}");
                continue;
            }
            if !message.request.op.is_read() {
                ensure!(*buffer == message.data, "the data of {index} changed");
                continue;
            }
            let complete = index < self.good;
            let Some(offset) = message.offset else {
                let untouched = buffer.iter().all(|&byte| byte == UNTOUCHED);
                ensure!(untouched, "READ {index} brought what it may not");
                continue;
            };
            let candidates = if message.work.place == Place::Cell {
                self.cell_at(index)
            } else {
                vec![&source[offset..][..buffer.len()]]
            };
            let right = (0..buffer.len()).all(|at| {
                let fits = candidates.iter().any(|bytes| bytes[at] == buffer[at]);
                fits || (!complete && buffer[at] == UNTOUCHED)
            });
            ensure!(right, "READ {index} brought something else");
        }
        Ok(())
    }

    /// What a READ of the cell may find: what the last WRITE before it left there; or what those
    /// behind it write, up to the first that waits at a fence.
    fn cell_at(&self, index: usize) -> Vec<&[u8]> {
        let writes = |m: &&Message| m.is_write() && m.work.place == Place::Cell;
        let (before, behind) = self.messages().split_at(index);
        let initial = &self.world.plans[1 - self.side].region[..CELL];
        let last = before.iter().rfind(writes);
        let mut found = vec![last.map_or(initial, |m| &m.data[..])];
        let unfenced = behind[1..].iter().take_while(|m| !m.work.fence);
        found.extend(unfenced.filter(writes).map(|m| &m.data[..]));
        found
    }

    /// The peer refuses only what there is to refuse.
    fn fatal(&self) -> Result<(), String> {
        let mut messages = self.messages().iter();
        let has_reason = match self.world.endpoints[1 - self.side].fatal {
            None => true,
            Some(Fatal::AccessError) => {
                self.peer().region_gone || messages.any(|m| m.is_out_of_bounds() || m.is_bad_key())
            }
            Some(Fatal::InvalidRequest) => messages.any(|m| self.is_invalid(m)),
            Some(Fatal::LocalError) => {
                let is_at_receive = |m: &Message| {
                    self.has_short_receive(m)
                        || self.has_bad_receive(m)
                        || self.is_denied_with_imm(m)
                };
                messages.any(is_at_receive)
            }
        };
        ensure!(has_reason, "the peer refused something for no reason");
        Ok(())
    }
}
