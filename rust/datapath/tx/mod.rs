// SPDX-License-Identifier: GPL-2.0

//! What transmits segments: the wire, the local path, and for datagrams both. Each is a
//! [`Transmit`](crate::core::send::Transmit) of the one send loop.

pub mod datagram;
pub mod local;
pub mod wire;

use super::ctx::Ctx;
use super::memory::window::BindError;
use super::qp::Qp;
use super::queues::SendCopies;
use crate::core::completion::{
    SendCompletion,
    Status, //
};
use crate::core::send::SendEnv;
use crate::core::storage::Slot;
use crate::observe::counters::Counter;
use kernel::sync::ArcBorrow;

/// The QP that sends, in one invocation.
struct Sender<'q, 't, 'a> {
    qp: ArcBorrow<'q, Qp>,
    wqes: &'t SendCopies,
    ctx: &'t mut Ctx<'a>,
}

impl SendEnv for Sender<'_, '_, '_> {
    #[inline(always)]
    fn now(&self) -> u64 {
        self.ctx.now()
    }

    #[inline(always)]
    fn may_move(&self) -> bool {
        self.ctx.may_move()
    }

    #[inline(always)]
    fn may_move_beyond(&self, bytes: u32) -> bool {
        self.ctx.may_move_beyond(bytes)
    }

    #[inline(always)]
    fn complete(&mut self, done: SendCompletion) {
        self.ctx.complete_send(self.qp, done);
    }

    #[cold]
    fn fail(&mut self) {
        self.ctx.fail_sends(self.qp);
    }

    #[cold]
    fn will_retry(&mut self) {
        self.ctx.counters(&self.qp).inc(Counter::SendRetried);
    }

    #[cold]
    fn execute_local_op(&mut self, slot: Slot) -> Status {
        let changed = match self.wqes.key_change(slot) {
            Some(change) => self.ctx.regions(&self.qp).change(self.qp.id(), change),
            None => Err(BindError),
        };
        match changed {
            Ok(()) => Status::Success,
            Err(BindError) => Status::MwBindErr,
        }
    }
}
