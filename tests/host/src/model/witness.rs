// SPDX-License-Identifier: GPL-2.0

//! One who listens on the wire beside a requester, knows what its user posted, and hears what the
//! network does to each packet. It checks while the run goes on:
//!
//! - the sender goes back only to the oldest packet that it has no answer for, and only when
//!   the network failed since it went back last, or the responder was not ready;
//! - it does not lose patience sooner than the timeout after the last answer, or after it sent that
//!   packet last;
//! - it does so `retry_cnt` times, not more; a request that ends with RETRY_EXC had all of them;
//! - half of these, and one, at most because the responder said so, if there is an ACK timeout;
//! - an RNR NAK is waited for as long as it says, `rnr_retry` times, not more and not less;
//! - a fence holds until the READs before it are complete, and never more READs are outstanding
//!   than permitted;
//! - a tail-loss probe is the last packet in flight, or the oldest if that was sent again, if the
//!   last one is answered by responses, or if it is not the first one, of a READ the request for
//!   what is missing of that piece, after 2 ms of silence, each after twice the time;
//! - a READ is asked for when the largest window has room for its responses, or alone;
//! - in SQD nothing new begins.
//!
//! What a responder must say about gaps is in its unit tests.

use super::content::Content;
use super::endpoint::Scarce;
use super::network::ROUND_TRIP;
use super::plan::{Kinds, Message, Plan};
use super::scenario::{Scenario, Side};
use ferroce_core::completion::Status;
use ferroce_core::rc::ack_timeout_ns;
use ferroce_core::rc::requester::READ_PIECE;
use ferroce_core::segment::RequestSegment;
use ferroce_core::wire::headers::{rnr_delay_ns, AethSyndrome};
use ferroce_core::wire::opcode::Opcode;
use ferroce_core::wire::psn::Psn;
use std::collections::BTreeSet;

/// No window of packets is larger.
const LARGEST_WINDOW: u64 = 1024;

/// Nanoseconds without an answer before the sender may ask about it for the first time.
const SHORTEST_SILENCE: u64 = 2_000_000;

fn is_read_request(opcode: Opcode) -> bool {
    opcode == Opcode::RcReadRequest
}

/// What a witness must know of the QP beside it.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub now: u64,
    /// How many requests are complete, in any way.
    pub retired: usize,
    pub pushed: usize,
    pub timeouts: u64,
    pub probes: u64,
    pub draining: bool,
    /// Local memory is, or may be, gone, or a request was malformed: then the sender may repeat
    /// what is before it, to ask about it.
    pub local_trouble: bool,
}

/// The listener.
#[derive(Debug, Default)]
pub struct Witness {
    mtu: u64,
    side: Side,
    /// Segments may find no room in the device, leave late, or come as a batch, and with them what
    /// they say.
    loose: bool,
    /// There may be no memory for what the peer misses: then its report is a NAK, and all that
    /// follows leaves again.
    scarce: bool,
    /// The oldest packet that the sender has no answer for.
    una: u64,
    /// The end of what was ever sent.
    sent: u64,
    /// Where the sender is: the end of what was sent last, or where an RNR NAK put it.
    cursor: u64,
    /// Packets that the network lost, and when, since the sender went back; and those of a later
    /// sending than the one for which it did.
    losses: Vec<(u64, u64)>,
    /// Packets that came out of order, or answer a READ and were lost, and when. The peer may still
    /// take one of them, also after the sender went back, and miss the next: so each is a reason by
    /// itself, while it is not acknowledged or what the peer said about it may still be on its way.
    disordered: Vec<(u64, u64)>,
    /// The end of what the peer answered last, and of what it ever answered.
    answered: (i64, i64),
    /// How often the sender went back to `una` for a failure.
    pub retries: u32,
    /// How many of them were for what the responder said, and not for the ACK timeout.
    reports: u32,
    /// One of them may have been no retry, but a question.
    unsure: bool,
    /// The sender may have decided to go back before `una` was the oldest packet, and have been held
    /// up since: what it then repeats cost it a retry of an earlier packet.
    decided: bool,
    /// How often `una` was refused by an RNR NAK, each after it had been sent.
    pub refusals: u32,
    /// `una` was sent and not refused since.
    asked: bool,
    /// When an RNR NAK lets it send again.
    quiet_until: u64,
    /// When `una` was sent last, or became the oldest.
    since: u64,
    timeouts: u64,
    pub probes: u64,
    repeated: bool,
    /// Probes since `una` moved, anything new was sent, or the sender went back; and the last one.
    probed: (u32, u64),
    /// When SQD was complete.
    pub drained: bool,
    pub failures: u64,
    /// Both sides keep packets behind a gap: those that are missing are sent again alone.
    keeps: bool,
    /// The end of what was sent again last, if nothing new was sent since.
    again: Option<u64>,
    /// Responses that came before an earlier one.
    early: BTreeSet<u64>,
    pub violation: Option<String>,
}

impl Witness {
    /// Beside the requester of `side`.
    pub fn new(scenario: &Scenario, side: usize) -> Self {
        Self {
            mtu: u64::from(scenario.mtu),
            loose: (scenario.sides.iter()).any(|side| side.stuck != 0 || side.late != 0)
                || scenario.links.iter().any(|link| link.gather != 0),
            scarce: Scarce::befalls(scenario.seed),
            side: scenario.sides[side].clone(),
            keeps: scenario.sides.iter().all(|side| side.keeps),
            ..Self::default()
        }
    }

    /// What a peer keeps has left the window, up to as many packets again.
    fn largest_window(&self) -> u64 {
        LARGEST_WINDOW << u32::from(self.keeps)
    }

    fn forbid(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// The sequence of a PSN: the one nearest to `una`.
    fn sequence(&self, psn: Psn) -> i64 {
        let una = Psn::new(self.side.first_psn).add(self.una as u32);
        self.una as i64 + i64::from(psn.distance_from(una))
    }

    /// The last packet that something stands for.
    fn last_of(&self, content: &Content) -> u64 {
        if matches!(content, Content::Request(request, _) if is_read_request(request.opcode)) {
            // All its answers, wherever they end.
            return u64::MAX;
        }
        let last = self.sequence(content.psn()) + i64::from(content.span()) - 1;
        u64::try_from(last).unwrap_or(0)
    }

    /// The network lost something, or the peer did not take it.
    pub fn lost(&mut self, content: &Content, now: u64) {
        self.failures += 1;
        let last = self.last_of(content);
        if matches!(content, Content::Read(..)) {
            // A READ that the network doubled is answered twice, and what was lost of the one
            // answer is missed even if the other has it.
            self.disordered.push((last, now));
        } else {
            self.losses.push((last, now));
        }
    }

    /// The peer dropped something behind a gap. One that keeps packets still drops what has more than
    /// one of them.
    pub fn not_kept(&mut self, content: &Content, now: u64) {
        if self.keeps {
            self.losses.push((self.last_of(content), now));
        }
    }

    /// The peer went to ERR or is gone: what it had not answered is lost.
    pub fn peer_fell_silent(&mut self) {
        self.failures += 1;
        self.losses.push((u64::MAX, 0));
    }

    /// Something arrives before what was sent before it, or `late`: after what was sent after it.
    pub fn out_of_order(&mut self, content: &Content, late: bool, now: u64) {
        self.failures += 1;
        // A peer that takes it late misses some of what it had dropped for it.
        let last = if late {
            self.sent.saturating_sub(1)
        } else {
            self.last_of(content)
        };
        self.disordered.push((last, now));
    }

    /// The peer answers. If it answers again, and then goes on with a READ that it was at, the
    /// requester misses what is between them, though it was answered before.
    pub fn answers(&mut self, content: &Content, now: u64) {
        let first = self.sequence(content.psn());
        let (last, newest) = self.answered;
        if matches!(content, Content::Read(..)) && last < first && last < newest {
            self.disordered.push((self.last_of(content), now));
        }
        let end = first + i64::from(content.span());
        self.answered = (end, newest.max(end));
    }

    /// The sender sends a segment.
    pub fn sends(&mut self, plan: &Plan, segment: &RequestSegment, at: Standing) {
        let sequence = self.sequence(segment.psn);
        let message = plan
            .messages
            .iter()
            .take(at.pushed)
            .find(|m| (m.first as i64..m.end() as i64).contains(&sequence));
        let Some(message) = message else {
            return self.forbid(format!("{segment:?} belongs to no request"));
        };
        let sequence = sequence as u64;
        let read_end = (sequence - message.first) / u64::from(READ_PIECE) + 1;
        let psns = if is_read_request(segment.opcode) {
            let piece_end = message.first + read_end * u64::from(READ_PIECE);
            let rest = piece_end.min(message.end()) - sequence;
            // To a peer that answers a part alone, again.
            let is_part = self.keeps && sequence + rest <= self.sent;
            let part = u64::from(segment.message_len).div_ceil(self.mtu).max(1);
            if is_part {
                part.min(rest)
            } else {
                rest
            }
        } else {
            u64::from(segment.span)
        };
        if sequence + psns > message.end() {
            return self.forbid(format!("{segment:?} is beyond its request"));
        }
        // A part of a READ again, above all: a responder ignores what it was never asked for.
        let begin = (sequence - message.first) * self.mtu;
        let place = message.arguments.remote_addr.wrapping_add(begin);
        let reth = segment.extension(|| message.arguments).reth();
        if reth.is_some_and(|reth| reth.va() != place) {
            self.forbid(format!("{segment:?} is about another place"));
        }
        let may_solicit = segment.opcode.info().last && message.takes_receive();
        if segment.solicited && !may_solicit {
            self.forbid(format!("{segment:?} completes nothing"));
        }
        if at.now < self.quiet_until {
            self.forbid(format!("{segment:?} was sent in an RNR wait"));
        }
        let last = self.cursor.wrapping_sub(1);
        let is_last_answered = (plan.messages.iter())
            .any(|m| m.request.op.is_answered() && (m.first..m.end()).contains(&last));
        let may_be_oldest = self.repeated || self.keeps || is_last_answered || self.probed.0 != 0;
        let is_oldest = may_be_oldest && sequence == self.una;
        let end = Some(sequence + psns);
        let is_last = end == Some(self.cursor) || (self.keeps && end == self.again);
        let is_last = is_last || is_oldest || at.local_trouble || self.loose;
        let is_probe = if is_read_request(segment.opcode) {
            let piece = message.first + (read_end - 1) * u64::from(READ_PIECE);
            sequence == piece.max(self.una)
        } else {
            psns == 1
        };
        if self.probes < at.probes && is_last && is_probe {
            if is_oldest {
                // A peer that takes it now misses what it had dropped for it.
                self.disordered.push((self.sent.saturating_sub(1), at.now));
            }
            return self.probes(at);
        }
        self.probed = (0, 0);
        if self.refusals != 0 && sequence + psns > self.una + 1 {
            self.forbid(format!("{segment:?} follows a packet that was refused"));
        }
        if is_read_request(segment.opcode)
            && sequence > self.una
            && sequence + psns > self.una + self.largest_window()
        {
            self.forbid(format!("{segment:?} has no room for its responses"));
        }
        if sequence >= self.sent {
            self.begins(plan, message, segment, at);
        }
        if self.keeps && sequence < self.cursor {
            return self.sends_again(sequence, psns, at);
        }
        self.again = None;
        if sequence < self.cursor {
            self.goes_back(sequence, psns, message.request.op.is_answered(), at);
        } else if sequence > self.cursor && sequence != self.una {
            self.forbid(format!("{segment:?} leaves packets out"));
        }
        self.cursor = sequence;
        self.advances(sequence, psns, at.now);
    }

    /// The cursor moves over what was sent, if it was not behind that.
    fn advances(&mut self, sequence: u64, psns: u64, now: u64) {
        if (sequence..sequence + psns).contains(&self.una) {
            self.asked = true;
            self.since = now;
            self.repeated |= sequence < self.sent;
        }
        self.cursor = self.cursor.max(sequence + psns);
        self.sent = self.sent.max(self.cursor);
    }

    /// The peer keeps what is behind a gap: something is sent again that was lost or came out of
    /// order, or what follows that, all of it, when the sender went back.
    fn sends_again(&mut self, sequence: u64, psns: u64, at: Standing) {
        self.unsure = true;
        let lost = |&(packet, _): &(u64, u64)| packet >= sequence;
        let is_timeout = std::mem::replace(&mut self.timeouts, at.timeouts) != at.timeouts;
        let has_reason = is_timeout
            || self.again == Some(sequence)
            || self.losses.iter().any(lost)
            || !self.disordered.is_empty();
        let has_reason = has_reason || self.scarce || self.loose;
        if !has_reason && !at.local_trouble && !at.draining {
            self.forbid(format!("packet {sequence} is sent again for no reason"));
        }
        self.again = Some(sequence + psns);
        self.advances(sequence, psns, at.now);
    }

    /// The sender sends a packet again, to learn what the peer has.
    fn probes(&mut self, at: Standing) {
        self.probes += 1;
        let (before, last) = self.probed;
        let silence = SHORTEST_SILENCE << before;
        if at.now < self.since.max(last) + silence && !self.loose && !at.local_trouble {
            self.forbid("a probe too soon".into());
        }
        self.probed = (before + 1, at.now);
    }

    /// Something is sent for the first time.
    fn begins(&mut self, plan: &Plan, message: &Message, segment: &RequestSegment, at: Standing) {
        let info = segment.opcode.info();
        if !info.first {
            return;
        }
        let index = message.request.wr_id as usize;
        let reads = plan.messages[at.retired.min(index)..index]
            .iter()
            .filter(|m| m.request.op.is_answered())
            .count();
        if message.request.fence && reads != 0 {
            self.forbid(format!("request {index} passes its fence"));
        }
        if message.request.op.is_answered() && reads >= usize::from(self.side.max_rd_atomic.max(1))
        {
            self.forbid(format!("READ {index} is one too many"));
        }
        if self.drained && message.first >= self.sent {
            self.forbid(format!("request {index} begins in SQD"));
        }
    }

    /// The sender goes back to a packet that it had sent.
    fn goes_back(&mut self, sequence: u64, psns: u64, of_read: bool, at: Standing) {
        let repeats_last = sequence + psns == self.cursor;
        let may_ask = at.local_trouble || (at.draining && repeats_last);
        if sequence != self.una {
            if !may_ask {
                self.forbid(format!(
                    "the sender goes back to packet {sequence}, but {} is the oldest",
                    self.una
                ));
            }
            // The peer may miss the same once more, because it was asked.
            self.disordered.push((sequence, at.now));
            return;
        }
        self.unsure |= may_ask;
        let mut crossing = None;
        if std::mem::replace(&mut self.timeouts, at.timeouts) != at.timeouts {
            // A NAK for the same loss may have crossed it.
            crossing = Some((0, at.now));
            let timeout = ack_timeout_ns(self.side.timeout);
            let patient = timeout.is_some_and(|timeout| at.now >= self.since + timeout);
            if !patient && !self.loose {
                self.forbid(format!(
                    "a timeout for packet {sequence} that came too soon"
                ));
            }
        }
        if !self.take_reason(at.now) {
            if !self.loose && !may_ask {
                self.forbid(format!(
                    "the sender goes back to packet {sequence} for no reason"
                ));
            }
            return;
        }
        self.retries += 1;
        self.reports += u32::from(crossing.is_none());
        self.disordered.extend(crossing);
        let free = u32::from(self.unsure) + u32::from(self.decided);
        let mut most = u32::from(self.side.retry_cnt) / 2 + 1 + free;
        if of_read {
            // An answer to something behind it says that a response was lost, once, and once again
            // after each timeout. That is no NAK.
            most += self.retries + 1 - self.reports;
        }
        if self.reports > most && self.side.timeout != 0 && !self.loose {
            self.forbid(format!(
                "NAK {} for packet {sequence} acted upon",
                self.reports
            ));
        }
        let most = u32::from(self.side.retry_cnt) + free;
        if self.retries > most && !self.loose {
            self.forbid(format!("retry {} of packet {sequence}", self.retries));
        }
    }

    /// Whether the network gave a reason to go back. Forgets those that are over.
    fn has_reason(&mut self, now: u64) -> bool {
        let una = self.una;
        self.disordered
            .retain(|&(packet, at)| packet >= una || now < at + ROUND_TRIP);
        self.losses.retain(|&(packet, _)| packet >= una);
        !self.losses.is_empty() || !self.disordered.is_empty()
    }

    /// Whether the network gave a reason to go back, which is used up by that.
    fn take_reason(&mut self, now: u64) -> bool {
        if !self.has_reason(now) {
            return false;
        }
        if !self.losses.is_empty() {
            // All is sent again. But if the oldest packet was lost when it was sent before the last
            // time, then the peer may yet miss what was lost the last time.
            let una = self.una;
            let of_una = self.losses.iter().filter(|loss| loss.0 == una);
            let then = of_una.map(|&(_, at)| at).max();
            self.losses.retain(|&(packet, at)| {
                packet > una && then.is_some_and(|then| at > then) && now < at + ROUND_TRIP
            });
            return true;
        }
        let first = (0..self.disordered.len()).min_by_key(|&n| self.disordered[n]);
        first.map(|n| self.disordered.swap_remove(n)).is_some()
    }

    /// The sender says that its oldest packet is this one: it has placed responses before it that
    /// came early.
    pub fn has_placed(&mut self, oldest: Psn, now: u64) {
        let oldest = u64::try_from(self.sequence(oldest)).unwrap_or(0);
        while self.una < oldest && self.early.remove(&self.una) {
            self.progress(self.una + 1, now);
        }
    }

    /// A response reaches the sender, who has not looked at it yet.
    pub fn hears(&mut self, plan: &Plan, content: &Content, now: u64) {
        let sequence = self.sequence(content.psn());
        let in_flight = self.una as i64..self.sent as i64;
        if !in_flight.contains(&sequence) {
            return;
        }
        let sequence = sequence as u64;
        match content {
            Content::Acknowledge(_, aeth) => match aeth.syndrome() {
                AethSyndrome::Ack { .. } => self.acknowledged(plan, sequence + 1, now),
                AethSyndrome::RnrNak { timer } => {
                    self.acknowledged(plan, sequence, now);
                    if self.una == sequence && std::mem::take(&mut self.asked) {
                        self.refusals += 1;
                        // All behind it goes out again, which is no retry.
                        self.cursor = self.una;
                        self.quiet_until = now + rnr_delay_ns(timer);
                    }
                }
                _ => self.acknowledged(plan, sequence, now),
            },
            Content::Read(segment, _) => {
                self.acknowledged(plan, sequence, now);
                let in_read = plan
                    .messages
                    .iter()
                    .any(|m| m.request.op.is_answered() && (m.first..m.end()).contains(&sequence));
                let end = sequence + u64::from(segment.span);
                if self.una == sequence && in_read {
                    self.progress(end, now);
                } else if segment.keeps && in_read {
                    self.early.extend(sequence..end);
                }
            }
            Content::Missing(..) => self.acknowledged(plan, sequence, now),
            Content::Request(..) => {}
        }
    }

    /// All before `end` arrived; of READs only their responses say so.
    fn acknowledged(&mut self, plan: &Plan, end: u64, now: u64) {
        let read = plan
            .messages
            .iter()
            .find(|m| m.request.op.is_answered() && m.end() > self.una);
        let limit = read.map_or(u64::MAX, |read| read.first.max(self.una));
        self.progress(end.min(limit), now);
    }

    fn progress(&mut self, una: u64, now: u64) {
        if una > self.una {
            // Who went back goes on behind what arrived.
            self.again = self.again.map(|end| end.max(una));
            self.una = una;
            self.since = now;
            self.repeated = false;
            self.probed = (0, 0);
            self.retries = 0;
            self.reports = 0;
            self.unsure = false;
            self.decided = self.has_reason(now);
            self.refusals = 0;
            self.quiet_until = 0;
            // It may have been sent before, and what is said about that counts.
            self.asked = self.sent > una;
        }
    }

    /// A request of the sender ended so, by a response or the timer.
    pub fn ended(&mut self, status: Status, now: u64) {
        let most = u32::from(self.side.retry_cnt);
        let all = self.retries == most || (self.decided && self.retries == most + 1);
        let refused = self.is_exhausted() && self.refusals == u32::from(self.side.rnr_retry) + 1;
        let what = match status {
            Status::RetryExcErr if self.loose || self.unsure || self.keeps => return,
            Status::RetryExcErr if !all => format!("RETRY_EXC after {} retries", self.retries),
            Status::RetryExcErr if !self.take_reason(now) => {
                "RETRY_EXC although the last time nothing failed".into()
            }
            Status::RnrRetryExcErr if !refused => {
                format!("RNR_RETRY_EXC after {} refusals", self.refusals)
            }
            _ => return,
        };
        self.forbid(what);
    }

    /// After a response: a sender that was refused too often is at its end.
    pub fn is_exhausted(&self) -> bool {
        self.side.rnr_retry != 7 && self.refusals > u32::from(self.side.rnr_retry)
    }
}
