// SPDX-License-Identifier: GPL-2.0

//! The two places where one side of a ring sleeps and the other has to wake it: the arming of a
//! completion queue, and the doorbell of a send queue. The code is that of the module and the
//! provider (`core::uabi::ring`, `core::kick`, `core::offload`, the provider's cursor); loom runs it
//! in every order that the memory model permits.

use ferroce_core::kick::{kick, Activity, Kick, KickEnv};
use ferroce_core::offload::budget::HelperVerdict;
use ferroce_core::offload::stream::Position;
use ferroce_core::offload::{Decision, InFlight, Offload, SchedPoint, Worker, WorkerCall};
use ferroce_core::queue::cq_producer::{CqProducer, CqResize, Due};
use ferroce_core::send::Progress;
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
fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
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

/// A completion queue, and the events of its channel.
struct Queue {
    ring: Shared,
    producer: Mutex<CqProducer>,
    events: AtomicU32,
}

impl Queue {
    fn new() -> Self {
        Self {
            ring: Shared::new(0),
            producer: Mutex::new(CqProducer::default()),
            events: AtomicU32::new(0),
        }
    }

    /// As the module does it in `datapath::cq`.
    fn push(&self, value: u64, solicited: bool) {
        let mut producer = self.producer.lock().unwrap();
        let due = producer.push(&self.ring, &[value], solicited, || unreachable!());
        if due.expect("there is room") == Due::Now {
            self.events.fetch_add(1, AcqRel);
        }
    }

    /// As the provider does it in `ibv_poll_cq`.
    fn poll(&self, cursor: &Cursor, taken: &mut Vec<u32>) -> bool {
        let (index, entries) = (cursor.own(), self.ring.entries());
        let found = cursor.has_entry(index, entries, || self.ring.load_producer());
        if found != Ok(true) {
            assert_eq!(found, Ok(false));
            return false;
        }
        let mut entry = [0];
        self.ring.read_slot(index, 0, &mut entry);
        taken.push(entry[0] as u32);
        cursor.set_own(index.wrapping_add(1));
        self.ring.store_consumer(cursor.own());
        true
    }
}

/// Two CPUs complete something; the process polls, arms, and polls once more, as `ibv_req_notify_cq`
/// wants it, and sleeps when it found nothing. What is there then must wake it, once.
#[test]
fn what_comes_after_arming_is_polled_or_raises_one_event() {
    let woken = Seen::new("an event woke who slept");
    let polled = Seen::new("there was nothing to sleep for");
    let (was_woken, was_polled) = (woken.note(), polled.note());
    model(3, move || {
        let queue = Arc::new(Queue::new());
        let producers: Vec<_> = [5, 6]
            .map(|value| {
                let queue = queue.clone();
                thread::spawn(move || queue.push(value, false))
            })
            .into();
        let cursor = Cursor::default();
        let mut taken = Vec::new();
        while queue.poll(&cursor, &mut taken) {}
        queue.ring.arm(ARM_NEXT);
        while queue.poll(&cursor, &mut taken) {}
        // It sleeps here.
        let before = taken.len();
        for producer in producers {
            producer.join().unwrap();
        }
        let events = queue.events.load(Acquire);
        while queue.poll(&cursor, &mut taken) {}
        let missed = taken.len() - before;
        was_woken(missed != 0);
        was_polled(missed == 0 && events == 0);
        assert!(missed == 0 || events != 0, "a completion event is lost");
        assert!(events <= 1, "one arm raised {events} events");
        let armed = queue.ring.load(Word::Arm) != 0;
        assert_ne!(
            armed,
            events == 1,
            "an event leaves the arm, or takes it without one"
        );
        taken.sort_unstable();
        assert_eq!(taken, [5, 6], "what was polled is not what was completed");
    });
}

/// Who waits for solicited completions is woken by these alone, and a stronger arm is not weakened.
#[test]
fn a_solicited_completion_raises_one_event() {
    model(3, || {
        let queue = Arc::new(Queue::new());
        queue.ring.arm(ARM_SOLICITED);
        queue.push(5, false);
        assert_eq!(queue.events.load(Acquire), 0);
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.push(6, true))
        };
        let cursor = Cursor::default();
        let mut taken = Vec::new();
        while queue.poll(&cursor, &mut taken) {}
        producer.join().unwrap();
        assert_eq!(queue.events.load(Acquire), 1);
        while queue.poll(&cursor, &mut taken) {}
        assert_eq!(taken, [5, 6]);
        queue.ring.arm(ARM_NEXT);
        queue.ring.arm(ARM_SOLICITED);
        assert_eq!(queue.ring.load(Word::Arm), ARM_NEXT);
    });
}

/// The process arms twice meanwhile, as two threads do: as many events as arms that were taken.
#[test]
fn an_arm_is_taken_once() {
    model(3, || {
        let queue = Arc::new(Queue::new());
        let armer = {
            let queue = queue.clone();
            thread::spawn(move || queue.ring.arm(ARM_NEXT))
        };
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || queue.push(5, false))
        };
        queue.ring.arm(ARM_SOLICITED);
        queue.push(6, true);
        armer.join().unwrap();
        producer.join().unwrap();
        let events = queue.events.load(Acquire);
        let left = u32::from(queue.ring.load(Word::Arm) != 0);
        assert!(
            (1..=2).contains(&(events + left)),
            "{events} events, {left} left"
        );
        assert!(events >= 1);
    });
}

/// A completion queue of two rings, the second of which takes the place of the first one.
struct Resized {
    rings: [Shared; 2],
    /// The producer, and the ring it pushes to.
    producer: Mutex<(CqProducer, usize)>,
    /// The locks of the provider, and which ring it has.
    mapped: Mutex<usize>,
    events: AtomicU32,
}

impl Resized {
    fn push(&self, value: u64) {
        let mut producer = self.producer.lock().unwrap();
        let (producer, ring) = &mut *producer;
        let due = producer.push(&self.rings[*ring], &[value], false, || unreachable!());
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

    fn poll(&self, cursor: &Cursor, taken: &mut Vec<u32>) -> bool {
        let mapped = self.mapped.lock().unwrap();
        let ring = &self.rings[*mapped];
        let index = cursor.own();
        if cursor.has_entry(index, 2, || ring.load_producer()) != Ok(true) {
            return false;
        }
        let mut entry = [0];
        ring.read_slot(index, 0, &mut entry);
        taken.push(entry[0] as u32);
        cursor.set_own(index.wrapping_add(1));
        ring.store_consumer(cursor.own());
        true
    }

    fn arm(&self) {
        let mapped = self.mapped.lock().unwrap();
        self.rings[*mapped].arm(ARM_NEXT);
    }
}

/// A queue is resized while something completes and the process arms and polls: every completion
/// comes once and in order, and who sleeps is woken.
#[test]
fn a_resized_queue_loses_neither_completions_nor_events() {
    let woken = Seen::new("an event woke who slept");
    let early = Seen::new("something came before the resize");
    let (was_woken, was_early) = (woken.note(), early.note());
    model(2, move || {
        let queue = Arc::new(Resized {
            rings: [Shared::new(0), Shared::new(0)],
            producer: Mutex::new((CqProducer::default(), 0)),
            mapped: Mutex::new(0),
            events: AtomicU32::new(0),
        });
        let producer = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.push(5);
                queue.push(6);
            })
        };
        let resizer = {
            let queue = queue.clone();
            thread::spawn(move || queue.resize())
        };
        let cursor = Cursor::default();
        let mut taken = Vec::new();
        queue.arm();
        while queue.poll(&cursor, &mut taken) {}
        // It sleeps here.
        let before = taken.len();
        producer.join().unwrap();
        resizer.join().unwrap();
        let events = queue.events.load(Acquire);
        while queue.poll(&cursor, &mut taken) {}
        was_woken(before < 2 && events == 1);
        was_early(queue.rings[0].load(Word::Producer) != 0);
        assert!(before == 2 || events == 1, "a completion event is lost");
        assert!(events <= 1, "one arm raised {events} events");
        let armed: Vec<_> = queue.rings.iter().map(|r| r.load(Word::Arm)).collect();
        assert_eq!(armed.iter().sum::<u32>() + ARM_NEXT * events, ARM_NEXT);
        assert_eq!(taken, [5, 6], "what was polled is not what was completed");
    });
}

/// What the send lock guards.
struct Sender {
    offload: Offload<u32>,
    /// WQEs before this index were fetched.
    taken: u32,
    values: Vec<u32>,
    /// Packets that were sent before are not acknowledged.
    in_flight: InFlight,
    /// A worker was called, and has not run yet: which, and on which CPU.
    called: Option<(Worker, u32)>,
    /// Doorbells that came while somebody else was in charge.
    in_vain: u32,
}

struct SendQueue {
    ring: Shared,
    sender: Mutex<Sender>,
}

/// The CPU of the process, and another one.
const HERE: u32 = 0;
const THERE: u32 = 1;

/// The queue, locked, in an invocation on a CPU. What is fetched counts as sent and acknowledged.
struct Kicked<'a> {
    ring: &'a Shared,
    sender: &'a mut Sender,
    here: u32,
}

impl KickEnv<u32> for Kicked<'_> {
    fn offload(&mut self) -> &mut Offload<u32> {
        &mut self.sender.offload
    }

    fn point(&self) -> SchedPoint<u32> {
        SchedPoint {
            here: self.here,
            now: 0,
            in_flight: self.sender.in_flight,
        }
    }

    fn activity(&self) -> Activity {
        Activity::Transmit
    }

    fn has_work(&self) -> bool {
        self.ring.load_producer() != self.sender.taken
    }

    fn fetched(&self) -> u32 {
        self.sender.taken
    }

    fn doorbell(&mut self, point: SchedPoint<u32>) -> Decision<u32> {
        let Sender {
            offload,
            taken,
            in_vain,
            ..
        } = &mut *self.sender;
        *in_vain += u32::from(offload.has_worker());
        offload.doorbell(point, *taken, true, Position::default, |_| None)
    }

    fn invite(&mut self, _: WorkerCall<u32>) {
        unreachable!("nobody is invited");
    }

    fn call(&mut self, call: WorkerCall<u32>) {
        self.ring.store_flags(0);
        self.sender.called = Some((call.worker, call.cpu));
    }

    fn stop_doorbells(&mut self) {
        self.ring.store_flags(0);
    }

    fn ask_for_doorbells(&mut self) -> bool {
        self.ring.ask_for_doorbells() != self.sender.taken
    }

    fn transmit(&mut self) -> bool {
        let producer = self.ring.load_producer();
        while self.sender.taken != producer {
            let mut words = [0];
            self.ring.read_slot(self.sender.taken, 0, &mut words);
            self.sender.values.push(words[0] as u32);
            self.sender.taken += 1;
        }
        false
    }

    fn flush(&mut self) -> bool {
        unreachable!("nothing fails");
    }

    fn fail(&mut self) {
        unreachable!("nothing fails");
    }

    fn worked(&mut self, _: Worker) -> u32 {
        1
    }

    fn judge(&mut self, _: u32, _: HelperVerdict) {}

    fn publish(&mut self) {
        self.ring.store_consumer(self.sender.taken);
    }
}

impl SendQueue {
    /// An empty queue, of which somebody is in charge or not.
    fn new(offload: Offload<u32>, in_flight: InFlight, called: Option<(Worker, u32)>) -> Self {
        let flags = match offload.has_worker() {
            true => 0,
            false => FLAG_NEED_DOORBELL,
        };
        Self {
            ring: Shared::new(flags),
            sender: Mutex::new(Sender {
                offload,
                taken: 0,
                values: Vec::new(),
                in_flight,
                called,
                in_vain: 0,
            }),
        }
    }

    /// The provider posts one request; tells whether it has to ring.
    fn post(&self, index: u32, value: u32) -> bool {
        self.ring.write_slot(index, &[value.into()]);
        self.ring.store_producer(index + 1);
        self.ring.needs_doorbell()
    }

    fn kick(&self, sender: &mut Sender, here: u32, why: Kick) {
        let ring = &self.ring;
        let again = kick(&mut Kicked { ring, sender, here }, why);
        assert!(!again, "there is more than was posted");
    }

    fn doorbell(&self) {
        self.kick(&mut self.sender.lock().unwrap(), HERE, Kick::Doorbell);
    }

    /// The last packet in flight is acknowledged.
    fn acknowledge(&self) {
        let mut sender = self.sender.lock().unwrap();
        sender.in_flight = InFlight::Nothing;
        self.kick(&mut sender, HERE, Kick::Progress(Progress::default()));
    }

    /// Runs workers until none is called. Their CPU is wanted, so none lingers.
    fn work(&self) {
        loop {
            let mut sender = self.sender.lock().unwrap();
            let Some((worker, here)) = sender.called.take() else {
                return;
            };
            let alone = false;
            self.kick(&mut sender, here, Kick::Worker { worker, alone });
        }
    }

    /// Everybody has done what they had to do.
    fn judge(&self, posted: &[u32]) {
        let sender = self.sender.lock().unwrap();
        assert!(sender.called.is_none() && !sender.offload.has_worker());
        assert_eq!(
            sender.values, posted,
            "a request waits for ever, or is another one"
        );
        assert_eq!(self.ring.load_consumer(), posted.len() as u32);
        assert_eq!(self.ring.load(Word::Flags), FLAG_NEED_DOORBELL);
    }
}

/// An offload state, and the worker that was called.
type InCharge = (Offload<u32>, (Worker, u32));

/// A worker has what was beyond the budget of a doorbell.
fn working() -> InCharge {
    let mut offload = Offload::default();
    let call = offload.leave(HERE);
    (offload, (call.worker, call.cpu))
}

/// Doorbells until the process streams; `other` may help. Returns what the last one decided.
fn stream(offload: &mut Offload<u32>, other: Option<u32>) -> Decision<u32> {
    let point = SchedPoint {
        here: HERE,
        now: 0,
        in_flight: InFlight::Nothing,
    };
    let mut ring = || offload.doorbell(point, 0, true, Position::default, |_| other);
    (0..8).map(|_| ring()).last().expect("eight doorbells")
}

/// A timer polls the ring.
fn polling() -> InCharge {
    let mut offload = Offload::default();
    let Decision::Leave(call) = stream(&mut offload, None) else {
        panic!("the process does not stream");
    };
    assert_eq!(call.worker, Worker::Timer);
    (offload, (call.worker, call.cpu))
}

/// Who is in charge finds the ring empty and rests while the process posts: either it finds the
/// request, or the process rings.
fn rests(preemptions: usize, begin: fn() -> InCharge) {
    let rang = Seen::new("the process rang");
    let in_vain = Seen::new("a doorbell found somebody in charge again");
    let (has_rung, was_in_vain) = (rang.note(), in_vain.note());
    model(preemptions, move || {
        let (offload, called) = begin();
        let queue = SendQueue::new(offload, InFlight::Nothing, Some(called));
        let queue = Arc::new(queue);
        let worker = {
            let queue = queue.clone();
            thread::spawn(move || queue.work())
        };
        for index in 0..2 {
            let rings = queue.post(index, 5 + index);
            has_rung(rings);
            if rings {
                queue.doorbell();
            }
        }
        worker.join().unwrap();
        was_in_vain(queue.sender.lock().unwrap().in_vain != 0);
        queue.judge(&[5, 6]);
    });
}

#[test]
fn a_worker_that_rests_misses_no_request() {
    rests(3, working);
}

#[test]
fn a_timer_that_rests_misses_no_request() {
    rests(3, polling);
}

/// Nobody sends while the queue waits to move to another CPU. The last acknowledgement calls the
/// worker there, which rests: what the process posts meanwhile is found, or it rings.
#[test]
fn a_queue_that_moves_misses_no_request() {
    let rang = Seen::new("the process rang");
    let silent = Seen::new("the process did not ring");
    let (has_rung, was_silent) = (rang.note(), silent.note());
    model(3, move || {
        let mut offload = Offload::default();
        let invited = stream(&mut offload, Some(THERE));
        assert!(matches!(invited, Decision::LeaveInviting(..)));
        let there = SchedPoint {
            here: THERE,
            now: 0,
            in_flight: InFlight::Awaited,
        };
        let decision = offload.worker_runs(Worker::Far, there, true);
        assert_eq!(decision, Decision::Wait);
        let queue = Arc::new(SendQueue::new(offload, InFlight::Awaited, None));
        let acknowledged = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.acknowledge();
                queue.work();
            })
        };
        let rings = queue.post(0, 5);
        has_rung(rings);
        was_silent(!rings);
        if rings {
            queue.doorbell();
        }
        acknowledged.join().unwrap();
        queue.judge(&[5]);
    });
}

/// The process rings for each request while nobody is in charge: each doorbell takes what is there.
#[test]
fn two_doorbells_take_two_requests_once() {
    model(3, || {
        let queue = SendQueue::new(Offload::default(), InFlight::Nothing, None);
        let queue = Arc::new(queue);
        assert!(queue.post(0, 5));
        let other = {
            let queue = queue.clone();
            thread::spawn(move || queue.doorbell())
        };
        assert!(queue.post(1, 6));
        queue.doorbell();
        other.join().unwrap();
        queue.judge(&[5, 6]);
        assert_eq!(queue.sender.lock().unwrap().in_vain, 0);
    });
}
