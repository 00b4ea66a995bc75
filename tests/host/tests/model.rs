// SPDX-License-Identifier: GPL-2.0

//! Tens of thousands of random conversations in the model network: whatever happens, every message
//! arrives once, in order and byte for byte, or ends in the error that it should; every work
//! request completes once; nobody tries for ever or waits for nothing.
//!
//! How to run more of them, and one of them again: `ferroce_host_tests::model::runner`.

use ferroce_core::completion::Status;
use ferroce_core::operation::Operation;
use ferroce_core::rc::ack_timeout_ns;
use ferroce_core::wire::headers::rnr_delay_ns;
use ferroce_host_tests::model::network::US;
use ferroce_host_tests::model::plan::Kinds;
use ferroce_host_tests::model::runner::explore;
use ferroce_host_tests::model::scenario::{Blackout, Event, Link, Scenario, What, Work};
use ferroce_host_tests::model::strategy::{op, scenario, Trouble};
use ferroce_host_tests::model::world::World;
use ferroce_host_tests::model::{check, check_lives, conclude};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const NO_TROUBLE: Trouble = Trouble {
    network: false,
    requests: false,
    states: false,
    spans: false,
};

fn converse(name: &str, percent: u64, trouble: Trouble) {
    explore(name, percent, scenario(trouble), |scenario| {
        check(scenario).map(|_| ())
    });
}

#[test]
fn quiet() {
    converse("quiet", 8, NO_TROUBLE);
}

#[test]
fn local() {
    let trouble = Trouble {
        spans: true,
        ..NO_TROUBLE
    };
    converse("local", 8, trouble);
}

#[test]
fn network() {
    let trouble = Trouble {
        network: true,
        ..NO_TROUBLE
    };
    converse("network", 24, trouble);
}

#[test]
fn requests() {
    let trouble = Trouble {
        requests: true,
        spans: true,
        ..NO_TROUBLE
    };
    converse("requests", 12, trouble);
}

#[test]
fn states() {
    let trouble = Trouble {
        states: true,
        spans: true,
        ..NO_TROUBLE
    };
    converse("states", 12, trouble);
}

#[test]
fn everything() {
    converse("everything", 26, Trouble::ALL);
}

/// QPs are reset and connected again, with other attributes and PSNs.
#[test]
fn lives() {
    let lives = vec(scenario(Trouble::ALL), 1..4).prop_map(|mut lives| {
        let logs = [0, 1].map(|side: usize| lives[0].sides[side].send_log);
        for life in &mut lives {
            for (side, log) in life.sides.iter_mut().zip(logs) {
                side.send_log = log;
            }
        }
        lives
    });
    explore("lives", 3, lives, |lives| check_lives(lives));
}

/// Messages of more packets than the window has, and more than one READ request asks for.
#[test]
fn long() {
    let work = (op(), 200u16..1300, -1i16..2).prop_map(|(op, n, rest)| Work::new(op, n, rest));
    let strategy = (scenario(NO_TROUBLE), vec(work, 1..4), 0u8..3, 0u8..3);
    explore("long", 1, strategy, |(scenario, work, loss, duplicate)| {
        let mut scenario = scenario.clone();
        scenario.mtu = 256;
        scenario.sides[0].work.clone_from(work);
        scenario.sides[1].work.clear();
        for side in &mut scenario.sides {
            side.receives.clear();
        }
        for link in &mut scenario.links {
            // Slow enough that the timeout is longer than a window on the wire.
            (link.loss, link.duplicate, link.jitter) = (*loss, *duplicate, 0);
        }
        scenario.sides[0].timeout = 12;
        scenario.sides[0].retry_cnt = 7;
        check(&scenario).map(|_| ())
    });
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}: {got:?}, not {want:?}"))
    }
}

/// A peer from which nothing comes: the request is sent once and `retry_cnt` times more, each time
/// after one timeout, and then ends. 7 is seven.
#[test]
fn silence() {
    let strategy = (0u8..=7, 1u8..25, op(), 0u16..5, 0i16..256, 0usize..3);
    explore(
        "silence",
        1,
        strategy,
        |&(retry_cnt, timeout, op, packets, bytes, deaf)| {
            let mut scenario = Scenario::calm(256);
            let side = &mut scenario.sides[0];
            (side.retry_cnt, side.timeout) = (retry_cnt, timeout);
            side.work.push(Work::new(op, packets, bytes));
            side.work.push(Work::new(Operation::Write, 1, 0));
            match deaf {
                // The requests are lost, or what is answered, or there is nobody.
                0 | 1 => scenario.links[deaf].loss = 100,
                _ => scenario.events.push(Event {
                    at: 0,
                    side: 1,
                    what: What::Destroy,
                }),
            }
            let timeout = ack_timeout_ns(timeout).unwrap();
            if timeout < 20 * US {
                // Shorter than the way there and back.
                scenario.links[1].loss = 100;
            }
            let mut world = World::new(&scenario);
            let outcome = conclude(&mut world)?;
            expect("ending", outcome.endings[0], Some((0, Status::RetryExcErr)))?;
            let tries = u64::from(retry_cnt) + 1;
            let counters = world.endpoints[0].requester.counters();
            expect("timeouts", u64::from(counters.timeouts), tries)?;
            let packets = if op.is_answered() {
                1
            } else {
                (u64::from(packets) * 256 + bytes as u64)
                    .div_ceil(256)
                    .max(1)
            };
            let sent = counters.packets - counters.tail_probes;
            expect("packets", u64::from(sent), tries * (packets + 1))?;
            let ended_at = outcome.ended_at;
            if deaf == 0 {
                expect("time", ended_at, tries * timeout)?;
            }
            Ok(())
        },
    );
}

/// A peer that has no receive: it refuses `1 + rnr_retry` times, and the waits in between are as
/// long as it says, or an eighth of what they took so far. 7 is for ever.
#[test]
fn not_ready() {
    let strategy = (0u8..=7, 0u8..32, 0u8..=7, 0u16..4);
    explore(
        "not_ready",
        1,
        strategy,
        |&(rnr_retry, timer, retry_cnt, packets)| {
            let mut scenario = Scenario::calm(256);
            let side = &mut scenario.sides[0];
            (side.rnr_retry, side.retry_cnt) = (rnr_retry, retry_cnt);
            side.work.push(Work::new(Operation::Write, 1, 0));
            side.work.push(Work::new(Operation::SendImm, packets, 3));
            side.work.push(Work::new(Operation::Read, packets, 3));
            scenario.sides[1].rnr_timer = timer;
            scenario.sides[1].starve = Some(0);
            let mut world = World::new(&scenario);
            let outcome = conclude(&mut world)?;
            let naks = u64::from(world.endpoints[0].requester.counters().rnr_naks);
            let waits = if rnr_retry == 7 {
                // Until the peer had patience enough, which nobody knows but the model.
                expect("ending", outcome.endings[0], None)?;
                expect("rescued", world.rescued[1], true)?;
                naks
            } else {
                let ending = Some((1, Status::RnrRetryExcErr));
                expect("ending", outcome.endings[0], ending)?;
                expect("RNR NAKs", naks, u64::from(rnr_retry) + 1)?;
                naks - 1
            };
            let (asked_for, on_the_way) = (rnr_delay_ns(timer), 20 * US);
            let at_most = (0..waits).fold(3 * on_the_way, |past, _| {
                past + asked_for.max(past / 8) + on_the_way
            });
            if !(waits * asked_for..at_most).contains(&outcome.ended_at) {
                return Err(format!("{} ns for {waits} waits", outcome.ended_at));
            }
            expect(
                "timeouts",
                world.endpoints[0].requester.counters().timeouts,
                0,
            )
        },
    );
}

/// A network that is dark for less than the retries last costs time and nothing else.
#[test]
fn blackout() {
    let strategy = (
        scenario(NO_TROUBLE),
        2u8..=7,
        0u32..400,
        1u64..1000,
        0usize..3,
    );
    explore(
        "blackout",
        3,
        strategy,
        |(scenario, retry_cnt, from, share, side)| {
            let mut scenario = scenario.clone();
            let mut shortest = u64::MAX;
            for side in &mut scenario.sides {
                side.retry_cnt = *retry_cnt;
                side.timeout = side.timeout.max(9);
                side.receives.clear();
                side.rnr_retry = 7;
                shortest = shortest.min(ack_timeout_ns(side.timeout).unwrap());
            }
            // One retry is left for what was lost at the end of it.
            let longest = (u64::from(*retry_cnt) - 1) * shortest;
            scenario.blackouts = vec![Blackout {
                from: *from,
                length: (longest * share / 1000 / US) as u32,
                side: (*side < 2).then_some(*side),
            }];
            let outcome = check(&scenario)?;
            expect("endings", outcome.endings, [None, None])
        },
    );
}

/// The strategies reach what the properties are about: no run of theirs would mean nothing.
#[test]
fn every_ending_and_every_fault_occurs() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = scenario(Trouble::ALL);
    let mut endings = std::collections::BTreeMap::new();
    let mut total = ferroce_host_tests::model::network::Tally::default();
    let mut wraps = 0;
    for _ in 0..4000 {
        let scenario = strategy.new_tree(&mut runner).unwrap().current();
        let mut world = World::new(&scenario);
        let outcome = conclude(&mut world).unwrap();
        for ending in outcome.endings {
            let status = ending.map_or(Status::Success, |(_, status)| status);
            *endings.entry(status.as_u32()).or_insert(0) += 1;
        }
        for (side, endpoint) in scenario.sides.iter().zip(&world.endpoints) {
            let wrapped = endpoint.requester.next_psn().get() < side.first_psn;
            wraps += u32::from(wrapped && endpoint.pushed != 0);
        }
        total.sent += outcome.tally.sent;
        total.lost += outcome.tally.lost;
        total.doubled += outcome.tally.doubled;
        total.overtaken += outcome.tally.overtaken;
        total.harmed += outcome.tally.harmed;
        total.remarked += outcome.tally.remarked;
    }
    println!("endings by status: {endings:?}\n{total:?}\nPSN wraps: {wraps}");
    for status in [
        Status::Success,
        Status::LocProtErr,
        Status::LocQpOpErr,
        Status::MwBindErr,
        Status::WrFlushErr,
        Status::RemInvReqErr,
        Status::RemAccessErr,
        Status::RemOpErr,
        Status::RetryExcErr,
        Status::RnrRetryExcErr,
    ] {
        let times = endings.get(&status.as_u32()).copied().unwrap_or(0);
        assert!(times >= 20, "{status:?} only {times} times");
    }
    assert!(total.lost > 1000 && total.doubled > 1000 && total.overtaken > 1000);
    assert!(total.harmed > 1000 && total.remarked > 10 && wraps > 100);
}

/// A link that changes packets without losing, doubling or reordering them.
#[test]
fn changed_packets_never_arrive() {
    let strategy = (scenario(NO_TROUBLE), 1u8..40);
    explore("changed", 3, strategy, |(scenario, corrupt)| {
        let mut scenario = scenario.clone();
        scenario.links = [0, 1].map(|_| Link {
            corrupt: *corrupt,
            ..Link::good()
        });
        check(&scenario).map(|_| ())
    });
}
