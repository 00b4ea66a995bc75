// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB

//! A model of all that may happen to a send queue, in any order. On the host only.

use super::*;

const CPUS: u32 = 3;

/// A send queue, its process and its network, of which anything may happen at any time.
struct Model {
    schedule: Schedule<u32>,
    random: u64,
    now: u64,
    /// Where the process runs.
    process: u32,
    /// Requests in the ring, and those taken from it that were not sent.
    posted: u32,
    unsent: u32,
    in_flight: u32,
    /// Where what is in flight left from.
    left_from: u32,
    timed: bool,
    /// The process has to ring, and did not yet.
    rings: bool,
    needs_doorbell: bool,
    /// Where work items are queued.
    near: Option<u32>,
    far: Option<u32>,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            schedule: Schedule::default(),
            random: seed,
            now: 1,
            process: 0,
            posted: 0,
            unsent: 0,
            in_flight: 0,
            left_from: 0,
            timed: true,
            rings: false,
            needs_doorbell: true,
            near: None,
            far: None,
        }
    }

    fn below(&mut self, n: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 33) as u32) % n
    }

    fn moment(&self, here: u32) -> Moment<u32> {
        let in_flight = match self.in_flight {
            0 => InFlight::Nothing,
            _ if self.timed => InFlight::Some,
            _ => InFlight::Untimed,
        };
        Moment { here, in_flight }
    }

    fn post(&mut self) {
        self.posted += 1;
        self.rings |= self.needs_doorbell;
    }

    /// One turn of whoever sends; tells whether there is more.
    fn send(&mut self, here: u32) -> bool {
        assert!(self.in_flight == 0 || self.left_from == here);
        let taken = self.posted.min(4);
        self.posted -= taken;
        self.unsent += taken;
        // Budget, and window.
        let sent = self.unsent.min(3).min(8 - self.in_flight);
        self.unsent -= sent;
        self.in_flight += sent;
        if sent != 0 {
            self.left_from = here;
        }
        self.posted != 0 || (self.unsent != 0 && self.in_flight < 8)
    }

    fn call(&mut self, call: Call<u32>) {
        self.needs_doorbell = false;
        // What is queued already stays where it is.
        let _ = match call.worker {
            Worker::Near => self.near.get_or_insert(call.cpu),
            Worker::Far => self.far.get_or_insert(call.cpu),
        };
    }

    fn obey(&mut self, here: u32, answer: Answer<u32>) {
        match answer {
            Answer::Send => {
                if self.send(here) {
                    let call = self.schedule.leave(here);
                    self.call(call);
                }
            }
            Answer::Leave(call) => self.call(call),
            Answer::Wait => {
                assert!(self.in_flight != 0 && self.timed);
                self.needs_doorbell = false;
            }
            Answer::Nothing => {}
        }
    }

    fn doorbell(&mut self) {
        self.rings = false;
        self.now += 1;
        let here = self.process;
        let other = (here + 1) % CPUS;
        let moment = self.moment(here);
        let now = self.now;
        let answer = self
            .schedule
            .doorbell(moment, now, Position::default, || Some(other));
        self.obey(here, answer);
        self.now += 1000;
        if self.schedule.wants_end() {
            self.schedule.served(self.now);
        }
    }

    fn event(&mut self, here: u32) {
        let unsent = self.unsent != 0 || self.posted != 0;
        let answer = self.schedule.event(self.moment(here), unsent);
        self.obey(here, answer);
    }

    fn acknowledge(&mut self, here: u32, packets: u32) {
        self.in_flight -= packets.min(self.in_flight);
        self.event(here);
    }

    fn lose(&mut self, here: u32) {
        self.unsent += self.in_flight;
        self.in_flight = 0;
        self.event(here);
    }

    fn work(&mut self, worker: Worker, alone: bool) {
        let item = match worker {
            Worker::Near => self.near.take(),
            Worker::Far => self.far.take(),
        };
        let Some(here) = item else {
            return;
        };
        let answer = self.schedule.worker_runs(worker, self.moment(here), alone);
        if answer != Answer::Send {
            return self.obey(here, answer);
        }
        let before = self.posted;
        let more = self.send(here);
        match self.schedule.worker_ran(more, before != self.posted) {
            AfterTurn::Again(call) => self.call(call),
            AfterTurn::Rest => {
                // The process may post before the flag is up, and after.
                if self.below(4) == 0 {
                    self.post();
                }
                self.needs_doorbell = true;
                if self.below(4) == 0 {
                    self.post();
                }
                if let Some(call) = self.schedule.rest(self.posted != 0) {
                    self.call(call);
                }
            }
        }
    }

    fn step(&mut self) {
        let here = self.below(CPUS);
        match self.below(12) {
            0..=2 => self.post(),
            3..=4 if self.rings => self.doorbell(),
            5 => self.acknowledge(here, 1),
            6 => self.acknowledge(here, 8),
            7 if self.timed && self.below(8) == 0 => self.lose(here),
            8 => self.work(Worker::Near, here == 0),
            9..=10 => self.work(Worker::Far, here != 0),
            11 if self.below(8) == 0 => self.process = here,
            _ => {}
        }
    }

    /// Only what must happen happens: in the end nothing is left.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.rings {
                self.doorbell();
            } else if self.near.is_some() {
                self.work(Worker::Near, true);
            } else if self.far.is_some() {
                self.work(Worker::Far, true);
            } else if self.in_flight != 0 {
                let here = self.below(CPUS);
                self.acknowledge(here, 8);
            } else if self.posted == 0 && self.unsent == 0 {
                return;
            } else {
                panic!("a lost wake-up: {:?}", self.schedule);
            }
        }
        panic!("no end: {:?}", self.schedule);
    }
}

/// Whatever happens, what was posted is sent in the end, and never from a CPU while packets of
/// another one are in flight (the model asserts that).
#[test]
fn nothing_is_forgotten_and_nothing_overtaken() {
    let (lives, steps) = (2000, 600);
    let mut moves = Moves::default();
    for seed in 1..=lives {
        let mut model = Model::new(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        model.timed = seed % 4 != 0;
        for _ in 0..steps {
            model.step();
        }
        model.finish();
        moves.away += model.schedule.moves().away;
        moves.back += model.schedule.moves().back;
    }
    // It has seen moves both ways.
    assert!(moves.away > 10 && moves.back > 0);
}
