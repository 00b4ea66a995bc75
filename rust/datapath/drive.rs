// SPDX-License-Identifier: GPL-2.0

//! What sets a QP in motion: a doorbell, a timer, a worker; and the loop that sends.

use super::fabric::FABRIC;
use super::local;
use super::payload::Payload;
use super::qp::Qp;
use super::recv_queue::RecvHalf;
use super::send_queue::SendHalf;
use super::Turn;
use crate::sys::ib::event::QpEvent;
use crate::sys::ib::qp::{
    Access,
    State, //
};
use crate::sys::timer::{
    self,
    Deadline,
    Expires, //
};
use crate::transport::completion::Status;
use crate::transport::requester::Progress;
use crate::transport::responder::AccessError;
use crate::transport::segment::{
    RequestSegment,
    Response, //
};
use crate::uabi::ring::FLAG_NEED_DOORBELL;
use crate::wire::packet::Headers;
use kernel::prelude::*;
use kernel::sync::{
    rcu,
    Arc,
    ArcBorrow, //
};
use kernel::workqueue::WorkItem;

/// Packets that one turn sends before it gives its locks back.
pub const PACKETS_PER_TURN: u32 = 64;

/// Turns that a system call takes before it leaves the rest to a worker.
const TURNS_PER_DOORBELL: u32 = 16;

/// The process rang the doorbell of its send queue.
pub fn send_doorbell(qp: &Arc<Qp>) -> Result {
    let rcu = rcu::read_lock();
    let fabric = FABRIC.get(&rcu).ok_or(ENODEV)?;
    let mut timed = false;
    for turn_number in 1..=TURNS_PER_DOORBELL {
        let mut turn = Turn::new(&rcu, fabric);
        let more = {
            let mut send = qp.send.lock();
            match qp.state() {
                State::Rts | State::Sqd => {}
                State::Err | State::Sqe => {
                    if !send.worker && send.flush(qp.as_arc_borrow(), &mut turn.deferred) {
                        send.hand_over(qp.as_arc_borrow(), &turn);
                    }
                    drop(send);
                    turn.end();
                    return Ok(());
                }
                State::Reset | State::Init | State::Rtr => return Err(EINVAL),
            }
            if send.worker {
                return Ok(());
            }
            if turn_number == 1 {
                send.choose_sender(qp, turn.now);
                timed = send.offload.stream.wants_end();
            }
            if send.offload.is_on() {
                send.hand_over(qp.as_arc_borrow(), &turn);
                return Ok(());
            }
            let more = send.advance(qp.as_arc_borrow(), &mut turn);
            if more && turn_number == TURNS_PER_DOORBELL {
                send.hand_over(qp.as_arc_borrow(), &turn);
            }
            more
        };
        turn.end();
        if !more {
            break;
        }
    }
    if timed {
        qp.send.lock().offload.stream.served(timer::now());
    }
    Ok(())
}

/// The process rang the doorbell of its receive queue, which it does in ERR only.
pub fn recv_doorbell(qp: &Arc<Qp>) -> Result {
    let rcu = rcu::read_lock();
    let fabric = FABRIC.get(&rcu).ok_or(ENODEV)?;
    let mut turn = Turn::new(&rcu, fabric);
    {
        let mut recv = qp.recv.lock();
        if qp.state() == State::Err && !recv.worker && recv.flush(qp.as_arc_borrow(), &mut turn) {
            recv.hand_over(qp.as_arc_borrow(), &turn);
        }
    }
    turn.end();
    Ok(())
}

impl Expires for Qp {
    fn expired(this: ArcBorrow<'_, Self>) {
        let rcu = rcu::read_lock();
        let Some(fabric) = FABRIC.get(&rcu) else {
            return;
        };
        let mut turn = Turn::new(&rcu, fabric);
        {
            let mut send = this.send.lock();
            if matches!(this.state(), State::Rts | State::Sqd) {
                if send.requester.deadline().is_some_and(|at| at <= turn.now) {
                    let deferred = &mut turn.deferred;
                    let progress = send
                        .requester
                        .on_deadline(turn.now, &mut |done| this.complete_send(done, deferred));
                    send.proceed(this, progress, &mut turn);
                } else {
                    // Too early, and perhaps on another CPU than the sender's: nothing is sent
                    // here that could overtake what is sent there.
                    send.settle(this, &mut turn);
                }
            }
        }
        turn.end();
    }

    fn deadline(&self) -> &Deadline<Self> {
        &self.deadline
    }
}

/// What is left of a system call or a softirq, on the same CPU.
impl WorkItem for Qp {
    type Pointer = Arc<Self>;

    /// One turn of each half that was handed over; what is left then is queued again, so that
    /// other work gets its turn.
    fn run(this: Arc<Self>) {
        let rcu = rcu::read_lock();
        let Some(fabric) = FABRIC.get(&rcu) else {
            return;
        };
        let qp = this.as_arc_borrow();
        let mut turn = Turn::new(&rcu, fabric);
        let mut again = false;
        {
            let mut send = this.send.lock();
            if send.worker && send.offload.is_here() {
                again = send.work(qp, &mut turn);
            }
        }
        turn.end();
        let mut turn = Turn::new(&rcu, fabric);
        {
            let mut recv = this.recv.lock();
            if recv.worker {
                recv.worker = match this.state() {
                    State::Err => recv.flush(qp, &mut turn),
                    _ => RecvHalf::serves(&this) && recv.answer(qp, &mut turn),
                };
                again |= recv.worker;
            }
        }
        turn.end();
        if again {
            // If it was queued meanwhile, that does as well.
            let _ = fabric.workers.enqueue::<_, 0>(this);
        }
    }
}

impl SendHalf {
    /// A turn of the worker that is in charge; tells whether it wants another one.
    pub fn work(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
        let before = self.requester.pushed();
        let more = match qp.state() {
            State::Rts | State::Sqd => self.advance(qp, turn),
            State::Err => self.flush(qp, &mut turn.deferred),
            _ => false,
        };
        let took = self.requester.pushed() != before;
        let more = more || self.offload.lingers(took);
        // The flag goes up first and then the ring is looked at once more: a request posted in
        // between either finds the flag, or is found.
        if !more {
            qp.sq.store_flags(FLAG_NEED_DOORBELL);
        }
        let posted = qp.sq.load_producer() != self.requester.pushed();
        self.worker = more || (posted && self.has_room(qp) && qp.state() != State::Reset);
        if self.worker && !more {
            qp.sq.store_flags(0);
        }
        self.worker
    }

    /// Sends what may be sent, up to the budget of a turn; tells whether there is more.
    pub fn advance(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
        let posted = self.take_posted(qp, &mut turn.deferred);
        if self.requester.is_drained() {
            self.local = qp.port.local_path() && local::is_local(self, qp, turn);
        }
        let more = if self.local {
            local::exchange(self, qp, turn)
        } else {
            self.transmit(qp, turn)
        };
        self.settle(qp, turn);
        more || posted
    }

    /// Goes on after an event changed something.
    pub fn proceed(&mut self, qp: ArcBorrow<'_, Qp>, progress: Progress, turn: &mut Turn<'_>) {
        if progress.fatal {
            turn.deferred.fail(qp);
            self.settle(qp, turn);
        } else if self.worker {
            // The worker will; it may have been waiting for this.
            if self.offload.is_moving() {
                self.queue_worker(qp, turn);
            }
            self.settle(qp, turn);
        } else if self.offload.is_on() {
            if self.requester.retired() != self.requester.pushed() {
                self.hand_over(qp, turn);
            }
            self.settle(qp, turn);
        } else if self.advance(qp, turn) {
            self.hand_over(qp, turn);
        }
    }

    /// Leaves the rest to a worker; until it is done no doorbell is needed.
    pub fn hand_over(&mut self, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) {
        self.worker = true;
        qp.sq.store_flags(0);
        self.queue_worker(qp, turn);
    }

    /// Whether a request in the ring could be taken.
    fn has_room(&self, qp: ArcBorrow<'_, Qp>) -> bool {
        let used = self
            .requester
            .pushed()
            .wrapping_sub(self.requester.retired());
        used < qp.sq.entries()
    }

    /// Publishes where the half stands, at the end of a turn.
    fn settle(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) {
        self.publish(qp);
        self.count(&qp.port.counters);
        if let Some(at) = self.requester.deadline() {
            qp.deadline.arm(at);
        }
        if self.notify_drained && qp.state() == State::Sqd && self.requester.is_drained() {
            self.notify_drained = false;
            turn.deferred.event(qp, QpEvent::SqDrained);
        }
    }

    /// Sends packets, up to the budget; tells whether there are more.
    fn transmit(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
        let mut more = true;
        for _ in 0..PACKETS_PER_TURN {
            let Some(segment) = self.requester.next_segment(turn.now, 1) else {
                more = false;
                break;
            };
            if self.send_packet(qp, &segment, turn).is_err() {
                self.fail(qp, segment.slot, turn);
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.flush(&qp.port.counters);
        }
        more
    }

    fn send_packet(
        &mut self,
        qp: ArcBorrow<'_, Qp>,
        segment: &RequestSegment,
        turn: &mut Turn<'_>,
    ) -> Result<(), AccessError> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let mut headers = Headers::new(segment.opcode(), connection.dest_qpn, segment.psn);
        headers.ack_req = segment.ack_req;
        headers.solicited = segment.solicited;
        headers.imm = segment.imm;
        headers.reth = segment.reth;
        let payload = self
            .wqes
            .payload(segment.slot, segment.offset, qp.regions(turn.rcu));
        connection.send(&qp.port.counters, &headers, segment.len, |out| {
            payload.read(out)
        })
    }

    /// Local memory of a request is not accessible.
    pub fn fail(&mut self, qp: ArcBorrow<'_, Qp>, slot: u32, turn: &mut Turn<'_>) {
        let deferred = &mut turn.deferred;
        let progress = self.requester.fail(slot, Status::LocProtErr, &mut |done| {
            qp.complete_send(done, deferred)
        });
        if progress.fatal {
            turn.deferred.fail(qp);
        }
    }
}

impl RecvHalf {
    /// Sends responses as packets, up to the budget of a turn; tells whether there are more.
    pub fn answer(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) -> bool {
        let mut more = true;
        for _ in 0..PACKETS_PER_TURN {
            let Some(response) = self.responder.next_response(1) else {
                more = false;
                break;
            };
            self.end_if_told(qp, turn);
            let Some(connection) = &mut self.connection else {
                return false;
            };
            let mut headers = Headers::new(response.opcode(), connection.dest_qpn, response.psn());
            headers.aeth = response.aeth();
            let sent = match &response {
                Response::Acknowledge { .. } => {
                    connection.send(&qp.port.counters, &headers, 0, |_| Ok(()))
                }
                Response::ReadResponse {
                    segment, rkey, va, ..
                } => qp
                    .read_source(turn, *rkey, *va, segment.len)
                    .and_then(|from| {
                        connection.send(&qp.port.counters, &headers, segment.len, |out| {
                            from.read(out)
                        })
                    }),
            };
            if sent.is_err() {
                self.read_failed(qp, turn);
            }
        }
        if let Some(connection) = &mut self.connection {
            connection.flush(&qp.port.counters);
        }
        more && self.responder.has_response()
    }

    /// The memory of a READ response is not accessible any more.
    pub fn read_failed(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) {
        if let Some(fatal) = self.responder.read_failed().fatal {
            Self::refused(qp, fatal, turn);
        }
    }

    /// Answers, and leaves what is beyond the budget to a worker.
    pub fn respond(&mut self, qp: ArcBorrow<'_, Qp>, turn: &mut Turn<'_>) {
        if !self.worker && self.answer(qp, turn) {
            self.hand_over(qp, turn);
        }
    }

    /// Leaves the rest to a worker.
    pub fn hand_over(&mut self, qp: ArcBorrow<'_, Qp>, turn: &Turn<'_>) {
        self.worker = true;
        let _ = turn.fabric.workers.enqueue::<Arc<Qp>, 0>(Arc::from(qp));
    }
}

impl Qp {
    /// Where the data of a READ response comes from. One without data needs no region (C9-88).
    pub fn read_source<'a>(
        &'a self,
        turn: &Turn<'a>,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<Payload<'a>, AccessError> {
        if len == 0 {
            return Ok(Payload::Bytes(&[]));
        }
        self.regions(turn.rcu)
            .check(rkey, Access::REMOTE_READ, va, len)
            .map(Payload::Range)
    }
}
