// SPDX-License-Identifier: GPL-2.0

//! The gate of `sys::sync`: loom runs it in every order that the memory
//! model permits.

use ferroce_core::gate::{FairLock, Gate, GateWord};
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::{Arc, Condvar, Mutex};

use super::loom_rings::{model, spawn};

/// The word, with the orders that the trait promises and no others.
struct Shared {
    word: AtomicU32,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Shared {
    fn new(word: u32) -> Self {
        Self {
            word: AtomicU32::new(word),
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }
}

impl GateWord for Shared {
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
    /// As the kernel does it: who is woken between looking and falling asleep does not fall asleep.
    fn wait_until_clear(&self, mask: u32, unless: u32) {
        let mut guard = self.lock.lock().unwrap();
        loop {
            let word = self.read();
            if word & mask == 0 || word & unless != 0 {
                return;
            }
            guard = self.woken.wait(guard).unwrap();
        }
    }
    fn wake(&self) {
        let _guard = self.lock.lock().unwrap();
        self.woken.notify_all();
    }
}

/// A gate, and what is behind it: a value that no lock guards and that is 0 when it is gone.
struct Guarded {
    gate: Gate<Shared>,
    value: AtomicU32,
    taken: AtomicU32,
}

type Actor = fn(&Guarded);

fn user(guarded: &Guarded) {
    if guarded.gate.tryget() {
        assert_eq!(guarded.value.load(Relaxed), 7, "used what was taken");
        guarded.gate.put();
    }
}

/// Changes it, so that a reader that has not waited finds another value.
fn writer(guarded: &Guarded) {
    if guarded.gate.tryget() {
        guarded.value.store(6, Relaxed);
        guarded.value.store(7, Relaxed);
        guarded.gate.put();
    }
}

fn taker(guarded: &Guarded) {
    if guarded.gate.take() {
        assert_eq!(guarded.value.load(Relaxed), 7, "taken while used");
        guarded.value.store(0, Relaxed);
        guarded.taken.fetch_add(1, Relaxed);
    }
    assert!(guarded.gate.is_taken() && !guarded.gate.tryget());
}

fn shutter(guarded: &Guarded) {
    guarded.gate.kill();
    assert!(!guarded.gate.tryget(), "open after it was shut");
}

/// Runs `actors` in every order in which at most so many threads are interrupted where they need
/// not be. That nobody sleeps for ever is loom's own rule.
fn every_order(interruptions: usize, actors: &'static [Actor]) {
    model(interruptions, move || {
        let guarded = Arc::new(Guarded {
            gate: Gate::new(Shared::new(0)),
            value: AtomicU32::new(7),
            taken: AtomicU32::new(0),
        });
        let (first, others) = actors.split_first().unwrap();
        let threads: Vec<_> = (others.iter())
            .map(|actor| spawn(&guarded, actor))
            .collect();
        first(&guarded);
        for thread in threads {
            thread.join().unwrap();
        }
        let takes = actors
            .iter()
            .any(|&actor| std::ptr::fn_addr_eq(actor, taker as Actor));
        assert_eq!(guarded.taken.load(Relaxed), u32::from(takes));
    });
}

/// Shuts, changes what is behind the gate, and opens it again or not; or finds that it cannot.
fn change(guarded: &Guarded, opens: bool) {
    guarded.gate.kill();
    if guarded.gate.try_claim() {
        assert!(guarded.gate.is_taken() && !guarded.gate.tryget());
        guarded.value.store(6, Relaxed);
        guarded.value.store(7, Relaxed);
        guarded.gate.unclaim(opens);
    }
}

fn changer(guarded: &Guarded) {
    change(guarded, true);
}

fn shut_changer(guarded: &Guarded) {
    change(guarded, false);
}

/// A gate that is open is not borrowed, and one that was given back is open.
#[test]
fn what_is_given_back_is_open_again() {
    loom::model(|| {
        let gate = Gate::new(Shared::new(0));
        assert!(!gate.try_claim() && gate.tryget());
        gate.kill();
        assert!(!gate.try_claim(), "borrowed while somebody was inside");
        gate.put();
        assert!(gate.try_claim() && !gate.try_claim() && !gate.tryget());
        gate.unclaim(true);
        assert!(gate.tryget());
        gate.put();
    });
}

#[test]
fn who_changes_is_alone() {
    every_order(8, &[user, changer]);
    every_order(8, &[user, shut_changer]);
    every_order(2, &[user, changer, shut_changer]);
    every_order(2, &[user, user, changer]);
}

/// A gate behind which a value changes now and then.
struct Changing {
    gate: Gate<Shared>,
    queue: Mutex<()>,
    value: AtomicU32,
}

/// The value while a change is not complete.
const HALF: u32 = 1;

/// The queue of the changes.
struct Changes<'a>(&'a Mutex<()>);

impl FairLock for Changes<'_> {
    fn with_lock<R>(&self, what: impl FnOnce() -> R) -> R {
        let _alone = self.0.lock().unwrap();
        what()
    }
}

impl Changing {
    fn read(&self) -> u32 {
        assert!(self.gate.tryget_queued(&Changes(&self.queue)));
        let value = self.value.load(Relaxed);
        self.gate.put();
        assert_ne!(value, HALF, "saw a change that was not complete");
        value
    }

    // A load before the stores would keep loom from switching between these.
    fn change(&self, value: u32) {
        self.gate.change(&Changes(&self.queue), || {
            self.value.store(HALF, Relaxed);
            self.value.store(value, Relaxed);
            assert_eq!(self.value.load(Relaxed), value, "two changes at once");
        });
    }
}

/// Runs so many readers beside those who change the value once each, in every order.
fn every_change(interruptions: usize, readers: usize, values: &'static [u32]) {
    model(interruptions, move || {
        let changing = Arc::new(Changing {
            gate: Gate::new(Shared::new(0)),
            queue: Mutex::new(()),
            value: AtomicU32::new(0),
        });
        let (first, others) = values.split_first().unwrap();
        let reading = (0..readers).map(|_| {
            spawn(&changing, |changing| {
                changing.read();
            })
        });
        let changes = others
            .iter()
            .map(|value| spawn(&changing, |it| it.change(*value)));
        let threads: Vec<_> = reading.chain(changes).collect();
        changing.change(*first);
        assert_ne!(changing.read(), 0, "who has changed it does not see it");
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(values.contains(&changing.read()));
    });
}

/// Readers are never sent away, see no change that is not complete, and all get to the end.
#[test]
fn a_change_waits_for_who_reads_and_who_reads_for_a_change() {
    every_change(8, 1, &[2]);
    every_change(2, 2, &[2]);
    every_change(2, 1, &[2, 3]);
}

#[test]
fn who_takes_is_alone_and_who_shuts_keeps_all_out() {
    every_order(8, &[user, taker]);
    every_order(8, &[writer, taker]);
    every_order(8, &[user, shutter]);
    every_order(8, &[shutter, taker]);
    every_order(2, &[taker, taker, writer]);
    every_order(2, &[user, taker, shutter]);
}

/// A gate that lets nobody in any more because guards were leaked does not overflow.
#[test]
fn leaked_guards_do_not_open_the_gate() {
    loom::model(|| {
        let gate = Gate::new(Shared::new((1 << 29) - 1));
        assert!(gate.tryget());
        for _ in 0..100 {
            assert!(!gate.tryget());
        }
        assert!(!gate.is_taken());
        gate.put();
        assert!(gate.tryget());
    });
}
