// SPDX-License-Identifier: GPL-2.0

//! What a turn of the data path has to do after it gave its locks back.
//!
//! Handlers of users are called with no lock held, as they may poll and post; and a QP that goes
//! to ERR takes locks that the turn may not take where it found the error.

use super::cq::{
    Cq,
    Pushed, //
};
use super::qp::Qp;
use crate::sys::ib::event::QpEvent;
use kernel::sync::rcu;
use kernel::sync::{
    Arc,
    ArcBorrow, //
};

/// A turn touches the CQs of at most two QPs.
const MAX_CQ: usize = 4;
/// Events and failures of these QPs, with room to spare: one that found no place would be lost.
const MAX_QP: usize = 12;

/// Calls to be made.
#[derive(Default)]
pub struct Deferred {
    /// There are some. Most turns have none, and need not look through all the places.
    any: bool,
    completions: [Option<Arc<Cq>>; MAX_CQ],
    overruns: [Option<Arc<Cq>>; MAX_CQ],
    events: [Option<(Arc<Qp>, QpEvent)>; MAX_QP],
    failed: [Option<Arc<Qp>>; MAX_QP],
}

/// Puts `value` into a free place, unless an equal one is there.
fn note<T>(places: &mut [Option<T>], value: T, same: impl Fn(&T, &T) -> bool) {
    for place in places {
        match place {
            Some(old) if same(old, &value) => return,
            Some(_) => {}
            None => {
                *place = Some(value);
                return;
            }
        }
    }
}

impl Deferred {
    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// Something was pushed to `cq` on behalf of `qp`.
    pub fn pushed(&mut self, qp: ArcBorrow<'_, Qp>, cq: &Arc<Cq>, pushed: Pushed) {
        match pushed {
            Pushed::Quiet => {}
            Pushed::Notify => {
                self.any = true;
                note(&mut self.completions, cq.clone(), Arc::ptr_eq);
            }
            Pushed::Overrun { first } => {
                if first {
                    self.any = true;
                    note(&mut self.overruns, cq.clone(), Arc::ptr_eq);
                }
                // A QP that cannot report completions is of no use (IBTA 11.6.3.1).
                self.event(qp, QpEvent::Fatal);
                self.fail(qp);
            }
        }
    }

    /// `qp` has an asynchronous event.
    pub fn event(&mut self, qp: ArcBorrow<'_, Qp>, event: QpEvent) {
        self.any = true;
        note(&mut self.events, (qp.into(), event), |a, b| {
            Arc::ptr_eq(&a.0, &b.0) && a.1 == b.1
        });
    }

    /// `qp` goes to ERR.
    pub fn fail(&mut self, qp: ArcBorrow<'_, Qp>) {
        self.any = true;
        note(&mut self.failed, qp.into(), Arc::ptr_eq);
    }

    /// Does it all. No lock is held.
    pub fn run(mut self, rcu: &rcu::Guard) {
        // Flushing may add completions, and may overrun a queue; a QP that is in ERR already is
        // not failed again, so this ends.
        while let Some(qp) = self.failed.iter_mut().find_map(Option::take) {
            qp.as_arc_borrow().enter_error(rcu, &mut self);
        }
        for cq in self.overruns.into_iter().flatten() {
            cq.upcall.error(rcu);
        }
        for (qp, event) in self.events.into_iter().flatten() {
            qp.upcall.event(event, rcu);
        }
        for cq in self.completions.into_iter().flatten() {
            cq.upcall.completion(rcu);
        }
    }
}
