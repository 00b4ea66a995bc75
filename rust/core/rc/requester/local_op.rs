// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Local operations, between WQEs that need the peer ([`Reply::Local`]).

use super::Requester;
use super::RequesterState;
use super::SendSlot;
use crate::core::completion::SendCompletion;
use crate::core::completion::Status;
use crate::core::operation::Reply;
use crate::core::send::{
    Next,
    Progress, //
};
use crate::core::spare::Spare;
use core::ops::DerefMut;

impl<S: DerefMut<Target = [SendSlot]>, A: Spare> Requester<S, A> {
    /// Whether a WQE is at the cursor.
    #[inline]
    fn has_waiting(&self) -> bool {
        self.cursor.index != self.pushed
    }

    /// The next segment or local operation. A segment counts as sent: if it cannot leave, call
    /// [`Self::unsend`], or let it count as lost.
    #[inline]
    pub fn next(&mut self, now: u64, max_span: u32) -> Next {
        loop {
            if let Some(segment) = self.next_segment(now, max_span) {
                return Next::Segment(segment);
            }
            if !self.has_waiting() {
                return Next::Idle;
            }
            if let Some(next) = self.without_segment(now) {
                return next;
            }
        }
    }

    /// What is at the cursor, when [`Self::next_segment`] has nothing. `None` after a step over a
    /// local operation that was executed before: the cursor had gone back after a loss.
    #[cold]
    fn without_segment(&mut self, now: u64) -> Option<Next> {
        if self.state != RequesterState::Ready
            || self.cursor.packet != 0
            || self.recovery.is_waiting(now)
        {
            return Some(Next::Idle);
        }
        match self.ring.get(self.cursor.index) {
            Some(slot) if slot.request.op.reply() == Reply::Local => {
                if slot.begun {
                    self.cursor.index = self.cursor.index.wrapping_add(1);
                    return None;
                }
                let waits = slot.request.fence && self.reads != 0;
                if waits || self.draining || !slot.status.is_success() {
                    return Some(Next::Idle);
                }
                Some(Next::LocalOp(self.ring.slot(self.cursor.index)))
            }
            _ => Some(Next::Idle),
        }
    }

    /// The operation that [`Self::next`] returned has been executed. A failure completes when all
    /// earlier requests have completed.
    pub fn local_op_done(
        &mut self,
        status: Status,
        sink: &mut impl FnMut(SendCompletion),
    ) -> Progress {
        let (index, first) = (self.cursor.index, self.cursor.sequence);
        if let Some(slot) = self.ring.get_mut(index) {
            slot.status = status;
            if status.is_success() {
                (slot.begun, slot.first, slot.packets) = (true, first, 0);
                self.cursor.index = index.wrapping_add(1);
            }
        }
        self.retire_local_ops(sink);
        self.settle(sink)
    }

    /// Retires executed local operations that are the oldest WQEs.
    #[inline]
    pub(super) fn retire_local_ops(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        let is_local = |slot: &SendSlot| slot.request.op.reply() == Reply::Local;
        if self.head().is_some_and(is_local) {
            self.retire_all_local_ops(sink);
        }
    }

    #[cold]
    fn retire_all_local_ops(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        while let Some(slot) = self.head() {
            if !slot.begun || slot.request.op.reply() != Reply::Local {
                break;
            }
            self.retire(Status::Success, 0, sink);
        }
    }

    /// The last WQE before `index` that took PSNs, if it is not complete.
    pub(super) fn sent_before(&self, mut index: u32) -> Option<u32> {
        while index != self.retired {
            index = index.wrapping_sub(1);
            if self.ring.get(index)?.packets != 0 {
                return Some(index);
            }
        }
        None
    }
}
