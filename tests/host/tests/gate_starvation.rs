// SPDX-License-Identifier: GPL-2.0

//! The gate of `sys::sync` with readers of whom one is always inside: who changes what is
//! behind it does not wait for those who come later. A lock that lets them pass waits for ever.

use ferroce_core::gate::{FairLock, Gate, GateWord};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::Mutex;
use std::thread;

const CHANGES: u32 = 200;

/// A word that is waited for by spinning, as in the kernel.
struct Spun<'a> {
    word: AtomicU32,
    /// How often somebody had shut the gate, and waited for those inside.
    waits: &'a AtomicU32,
}

impl GateWord for Spun<'_> {
    fn add_one(&self) -> u32 {
        self.word.fetch_add(1, Acquire)
    }
    fn sub_one(&self) -> u32 {
        self.word.fetch_sub(1, Release)
    }
    fn read(&self) -> u32 {
        self.word.load(Acquire)
    }
    fn replace(&self, old: u32, new: u32) -> bool {
        let replaced = self.word.compare_exchange(old, new, SeqCst, Relaxed);
        replaced.is_ok()
    }
    fn wait_until_clear(&self, mask: u32, unless: u32) {
        self.waits.fetch_add(1, SeqCst);
        loop {
            let word = self.read();
            if word & mask == 0 || word & unless != 0 {
                return;
            }
            thread::yield_now();
        }
    }
    fn wake(&self) {}
}

/// Two readers take turns, and a third thread changes something.
struct Ring<'a> {
    gate: Gate<Spun<'a>>,
    waits: &'a AtomicU32,
    queue: Mutex<()>,
    /// Turns of the readers that have begun: he whose turn it is is inside, or in the queue.
    turns: AtomicU32,
    changes: AtomicU32,
    /// Somebody went in while the gate was shut.
    passed: AtomicBool,
}

/// The queue: of who changes, or of the reader who has this turn.
struct Waiting<'a>(&'a Ring<'a>, Option<u32>);

impl FairLock for Waiting<'_> {
    fn with_lock<R>(&self, what: impl FnOnce() -> R) -> R {
        let Self(ring, turn) = self;
        if let Some(turn) = turn {
            ring.turns.store(turn + 1, SeqCst);
        }
        let _alone = ring.queue.lock().unwrap();
        what()
    }
}

impl Ring<'_> {
    fn is_over(&self) -> bool {
        self.changes.load(SeqCst) == CHANGES || self.passed.load(SeqCst)
    }

    /// Waits until so many turns have begun.
    fn wait_for(&self, turns: u32) {
        while self.turns.load(SeqCst) < turns && !self.is_over() {
            thread::yield_now();
        }
    }

    /// The turns `first`, `first + 2` and so on. A reader goes out when the other one's next turn
    /// has begun.
    fn read(&self, first: u32) {
        for turn in (first..).step_by(2) {
            self.wait_for(turn);
            if self.is_over() {
                return;
            }
            let waits = self.waits.load(SeqCst);
            assert!(self.gate.tryget_queued(&Waiting(self, Some(turn))));
            // Each change that had shut the gate before must be complete.
            if self.changes.load(SeqCst) < waits {
                self.passed.store(true, SeqCst);
            }
            self.turns.fetch_max(turn + 1, SeqCst);
            self.wait_for(turn + 2);
            self.gate.put();
        }
    }

    /// Makes the changes, each while the readers take turns.
    fn change(&self) {
        while !self.is_over() {
            self.wait_for(self.turns.load(SeqCst) + 2);
            self.gate.change(&Waiting(self, None), || {
                self.changes.fetch_add(1, SeqCst);
            });
        }
    }
}

#[test]
fn who_comes_later_does_not_pass_who_waits() {
    let waits = AtomicU32::new(0);
    let ring = Ring {
        gate: Gate::new(Spun {
            word: AtomicU32::new(0),
            waits: &waits,
        }),
        waits: &waits,
        queue: Mutex::new(()),
        turns: AtomicU32::new(0),
        changes: AtomicU32::new(0),
        passed: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        scope.spawn(|| ring.read(0));
        scope.spawn(|| ring.read(1));
        ring.change();
    });
    assert!(
        !ring.passed.load(SeqCst),
        "a reader passed a change that waited"
    );
    assert_eq!(ring.changes.load(SeqCst), CHANGES);
}
