// SPDX-License-Identifier: GPL-2.0

//! Senders that share a bottleneck: a wire slower than they are, with a queue in front of it that
//! marks packets from a threshold on and drops what it has no room for. Each has a receiver of its
//! own behind it, which notifies it of marks as the module does. With notifications the queue stays
//! short, nothing is lost, and all get the same; without them it overflows.

use ferroce_core::completion::SendCompletion;
use ferroce_core::message::Mtu;
use ferroce_core::operation::{Arguments, Operation};
use ferroce_core::rc::requester::{Requester, SendSlot};
use ferroce_core::rc::responder::{Resource, Responder};
use ferroce_core::rc::CnpPacer;
use ferroce_core::rc::{RemoteRights, RequesterConfig, ResponderConfig};
use ferroce_core::segment::{IncomingRequest, Response};
use ferroce_core::send::SendRequest;
use ferroce_core::wire::headers::Aeth;
use ferroce_core::wire::psn::Psn;
use ferroce_host_tests::model::memory::{Env, Memory};
use ferroce_host_tests::model::plan::{BASE, RKEY};
use std::collections::{BTreeMap, VecDeque};

const US: u64 = 1000;
const MTU: u32 = 1024;
/// Bytes of a message.
const LENGTH: u32 = 64 << 10;
/// Messages that a sender has posted at a time.
const POSTED: u32 = 16;
/// What the wire takes for a packet: 1 GB/s.
const PACKET: u64 = US;
/// Half a round trip without a queue.
const DELAY: u64 = 25 * US;
/// Packets that the queue has room for.
const LIMIT: usize = 300;
/// From so many packets on they are marked.
const THRESHOLD: usize = 20;

/// What travels.
#[derive(Clone, Debug)]
enum Item {
    Request(IncomingRequest),
    Response(Response),
    Notification,
}

/// A packet of a flow, to its receiver or its sender; it may be marked.
#[derive(Debug)]
struct Packet {
    flow: usize,
    item: Item,
    marked: bool,
}

impl Packet {
    fn is_to_sender(&self) -> bool {
        !matches!(self.item, Item::Request(_))
    }

    fn has_data(&self) -> bool {
        match &self.item {
            Item::Request(request) => request.payload_len != 0,
            Item::Response(response) => matches!(response, Response::ReadResponse { .. }),
            Item::Notification => false,
        }
    }
}

/// Something that happens.
#[derive(Debug)]
enum Event {
    /// The wire is done with the oldest packet of the queue.
    Served,
    Arrives(Packet),
    Timer(usize),
}

/// A sender and its receiver.
struct Flow {
    op: Operation,
    requester: Requester<Vec<SendSlot>>,
    responder: Responder<Vec<Resource>>,
    memory: Memory,
    cnp: CnpPacer,
    timer: Option<u64>,
    completed: u64,
}

impl Flow {
    fn new(op: Operation, ecn: bool) -> Self {
        let mtu = Mtu::from_bytes(MTU).expect("an MTU");
        let mut requester = Requester::new(vec![SendSlot::default(); POSTED as usize]);
        requester.connect(RequesterConfig {
            mtu,
            sq_psn: Psn::new(7),
            retry_cnt: 7,
            rnr_retry: 7,
            ack_timeout_ns: Some(100_000 * US),
            max_rd_atomic: 16,
            ecn,
        });
        let mut responder = Responder::new(vec![Resource::default(); 16]);
        responder.connect(ResponderConfig {
            mtu,
            rq_psn: Psn::new(7),
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            rights: RemoteRights::ALL,
        });
        Self {
            op,
            requester,
            responder,
            memory: Memory::unplanned(LENGTH as usize),
            cnp: CnpPacer::default(),
            timer: None,
            completed: 0,
        }
    }

    fn execute(&mut self, request: &IncomingRequest) {
        let payload = vec![0; request.payload_len as usize];
        let mut env = Env {
            memory: &mut self.memory,
            payload: &payload,
        };
        let outcome = self.responder.on_request(request, &mut env);
        assert_eq!(outcome.fatal, None);
        self.memory.writes.clear();
    }

    fn take(&mut self, response: &Response, now: u64) {
        let completed = &mut self.completed;
        let sink = &mut |done: SendCompletion| {
            assert!(done.status.is_success());
            *completed += 1;
        };
        let requester = &mut self.requester;
        let progress = match response {
            Response::Acknowledge { psn, syndrome, msn } => {
                requester.on_acknowledge(*psn, Aeth::new(*syndrome, *msn), now, sink)
            }
            Response::ReadResponse { segment, .. } => {
                match requester.accept_read_response(segment, now, sink) {
                    Ok(place) => requester.read_response_placed(&place, now, sink),
                    Err(refused) => refused.progress,
                }
            }
            other => panic!("nobody asked for {other:?}"),
        };
        assert!(!progress.has_failed());
    }
}

/// What came of a run.
#[derive(Debug, Default)]
struct Outcome {
    /// Packets with data that the queue has let through, of each flow.
    carried: Vec<u64>,
    dropped: u64,
    marked: u64,
    notified: u64,
    /// The longest that the queue was, from the first tenth of the time on and before it.
    longest: [usize; 2],
    /// Nanoseconds in which the wire had nothing to carry, after the first tenth of the time.
    idle: u64,
    slowdowns: u64,
}

#[derive(Default)]
struct World {
    flows: Vec<Flow>,
    events: BTreeMap<(u64, u64), Event>,
    number: u64,
    queue: VecDeque<Packet>,
    notifies: bool,
    end: u64,
    free_since: u64,
    outcome: Outcome,
}

impl World {
    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn settled(&self, now: u64) -> bool {
        now >= self.end / 10
    }

    /// Data goes by the bottleneck, everything else by a wire that is fast enough.
    fn carry(&mut self, flow: usize, item: Item, now: u64) {
        let marked = self.notifies && self.queue.len() >= THRESHOLD;
        let mut packet = Packet { flow, item, marked };
        if !packet.has_data() {
            packet.marked = false;
            return self.at(now + DELAY, Event::Arrives(packet));
        }
        if self.queue.len() >= LIMIT {
            self.outcome.dropped += 1;
            return;
        }
        self.outcome.marked += u64::from(marked);
        if self.queue.is_empty() {
            if self.settled(now) {
                self.outcome.idle += now - self.free_since.max(self.end / 10);
            }
            self.at(now + PACKET, Event::Served);
        }
        self.queue.push_back(packet);
        let longest = &mut self.outcome.longest[usize::from(now < self.end / 10)];
        *longest = (*longest).max(self.queue.len());
    }

    fn served(&mut self, now: u64) {
        let packet = self.queue.pop_front().expect("it was served");
        if self.settled(now) {
            self.outcome.carried[packet.flow] += 1;
        }
        self.at(now + DELAY, Event::Arrives(packet));
        if self.queue.is_empty() {
            self.free_since = now;
        } else {
            self.at(now + PACKET, Event::Served);
        }
    }

    fn arrives(&mut self, packet: &Packet, now: u64) {
        let flow = &mut self.flows[packet.flow];
        match &packet.item {
            Item::Request(request) => flow.execute(request),
            Item::Response(response) => flow.take(response, now),
            Item::Notification => flow.requester.slow_down(),
        }
        if packet.marked && packet.is_to_sender() {
            // A READ response.
            flow.requester.slow_down();
        } else if packet.marked && flow.cnp.due(now) {
            self.outcome.notified += 1;
            self.carry(packet.flow, Item::Notification, now);
        }
    }

    /// What a flow has to send after an event.
    fn go_on(&mut self, number: usize, now: u64) {
        while let Some(response) = self.flows[number].responder.next_response(1) {
            self.carry(number, Item::Response(response), now);
        }
        loop {
            let flow = &mut self.flows[number];
            let requester = &mut flow.requester;
            while requester.pushed().wrapping_sub(requester.retired()) < POSTED {
                let request = SendRequest {
                    op: flow.op,
                    length: LENGTH,
                    signaled: true,
                    ..SendRequest::default()
                };
                requester.push(request).expect("there is room");
            }
            let Some(segment) = requester.next_segment(now, 1) else {
                break;
            };
            let arguments = || Arguments {
                remote_addr: BASE,
                rkey: RKEY,
                ..Arguments::default()
            };
            let request = IncomingRequest::local(&segment, segment.extension(arguments));
            self.carry(number, Item::Request(request), now);
        }
        let flow = &mut self.flows[number];
        if let Some(at) = flow.requester.deadline() {
            if flow.timer.is_none_or(|before| at < before) {
                flow.timer = Some(at);
                self.at(at.max(now), Event::Timer(number));
            }
        }
    }

    fn timer(&mut self, number: usize, now: u64) {
        let flow = &mut self.flows[number];
        if flow.timer.is_some_and(|at| at <= now) {
            flow.timer = None;
        }
        let progress = flow.requester.on_deadline(now, &mut |_| ());
        assert!(!progress.has_failed());
    }
}

/// Senders for so many microseconds, of whom each begins when those before have taken the wire.
fn run(op: Operation, senders: usize, ecn: bool, us: u64) -> Outcome {
    let end = us * US;
    let mut world = World {
        flows: (0..senders).map(|_| Flow::new(op, ecn)).collect(),
        notifies: ecn,
        end,
        outcome: Outcome {
            carried: vec![0; senders],
            ..Outcome::default()
        },
        ..World::default()
    };
    for sender in 0..senders {
        let at = sender as u64 * end / 20 / senders as u64;
        world.at(at, Event::Timer(sender));
    }
    while let Some(((now, _), event)) = world.events.pop_first() {
        if now > end {
            break;
        }
        match event {
            Event::Served => world.served(now),
            Event::Arrives(packet) => {
                world.arrives(&packet, now);
                world.go_on(packet.flow, now);
            }
            Event::Timer(flow) => {
                world.timer(flow, now);
                world.go_on(flow, now);
            }
        }
    }
    let counters = world.flows.iter().map(|flow| flow.requester.counters());
    world.outcome.slowdowns = counters.map(|it| u64::from(it.slowdowns)).sum();
    println!(
        "{op:?}, {senders} senders, notifications: {ecn}: {:?}",
        world.outcome
    );
    world.outcome
}

/// The least that one has got, in percent of the most.
fn fairness(outcome: &Outcome) -> u64 {
    let (least, most) = (outcome.carried.iter().min(), outcome.carried.iter().max());
    100 * least.expect("some") / most.expect("some")
}

const TIME: u64 = 200_000;

#[test]
fn senders_share_a_queue_that_marks() {
    for (senders, least) in [(2, 90), (8, 70)] {
        let with = run(Operation::Write, senders, true, TIME);
        let told = format!("{with:?}");
        assert_eq!(with.dropped, 0, "{told}");
        assert!(fairness(&with) >= least, "{told}");
        let [later, first] = with.longest;
        assert!(later < 3 * THRESHOLD && first < LIMIT / 2, "{told}");
        // What comes of the short queue is no idle wire.
        assert!(with.idle < TIME * US / 50, "{told}");
        // One in 50 us of each receiver, and a flight shrinks once.
        let most = senders as u64 * (TIME / 50 + 1);
        assert!(
            with.notified <= most && with.notified < with.marked,
            "{told}"
        );
        assert!((1..=with.notified).contains(&with.slowdowns), "{told}");

        let without = run(Operation::Write, senders, false, TIME);
        assert!(
            without.dropped > 0 && without.longest[0] == LIMIT,
            "{without:?}"
        );
        assert_eq!((without.notified, without.slowdowns), (0, 0));
    }
}

/// The responses to READs are as many as their requester has room for, so it slows down itself. A
/// READ is asked for as a whole, up to 512 packets: the queue is no shorter than that.
#[test]
fn readers_share_a_queue_that_marks() {
    let with = run(Operation::Read, 2, true, TIME);
    assert_eq!((with.dropped, with.notified), (0, 0), "{with:?}");
    assert!(fairness(&with) >= 80, "{with:?}");
    let packets = (LENGTH / MTU) as usize;
    assert!(with.longest[0] <= 2 * packets + THRESHOLD, "{with:?}");
    assert!(with.slowdowns > 0 && with.idle < TIME * US / 50, "{with:?}");

    let without = run(Operation::Read, 2, false, TIME);
    assert!(
        without.dropped > 0 && without.longest[0] == LIMIT,
        "{without:?}"
    );
}
