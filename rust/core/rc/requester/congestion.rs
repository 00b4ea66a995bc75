// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! What the requester does when it learns that the network marks packets.

use super::Requester;
use super::RequesterState;
use super::SendSlot;
use core::ops::DerefMut;

impl<S: DerefMut<Target = [SendSlot]>> Requester<S> {
    /// Packets of this side wait in the network: the peer says so, or READ responses, which leave
    /// as this side asks for them, are marked.
    #[cold]
    pub fn slow_down(&mut self) {
        if self.state == RequesterState::Ready && self.window.marked(self.una, self.sent) {
            self.count(1, |counters| &mut counters.slowdowns);
        }
    }
}
