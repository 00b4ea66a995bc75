// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Execution of requests that arrived in order (IBTA 9.7.4.1, 9.7.5.1, 9.9.3).
//!
//! Every function checks first and acts last, so that a request for which there is no receive has
//! left no trace when it comes again.

use super::jobs::ReadJob;
use super::AccessError;
use super::DropReason;
use super::Fatal;
use super::Outcome;
use super::RemoteAccess;
use super::Responder;
use super::ResponderEnv;
use super::TakeReceive;
use crate::transport::completion::vendor;
use crate::transport::completion::RecvCompletion;
use crate::transport::completion::RecvOp;
use crate::transport::completion::Status;
use crate::transport::config::Mtu;
use crate::transport::config::MAX_MESSAGE;
use crate::transport::segment::IncomingRequest;
use crate::transport::segment::Reth;
use crate::wire::headers::NakCode;

/// The message that is coming in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Message {
    /// None: the next request begins one.
    #[default]
    None,
    /// A SEND, which goes to a receive.
    Send {
        /// Of the receive.
        wr_id: u64,
        /// Bytes that the receive holds.
        capacity: u64,
        /// Bytes received so far.
        received: u32,
    },
    /// An RDMA WRITE.
    Write {
        /// What its first packet said.
        reth: Reth,
        /// Bytes received so far.
        received: u32,
    },
}

/// Whether the payload is as long as the request's place in its message demands
/// (IBTA 9.7.4.1.6): full packets, then a last one that is not empty.
#[inline]
fn length_fits(request: &IncomingRequest, mtu: Mtu) -> bool {
    let full = mtu.span_bytes(request.span);
    let len = u64::from(request.payload_len);
    if request.span == 0 {
        return false;
    }
    if !request.last {
        return len == full;
    }
    // Only a message of one packet may be empty.
    let may_be_empty = request.first && request.span == 1;
    len <= full && (may_be_empty || len > full.wrapping_sub(u64::from(mtu.bytes())))
}

/// Whether the peer may access the range of the RETH. An empty one needs no right (C9-88).
#[inline]
pub(super) fn check_range(
    access: RemoteAccess,
    reth: &Reth,
    env: &mut impl ResponderEnv,
) -> Result<(), AccessError> {
    let Some(before_last) = reth.length.checked_sub(1) else {
        return Ok(());
    };
    if reth.va.checked_add(u64::from(before_last)).is_none() {
        return Err(AccessError);
    }
    env.check_remote(access, reth.rkey, reth.va, reth.length)
}

impl Responder {
    /// A SEND packet in order.
    pub(super) fn on_send(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        if !length_fits(request, self.mtu) || (request.imm.is_some() && !request.last) {
            return self.refuse_invalid();
        }
        let (wr_id, capacity, received) = match (self.message, request.first) {
            (Message::None, true) => match env.take_receive() {
                TakeReceive::Taken { wr_id, capacity } => (wr_id, capacity, 0),
                TakeReceive::Empty => return self.not_ready(),
                TakeReceive::Malformed { wr_id, status } => {
                    return self.fail_receive(
                        wr_id,
                        RecvOp::Send,
                        (status, vendor::RECEIVE_MALFORMED),
                        NakCode::RemoteOperational,
                        env,
                    )
                }
            },
            (
                Message::Send {
                    wr_id,
                    capacity,
                    received,
                },
                false,
            ) => (wr_id, capacity, received),
            _ => return self.refuse_invalid(),
        };

        let total = received.checked_add(request.payload_len);
        let Some(total) = total.filter(|&n| n <= MAX_MESSAGE && u64::from(n) <= capacity) else {
            return self.fail_receive(
                wr_id,
                RecvOp::Send,
                (Status::LocLenErr, vendor::RECEIVE_TOO_SHORT),
                NakCode::InvalidRequest,
                env,
            );
        };
        if request.payload_len != 0 && env.scatter(received, request.payload_len).is_err() {
            return self.fail_receive(
                wr_id,
                RecvOp::Send,
                (Status::LocProtErr, vendor::RECEIVE_MEMORY),
                NakCode::RemoteOperational,
                env,
            );
        }

        if request.last {
            env.complete(RecvCompletion {
                wr_id,
                status: Status::Success,
                op: RecvOp::Send,
                byte_len: total,
                imm: request.imm,
                solicited: request.solicited,
                vendor_err: 0,
            });
            self.end_message();
        } else {
            self.message = Message::Send {
                wr_id,
                capacity,
                received: total,
            };
        }
        self.accept(request)
    }

    /// An RDMA WRITE packet in order.
    pub(super) fn on_write(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        if !length_fits(request, self.mtu) || (request.imm.is_some() && !request.last) {
            return self.refuse_invalid();
        }
        let (reth, received) = match (self.message, request.first, request.reth) {
            (Message::None, true, Some(reth)) => (reth, 0),
            (Message::Write { reth, received }, false, _) => (reth, received),
            _ => return self.refuse_invalid(),
        };
        if !self.allow_write || reth.length > MAX_MESSAGE {
            return self.refuse_invalid();
        }
        // The length that the RETH promised must be reached with the last packet, not before.
        let rest = reth.length.saturating_sub(received);
        let fits = if request.last {
            request.payload_len == rest
        } else {
            request.payload_len < rest
        };
        if !fits {
            return self.refuse_invalid();
        }
        if request.first && check_range(RemoteAccess::Write, &reth, env).is_err() {
            return self.refuse_access();
        }

        // The receive comes before the data, which would be written twice if there was none.
        let receive = if request.imm.is_some() {
            match env.take_receive() {
                TakeReceive::Taken { wr_id, .. } => Some(wr_id),
                TakeReceive::Empty => return self.not_ready(),
                TakeReceive::Malformed { wr_id, status } => {
                    return self.fail_receive(
                        wr_id,
                        RecvOp::WriteImm,
                        (status, vendor::RECEIVE_MALFORMED),
                        NakCode::RemoteOperational,
                        env,
                    )
                }
            }
        } else {
            None
        };

        // The range was checked not to wrap with the first packet.
        let va = reth.va.wrapping_add(u64::from(received));
        if request.payload_len != 0
            && env
                .write_remote(reth.rkey, va, request.payload_len)
                .is_err()
        {
            if let Some(wr_id) = receive {
                env.complete(flushed(wr_id, RecvOp::WriteImm));
            }
            return self.refuse_access();
        }

        if request.last {
            if let Some(wr_id) = receive {
                env.complete(RecvCompletion {
                    wr_id,
                    status: Status::Success,
                    op: RecvOp::WriteImm,
                    byte_len: reth.length,
                    imm: request.imm,
                    solicited: request.solicited,
                    vendor_err: 0,
                });
            }
            self.end_message();
        } else {
            self.message = Message::Write {
                reth,
                received: received.saturating_add(request.payload_len),
            };
        }
        self.accept(request)
    }

    /// A READ request in order.
    pub(super) fn on_read(
        &mut self,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        let (Message::None, Some(reth)) = (self.message, request.reth) else {
            return self.refuse_invalid();
        };
        if !self.allow_read
            || request.payload_len != 0
            || reth.length > MAX_MESSAGE
            || self.jobs.outstanding() >= usize::from(self.max_dest_rd_atomic)
        {
            return self.refuse_invalid();
        }
        if check_range(RemoteAccess::Read, &reth, env).is_err() {
            return self.refuse_access();
        }
        self.end_message();
        let job = ReadJob::new(self.expected, &reth, self.mtu, self.msn);
        if !self.jobs.push(job) {
            return self.refuse_invalid();
        }
        self.newest_read = self.expected;
        self.expected = job.end();
        self.counters.packets = self.counters.packets.wrapping_add(1);
        Outcome::default()
    }

    /// A READ request that was accepted before. It is checked anew: the memory may have changed.
    pub(super) fn on_read_again(
        &mut self,
        start: u64,
        request: &IncomingRequest,
        env: &mut impl ResponderEnv,
    ) {
        let Some(reth) = request.reth else {
            return;
        };
        if !self.allow_read || request.payload_len != 0 || reth.length > MAX_MESSAGE {
            return;
        }
        let job = ReadJob::new(start, &reth, self.mtu, self.msn);
        if job.end() > self.expected {
            return;
        }
        if check_range(RemoteAccess::Read, &reth, env).is_err() {
            // If the peer still waits for it, this ends the connection there. If it is an old
            // packet that the network brought twice, the peer ignores the answer, and there is
            // no reason to end it here.
            self.counters.access_errors = self.counters.access_errors.wrapping_add(1);
            if self.nak.is_none() {
                self.set_nak(start, NakCode::RemoteAccess);
            }
            return;
        }
        self.jobs.push_again(job);
    }

    /// The request was executed.
    #[inline]
    fn accept(&mut self, request: &IncomingRequest) -> Outcome {
        let span = u64::from(request.span);
        self.expected = self.expected.wrapping_add(span);
        self.counters.packets = self.counters.packets.wrapping_add(span);
        if request.ack_req {
            self.ack = Some(self.expected.wrapping_sub(1));
        }
        Outcome::default()
    }

    /// A message is complete (a READ: accepted), which the MSN counts.
    #[inline]
    fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.wrapping_add(1) & 0xff_ffff;
    }

    /// There is no receive: the peer shall come back later, with this very packet.
    fn not_ready(&mut self) -> Outcome {
        self.counters.rnr_naks = self.counters.rnr_naks.wrapping_add(1);
        self.set_rnr_nak();
        Outcome {
            fatal: None,
            dropped: Some(DropReason::NoReceive),
        }
    }

    /// A receive ends in error, and with it the connection.
    fn fail_receive(
        &mut self,
        wr_id: u64,
        op: RecvOp,
        (status, vendor_err): (Status, u32),
        code: NakCode,
        env: &mut impl ResponderEnv,
    ) -> Outcome {
        env.complete(RecvCompletion {
            wr_id,
            status,
            op,
            byte_len: 0,
            imm: None,
            solicited: false,
            vendor_err,
        });
        // A receive that a SEND took is the one that ended. One that failed for a WRITE is not
        // the message's.
        self.message = Message::None;
        self.counters.local_errors = self.counters.local_errors.wrapping_add(1);
        self.stop(code, Fatal::LocalError)
    }

    /// The peer broke the rules.
    pub(super) fn refuse_invalid(&mut self) -> Outcome {
        self.counters.invalid_requests = self.counters.invalid_requests.wrapping_add(1);
        self.stop(NakCode::InvalidRequest, Fatal::InvalidRequest)
    }

    /// The peer lacks a right.
    fn refuse_access(&mut self) -> Outcome {
        self.counters.access_errors = self.counters.access_errors.wrapping_add(1);
        self.stop(NakCode::RemoteAccess, Fatal::AccessError)
    }
}

/// A receive that was taken and will not be filled.
pub(super) fn flushed(wr_id: u64, op: RecvOp) -> RecvCompletion {
    RecvCompletion {
        wr_id,
        status: Status::WrFlushErr,
        op,
        byte_len: 0,
        imm: None,
        solicited: false,
        vendor_err: vendor::FLUSHED,
    }
}
