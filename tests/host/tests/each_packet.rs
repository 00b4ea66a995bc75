// SPDX-License-Identifier: GPL-2.0

//! Each packet of each operation lost, doubled or delayed, one at a time and two at a time; the
//! oracle and the witnesses judge as they do in `model.rs`, where chance decides.

use ferroce_core::operation::Operation;
use ferroce_host_tests::model::conclude;
use ferroce_host_tests::model::dice::{Chance, Dice};
use ferroce_host_tests::model::network::{Treatment, US};
use ferroce_host_tests::model::runner::{is_set, variable};
use ferroce_host_tests::model::scenario::{Fault, Receive, Scenario, Work};
use ferroce_host_tests::model::strategy::ASKING;
use ferroce_host_tests::model::world::World;
use std::cell::Cell;
use std::rc::Rc;

/// Nothing, some bytes, one packet, three of them.
const LENGTHS: [(u16, i16); 4] = [(0, 0), (0, 7), (1, 0), (2, 9)];

/// What can befall a packet. A delayed one is overtaken by the next, by all that left with it, by
/// a tail-loss probe (2 ms), or comes when nobody waits for it any more.
const FAULTS: [Treatment; 8] = [
    Treatment::Lose,
    Treatment::Double(0),
    Treatment::Double(4_000 * US),
    Treatment::Double(100_000 * US),
    Treatment::Delay(80),
    Treatment::Delay(30 * US),
    Treatment::Delay(4_000 * US),
    Treatment::Delay(100_000 * US),
];

/// Which packet of which side, counted as they leave, and what befalls it.
type Befalls = (usize, usize, Treatment);

/// Conversations around an operation: alone, twice, between others of each way to be answered, at
/// a fence, unsignaled, refused by RNR NAKs, and against others that come from the peer.
fn conversations(op: Operation, (packets, bytes): (u16, i16)) -> Vec<Scenario> {
    let it = Work::new(op, packets, bytes);
    let work = |op| Work::new(op, 1, 5);
    let fenced = Work {
        fence: true,
        ..it.clone()
    };
    let silent = Work {
        signaled: false,
        ..it.clone()
    };
    let one_sided = [
        vec![it.clone()],
        vec![it.clone(), it.clone()],
        vec![work(Operation::Send), it.clone(), work(Operation::Write)],
        vec![work(Operation::Read), it.clone(), work(Operation::Read)],
        vec![work(Operation::FetchAdd), fenced, work(Operation::SendInv)],
        vec![silent, work(Operation::LocalInv), work(Operation::Send)],
    ];
    let with = |ours: &[Work], theirs: &[Work]| {
        let mut scenario = Scenario::calm(256);
        scenario.sides[0].work = ours.to_vec();
        scenario.sides[1].work = theirs.to_vec();
        scenario
    };
    let mut all: Vec<_> = one_sided.iter().map(|ours| with(ours, &[])).collect();
    // A receive that comes late.
    let mut refused = with(&[it.clone(), work(Operation::Send)], &[]);
    refused.sides[1].receives = vec![Receive {
        gap: 200,
        fault: Fault::None(0),
    }];
    all.push(refused);
    all.push(with(&[it], &[work(Operation::Read), work(Operation::Send)]));
    all
}

/// Runs a conversation in which this befalls these packets. All requests must succeed, without an
/// ACK timeout unless two packets were hit. Returns how many packets left each side.
fn survives(scenario: &Scenario, befalls: &[Befalls]) -> [usize; 2] {
    let left = Rc::new(Cell::new([0; 2]));
    let happened = Rc::new(Cell::new(0));
    let mut world = World::new(scenario);
    world.network.filter = Some(Box::new({
        let (left, happened, befalls) = (left.clone(), happened.clone(), befalls.to_vec());
        move |side, _| {
            let mut counts: [usize; 2] = left.get();
            let number = counts[side];
            counts[side] += 1;
            left.set(counts);
            let this = befalls.iter().find(|b| (b.0, b.1) == (side, number));
            happened.set(happened.get() + usize::from(this.is_some()));
            this.map_or(Treatment::Usual, |b| b.2)
        }
    }));
    let what = || format!("{befalls:?} in {scenario:?}");
    let outcome = conclude(&mut world).unwrap_or_else(|wrong| panic!("{wrong}\n{}", what()));
    assert_eq!(outcome.endings, [None, None], "{}", what());
    assert_eq!(happened.get(), befalls.len(), "never sent: {}", what());
    let counters = [0, 1].map(|side: usize| world.endpoints[side].requester.counters());
    if befalls.len() < 2 {
        let timeouts = counters.map(|counters| counters.timeouts);
        assert_eq!(timeouts, [0, 0], "{}", what());
        assert!(outcome.ended_at < 5_000 * US, "{}", what());
    }
    let refused = counters.iter().any(|counters| counters.rnr_naks != 0);
    let doubled = |b: &Befalls| matches!(b.2, Treatment::Double(_));
    if !refused && befalls.iter().all(doubled) {
        let again = counters.map(|counters| counters.retransmitted);
        assert_eq!(again, [0, 0], "a copy was answered by more: {}", what());
    }
    left.get()
}

/// Packets of these numbers from `from` on, each with each fault.
fn each(left: [usize; 2], from: (usize, usize)) -> impl Iterator<Item = Befalls> {
    let packets = (0..2).flat_map(move |side| (0..left[side]).map(move |number| (side, number)));
    packets
        .filter(move |packet| *packet >= from)
        .flat_map(|(side, number)| FAULTS.map(|fault| (side, number, fault)))
}

/// Every conversation of every operation, and how many packets leave each side of it.
fn all() -> impl Iterator<Item = (Scenario, [usize; 2])> {
    let operations = (ASKING.iter()).flat_map(|op| LENGTHS.map(|length| (*op, length)));
    operations.flat_map(|(op, length)| {
        (conversations(op, length).into_iter()).map(|scenario| {
            let left = survives(&scenario, &[]);
            assert!(left[0] >= 1 && left[1] >= 1);
            (scenario, left)
        })
    })
}

#[test]
fn one_packet() {
    let mut runs = 0;
    for (scenario, left) in all() {
        for befalls in each(left, (0, 0)) {
            survives(&scenario, &[befalls]);
            runs += 1;
        }
    }
    assert!(runs > 14_000, "{runs} runs");
}

/// Of all pairs those that chance picks; all of them with `FERROCE_MODEL_RUNS`.
#[test]
fn two_packets() {
    let share = if is_set("FERROCE_MODEL_RUNS") { 100 } else { 8 };
    let mut dice = Dice::of(&[variable("FERROCE_FRESH").unwrap_or(1)]);
    let mut runs = 0;
    for (scenario, left) in all() {
        for first in each(left, (0, 0)) {
            if !dice.percent(share) {
                continue;
            }
            let left = survives(&scenario, &[first]);
            for second in each(left, (first.0, first.1 + 1)) {
                survives(&scenario, &[first, second]);
                runs += 1;
            }
        }
    }
    assert!(runs > 20_000, "{runs} runs");
}
