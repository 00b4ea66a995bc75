// SPDX-License-Identifier: GPL-2.0

//! The two places where one side of a ring sleeps and the other has to wake it: the arming of a
//! completion queue, and the doorbell of a send queue. The code is that of the module and the
//! provider (`core::uabi::ring`, `core::queue::cq_producer`, the provider's cursor); loom runs it in
//! every order that the memory model permits.

use ferroce_core::queue::cq_producer::{CqProducer, CqResize, Due};
use ferroce_core::uabi::ring::{
    Module,
    Provider,
    RingOps,
    Word,
    Words,
    ARM_NEXT,
    ARM_SOLICITED,
    FLAG_NEED_DOORBELL, //
};
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{fence, AtomicU32};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::sync::atomic::AtomicBool;

#[path = "../../../userspace-provider/src/ring.rs"]
#[allow(dead_code)]
mod provider;

use provider::Cursor;

/// A ring of two slots, of which each has one word that matters.
struct Shared {
    words: [AtomicU32; 4],
    slots: [AtomicU32; 2],
}

impl Shared {
    fn new(flags: u32) -> Self {
        let word = |value| AtomicU32::new(value);
        Self {
            words: [word(0), word(0), word(flags), word(0)],
            slots: [word(0), word(0)],
        }
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        &self.words[word as usize]
    }

    fn slot(&self, index: u32) -> &AtomicU32 {
        &self.slots[index as usize % self.slots.len()]
    }
}

impl Words for Shared {
    fn load(&self, word: Word) -> u32 {
        self.word(word).load(Relaxed)
    }
    fn load_acquire(&self, word: Word) -> u32 {
        self.word(word).load(Acquire)
    }
    fn store(&self, word: Word, value: u32) {
        self.word(word).store(value, Relaxed);
    }
    fn store_release(&self, word: Word, value: u32) {
        self.word(word).store(value, Release);
    }
    fn full_barrier(&self) {
        fence(SeqCst);
    }
}

impl Module for Shared {
    fn swap(&self, word: Word, value: u32) -> u32 {
        self.word(word).swap(value, Relaxed)
    }
}

impl Provider for Shared {
    fn raise(&self, word: Word, value: u32) {
        self.word(word).fetch_max(value, Relaxed);
    }
}

impl RingOps for Shared {
    fn entries(&self) -> u32 {
        self.slots.len() as u32
    }
    fn read_slot(&self, index: u32, _: usize, out: &mut [u64]) {
        out[0] = self.slot(index).load(Relaxed).into();
    }
    fn write_slot(&self, index: u32, words: &[u64]) {
        self.slot(index).store(words[0] as u32, Relaxed);
    }
}

/// Runs a model. Threads are interrupted where they need not be at most so often, which finds
/// what there is to be found and keeps it short.
pub fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// Something that has to happen in some order of a model, or it would show nothing.
struct Seen(std::sync::Arc<AtomicBool>, &'static str);

impl Seen {
    fn new(what: &'static str) -> Self {
        Self(Default::default(), what)
    }

    /// What notes it in a model.
    fn note(&self) -> impl Fn(bool) + Sync + Send + 'static {
        let seen = self.0.clone();
        move |happened| {
            seen.fetch_or(happened, SeqCst);
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.load(SeqCst), "it never happened that {}", self.1);
        }
    }
}

/// Something that another thread does with what all of them share.
pub fn spawn<T: 'static>(
    shared: &Arc<T>,
    run: impl FnOnce(&T) + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

/// A completion queue, and the events of its channel. A second ring may take the place of the first.
struct Queue {
    rings: [Shared; 2],
    /// The producer, and the ring it pushes to.
    producer: Mutex<(CqProducer, usize)>,
    /// The locks of the provider, and which ring it has.
    mapped: Mutex<usize>,
    events: AtomicU32,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rings: [Shared::new(0), Shared::new(0)],
            producer: Mutex::new((CqProducer::default(), 0)),
            mapped: Mutex::new(0),
            events: AtomicU32::new(0),
        })
    }

    /// As the module does it in `datapath::cq`.
    fn push(&self, value: u64, solicited: bool) {
        let mut producer = self.producer.lock().unwrap();
        let (producer, ring) = &mut *producer;
        let due = producer.push(&self.rings[*ring], &[value], solicited, || unreachable!());
        if due.expect("there is room") == Due::Now {
            self.events.fetch_add(1, AcqRel);
        }
    }

    /// As `ibv_resize_cq` and `datapath::cq` do it.
    fn resize(&self) {
        let mut mapped = self.mapped.lock().unwrap();
        let [old, new] = &self.rings;
        let mut resize = CqResize::new(old);
        let end = self.producer.lock().unwrap().0.producer();
        resize.copy(old, new, end).expect("there is room");
        let mut producer = self.producer.lock().unwrap();
        let (producer, ring) = &mut *producer;
        assert!(resize.is_short(producer));
        resize.finish(producer, old, new).expect("there is room");
        *ring = 1;
        *mapped = 1;
    }

    /// As the provider does it in `ibv_poll_cq`, until nothing is found.
    fn poll(&self, cursor: &Cursor, taken: &mut Vec<u32>) {
        let mapped = self.mapped.lock().unwrap();
        let ring = &self.rings[*mapped];
        loop {
            let index = cursor.own();
            let found = cursor.has_entry(index, ring.entries(), || ring.load_producer());
            if !found.expect("no more than there is room for") {
                return;
            }
            let mut entry = [0];
            ring.read_slot(index, 0, &mut entry);
            taken.push(entry[0] as u32);
            cursor.set_own(index.wrapping_add(1));
            ring.store_consumer(cursor.own());
        }
    }

    fn arm(&self, level: u32) {
        self.rings[*self.mapped.lock().unwrap()].arm(level);
    }

    /// How many arms were not taken.
    fn armed(&self) -> u32 {
        let is_armed = |ring: &&Shared| ring.load(Word::Arm) != 0;
        self.rings.iter().filter(is_armed).count() as u32
    }
}

/// Two threads act on a queue; the process polls, arms, and polls once more, as `ibv_req_notify_cq`
/// wants it, and sleeps when it found nothing. What comes then must wake it, once. `look` has the
/// queue when all is over.
fn sleeps(
    preemptions: usize,
    orders: &'static [[u32; 2]],
    actors: [fn(&Queue); 2],
    look: impl Fn(&Queue) + Sync + Send + 'static,
) {
    let woken = Seen::new("an event woke who slept");
    let polled = Seen::new("there was nothing to sleep for");
    let (was_woken, was_polled) = (woken.note(), polled.note());
    model(preemptions, move || {
        let queue = Queue::new();
        let threads = actors.map(|actor| spawn(&queue, actor));
        let (cursor, mut taken) = (Cursor::default(), Vec::new());
        queue.poll(&cursor, &mut taken);
        queue.arm(ARM_NEXT);
        queue.poll(&cursor, &mut taken);
        // It sleeps here.
        let missed = 2 - taken.len();
        for thread in threads {
            thread.join().unwrap();
        }
        let events = queue.events.load(Acquire);
        queue.poll(&cursor, &mut taken);
        was_woken(missed != 0);
        was_polled(missed == 0 && events == 0);
        assert!(missed == 0 || events == 1, "a completion event is lost");
        assert_eq!(queue.armed() + events, 1, "an arm is lost, or raised more");
        let polled = [taken[0], taken[1]];
        assert!(taken.len() == 2 && orders.contains(&polled), "{taken:?}");
        look(&queue);
    });
}

#[test]
fn what_comes_after_arming_is_polled_or_raises_one_event() {
    let actors: [fn(&Queue); 2] = [|queue| queue.push(5, false), |queue| queue.push(6, false)];
    sleeps(3, &[[5, 6], [6, 5]], actors, |_| ());
}

/// A queue is resized while something completes and the process arms and polls.
#[test]
fn a_resized_queue_loses_neither_completions_nor_events() {
    fn both(queue: &Queue) {
        queue.push(5, false);
        queue.push(6, false);
    }
    let early = Seen::new("something came before the resize");
    let was_early = early.note();
    sleeps(2, &[[5, 6]], [both, Queue::resize], move |queue| {
        was_early(queue.rings[0].load(Word::Producer) != 0);
    });
}

/// The process arms twice meanwhile, as two threads do: as many events as arms that were taken.
#[test]
fn an_arm_is_taken_once() {
    model(3, || {
        let queue = Queue::new();
        let armer = spawn(&queue, |q| q.arm(ARM_NEXT));
        let producer = spawn(&queue, |q| q.push(5, false));
        queue.arm(ARM_SOLICITED);
        queue.push(6, true);
        armer.join().unwrap();
        producer.join().unwrap();
        let events = queue.events.load(Acquire);
        assert!((1..=2).contains(&events));
        assert!((1..=2).contains(&(events + queue.armed())));
    });
}

/// What the send lock guards.
struct Sender {
    /// WQEs before this index were fetched.
    taken: u32,
    values: Vec<u32>,
    /// A worker is in charge.
    has_worker: bool,
}

/// A send queue. Who is in charge of it, and until when, is decided by `core::kick` and tried in its
/// own model; here are the ring and what its words say.
struct SendQueue {
    ring: Shared,
    sender: Mutex<Sender>,
}

impl SendQueue {
    /// A worker is in charge, so the process need not ring.
    fn new() -> Self {
        Self {
            ring: Shared::new(0),
            sender: Mutex::new(Sender {
                taken: 0,
                values: Vec::new(),
                has_worker: true,
            }),
        }
    }

    /// The provider posts one request; tells whether it has to ring.
    fn post(&self, index: u32, value: u32) -> bool {
        self.ring.write_slot(index, &[value.into()]);
        self.ring.store_producer(index + 1);
        self.ring.needs_doorbell()
    }

    fn fetch(&self, sender: &mut Sender) {
        let producer = self.ring.load_producer();
        while sender.taken != producer {
            let mut words = [0];
            self.ring.read_slot(sender.taken, 0, &mut words);
            sender.values.push(words[0] as u32);
            sender.taken += 1;
        }
        self.ring.store_consumer(sender.taken);
    }

    /// A doorbell; whether it was in vain, for somebody is in charge again.
    fn doorbell(&self) -> bool {
        let mut sender = self.sender.lock().unwrap();
        if !sender.has_worker {
            self.fetch(&mut sender);
        }
        sender.has_worker
    }

    /// Runs of the worker, which rests when nothing came before it had asked for doorbells.
    fn work(&self) {
        loop {
            let mut sender = self.sender.lock().unwrap();
            self.fetch(&mut sender);
            if self.ring.ask_for_doorbells() == sender.taken {
                sender.has_worker = false;
                return;
            }
            self.ring.store_flags(0);
        }
    }
}

/// The worker finds the ring empty and rests while the process posts: either it finds the request,
/// or the process rings.
#[test]
fn a_worker_that_rests_misses_no_request() {
    let rang = Seen::new("the process rang");
    let in_vain = Seen::new("a doorbell found somebody in charge again");
    let (has_rung, was_in_vain) = (rang.note(), in_vain.note());
    model(3, move || {
        let queue = Arc::new(SendQueue::new());
        let worker = spawn(&queue, SendQueue::work);
        for index in 0..2 {
            let rings = queue.post(index, 5 + index);
            has_rung(rings);
            was_in_vain(rings && queue.doorbell());
        }
        worker.join().unwrap();
        let sender = queue.sender.lock().unwrap();
        assert!(!sender.has_worker);
        assert_eq!(
            sender.values,
            [5, 6],
            "a request waits for ever, or is another one"
        );
        assert_eq!(queue.ring.load_consumer(), 2);
        assert_eq!(queue.ring.load(Word::Flags), FLAG_NEED_DOORBELL);
    });
}
