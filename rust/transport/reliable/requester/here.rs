// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! Work requests that ask no peer, between those that do ([`Answer::Here`]).

use super::Here;
use super::Requester;
use super::SendSlot;
use super::State;
use crate::transport::completion::SendCompletion;
use crate::transport::completion::Status;
use crate::transport::operation::Answer;
use crate::transport::request::Progress;
use core::ops::DerefMut;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Whether a request stands before the cursor.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.cursor.index != self.pushed
    }

    /// What stands before the cursor when [`Self::next_segment`] has nothing.
    #[cold]
    pub fn next_here(&mut self, now: u64) -> Here {
        if self.state != State::Ready
            || self.cursor.index == self.pushed
            || self.cursor.packet != 0
            || self.retry.is_waiting(now)
        {
            return Here::Nothing;
        }
        match self.ring.get(self.cursor.index) {
            Some(slot) if slot.request.op.answer() == Answer::Here => {
                if slot.begun {
                    // The cursor went back after a loss.
                    self.cursor.index = self.cursor.index.wrapping_add(1);
                    return Here::GoOn;
                }
                let waits = slot.request.fence && self.reads != 0;
                if waits || self.draining || !slot.status.is_success() {
                    return Here::Nothing;
                }
                Here::Do(self.ring.slot(self.cursor.index))
            }
            _ => Here::Nothing,
        }
    }

    /// What [`Self::next_here`] asked for is done: with success, or it ends so when its turn comes.
    pub fn done_here(&mut self, status: Status, sink: &mut impl FnMut(SendCompletion)) -> Progress {
        let (index, first) = (self.cursor.index, self.cursor.sequence);
        if let Some(slot) = self.ring.get_mut(index) {
            slot.status = status;
            if status.is_success() {
                (slot.begun, slot.first, slot.packets) = (true, first, 0);
                self.cursor.index = index.wrapping_add(1);
            }
        }
        self.retire_done_here(sink);
        self.settle(sink)
    }

    /// Retires those among the oldest work requests that were done here.
    #[inline]
    pub(super) fn retire_done_here(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        let is_here = |slot: &SendSlot| slot.request.op.answer() == Answer::Here;
        if self.head().is_some_and(is_here) {
            self.retire_all_done_here(sink);
        }
    }

    #[cold]
    fn retire_all_done_here(&mut self, sink: &mut impl FnMut(SendCompletion)) {
        while let Some(slot) = self.head() {
            if !slot.begun || slot.request.op.answer() != Answer::Here {
                break;
            }
            self.retire(Status::Success, 0, sink);
        }
    }

    /// The last work request before `index` that took PSNs, if it is not complete.
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
